"""CLUSTER=existing: the demo on a cluster of somebody else's, which is our own one seen through a foreign
kubeconfig."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.bed import ROOT, SYSTEM_NAMESPACE, Bed
from testbed.kube import Kubectl, wait_until

REPORT = ROOT / "build" / "demo" / "report.json"


@pytest.fixture
def foreign(bed: Bed, tmp_path: Path) -> dict[str, str]:
    """The environment of somebody with a kubeconfig and kubectl, and nothing that points to the local cluster."""
    kubeconfig = tmp_path / "kubeconfig"
    shutil.copy(bed.kubectl.kubeconfig, kubeconfig)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(Path(bed.kubectl.program).resolve())
    return {
        **os.environ,
        "CLUSTER": "existing",
        "KUBECONFIG": str(kubeconfig),
        "IMAGE_PREFIX": "localhost/",
        "IMAGE_TAG": "dev",
        "DEMO_STEPS": "100",
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT / 'tools'}",
    }


def demo(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-u", "-m", "demo"], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )


def tainted(kubectl: Kubectl) -> list[str]:
    return [n["metadata"]["name"] for n in kubectl.json("get", "nodes")["items"] if n["spec"].get("taints")]


def everything(kubectl: Kubectl) -> set[str]:
    """Names of what a guest could touch: namespaces, nodes with their labels and cordons, roles, definitions."""
    nodes = kubectl.json("get", "nodes")["items"]
    marks = {f"{n['metadata']['name']} {sorted(n['metadata']['labels'].items())} {n['spec']}" for n in nodes}
    names = kubectl("get", "namespaces,clusterroles,clusterrolebindings,customresourcedefinitions", "-o", "name")
    return marks | set(names.split())


def test_the_demo_runs_on_an_existing_cluster_and_leaves_only_what_was_there(bed: Bed, foreign: dict[str, str]) -> None:
    wait_until("the taints of nodes that were cut off before to go", lambda: not tainted(bed.kubectl))
    before = everything(bed.kubectl)
    done = demo(foreign)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(REPORT.read_text())
    assert [fault["kind"] for fault in report["faults"]] == ["RankKilled", "PodDeleted"]
    assert report["final_weights_sha256"] == report["reference_weights_sha256"]
    assert everything(bed.kubectl) == before
    assert bed.kubectl.find("get", "deployment", "-n", SYSTEM_NAMESPACE, "muster") is not None


def test_a_namespace_that_the_demo_did_not_make_is_not_touched(bed: Bed, foreign: dict[str, str]) -> None:
    bed.kubectl("create", "namespace", "muster-demo")
    try:
        done = demo(foreign)
        assert done.returncode != 0
        assert "muster-demo exists" in done.stdout + done.stderr
        assert bed.kubectl.find("get", "namespace", "muster-demo") is not None
    finally:
        bed.kubectl("delete", "namespace", "muster-demo", "--wait=true")


def test_without_images_it_says_what_to_set(foreign: dict[str, str]) -> None:
    done = demo({**foreign, "IMAGE_PREFIX": ""})
    assert done.returncode != 0
    assert "IMAGE_PREFIX" in done.stdout + done.stderr

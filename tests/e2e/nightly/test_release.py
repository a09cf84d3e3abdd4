"""A release as a stranger has it: installed, trained with through two faults, and removed, from its folder alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster import __version__
from release.checks import git
from testbed.bed import ROOT, Bed
from testbed.harm import Victim, delete_pod, kill_rank
from testbed.kube import wait_until

EXAMPLE = ROOT / "examples" / "torch-ddp" / "trainingjob.yaml"
NAMESPACE, NAME = "muster-demo", "torch-ddp"
WORKLOADS = (
    ("deployment/muster", "muster-system"),
    ("daemonset/muster-agent", "muster-agent"),
    ("daemonset/muster-check", "muster-check"),
)
LIMIT = [{"op": "add", "path": "/spec/queueing/limits/-", "value": {"namespace": NAMESPACE, "nodes": 3}}]
KINDS = "customresourcedefinitions,clusterroles,clusterrolebindings,validatingadmissionpolicies,namespaces"

pytestmark = pytest.mark.timeout(1800)  # it makes the release twice


@dataclass(frozen=True)
class Stranger:
    """Someone with kubectl, the folder of a release, and nothing else."""

    folder: Path
    programs: Path
    bed: Bed

    def run(self, *command: str, check: bool = True) -> str:
        """Run a command in the folder of the release."""
        environment = {
            "PATH": f"{self.programs}:{self.bed.cluster.kubectl.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.programs.parent),
            "KUBECONFIG": str(self.bed.kubectl.kubeconfig),
        }
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0 or not check, f"{' '.join(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def kubectl(self, *arguments: str) -> str:
        return self.run("kubectl", *arguments)

    def status(self) -> dict[str, Any]:
        """The job, as `kubectl muster status` has it."""
        found: dict[str, Any] = json.loads(self.kubectl("muster", "status", f"{NAMESPACE}/{NAME}", "-o", "json"))
        return found

    def trains_beyond(self, step: int, restarts: int) -> dict[str, Any] | None:
        """The status of the job once it has made steps after so many restarts."""
        it = self.status()
        return it if it["restarts"] >= restarts and it.get("step", 0) > step else None


def make_release(tree: Path) -> Path:
    subprocess.run(["make", "--no-print-directory", "release", f"VERSION={__version__}"], cwd=tree, check=True)
    return tree / "build" / "release"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """This commit and nothing else; a release of it takes gigabytes, and is not kept."""
    if not (ROOT / ".git").exists():
        pytest.skip("a release is made from a commit, and this tree has no history")
    clone = tmp_path_factory.mktemp("clone") / "muster"
    commit = git(ROOT, "rev-parse", "HEAD")
    subprocess.run(["git", "clone", "--quiet", "--no-tags", "--no-checkout", str(ROOT), str(clone)], check=True)
    git(clone, "checkout", "--quiet", commit)
    yield clone
    shutil.rmtree(clone)


@pytest.fixture(scope="module")
def folder(tree: Path) -> Path:
    return make_release(tree)


@pytest.fixture(scope="module")
def stranger(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stranger]:
    """It ends with a cluster that has nothing of Muster, whatever has failed."""
    programs = tmp_path_factory.mktemp("stranger") / "bin"
    programs.mkdir()
    it = Stranger(folder, programs, Bed.open())
    yield it
    it.bed.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", check=False)
    for name in ("install-jobs.yaml", "definitions.yaml"):
        it.bed.kubectl("delete", "-f", str(folder / name), "--ignore-not-found", check=False)


def test_the_same_commit_gives_the_same_files(tree: Path, folder: Path) -> None:
    before = (folder / "SHA256SUMS").read_text()
    assert (make_release(tree) / "SHA256SUMS").read_text() == before


def test_a_stranger_installs_trains_recovers_and_removes(stranger: Stranger) -> None:
    stranger.run("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
    stranger.run("tar", "-xzf", "kubectl-muster-linux-amd64.tar.gz", "-C", str(stranger.programs), "kubectl-muster")
    stranger.bed.cluster.load(sorted((stranger.folder / "images").glob("*.tar")))
    before = set(stranger.kubectl("get", KINDS, "-o", "name").split())

    stranger.kubectl("apply", "-f", "definitions.yaml")
    stranger.kubectl("wait", "--for=condition=Established", "crd/fleetpolicies.muster.dev")
    stranger.kubectl("create", "-f", "fleetpolicy.yaml")
    stranger.kubectl("apply", "-f", "install-jobs.yaml")
    for workload, namespace in WORKLOADS:
        stranger.kubectl("rollout", "status", workload, "-n", namespace, f"--timeout={PATIENCE_SECONDS}s")
    rows = json.loads(stranger.run("kubectl", "muster", "doctor", "-o", "json", check=False))["rows"]
    definitions = f"those of jobs are there, with the fields of version {__version__}"
    assert [row["finding"] for row in rows if row["check"] == "definitions"] == [definitions]
    assert {row["check"] for row in rows if row["state"] == "Wrong"} <= {"images", "namespaces"}, rows

    stranger.kubectl("patch", "fleetpolicy", "default", "--type=json", "-p", json.dumps(LIMIT))
    example = re.sub(r"image: .*torch-ddp.*", f"image: {stranger.bed.images['torch-ddp']}", EXAMPLE.read_text())
    job = stranger.programs.parent / "trainingjob.yaml"
    job.write_text(example.replace("--steps=240", "--steps=400"))
    apply = ("kubectl", "apply", "-f", str(job))  # the API server refuses the job until it knows label and limit
    wait_until("the job", lambda: f"trainingjob.muster.dev/{NAME}" in stranger.run(*apply, check=False))
    trains = wait_until("a step", lambda: stranger.trains_beyond(0, restarts=0))
    victim = Victim(stranger.bed, NAMESPACE, NAME)
    for number, fault in enumerate((kill_rank, delete_pod), start=1):
        fault(victim)
        trains = wait_until(
            f"training after fault {number}",
            lambda number=number, trains=trains: stranger.trains_beyond(trains["step"], restarts=number),
        )
    assert wait_until("the end", lambda: stranger.status()["state"] == "Succeeded", timeout_seconds=600)
    assert "Succeeded" in stranger.kubectl("muster", "report", f"{NAMESPACE}/{NAME}")

    stranger.kubectl("delete", "trainingjobs", "--all", "--all-namespaces", "--cascade=foreground")
    stranger.kubectl("delete", "-f", "install-jobs.yaml", "--ignore-not-found")
    stranger.kubectl("delete", "-f", "definitions.yaml", "--ignore-not-found")
    stranger.kubectl("delete", "namespace", NAMESPACE)
    assert set(stranger.kubectl("get", KINDS, "-o", "name").split()) == before


def test_the_wheel_is_the_library(folder: Path, tmp_path: Path) -> None:
    (wheel,) = folder.glob("*.whl")
    assert wheel.name.startswith(f"muster_operator-{__version__.replace('-', '')}-")
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    program = "import muster.client, muster; print(muster.__version__, muster.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [__version__, f"{wheel}/muster/__init__.py"]

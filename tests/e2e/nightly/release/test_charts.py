"""A release by its charts: installed, upgraded and rolled back while a gang trains, and removed with its marks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.nightly.release.stranger import LIMIT, NAMESPACE, Stranger
from tests.e2e.sick_nodes import tainted

from muster.answers.markednodes import REMOVING_COMMANDS
from testbed.bed import Bed
from testbed.faults import CHECKER_NAMESPACE
from testbed.harm import delete_pod, kill_rank
from testbed.kube import wait_until

SYSTEM = "--namespace=muster-system"
PROFILE = "--set=profile=jobs"
MARKS = {"spec": {"health": {"enforcement": "Nodes", "nodeCondition": True}}}
NO_IMAGE = "--set=images.uninstall.repository=none,images.uninstall.tag=none"

pytestmark = pytest.mark.timeout(1800)  # the first test that asks for a release makes it


def test_a_stranger_trains_and_removes_by_the_charts(stranger: Stranger, next_folder: Path) -> None:
    stranger.take()
    later = stranger.at(next_folder)
    later.take()
    before = stranger.installed()
    install(stranger)
    gang = stranger.submit("by-chart")
    gang.survives(kill_rank)
    with gang.keeps_on():
        helm(later, "upgrade", "muster-definitions")
        helm(later, "upgrade", "muster", "--reset-then-reuse-values")
        later.rolled_out(CHECKER_NAMESPACE)
    gang.survives(delete_pod)
    with gang.keeps_on():
        stranger.run("helm", "rollback", "muster", SYSTEM)
        stranger.rolled_out(CHECKER_NAMESPACE)
    gang.survives(kill_rank)

    bed, nodes = stranger.bed, set(stranger.bed.cluster.node_names)
    (spare,) = nodes - set(gang.status()["nodes"])
    bed.faults.prepare(None)
    bed.faults.condition(spare, "GpuMemWatch", "True")  # as NVSentinel reports a fault of a GPU's memory
    try:
        wait_until("Muster's marks", lambda: marks(bed) == ({spare}, nodes))
        pods, definitions = gang.pods(), stranger.kubectl("get", "crds", "-o", "name")
        stranger.run("helm", "uninstall", "muster", SYSTEM, "--wait")
        assert marks(bed) == (set(), set())
        assert (gang.pods(), stranger.kubectl("get", "crds", "-o", "name")) == (pods, definitions)

        helm(stranger, "install", "muster", PROFILE, NO_IMAGE)
        wait_until("Muster's marks again", lambda: marks(bed) == ({spare}, nodes))
        with pytest.raises(AssertionError, match="Job Failed"):
            stranger.run("helm", "uninstall", "muster", SYSTEM, "--wait")
        assert stranger.run("helm", "list", SYSTEM, "--short").split() == ["muster-definitions"]
        assert marks(bed) == ({spare}, nodes)
        for command in REMOVING_COMMANDS:
            stranger.run("sh", "-c", command, check=False)
        assert marks(bed) == (set(), set())
    finally:
        bed.faults.clear(spare)

    stranger.remove_jobs()
    stranger.run("helm", "uninstall", "muster-definitions", SYSTEM)
    assert stranger.kubectl("get", "crds", "-o", "name") == definitions
    stranger.kubectl("delete", "-f", "definitions.yaml")
    stranger.kubectl("delete", "namespace", NAMESPACE)
    assert stranger.installed() == before


def install(stranger: Stranger) -> None:
    """Install both charts, as docs/helm.md says, with a FleetPolicy by which Muster marks nodes."""
    helm(stranger, "install", "muster-definitions", PROFILE, "--create-namespace", "--take-ownership")
    stranger.kubectl("wait", "--for=condition=Established", "crd/fleetpolicies.muster.dev")
    helm(stranger, "install", "muster", PROFILE)
    stranger.kubectl("create", "-f", "fleetpolicy.yaml")
    stranger.rolled_out(CHECKER_NAMESPACE)
    stranger.kubectl("patch", "fleetpolicy", "default", "--type=json", "-p", json.dumps(LIMIT))
    stranger.kubectl("patch", "fleetpolicy", "default", "--type=merge", "-p", json.dumps(MARKS))


def helm(stranger: Stranger, verb: str, chart: str, *options: str) -> None:
    """Have Helm install or upgrade a chart of the release's folder."""
    (archive,) = stranger.folder.glob(f"{chart}-[0-9]*.tgz")
    stranger.run("helm", verb, chart, archive.name, SYSTEM, *options)


def marks(bed: Bed) -> tuple[set[str], set[str]]:
    """The nodes that have Muster's taint, and those that have its condition."""
    listed = bed.items("/api/v1/nodes")
    return tainted(bed), {
        node["metadata"]["name"]
        for node in listed
        if any(it["type"] == "MusterHealthy" for it in node["status"]["conditions"])
    }

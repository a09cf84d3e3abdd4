"""Sick nodes, on real nodes: seen by their agents, tainted, left, and used again when they are well.

Each case starts with an empty window and memory. What an agent looks at is of files (testbed/faults.py); how soon it
sees a fault is as in production, how soon a repaired node is trusted again is not.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.sick_nodes import healths, is_well_again, moves, seen, tainted

from monitoring.scrape import scrape
from muster.controller.settings import Settings
from testbed.bed import ROOT, SYSTEM_NAMESPACE, Bed
from testbed.faults import Faults
from testbed.figures import forwarded
from testbed.jobs import Job
from testbed.kube import wait_until

LONG = ["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"]
SHORT = ["--steps=30", "--step-seconds=0.05", "--checkpoint-every=10"]
HYPERPOD = "sagemaker.amazonaws.com/node-health-status"
SILENCE_SECONDS = 40
REPAIRS = "muster-repair"
# Begun is whoever has /tmp/begun; the test boots the machine, and says so.
HOOK = """#!/bin/sh
touch /tmp/begun
while ! test -e /tmp/booted; do sleep 0.2; done
echo "$ACTION of $NODE"
"""

Submit = Callable[..., Job]

pytestmark = pytest.mark.usefixtures("well_nodes")


@dataclass(frozen=True)
class Case:
    """A fault that ends without a reboot, and what is said of the node meanwhile."""

    name: str
    sicken: Callable[[Faults, str], None]
    state: str
    reason: str


CASES = (
    Case("field 230 = 2", lambda f, node: f.recovery_action(node, 2), "Unhealthy", "RecoveryActionReboot"),
    Case("NVML hang", lambda f, node: f.hang(node, 7), "Degraded", "NvmlHang"),
    Case("7 of 8 GPUs", lambda f, node: f.lose_gpu(node), "Unhealthy", "GpuCount"),
    Case("InfiniBand port down", lambda f, node: f.port_down(node), "Unhealthy", "IbPortDown"),
    Case(
        "foreign condition",
        lambda f, node: f.condition(node, "AcceleratedHardwareReady", "False", "NvidiaDeviceCountMismatch"),
        "Unhealthy",
        "NvidiaDeviceCountMismatch",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_a_sick_node_is_left_and_comes_back_when_it_is_well(bed: Bed, training: Job, case: Case) -> None:
    sick, again = moves(bed, training, case.name, lambda node: case.sicken(bed.faults, node))
    told = healths(bed)[sick]
    assert (told["state"], told["reason"]) == (case.state, case.reason)
    bed.faults.clear(sick)
    cleared = time.monotonic()
    wait_until(f"{sick} to be well again", lambda: is_well_again(bed, sick))
    print(f"{case.name}: back {time.monotonic() - cleared:.1f} s after the repair")
    fleet = json.loads(bed.muster("nodes", "-o", "json").stdout)
    assert {node["name"] for node in fleet["nodes"] if node["state"] == "Free"} == (
        set(bed.cluster.node_names) - set(again.nodes)
    )
    assert training.current().attempt == again.attempt, "nobody leaves because a node is well again"


def test_errors_that_a_program_can_cause_evict_nobody(bed: Bed, training: Job) -> None:
    before = training.current()
    node = before.nodes[-1]
    for code in (13, 31, 43, 45):
        bed.faults.xid(node, code)
    known = {"Xid13", "Xid31", "Xid43", "Xid45"}
    wait_until("them to be written down", lambda: seen(healths(bed)[node], "findings") == known)
    training.wait_step(training.step() + 30)
    assert training.current().attempt == before.attempt
    assert tainted(bed) == set()
    assert (healths(bed)[node]["state"], healths(bed)[node]["incidents"]) == ("Healthy", [])


def test_what_a_human_decides_about_a_node_is_done_and_shown(bed: Bed, training: Job) -> None:
    def cordon(node: str) -> None:
        done = bed.muster("cordon", node, "--reason", "liquid under rack 7")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"{training.name} is evacuated after the next checkpoint" in done.stdout

    node, again = moves(bed, training, "cordon", cordon)
    shown = bed.muster("nodes", "--unhealthy").stdout
    (row,) = [line for line in shown.splitlines() if line.startswith(node)]
    assert "Excluded" in row
    assert "Quarantined" in row
    assert "Cordoned" in row
    assert "liquid under rack 7" in healths(bed)[node]["message"]

    done = bed.muster("release", node, "--reason", "dry")
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(f"{node} to be well again", lambda: is_well_again(bed, node))
    assert node not in bed.muster("nodes", "--unhealthy").stdout
    assert training.current().attempt == again.attempt


@contextmanager
def policy_with(bed: Bed, health: Mapping[str, Any]) -> Iterator[None]:
    """The FleetPolicy with these fields of spec.health, until this is left."""

    def patch(fields: Mapping[str, Any]) -> None:
        body = json.dumps({"spec": {"health": fields}})
        bed.kubectl("patch", "fleetpolicy", "default", "--type=merge", "-p", body)

    patch(health)
    try:
        yield
    finally:
        patch(dict.fromkeys(health))


def others_than(bed: Bed, *nodes: str) -> list[str]:
    return [name for name in bed.cluster.node_names if name not in nodes]


def crashes(job: Job) -> list[dict[str, Any]]:
    """The job's failures as it tells them, without what was planned."""
    told = job.status().get("incidents", [])
    return [incident for incident in told if incident["reason"] == "RankFailed"]


def test_a_held_xid_79_costs_no_application_restart_and_moves_the_job(bed: Bed, submit: Submit, training: Job) -> None:
    """The job moves as soon as it may."""
    before = training.current()
    stays, sick = before.nodes
    taken, free = others_than(bed, *before.nodes)
    with policy_with(bed, {"budgets": [{"nodes": "1", "windowSeconds": 10}]}):
        bed.faults.port_down(taken)
        wait_until(f"the taint on {taken}", lambda: tainted(bed) == {taken})
        lone = submit("keeps", nodes=1, trainer=LONG)
        lone.wait_step(1)
        assert lone.current().nodes == (free,)
        bed.faults.xid(sick, 79)
        wait_until("it to be held", lambda: "running jobs stay" in healths(bed)[sick].get("effect", ""))
        assert tainted(bed) == {taken}

        charged = len(crashes(training))
        training.signal_rank(1)
        held = training.wait_training_again(before.attempt)
        assert held.nodes == before.nodes, "no other node is free"
        told = wait_until("the crash to be told", lambda: crashes(training)[charged:])
        assert [incident["faultClass"] for incident in told] == ["Hardware"]
        assert told[0]["node"] == sick

        bed.faults.clear(taken)
        repaired = time.monotonic()
        moved = training.wait_training_again(held.attempt)
        print(
            f"held XID 79: training elsewhere {time.monotonic() - repaired:.1f} s after a node was free and the "
            "budget let it"
        )
        assert set(moved.nodes) == {stays, taken}
        assert tainted(bed) == {sick}
        assert len(crashes(training)) == charged + 1
        assert lone.current().attempt == 1


def test_hyperpods_checks_are_no_offence_and_three_do_not_quarantine(bed: Bed, training: Job) -> None:
    before = training.current()
    node = before.nodes[-1]
    bed.kubectl("label", "node", node, f"{HYPERPOD}=Unschedulable")
    try:
        again = training.wait_training_again(before.attempt)
        assert node not in again.nodes
        assert training.status()["incidents"][-1]["faultClass"] == "Planned"
        for passed in range(1, 4):
            bed.kubectl("label", "node", node, f"{HYPERPOD}=Unschedulable", "--overwrite")
            wait_until("it to be left to HyperPod", lambda: healths(bed)[node]["state"] == "Degraded")
            assert tainted(bed) == set()
            bed.kubectl("label", "node", node, f"{HYPERPOD}=Schedulable", "--overwrite")
            wait_until(f"{node} to be well after {passed} checks", lambda: is_well_again(bed, node))
    finally:
        bed.kubectl("label", "node", node, f"{HYPERPOD}-")
    told = healths(bed)[node]
    assert len(told["incidents"]) == 3
    assert all("takenOutTime" not in incident for incident in told["incidents"])
    assert told["offences"]["score"] == "0"
    fleet = json.loads(bed.muster("nodes", "-o", "json").stdout)
    (state,) = [each["state"] for each in fleet["nodes"] if each["name"] == node]
    assert state == "Free"


@contextmanager
def impatient(bed: Bed) -> Iterator[None]:
    """Operators that wait for a silent agent for less than ten minutes."""

    def set_to(value: str) -> None:
        bed.kubectl("set", "env", "deployment/muster", "-n", SYSTEM_NAMESPACE, f"MUSTER_AGENT_SILENCE_SECONDS{value}")
        bed.rolled_out("deployment/muster", SYSTEM_NAMESPACE)
        wait_until("a leader", bed.leader)

    set_to(f"={SILENCE_SECONDS}")
    try:
        yield
    finally:
        set_to("-")


def silent_agents(bed: Bed) -> float:
    """As the leader's metrics tell."""
    leader = bed.leader()
    assert leader is not None
    with forwarded(bed, SYSTEM_NAMESPACE, leader["metadata"]["name"], Settings().metrics_port) as port:
        status, text = scrape(port, bed.cluster.api.token)
    assert status == 200, text
    families = text_string_to_metric_families(text)
    (family,) = [each for each in families if each.name == "muster_node_agents"]
    return next(sample.value for sample in family.samples if sample.labels["state"] == "Silent")


def test_a_dead_agent_takes_its_node_from_new_jobs_and_a_storage_blip_takes_none(
    bed: Bed, submit: Submit, training: Job
) -> None:
    before = training.current()
    dead, last = others_than(bed, *before.nodes)
    with impatient(bed):
        for node in (*before.nodes, dead):
            bed.faults.storage_blip(node)
        for node in (*before.nodes, dead):
            wait_until("it to be told", lambda node=node: len(subjects(bed, node, "NetworkDiskError")) == 3)
            assert healths(bed)[node]["state"] == "Suspect"

        bed.faults.kill_agent(dead)
        wait_until("it to be told", lambda: subjects(bed, dead, "AgentSilent"))
        assert healths(bed)[dead]["state"] == "Suspect"
        stays = submit("stays", nodes=2, trainer=LONG)
        stays.wait_step(1)
        assert set(stays.current().nodes) == {dead, last}, "a node of which little is known is used when it is needed"
        wait_until("it to be avoided", lambda: healths(bed)[dead]["state"] == "Degraded")
        assert healths(bed)[dead]["reason"] == "AgentSilent"
        assert silent_agents(bed) == 1
        stays.wait_step(stays.step() + 20)
        assert stays.current().attempt == 1
        assert tainted(bed) == set()
        stays.delete()
        wait_until("its pods to go", lambda: not stays.pods())

        waits = submit("awaits", nodes=2, trainer=SHORT)
        waiting = wait_until("it to wait", lambda: waits.status().get("waiting"))
        assert {"reason": "unhealthy (AgentSilent)", "nodes": 1} in waiting["blockers"]
        bed.faults.revive_agent(dead)
        revived = time.monotonic()
        assert waits.completion()["result"] == "Succeeded"
        print(f"dead agent: a job ran {time.monotonic() - revived:.1f} s after it was alive again")
        assert not subjects(bed, dead, "AgentSilent")
        assert silent_agents(bed) == 0
        for node in (*before.nodes, dead):
            assert all("takenOutTime" not in incident for incident in healths(bed)[node]["incidents"])
    assert training.current().attempt == before.attempt


def subjects(bed: Bed, node: str, reason: str) -> list[str]:
    """Of which parts of the node something is told."""
    findings = healths(bed)[node].get("findings", [])
    return [finding.get("subject", "") for finding in findings if finding["reason"] == reason]


@contextmanager
def repairers(bed: Bed, folder: Path) -> Iterator[None]:
    """The shipped example at work, with a hook of ours."""
    (folder / "hook.sh").write_text(HOOK)
    image, _, tag = bed.images["operator"].rpartition(":")
    room = {"name": "tmp", "emptyDir": {}}
    container = {"name": "repair", "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]}
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "repair"},
        "spec": {"template": {"spec": {"containers": [container], "volumes": [room]}}},
    }
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": REPAIRS,
        "resources": [os.path.relpath(ROOT / "examples" / "repair", folder)],
        "configMapGenerator": [{"name": "repair", "behavior": "merge", "files": ["hook.sh"]}],
        "images": [{"name": "docker.io/library/python", "newName": image, "newTag": tag}],
        "patches": [{"path": "patch.json"}],
    }
    (folder / "patch.json").write_text(json.dumps(patch))
    (folder / "kustomization.yaml").write_text(json.dumps(kustomization))
    bed.kubectl("apply", "-k", str(folder))
    try:
        bed.rolled_out("deployment/repair", REPAIRS)
        yield
    finally:
        bed.kubectl("delete", "-k", str(folder), "--ignore-not-found", "--wait=true")


def test_a_repair_is_handed_over_done_by_the_example_and_proved(bed: Bed, training: Job, tmp_path: Path) -> None:
    before = training.current()

    def request() -> dict[str, Any]:
        return bed.kubectl.find("get", "repairrequest", sick) or {}

    def told() -> set[str]:
        return {each["reason"] for each in healths(bed)[sick].get("findings", []) if each["source"] == "repair"}

    with policy_with(bed, {"repair": {"actions": ["Reboot"]}}), repairers(bed, tmp_path):
        (pod,) = bed.kubectl.json("get", "pods", "-n", REPAIRS)["items"]
        sick = others_than(bed, *before.nodes, pod["spec"]["nodeName"])[0]  # whoever repairs is not there
        bed.faults.xid(sick, 79)
        wait_until("it to be taken on", lambda: request().get("status", {}).get("phase") == "InProgress")
        asked = request()["spec"]
        assert (asked["action"], asked["reason"], asked["node"]) == ("Reboot", "Xid79", sick)
        assert asked["machine"]["systemUuid"]
        assert asked["machine"]["gpuSerials"]
        assert "Xid" in asked["evidence"][0]["message"]
        wait_until("it to be on record", lambda: told() == {"RepairInProgress"})

        bed.faults.power_cycle(sick)
        wait_until("the new boot to be seen well", lambda: not seen(healths(bed)[sick], "evidence"))
        assert tainted(bed) == {sick}, "nothing that is seen lets it back while somebody repairs it"
        bed.kubectl("exec", "-n", REPAIRS, "deploy/repair", "--", "touch", "/tmp/booted")
        ended = time.monotonic()
        wait_until("the end of it", lambda: told() == {"RepairNotVerified"})
        assert request()["status"] == {"phase": "Done", "message": f"examples/repair: Reboot of {sick}"}
        assert tainted(bed) == {sick}, "nobody is believed"
        wait_until(f"{sick} to be proved well", lambda: is_well_again(bed, sick))
        print(f"repair: back {time.monotonic() - ended:.1f} s after whoever repaired said so")
        wait_until("the request to go", lambda: not request())
    incident = healths(bed)[sick]["incidents"][-1]
    assert incident["clearedBy"] == "the repair has ended, and the evidence is gone"
    assert training.current().attempt == before.attempt

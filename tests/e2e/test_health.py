"""Sick nodes, on real nodes: seen by their agents, tainted, left, and used again when they are well.

Each case starts with an empty window and memory. What an agent looks at is of files (testbed/faults.py); how soon it sees
a fault is as in production, how soon a repaired node is trusted again is not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from testbed.bed import Bed
from testbed.faults import Faults
from testbed.gangwatch import Seen
from testbed.jobs import Job
from testbed.kube import wait_until

LONG = ["--steps=100000", "--step-seconds=0.1", "--checkpoint-every=10"]
SHORT = ["--steps=30", "--step-seconds=0.05", "--checkpoint-every=10"]
TAINT = "muster.dev/unhealthy"

Submit = Callable[..., Job]


@pytest.fixture(scope="module")
def policy(bed: Bed) -> Iterator[None]:
    """Sick nodes are tainted; the default budget allows one of four."""
    body = {
        "apiVersion": "muster.dev/v1alpha1",
        "kind": "FleetPolicy",
        "metadata": {"name": "default"},
        "spec": {"health": {"enforcement": "Nodes"}},
    }
    bed.kubectl("apply", "-f", "-", stdin=json.dumps(body))
    yield
    forget(bed)
    bed.kubectl("delete", "fleetpolicy", "default")


@pytest.fixture(scope="module")
def training(bed: Bed, submit_for_all: Submit, policy: None) -> Job:
    """The job of two nodes that all cases have to themselves, one after the other."""
    job = submit_for_all("health", nodes=2, trainer=LONG)
    job.wait_step(15)
    return job


@pytest.fixture(autouse=True)
def fresh(bed: Bed, policy: None) -> None:
    """Four nodes that are well, and nothing that is remembered against any of them."""
    forget(bed)


def forget(bed: Bed) -> None:
    bed.faults.mend()
    wait_until("agents that see nothing", lambda: not any(seen(h, "evidence") for h in healths(bed).values()), 60)
    bed.kubectl("delete", "nodehealths", "--all", "--wait=true")
    wait_until("four nodes that are well", lambda: [*map(is_new_and_well, healths(bed).values())] == [True] * 4, 60)
    wait_until("no taint", lambda: not tainted(bed), 60)


def healths(bed: Bed) -> dict[str, dict[str, Any]]:
    """The status of every node's record."""
    listed = bed.cluster.api.get("/apis/muster.dev/v1alpha1/nodehealths")["items"]
    return {item["metadata"]["name"]: item.get("status", {}) for item in listed}


def seen(health: dict[str, Any], field: str) -> set[str]:
    """What stands against the node: that a GPU has been reset is no more than a fact of this boot."""
    return {item.get("kind") or item["reason"] for item in health.get(field) or ()} - {"GpuReset"}


def is_new_and_well(health: dict[str, Any]) -> bool:
    agent = health.get("agent", {})
    return (health.get("state"), health.get("incidents"), agent.get("gpus")) == ("Healthy", [], 8)


def tainted(bed: Bed) -> set[str]:
    """The nodes that bear Muster's taint."""
    return {
        node["metadata"]["name"]
        for node in bed.cluster.api.get("/api/v1/nodes")["items"]
        if any(taint["key"] == TAINT for taint in node["spec"].get("taints", ()))
    }


def is_well_again(bed: Bed, node: str) -> bool:
    """Without the taint, and the record says so."""
    health = healths(bed).get(node, {})
    closed = all(incident.get("cleared") for incident in health.get("incidents", ()))
    return node not in tainted(bed) and health.get("state") == "Healthy" and closed


def moves(bed: Bed, job: Job, what: str, sicken: Callable[[str], None]) -> tuple[str, Seen]:
    """Let a node of the job fall sick, and see it tainted and the job train without it; tells how long that took."""
    before = job.current()
    node = before.nodes[-1]
    began = time.monotonic()
    sicken(node)
    wait_until(f"the taint on {node}", lambda: tainted(bed) == {node}, 60)
    marked = time.monotonic()
    again = job.wait_training_again(before.attempt)
    first_steps: dict[int, float] = {}
    for line in job.events("step", again.attempt):
        first_steps.setdefault(line["rank"], line["monotonic"])
    trains = max(first_steps.values())
    print(f"{what}: tainted after {marked - began:.1f} s, training again {trains - marked:.1f} s later")
    assert again.attempt == before.attempt + 1
    assert again.level == "R2"
    assert len(set(again.nodes)) == 2
    assert again.nodes[0] == before.nodes[0]
    assert node not in again.nodes
    published = [line["step"] for line in job.events("checkpoint") if line["attempt"] < again.attempt]
    assert again.resumed_step == max(published)
    return node, again


def test_xid_79_moves_the_job_and_the_node_is_used_again_after_a_reboot(
    bed: Bed, submit: Submit, training: Job
) -> None:
    sick, again = moves(bed, training, "XID 79", lambda node: bed.faults.xid(node, 79))
    told = healths(bed)[sick]
    assert (told["state"], told["reason"], told["recommendedAction"]) == ("Unhealthy", "Xid79", "Reboot")
    training.wait_reasons("NodeUnhealthy")

    (fourth,) = set(bed.cluster.node_names) - {sick, *again.nodes}
    lone = submit("lone", nodes=1, trainer=LONG)
    lone.wait_step(1)
    assert lone.current().nodes == (fourth,)

    waits = submit("waits", nodes=1, trainer=SHORT)
    waiting = wait_until("it to wait", lambda: waits.status().get("waiting"), 60)
    assert waits.status()["state"] == "Pending"
    assert {"reason": "unhealthy (Xid79)", "nodes": 1} in waiting["blockers"]
    remedy = f"repair {sick}, or release it: unhealthy (Xid79)"
    assert remedy in waiting["unblocks"]
    explained = bed.muster("explain", waits.name, "-n", waits.namespace)
    assert explained.returncode == 0, explained.stderr
    assert f"-  {remedy}" in explained.stdout.splitlines()

    bed.faults.lose_gpu(sick)
    boot = healths(bed)[sick]["agent"]["bootId"]
    bed.faults.reboot(sick, repaired=False)
    wait_until("a word of the new boot", lambda: healths(bed)[sick]["agent"]["bootId"] != boot, 60)
    wait_until("it to be judged", lambda: healths(bed)[sick]["reason"] == "GpuCount", 60)
    told = healths(bed)[sick]
    assert [finding["reason"] for finding in told["findings"]] == ["GpuCount"]
    assert told["incidents"][-1].get("cleared") is None
    assert len(told["incidents"]) == 1, "it has never been back"
    assert tainted(bed) == {sick}

    bed.faults.reboot(sick)
    repaired = time.monotonic()
    wait_until(f"{sick} to be well again", lambda: is_well_again(bed, sick), 60)
    print(f"XID 79: back {time.monotonic() - repaired:.1f} s after the reboot")
    assert waits.completion()["result"] == "Succeeded"
    assert waits.current().nodes == (sick,)
    assert training.current().attempt == again.attempt


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
    wait_until(f"{sick} to be well again", lambda: is_well_again(bed, sick), 60)
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
    wait_until("them to be written down", lambda: seen(healths(bed)[node], "findings") == known, 60)
    training.wait_step(training.step() + 30)
    assert training.current().attempt == before.attempt
    assert tainted(bed) == set()
    assert (healths(bed)[node]["state"], healths(bed)[node]["incidents"]) == ("Healthy", [])


def test_what_a_human_decides_about_a_node_is_done_and_shown(bed: Bed, training: Job) -> None:
    def cordon(node: str) -> None:
        done = bed.muster("cordon", node, "--reason", "liquid under rack 7")
        assert (done.returncode, done.stderr) == (0, "")
        assert f"{training.name} leaves after the next checkpoint" in done.stdout

    node, again = moves(bed, training, "cordon", cordon)
    shown = bed.muster("nodes", "--sick").stdout
    (row,) = [line for line in shown.splitlines() if line.startswith(node)]
    assert "Excluded" in row
    assert "Quarantined" in row
    assert "Cordoned" in row
    assert "liquid under rack 7" in healths(bed)[node]["message"]

    done = bed.muster("release", node, "--reason", "dry")
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(f"{node} to be well again", lambda: is_well_again(bed, node), 60)
    assert node not in bed.muster("nodes", "--sick").stdout
    assert training.current().attempt == again.attempt

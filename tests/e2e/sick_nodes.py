"""Unhealthy nodes in end-to-end tests: what the records say of them, and how a job leaves one.

What an agent inspects is made of files (testbed/faults.py). It sees a fault as soon as in production; how soon a
repaired node is trusted again is shortened.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from testbed.bed import Bed
from testbed.gangwatch import Seen
from testbed.jobs import Job
from testbed.kube import wait_until

TAINT = "muster.dev/unhealthy"


def forget(bed: Bed) -> None:
    bed.faults.repair()
    wait_until("agents that see nothing", lambda: not any(seen(h, "evidence") for h in healths(bed).values()))
    bed.kubectl("delete", "nodehealths", "--all", "--wait=true")
    wait_until("all nodes to be well", lambda: are_new_and_well(bed))
    wait_until("no taint", lambda: not tainted(bed))


def healths(bed: Bed) -> dict[str, dict[str, Any]]:
    """The status of every node's record."""
    listed = bed.cluster.api.get("/apis/muster.dev/v1alpha1/nodehealths")["items"]
    return {item["metadata"]["name"]: item.get("status", {}) for item in listed}


def seen(health: dict[str, Any], field: str) -> set[str]:
    """What stands against the node: that a GPU has been reset is no more than a fact of this boot."""
    return {item.get("kind") or item["reason"] for item in health.get(field) or ()} - {"GpuReset"}


def are_new_and_well(bed: Bed) -> bool:
    """Whether each node of the cluster has a new record, in which it is well, and no other node has one."""
    well = {name: is_new_and_well(health) for name, health in healths(bed).items()}
    return well == dict.fromkeys(bed.cluster.node_names, True)


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
    closed = all(incident.get("clearedTime") for incident in health.get("incidents", ()))
    return node not in tainted(bed) and health.get("state") == "Healthy" and closed


def moves(bed: Bed, job: Job, what: str, sicken: Callable[[str], None]) -> tuple[str, Seen]:
    """Let a node of the job fall sick, and see it tainted and the job train without it; tells how long that took."""
    before = job.current()
    node = before.nodes[-1]
    began = time.monotonic()
    sicken(node)
    wait_until(f"the taint on {node}", lambda: tainted(bed) == {node})
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

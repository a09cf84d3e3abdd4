"""The command keeps the account of the fleet that the operator keeps."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import Gang
from muster.api.trainingjob import TrainingJob
from muster.cli.observe import FleetObservation, fleet_of, heartbeat_ages
from muster.controller.bus import Bus
from muster.controller.cluster import Cluster
from muster.coordinator.hub import Hub
from muster.kube.client import Answers
from muster.kube.decode import NodeLease, Undecodable
from muster.world.names import gang_name
from muster.world.views import NodeView, OccupantView, PodView

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Silent:
    """A client that nobody asks anything."""

    answers = Answers()


def a_job(name: str, *, ended: bool = False) -> TrainingJob:
    completion = {"result": "Succeeded", "reason": "Completed", "time": NOW.isoformat(), "attempt": 1}
    template = {"spec": {"containers": [{"name": "main", "image": "trainer:1", "command": ["train"]}]}}
    return TrainingJob.model_validate(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": "5"},
            "spec": {"nodes": 3, "template": template},
            "status": {"completion": completion} if ended else {},
        }
    )


def a_gang(name: str, *nodes: str) -> Gang:
    uid = f"uid-{name}"
    spec = {"jobUid": uid, "attempt": 1, "time": NOW.isoformat(), "level": "Start", "reason": "Start"}
    return Gang.model_validate(
        {
            "metadata": {
                "name": gang_name(name, uid),
                "namespace": "ns",
                "uid": f"g-{uid}",
                "resourceVersion": "6",
                "ownerReferences": [{"kind": "TrainingJob", "name": name, "uid": uid, "controller": True}],
            },
            "spec": {**spec, "members": [{"node": node} for node in nodes]},
        }
    )


def a_worker(name: str, job: str, node: str, **changes: Any) -> PodView:
    values = {"owner_uid": f"uid-{job}", "job_uid": f"uid-{job}", "node": node, "phase": "Running", **changes}
    return PodView("ns", name, f"uid-{name}", 7, **values)


JOBS = [a_job("llama"), a_job("over", ended=True), a_job("dark")]
GANGS = [
    a_gang("llama", "n0", "n1", ""),
    a_gang("over", "n2"),
    a_gang("orphan", "n3"),
    Undecodable("ns", gang_name("dark", "uid-dark"), "g", 50, 1, "spec.level: bad", "uid-dark"),
    a_gang("dark", "n9").model_copy(update={"metadata": ObjectMeta(name="forged", namespace="ns", uid="f")}),
]
WORKERS = [
    a_worker("llama-0", "llama", "n0"),
    a_worker("llama-old", "llama", "n4", deleting=True, requests={GPU: 8}),
    a_worker("llama-done", "llama", "n5", phase="Failed"),
    a_worker("llama-unbound", "llama", ""),
    a_worker("over-0", "over", "n6", phase="Pending", requests={GPU: 8}),
    a_worker("over-late", "over", "n2", requests={"cpu": 50}),
    a_worker("stray", "llama", "n5", requests={"cpu": 50}),
    a_worker("ghostly", "lost", "n3", requests={GPU: 8}),
    a_worker("forged", "llama", "n7", owner_uid="", requests={GPU: 1, "cpu": 100}),
    a_worker("in-the-dark", "dark", "n8"),
    a_worker("forged-small", "llama", "n8", owner_uid="uid-else", requests={"cpu": 100}),
]
OCCUPANTS = [
    OccupantView("team-b", "notebook", "uid-notebook", 8, "n9", {GPU: 1, "pods": 1}),
    OccupantView("kube-system", "agent", "uid-agent", 9, "n9", {"cpu": 250, "pods": 1}),
]
NODES = [NodeView(f"n{i}", f"uid-n{i}", 3, ready=True, allocatable={GPU: 8}) for i in range(10)]


def test_it_is_the_operators_account() -> None:
    cluster = Cluster(Silent(), Hub(time.monotonic), Bus())  # type: ignore[arg-type]
    stores: list[tuple[Any, Any]] = [
        (cluster.nodes, NODES),
        (cluster.jobs, JOBS),
        (cluster.gangs, GANGS),
        (cluster.pods, WORKERS),
        (cluster.occupants, OCCUPANTS),
    ]
    for source, values in stores:
        source.store.replace(values, 100)
    theirs = cluster.fleet
    ours = fleet_of(FleetObservation(FleetPolicySpec(), NODES, JOBS, GANGS, WORKERS, OCCUPANTS, []))
    assert ours.nodes == theirs.nodes
    assert {n: ours.holders(n) for n in ours.nodes} == {n: theirs.holders(n) for n in theirs.nodes}
    assert {n: dict(ours.used(n)) for n in ours.nodes} == {n: dict(theirs.used(n)) for n in theirs.nodes}
    assert ours.names == theirs.names
    held = {name: sorted(ours.name_of(holder) for holder in ours.holders(name)) for name in ours.nodes}
    assert held == {
        "n0": ["ns/llama"],
        "n1": ["ns/llama"],
        "n2": [],
        "n3": ["pod ns/ghostly"],
        "n4": ["ns/llama"],
        "n5": [],
        "n6": ["ns/over"],
        "n7": ["pod ns/forged"],
        "n8": ["ns/dark"],
        "n9": ["pod team-b/notebook"],
    }


def test_a_job_that_cannot_be_read_keeps_its_name_and_nodes() -> None:
    job = Undecodable("ns", "llama", "uid-llama", 5, 1, "spec.launch: bad", nodes=3)
    gang = Undecodable("ns", "broken", "uid-b", 5, 1, "spec.level: bad")
    fleet = fleet_of(FleetObservation(FleetPolicySpec(), NODES, [job], [GANGS[0], gang], [], [], []))
    assert [fleet.name_of(holder) for holder in fleet.holders("n0")] == ["ns/llama"]


@pytest.mark.parametrize("skew_seconds", [-86400, 0, 86400])
def test_heartbeats_are_compared_with_the_newest_whatever_this_machines_clock(skew_seconds: int) -> None:
    def lease(node: str, age: float) -> NodeLease:
        return NodeLease(node, (NOW - timedelta(seconds=age + skew_seconds)).isoformat(), 1)

    ages = heartbeat_ages([lease("a", 3), lease("b", 9.5), lease("c", 60), NodeLease("d", "", 1)])
    assert ages == {"a": 0.0, "b": 6.5, "c": 57.0}
    assert heartbeat_ages([]) == {}

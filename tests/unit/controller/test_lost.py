"""A human's word that a machine is dead, as the cluster's objects bear it out: see `muster.fencing.lost_nodes`."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.unit.controller.conftest import NOW
from tests.unit.controller.test_cluster import hear
from tests.unit.lifecycle.builders import a_node

from muster.api.nodehealth import LostNode, NodeHealth
from muster.api.trainingjob import Checkpoint
from muster.checkpoints.location import saves_to
from muster.kube.decode import NodeLease

WORD = LostNode(time=NOW, reason="pulled the plug", boot_id="boot-1")
BEFORE, AFTER = NOW - timedelta(seconds=30), NOW + timedelta(seconds=5)


def said(scene: Any, node: str = "n0", version: int = 40, word: LostNode | None = WORD) -> None:
    meta = {"name": node, "uid": f"health-{node}", "resourceVersion": str(version)}
    spec = {"lost": word.to_json()} if word else {}
    scene.cluster.healths.store.assume(NodeHealth.model_validate({"metadata": meta, "spec": spec}))


def gang_of_two(scene: Any, make: Any, created: datetime = BEFORE) -> Any:
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    for index in range(2):
        scene.cluster.nodes.store.assume(a_node(f"n{index}"))
        scene.cluster.pods.store.assume(make.pod(job, index, f"p{index}", created=created))
    return job


def test_what_was_on_the_node_is_proved_dead(scene: Any, make: Any) -> None:
    job = gang_of_two(scene, make)
    assert scene.cluster.world(job).lost == frozenset()
    scene.rung.clear()
    said(scene)
    assert scene.rung == [("ns", "j")]
    assert scene.cluster.world(job).lost == {"p0"}
    said(scene, version=41, word=None)
    assert scene.cluster.world(job).lost == frozenset()


def test_a_pod_that_is_gone_is_proved_dead_by_its_record(scene: Any, make: Any) -> None:
    job = gang_of_two(scene, make)
    for pod in scene.cluster.pods.store.values():
        scene.cluster.pods.store.assume_deleted(("ns", pod.name), pod.uid)
    said(scene)
    assert scene.cluster.world(job).lost == {"p0"}


def test_a_word_about_a_node_that_is_gone_counts(scene: Any, make: Any) -> None:
    job = gang_of_two(scene, make)
    for pod in scene.cluster.pods.store.values():
        scene.cluster.pods.store.assume_deleted(("ns", pod.name), pod.uid)
    scene.cluster.nodes.store.assume_deleted(("", "n0"), a_node("n0").uid)
    assert "n0" not in scene.cluster.fleet.nodes
    scene.rung.clear()
    said(scene, word=WORD.model_copy(update={"boot_id": ""}))
    assert scene.rung == [("ns", "j")]
    assert scene.cluster.world(job).lost == {"p0"}


def two_of_one_directory(make: Any) -> tuple[Any, Any]:
    """A job, and the one that has its name afterwards."""
    job = make.job("first")
    first = job.model_copy(update={"spec": job.spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b")})})
    return first, first.model_copy(update={"metadata": first.metadata.model_copy(update={"uid": "uid-again"})})


def pods_of_two(scene: Any, make: Any, job: Any, **changes: Any) -> None:
    for index in range(2):
        scene.cluster.nodes.store.assume(a_node(f"n{index}"))
        pod = make.pod(job, index, f"p{index}", created=BEFORE, saves_to=saves_to(job), **changes)
        scene.cluster.pods.store.assume(pod)


@pytest.mark.parametrize("seen", [True, False], ids=["its deletion was seen", "it went before this leader"])
def test_a_deleted_job_has_its_directory_by_no_pod_on_a_lost_node(scene: Any, make: Any, seen: bool) -> None:
    """Nothing ever reports the end of that pod."""
    jobs, (first, again) = scene.cluster.jobs.store, two_of_one_directory(make)
    if seen:
        jobs.assume(first)
    pods_of_two(scene, make, first, deleting=True)
    if seen:
        jobs.assume_deleted(("ns", "first"), "uid-first")
    jobs.assume(again)
    waits = ("first (deleted; its pods have not ended)",)
    said(scene)
    assert scene.cluster.world(again).sharing_first == waits
    said(scene, "n1")
    assert scene.cluster.world(again).sharing_first == scene.cluster.world(again).sharing == ()
    said(scene, "n1", version=41, word=None)
    assert scene.cluster.world(again).sharing_first == waits


def test_an_ejected_gang_has_its_directory_by_its_pods_on_other_nodes_alone(scene: Any, make: Any) -> None:
    first, again = two_of_one_directory(make)
    scene.cluster.jobs.store.assume(again)
    pods_of_two(scene, make, first, owner_uid="")
    said(scene)
    (text,) = scene.cluster.world(again).sharing_first
    assert text.startswith(f"first (ejected; {make.pod(first, 1, 'p1').name} may train on")
    said(scene, "n1")
    assert scene.cluster.world(again).sharing_first == ()


def test_a_pod_made_after_the_word_is_not_meant(scene: Any, make: Any) -> None:
    job = gang_of_two(scene, make, created=AFTER)
    said(scene)
    assert scene.cluster.world(job).lost == frozenset()


def test_a_launcher_that_is_heard_is_not_dead(scene: Any, make: Any) -> None:
    job = gang_of_two(scene, make)
    hear(scene, "p0")
    said(scene)
    assert scene.cluster.world(job).lost == frozenset()
    scene.clock.advance(25.0)
    assert scene.cluster.world(job).lost == {"p0"}


def read(scene: Any, lease: NodeLease) -> None:
    """The lease is read."""
    scene.cluster.heartbeats.note_leases([lease], lease.resource_version)


def pass_time(scene: Any) -> None:
    """25 s in which the API server tells of other nodes' leases."""
    for _ in range(25):
        scene.clock.advance(1.0)
        scene.api.answers.heard()
    lease = scene.cluster.heartbeats.lease("n0")
    read(scene, lease)


@pytest.fixture
def passing(scene: Any) -> None:
    """The clock on the wall goes on with the other one."""
    begun = scene.clock.now
    scene.cluster._wall_clock = lambda: NOW + timedelta(seconds=scene.clock.now - begun)


@pytest.mark.usefixtures("passing")
def test_a_kubelet_whose_clock_was_ahead_when_it_died_does_not_refute_the_word(scene: Any, make: Any) -> None:
    """Nor with a leader that was not there when either happened."""
    job = gang_of_two(scene, make)
    ahead = (NOW + timedelta(hours=1)).isoformat()
    read(scene, NodeLease("n0", ahead, 50))
    pass_time(scene)
    word = WORD.model_copy(update={"time": NOW + timedelta(seconds=20)})
    said(scene, word=word)
    assert scene.cluster.world(job).lost == frozenset(), "whoever does not say what he has seen is judged by the clock"
    said(scene, version=41, word=word.model_copy(update={"last_renewal": ahead}))
    assert scene.cluster.world(job).lost == {"p0"}


def test_a_launcher_that_is_heard_after_the_word_came_lives_whatever_the_clock_says(scene: Any, make: Any) -> None:
    """The operator's clock is a minute behind."""
    job = gang_of_two(scene, make)
    scene.cluster._wall_clock = lambda: NOW - timedelta(minutes=1)
    said(scene)
    scene.clock.advance(5.0)
    hear(scene, "p0")
    scene.clock.advance(25.0)
    assert scene.cluster.world(job).lost == frozenset()


@pytest.mark.usefixtures("passing")
def test_a_kubelet_that_renews_its_lease_refutes_the_word(scene: Any, make: Any) -> None:
    job = gang_of_two(scene, make)
    lease = NodeLease("n0", BEFORE.isoformat(), 50)
    read(scene, lease)
    said(scene)
    assert scene.cluster.world(job).lost == frozenset()  # seen just now for the first time
    pass_time(scene)
    assert scene.cluster.world(job).lost == {"p0"}
    read(scene, lease._replace(renew_time=AFTER.isoformat(), resource_version=51))
    pass_time(scene)
    assert scene.cluster.world(job).lost == frozenset()
    assert scene.cluster.sign_of_life("n0").startswith("its kubelet has renewed its lease")

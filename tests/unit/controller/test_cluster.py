"""What the cluster makes of what the informers see: whose a pod is, who holds a node, who is still expected to talk."""

import functools
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.lifecycle.builders import an_incident

from muster.api.base import Owner
from muster.api.fleetpolicy import Enforcement, FleetPolicy, FleetPolicySpec
from muster.api.installation import InstallationProfile
from muster.api.trainingjob import Checkpoint, TrainingJob
from muster.checkpoints.location import place_of, saves_to
from muster.controller import cluster as cluster_module
from muster.controller.bus import Bus
from muster.controller.cluster import Cluster
from muster.coordinator.auth import Caller
from muster.coordinator.hub import Hub, Membership
from muster.kube import decode
from muster.kube.client import AWAY_SECONDS
from muster.kube.decode import NamespaceView, NodeLease, Undecodable
from muster.protocol import messages
from muster.protocol.checks import NODE, READY, CheckAnswer, CheckReport, PassReport, ProbeReport
from muster.protocol.messages import RankReport, Report
from muster.queueing.charges import Charges
from muster.queueing.quotas import Held, NamespaceQuotas
from muster.world import written
from muster.world.checks import ProbeThreshold
from muster.world.fleet import Exclusion, SilentShare
from muster.world.job import NodeLimit, OtherJob
from muster.world.names import pod_name
from muster.world.quotas import QuotaView, Scope
from muster.world.views import FRESH_SECONDS, ContainerView, NodeView, OccupantView


def unreadable(gang: Any, version: int) -> Undecodable:
    meta = gang.metadata
    return Undecodable(meta.namespace, meta.name, meta.uid, version, 1, "spec.level: bad", gang.spec.job_uid)


def hear(scene: Any, uid: str, *, state: str = messages.RUNNING, alive: bool = True) -> None:
    report = Report(sequence=int(scene.clock.now), state=state, attempt=1, ranks=(RankReport(0, 0, alive),))
    scene.hub.record(Caller("ns", "pod", uid, "n", "nu"), report)


@pytest.mark.parametrize(
    "changes",
    [
        {"namespace": "attacker", "owner_uid": ""},
        {"namespace": "attacker"},
        {"owner_uid": "", "incarnation": 2, "name": "forged"},
        {"owner_uid": "uid-other", "incarnation": 2, "name": "forged"},
    ],
    ids=["other namespace", "other namespace with our owner", "no owner", "other owner"],
)
def test_a_pod_that_only_has_our_labels_is_nobody_of_ours(scene: Any, make: Any, changes: dict[str, Any]) -> None:
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    mine = [make.pod(job, index, f"p{index}") for index in range(2)]
    for pod in mine:
        scene.cluster.pods.store.assume(pod)
    forged = make.pod(job, 0, "evil", version=30, phase="Pending", **changes)
    scene.cluster.pods.store.assume(forged)
    assert scene.cluster.world(job).pods == {pod.name: pod for pod in mine}


def test_a_pod_with_our_label_and_no_owner_occupies_its_node_for_everybody(scene: Any, make: Any) -> None:
    job = make.job()
    forged = make.pod(job, 0, "evil", owner_uid="", requests={"nvidia.com/gpu": 8})
    scene.cluster.pods.store.assume(forged)
    assert scene.holders(job) == {"n0": {f"pod/ns/{forged.name}"}}


FORGED = {"namespace": "attacker", "owner_uid": "u-forged", "job_uid": "u-forged"}


@pytest.mark.parametrize(
    ("changes", "holder"),
    [
        pytest.param(FORGED, "", id="the uid of a job that there is not"),
        pytest.param({"namespace": "attacker"}, "", id="the uid of another namespace's job"),
        pytest.param({"node": "n7"}, "", id="its own job's, where that was given nothing"),
        pytest.param({"node": "n7", "requests": {"nvidia.com/gpu": 1}}, "uid-j", id="the same with accelerators"),
        pytest.param({**FORGED, "requests": {"nvidia.com/gpu": 1}}, "pod/attacker/evil", id="forged with accelerators"),
        pytest.param({"node": "n1", "incarnation": 2}, "uid-j", id="its own job's, on a node of its record"),
    ],
)
def test_a_pod_takes_no_more_than_it_asks_for_where_no_job_was_given_the_node(
    scene: Any, make: Any, changes: dict[str, Any], holder: str
) -> None:
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    values: dict[str, Any] = {"name": "evil", "node": "n5", "requests": {"cpu": 100}, **changes}
    pod = make.pod(job, 0, "evil", **values)
    scene.cluster.pods.store.assume(pod)
    fleet = scene.cluster.world(job).fleet
    assert fleet.holders(pod.node) == ({holder} if holder else set())
    assert fleet.used(pod.node) == ({} if holder == "uid-j" else pod.requests)


def test_a_pod_that_is_not_bound_yet_holds_the_node_that_it_is_pinned_to(scene: Any, make: Any) -> None:
    job, cluster, fleet = make.job(workers=1), scene.cluster, scene.cluster.fleet
    cluster.jobs.store.assume(job)
    cluster.gangs.store.assume(make.gang(job, "p0"))
    unbound = make.pod(job, 0, "p0", node="", pinned="n0", requests={"nvidia.com/gpu": 8})
    cluster.pods.store.assume(unbound)
    cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
    cluster.gangs.store.assume_deleted(("ns", make.gang(job).metadata.name), "gang-uid-j")
    assert fleet.holders("n0") == {f"pod/ns/{unbound.name}"}, "it may be bound by now, without anybody having seen it"
    cluster.pods.store.assume(make.pod(job, 0, "p0", version=21, requests=unbound.requests))
    assert fleet.holders("n0") == {f"pod/ns/{unbound.name}"}
    cluster.pods.store.assume_deleted(("ns", unbound.name), "p0")
    assert fleet.holders("n0") == set()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"owner_uid": "", "job_uid": "u-forged"}, id="without an owner"),
        pytest.param({"owner_uid": ""}, id="with the label of a job and no owner"),
        pytest.param({"namespace": "attacker"}, id="of another namespace"),
        pytest.param({"incarnation": 2}, id="its own job's"),
        pytest.param({"owner_uid": "u-gone", "job_uid": "u-gone"}, id="of a job that there is not"),
    ],
)
def test_a_pod_that_is_not_bound_takes_no_node_that_its_jobs_record_does_not_name(
    scene: Any, make: Any, changes: dict[str, Any]
) -> None:
    job, cluster = make.job(), scene.cluster
    cluster.jobs.store.assume(job)
    cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    values: dict[str, Any] = {"name": "evil", "node": "", "requests": {"nvidia.com/gpu": 8}, **changes}
    for number in range(5, 9):
        pod = make.pod(job, 0, f"evil{number}", **{**values, "name": f"evil{number}", "pinned": f"n{number}"})
        cluster.pods.store.assume(pod)
        assert (cluster.fleet.holders(f"n{number}"), cluster.fleet.used(f"n{number}")) == (set(), {})
        assert cluster.is_empty(f"n{number}")
        cluster.pods.store.assume(replace(pod, node=f"n{number}", pinned="", resource_version=30))
        assert len(cluster.fleet.holders(f"n{number}")) == 1, "it is bound"


@pytest.mark.parametrize("end", ["orphaned", "being deleted", "ended"])
def test_an_unbound_worker_lets_go_of_its_node_a_minute_after_its_job_ends(scene: Any, make: Any, end: str) -> None:
    job, cluster, store = make.job(workers=1), scene.cluster, scene.cluster.jobs.store
    store.assume(job)
    cluster.gangs.store.assume(make.gang(job, "p0", start=None))
    cluster.pods.store.assume(make.pod(job, 0, "p0", node="", pinned="n0", requests={"nvidia.com/gpu": 8}))
    scene.clock.now += 100
    cluster.free_unbound_pods()
    assert cluster.fleet.holders("n0") == {"uid-j"}, "its job wants the node"
    if end == "orphaned":
        store.assume_deleted(("ns", "j"), "uid-j")
    else:
        store.assume(going(job) if end == "being deleted" else make.job(version=50, workers=1, completion=ENDED))
    scene.clock.now += 59
    cluster.free_unbound_pods()
    assert cluster.fleet.holders("n0"), "it may be bound already"
    scene.clock.now += 1
    scene.freed = 0
    cluster.free_unbound_pods()
    assert (cluster.fleet.holders("n0"), scene.freed) == (set(), 1)
    cluster.pods.store.assume(make.pod(job, 0, "p0", version=60, node="", pinned="n0", message="changed"))
    assert cluster.fleet.holders("n0") == set()


def test_an_unbound_worker_that_is_seen_before_its_record_holds_its_node(scene: Any, make: Any) -> None:
    job, cluster = make.job(workers=1), scene.cluster
    cluster.pods.store.assume(make.pod(job, 0, "p0", node="", pinned="n0", requests={"nvidia.com/gpu": 8}))
    cluster.jobs.store.assume(job)
    assert cluster.fleet.holders("n0") == set()
    cluster.gangs.store.assume(make.gang(job, "", start=None))
    assert cluster.fleet.holders("n0") == {"uid-j"}


def test_a_pod_that_is_bound_elsewhere_than_its_affinity_says_leaves_nothing_there(scene: Any, make: Any) -> None:
    job, cluster = make.job(workers=1), scene.cluster
    cluster.jobs.store.assume(job)
    cluster.gangs.store.assume(make.gang(job, "p0", start=None))
    cluster.pods.store.assume(make.pod(job, 0, "p0", node="", pinned="n0", requests={"nvidia.com/gpu": 8}))
    cluster.pods.store.assume(make.pod(job, 0, "p0", version=21, node="n5", requests={"nvidia.com/gpu": 8}))
    cluster.gangs.store.assume(make.gang(job, version=30, members=[], start=None))
    cluster.nodes.store.assume(NodeView("n0", "uid-n0", 40, ready=True, allocatable={"nvidia.com/gpu": 8}))
    assert (cluster.fleet.holders("n0"), cluster.fleet.holders("n5")) == (set(), {"uid-j"})


def test_whose_a_pod_is_does_not_depend_on_what_is_seen_first(scene: Any, make: Any) -> None:
    job = make.job(workers=1)
    cluster = scene.cluster
    cluster.pods.store.assume(make.pod(job, 0, "p0", requests={"cpu": 100}))
    assert cluster.fleet.holders("n0") == set()
    cluster.jobs.store.assume(job)
    assert cluster.fleet.holders("n0") == set()
    cluster.gangs.store.assume(unreadable(make.gang(job, "p0"), 9))
    assert cluster.fleet.holders("n0") == {"uid-j"}, "nobody knows what its record names"
    cluster.gangs.store.assume(make.gang(job, "p0"))
    assert (cluster.fleet.holders("n0"), cluster.fleet.used("n0")) == ({"uid-j"}, {})
    cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
    cluster.gangs.store.assume_deleted(("ns", make.gang(job).metadata.name), "gang-uid-j")
    assert (cluster.fleet.holders("n0"), cluster.fleet.used("n0")) == (set(), {"cpu": 100})


def test_who_is_named_by_no_record_is_not_counted_among_the_silent(scene: Any, make: Any) -> None:
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    scene.cluster.gangs.store.assume(make.gang(job, "p0", ""))
    pods = {
        "p0": make.pod(job, 0, "p0"),
        "p1": make.pod(job, 1, "p1"),
        "old": make.pod(job, 0, "old", incarnation=0, name="old"),
        "twin": make.pod(job, 0, "twin", namespace="attacker"),
        "forged": make.pod(job, 0, "forged", **FORGED),
    }
    found = {}
    for uid, pod in pods.items():
        scene.cluster.pods.store.assume(pod)
        found[uid] = scene.cluster.membership(Caller(pod.namespace, pod.name, uid, "n", "nu")).value
    assert found == {"p0": "Member", "p1": "Member", "old": "Stray", "twin": "None", "forged": "None"}


def test_a_member_is_found_by_its_index_wherever_it_stands_in_the_list(scene: Any, make: Any) -> None:
    """A gang that has lost worker 0 for good: worker 1 is the first of the list."""
    job = make.job(workers=1)
    cluster = scene.cluster
    cluster.jobs.store.assume(job)
    members = [{"index": 1, "rank": 0, "node": "n1", "incarnation": 1, "podUid": "p1"}]
    cluster.gangs.store.assume(make.gang(job, members=members))
    pod = make.pod(job, 1, "p1")
    cluster.pods.store.assume(pod)
    assert cluster.membership(Caller("ns", pod.name, "p1", "n1", "nu")) is Membership.MEMBER
    hear(scene, "p1")
    cluster.pods.store.assume_deleted(("ns", pod.name), "p1")
    assert set(scene.hub.views_of(["p1"])) == {"p1"}, "its record names it"


def test_a_pod_in_which_nothing_changes_that_counts_asks_for_no_decision(scene: Any, make: Any) -> None:
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    pod = make.pod(job, 0, "p0", version=20)
    scene.cluster.pods.store.assume(pod)
    scene.rung.clear()
    scene.cluster.pods.store.assume(replace(pod, resource_version=21))
    assert scene.rung == []
    scene.cluster.pods.store.assume(replace(pod, resource_version=22, phase="Failed"))
    assert scene.rung == [("ns", "j")]


def test_nodes_are_held_by_the_record_and_by_pods_until_both_let_go(scene: Any, make: Any) -> None:
    job = make.job()
    cluster = scene.cluster
    cluster.jobs.store.assume(job)
    cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    cluster.pods.store.assume(make.pod(job, 0, "p0"))
    assert set(scene.holders(job)) == {"n0", "n1"}
    cluster.gangs.store.assume(make.gang(job, "p0", version=11))
    assert (set(scene.holders(job)), scene.freed) == ({"n0"}, 1)
    ended = {"result": "Succeeded", "reason": "Completed", "message": "", "time": "2026-01-31T12:00:00Z", "attempt": 1}
    cluster.jobs.store.assume(make.job(version=12, completion=ended))
    assert (set(scene.holders(job)), scene.freed) == ({"n0"}, 1), "its pod is still there"
    cluster.pods.store.assume(make.pod(job, 0, "p0", version=21, phase="Succeeded"))
    assert (set(scene.holders(job)), scene.freed) == (set(), 2)


def test_a_pod_that_is_being_deleted_holds_its_node_until_it_is_gone(scene: Any, make: Any) -> None:
    job = make.job()
    cluster = scene.cluster
    cluster.jobs.store.assume(job)
    cluster.gangs.store.assume(make.gang(job, "p0"))
    pod = make.pod(job, 0, "p0", requests={"nvidia.com/gpu": 8})
    cluster.pods.store.assume(pod)
    cluster.gangs.store.assume(make.gang(job, version=11))
    cluster.pods.store.assume(replace(pod, resource_version=21, deleting=True))
    assert (set(scene.holders(job)), scene.freed) == ({"n0"}, 0)
    cluster.pods.store.assume_deleted(("ns", pod.name), pod.uid)
    assert (set(scene.holders(job)), scene.freed) == (set(), 1)


def test_a_record_that_becomes_unreadable_holds_what_it_held(scene: Any, make: Any) -> None:
    job = make.job()
    gang = make.gang(job, "p0", "p1")
    cluster = scene.cluster
    cluster.jobs.store.assume(job)
    cluster.gangs.store.assume(gang)
    scene.rung.clear()
    bad = unreadable(gang, 11)
    cluster.gangs.store.assume(bad)
    assert cluster.gang_of("uid-j") == cluster.unreadable_record_of(job) == bad
    assert set(scene.holders(job)) == {"n0", "n1"}
    assert scene.rung == [("ns", "j")]
    cluster.gangs.store.assume(make.gang(job, "p0", version=12))
    assert cluster.unreadable_record_of(job) is None
    assert set(scene.holders(job)) == {"n0"}
    assert scene.freed == 1
    cluster.gangs.store.assume(replace(bad, resource_version=13))
    cluster.gangs.store.assume_deleted(("ns", gang.metadata.name), gang.metadata.uid)
    assert cluster.gang_of("uid-j") is None
    assert scene.holders(job) == {}


def test_those_who_were_replaced_or_have_ended_are_not_waited_for(scene: Any, make: Any) -> None:
    job = make.job(workers=3)
    cluster = scene.cluster
    cluster.jobs.store.assume(job)
    cluster.gangs.store.assume(make.gang(job, "p0", "p1", "p2"))
    for index in range(3):
        cluster.pods.store.assume(make.pod(job, index, f"p{index}"))
        hear(scene, f"p{index}")
    scene.clock.advance(60.0)
    assert scene.hub.silence(20.0, "ns") == SilentShare(3, 3)
    cluster.gangs.store.assume(make.gang(job, "p0", "p1", version=11))
    assert scene.hub.silence(20.0, "ns") == SilentShare(2, 2)
    cluster.pods.store.assume(make.pod(job, 1, "p1", version=21, phase="Failed"))
    assert scene.hub.silence(20.0, "ns") == SilentShare(1, 1)


def test_a_launcher_is_forgotten_once_its_pod_is_gone_and_its_record_has_dropped_it(scene: Any, make: Any) -> None:
    job = make.job()
    cluster = scene.cluster
    cluster.jobs.store.assume(job)
    cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    stray = make.pod(job, 5, "stray", incarnation=9)
    pods = [make.pod(job, 0, "p0"), make.pod(job, 1, "p1"), stray]
    for pod in pods:
        cluster.pods.store.assume(pod)
        hear(scene, pod.uid)

    def known() -> set[str]:
        return set(scene.hub.views_of(["p0", "p1", "stray"]))

    for pod in pods:
        cluster.pods.store.assume_deleted(("ns", pod.name), pod.uid)
    assert known() == {"p0", "p1"}
    unfenced_worker = {"pod": pods[1].name, "podUid": "p1", "node": "n1", "fencedTime": "2026-01-31T12:00:30Z"}
    cluster.gangs.store.assume(make.gang(job, "q0", "q1", version=11, unfenced_workers=[unfenced_worker]))
    assert known() == {"p1"}, "its fence has to be outwaited"
    scene.clock.advance(1.0)
    hear(scene, "p1", state=messages.TERMINATING, alive=False)
    cluster.gangs.store.assume(make.gang(job, "q0", "p1", version=12))
    assert known() == {"p1"}
    cluster.gangs.store.assume(make.gang(job, "q0", "q1", version=13))
    assert known() == set()
    cluster.gangs.store.assume(make.gang(job, "q0", "p1", version=14))
    assert cluster.world(job).proved_dead == {"p1"}, "what it proved is not forgotten"


class Kubelets:
    """Nodes whose heartbeats reach the operator, or do not."""

    def __init__(self, scene: Any) -> None:
        self.scene = scene
        self.version = 0
        self.leases: dict[str, NodeLease] = {}

    def pass_time(self, seconds: int, *beating: str, deaf: bool = False, away: bool = False) -> None:
        """A second at a time; these nodes' heartbeats come every ten seconds, the first at once."""
        for second in range(seconds):
            if not away:
                self.scene.api.answers.heard()
            if not (away or deaf):
                self.beat(*(beating if second % 10 == 0 else ()))
            self.scene.clock.advance(1.0)

    def beat(self, *nodes: str) -> None:
        """These renew their leases, and all leases are read."""
        for node in nodes:
            self.version += 1
            self.leases[node] = NodeLease(node, f"{self.scene.clock.now}", self.version)
        self.scene.cluster.heartbeats.note_leases(self.leases.values(), self.version)

    def ages(self, *nodes: str) -> list[float]:
        return [self.scene.cluster.heartbeats.age_seconds(node) for node in nodes]


@pytest.fixture
def kubelets(scene: Any) -> Kubelets:
    return Kubelets(scene)


def test_our_own_deafness_is_no_silence_of_a_node(scene: Any, kubelets: Kubelets) -> None:
    kubelets.pass_time(1, "n0", "n1")
    kubelets.pass_time(29, deaf=True)
    assert kubelets.ages("n0", "n1") == [0.0, 0.0]
    scene.api.answers.heard()
    kubelets.beat("n1")
    assert kubelets.ages("n0", "n1") == [30.0, 0.0]
    assert scene.cluster.heartbeats.older_than(30.0) == ["n0"]
    kubelets.pass_time(5, deaf=True)
    assert kubelets.ages("n0", "n1") == [30.0, 0.0]


@pytest.mark.parametrize("away_seconds", [8, 60, 3600])
def test_while_the_api_server_is_away_no_node_is_silent(scene: Any, kubelets: Kubelets, away_seconds: int) -> None:
    kubelets.pass_time(10, "n0", "n1")
    kubelets.pass_time(away_seconds, away=True)
    scene.api.answers.heard()
    kubelets.beat("n1")  # the first of them finds it again, the other has not tried yet
    assert max(kubelets.ages("n0", "n1")) < 12.0
    kubelets.pass_time(10, "n1")
    assert max(kubelets.ages("n0", "n1")) < 12.0
    kubelets.pass_time(30, "n1")
    assert kubelets.ages("n0")[0] >= 20.0, "it had its time, and has never come back"
    assert kubelets.ages("n1")[0] < 12.0


def test_the_ages_of_a_world_are_those_of_its_moment(scene: Any, make: Any, kubelets: Kubelets) -> None:
    job = make.job(workers=1)
    scene.cluster.jobs.store.assume(job)
    for node in ("n0", "n1"):
        scene.cluster.nodes.store.assume(NodeView(node, f"uid-{node}", 1))
    kubelets.pass_time(21, "n0", "n1")
    kubelets.pass_time(25, "n1")
    world = scene.cluster.world(job)
    age = world.heartbeat_age_seconds("n0")
    assert 20.0 <= age <= 26.0
    assert world.heartbeat_age_seconds("n1") == 0.0
    assert world.fleet.heartbeats.older_than(20.0) == ["n0"]
    kubelets.pass_time(60, "n0")
    assert world.heartbeat_age_seconds("n0") == age


def a_lost_pod(scene: Any, make: Any) -> tuple[Any, Any]:
    """A job with an unfenced worker on n1, whose pod is there."""
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    scene.cluster.nodes.store.assume(NodeView("n1", "uid-n1", 1, ready=True))
    pod = make.pod(job, 1, "p1", node="n1")
    scene.cluster.pods.store.assume(pod)
    unfenced_worker = {
        "pod": pod.name,
        "podUid": "p1",
        "node": "n1",
        "fencedTime": "2026-01-31T12:00:30Z",
        "proof": "Death",
    }
    scene.cluster.gangs.store.assume(make.gang(job, "q0", "q1", version=11, unfenced_workers=[unfenced_worker]))
    return job, pod


def test_a_kubelet_that_is_heard_again_ends_what_nobody_knows_any_more(
    scene: Any, make: Any, kubelets: Kubelets
) -> None:
    job, pod = a_lost_pod(scene, make)
    kubelets.pass_time(30, "n1")
    assert scene.cluster.world(job).removed_seconds == {}, "it has not been told to end it"
    scene.cluster.pods.store.assume_deleted(("ns", pod.name), pod.uid)
    assert scene.cluster.world(job).removed_seconds == {"p1": 0.0}
    kubelets.pass_time(300)
    assert scene.cluster.world(job).removed_seconds == {"p1": 0.0}, "it may be cut off"
    kubelets.pass_time(61, "n1")
    assert scene.cluster.world(job).removed_seconds == {"p1": 59.0}, (
        "from its first heartbeat to the look before the last one"
    )
    kubelets.pass_time(300)
    assert scene.cluster.world(job).removed_seconds == {"p1": 59.0}
    kubelets.pass_time(1, "n1")
    assert scene.cluster.world(job).removed_seconds == {"p1": 0.0}, "it was away again"
    kubelets.pass_time(30, "n1")
    scene.cluster.nodes.store.assume(NodeView("n1", "uid-n1", 2, ready=False))
    assert scene.cluster.world(job).removed_seconds == {}, "a kubelet that is not ready may end nothing"
    scene.cluster.nodes.store.assume(NodeView("n1", "uid-n1", 3, ready=True))
    assert scene.cluster.world(job).removed_seconds == {"p1": 0.0}


@pytest.mark.parametrize("strip", ["the label", "the owner", "the label's value"])
def test_a_pod_that_lost_our_marks_runs_on(scene: Any, make: Any, kubelets: Kubelets, strip: str) -> None:
    job, pod = a_lost_pod(scene, make)
    if strip == "the label":  # and the one watch shows it as gone, the other as new
        scene.cluster.pods.store.assume_deleted(("ns", pod.name), pod.uid)
        scene.cluster.occupants.store.assume(OccupantView("ns", pod.name, pod.uid, 30, "n1", {}))
    else:
        changes = {"owner_uid": ""} if strip == "the owner" else {"job_uid": "else"}
        scene.cluster.pods.store.assume(replace(pod, resource_version=30, **changes))
    kubelets.pass_time(600, "n1")
    world = scene.cluster.world(job)
    assert (world.pods, world.removed_seconds) == ({}, {})


def test_an_unfenced_worker_is_as_old_as_this_leader_has_seen_it_with_its_proof(scene: Any, make: Any) -> None:
    job, pod = a_lost_pod(scene, make)
    assert scene.cluster.world(job).unfenced_ages == {"p1": 0.0}
    scene.clock.advance(40.0)
    assert scene.cluster.world(job).unfenced_ages == {"p1": 40.0}
    unfenced_worker = {
        "pod": pod.name,
        "podUid": "p1",
        "node": "n1",
        "fencedTime": "2026-01-31T12:00:30Z",
        "remainingSeconds": 17,
    }
    scene.cluster.gangs.store.assume(make.gang(job, "q0", "q1", version=12, unfenced_workers=[unfenced_worker]))
    assert scene.cluster.world(job).unfenced_ages == {"p1": 0.0}, "its fence counts from now"


def test_a_go_is_as_old_as_this_leader_has_seen_it(scene: Any, make: Any) -> None:
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    scene.cluster.world(job)
    scene.clock.advance(40.0)
    assert scene.cluster.world(job).start_age_seconds == 40.0


INIT_FAILED = (
    ContainerView("fetch", init=True, terminated=True, exit_code=1),
    ContainerView("main", waiting_reason="PodInitializing"),
)


@pytest.mark.parametrize("containers", [(), INIT_FAILED], ids=["nothing", "an init container"])
@pytest.mark.parametrize(("heard", "dead"), [(True, True), (False, False)])
def test_a_pod_without_started_containers_is_dead_if_its_kubelet_says_so(
    scene: Any, make: Any, kubelets: Kubelets, heard: bool, dead: bool, containers: tuple[ContainerView, ...]
) -> None:
    job, pod = a_lost_pod(scene, make)
    kubelets.pass_time(61, *(["n1"] if heard else []))
    if not heard:
        scene.cluster.nodes.store.assume(NodeView("n1", "uid-n1", 2, ready=False))
    scene.cluster.pods.store.assume(replace(pod, resource_version=30, phase="Failed", containers=containers))
    scene.cluster.pods.store.assume_deleted(("ns", pod.name), pod.uid)
    assert scene.cluster.world(job).is_dead("p1") is dead


def test_a_members_pod_is_known_before_the_record_names_it(scene: Any, make: Any) -> None:
    job = make.job()
    gang = make.gang(job, "", "p1")
    scene.cluster.jobs.store.assume(job)
    scene.cluster.gangs.store.assume(gang)
    first, second = gang.spec.members
    assert (scene.cluster.uid_of(gang, first), scene.cluster.uid_of(gang, second)) == ("", "p1")
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0"))
    assert scene.cluster.uid_of(gang, first) == "p0"


@pytest.mark.parametrize(("silent", "widespread"), [(2, False), (3, False), (5, True)])
def test_many_nodes_that_fall_silent_at_once_are_dark(
    scene: Any, make: Any, kubelets: Kubelets, silent: int, widespread: bool
) -> None:
    job = make.job(workers=1)
    scene.cluster.jobs.store.assume(job)
    names = [f"n{number}" for number in range(8)]
    for number, node in enumerate(names):
        scene.cluster.nodes.store.assume(NodeView(node, f"uid-{node}", number + 1))
    kubelets.pass_time(1, *names)
    for _ in range(2):
        kubelets.pass_time(10, *names[silent:])
    kubelets.beat("gone")  # it has a lease and is no node
    world = scene.cluster.world(job)
    assert world.dark == SilentShare(silent, 8)
    assert world.dark.widespread == widespread


def test_the_first_of_many_that_fall_silent_is_not_judged_alone(scene: Any, make: Any, kubelets: Kubelets) -> None:
    job = make.job(workers=1)
    scene.cluster.jobs.store.assume(job)
    names = [f"n{number}" for number in range(10)]
    for number, node in enumerate(names):
        scene.cluster.nodes.store.assume(NodeView(node, f"uid-{node}", number + 1))
    for node in names:  # each at its own second, and never again
        kubelets.pass_time(1, node)
    kubelets.beat("gone")
    while scene.cluster.world(job).heartbeat_age_seconds("n0") < 20.0:
        kubelets.pass_time(1, "gone")
    assert scene.cluster.world(job).dark.widespread


@pytest.mark.parametrize(
    ("wish", "there", "want"),
    [
        ("job/base@500", True, OtherJob("base", exists=True, directory="/base")),
        ("job/base", False, OtherJob("base")),
        ("500", True, None),
        (None, True, None),
    ],
)
def test_the_job_that_another_is_to_go_on_from_is_known_by_its_directory(
    scene: Any, make: Any, wish: str | None, there: bool, want: OtherJob | None
) -> None:
    job, base = make.job(), make.job()
    checkpoint = {"directory": "/c", "resumeFrom": wish}
    job = job.model_copy(
        update={"spec": job.spec.model_copy(update={"checkpoint": Checkpoint.model_validate(checkpoint)})}
    )
    if there:
        spec = base.spec.model_copy(update={"checkpoint": Checkpoint(directory="/base")})
        metadata = base.metadata.model_copy(update={"name": "base", "uid": "uid-base"})
        scene.cluster.jobs.store.assume(base.model_copy(update={"metadata": metadata, "spec": spec}))
    scene.cluster.jobs.store.assume(job)
    assert scene.cluster.world(job).other == want


def test_jobs_that_save_to_one_directory_know_of_each_other_while_both_want_nodes(scene: Any, make: Any) -> None:
    def saving(name: str, namespace: str) -> Any:
        job = make.job()
        spec = job.spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/run-7/")})
        metadata = {"name": name, "uid": f"uid-{namespace}-{name}", "namespace": namespace}
        return job.model_copy(update={"metadata": job.metadata.model_copy(update=metadata), "spec": spec})

    store, cluster = scene.cluster.jobs.store, scene.cluster
    first, second, third = saving("a", "team"), saving("b", "team"), saving("c", "other")
    store.assume(first)
    assert cluster.world(first).sharing == ()
    for job in (second, third):
        store.assume(job)
    assert cluster.world(first).sharing == ("b", "a job of another namespace")
    assert cluster.world(third).sharing == ("a job of another namespace",)
    ended = second.model_copy(
        update={
            "metadata": second.metadata.model_copy(update={"resource_version": "99"}),
            "status": second.status.model_copy(update={"completion": ENDED}),
        }
    )
    store.assume(ended)
    assert cluster.world(first).sharing == ("a job of another namespace",)


def test_jobs_of_one_directory_with_nodes_come_first_then_the_oldest(scene: Any, make: Any) -> None:
    store, cluster = scene.cluster.jobs.store, scene.cluster

    def saving(name: str, age: int, namespace: str = "team", **changes: Any) -> Any:
        job = make.job()
        spec = job.spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/run-7/"), **changes})
        metadata = {
            "name": name,
            "uid": f"uid-{namespace}-{name}",
            "namespace": namespace,
            "creation_timestamp": datetime(2026, 11, 1, tzinfo=UTC) - timedelta(seconds=age),
        }
        job = job.model_copy(update={"metadata": job.metadata.model_copy(update=metadata), "spec": spec})
        store.assume(job)
        return job

    young, old = saving("young", 1), saving("old", 9)
    saving("elsewhere", 99, namespace="other")
    saving("suspended", 99, suspend=True)
    waiting = saving("stalled", 99)
    assert cluster.world(young).sharing_first == ("old", "stalled")
    for version, status in enumerate(({"state": "Stalled"}, {"state": "Pending", "reason": "NeverFits"}), 99):
        stuck = waiting.model_copy(
            update={
                "metadata": waiting.metadata.model_copy(update={"resource_version": str(version)}),
                "status": waiting.status.model_copy(update=status),
            }
        )
        store.assume(stuck)
        assert cluster.world(young).sharing_first == ("old",)
    assert cluster.world(old).sharing_first == ()
    cluster.gangs.store.assume(make.gang(young, "p0"))
    assert cluster.world(old).sharing_first == ("young",)


@pytest.mark.parametrize("stays", [True, False], ids=["a finalizer keeps it", "it is gone"])
def test_a_deleted_job_has_its_directory_until_its_pods_have_ended(scene: Any, make: Any, stays: bool) -> None:
    cluster, spec = scene.cluster, make.job().spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/run")})
    first, second = (make.job(name).model_copy(update={"spec": spec}) for name in ("first", "second"))
    again = first.model_copy(update={"metadata": first.metadata.model_copy(update={"uid": "uid-again"})})
    for job in (first, second):
        cluster.jobs.store.assume(job)
    for index, uid in enumerate(("p0", "p1")):
        cluster.pods.store.assume(make.pod(first, index, uid))
    if stays:
        changes = {"deletion_timestamp": datetime(2026, 11, 1, tzinfo=UTC), "resource_version": "99"}
        cluster.jobs.store.assume(first.model_copy(update={"metadata": first.metadata.model_copy(update=changes)}))
    else:
        cluster.jobs.store.assume_deleted(("ns", "first"), "uid-first")
        cluster.jobs.store.assume(again)
        assert cluster.world(again).sharing_first == ("first (deleted; its pods have not ended)",)
        cluster.jobs.store.assume_deleted(("ns", "first"), "uid-again")
    cluster.pods.store.assume(make.pod(first, 0, "p0", version=21, phase="Succeeded"))
    world = cluster.world(second)
    assert world.sharing == world.sharing_first == ("first (deleted; its pods have not ended)",)
    scene.rung.clear()
    cluster.pods.store.assume_deleted(("ns", make.pod(first, 1, "p1").name), "p1")
    assert ("ns", "second") in scene.rung
    assert cluster.world(second).sharing == ()


@pytest.mark.parametrize("directory", ["s3://b/run", "/nobody/knows/where"])
def test_an_ejected_gang_has_its_directory_until_its_pods_have_ended(scene: Any, make: Any, directory: str) -> None:
    cluster, spec = scene.cluster, make.job().spec.model_copy(update={"checkpoint": Checkpoint(directory=directory)})
    first = make.job("first").model_copy(update={"spec": spec})
    again = first.model_copy(update={"metadata": first.metadata.model_copy(update={"uid": "uid-again"})})
    pods = [make.pod(first, index, f"p{index}", owner_uid="", saves_to=saves_to(first)) for index in range(2)]
    for pod in pods:
        cluster.pods.store.assume(pod)
    cluster.jobs.store.assume(again)
    (text,) = cluster.world(again).sharing_first
    assert text == (
        f"first (ejected; {pods[0].name}, {pods[1].name} may train on; kubectl -n ns delete pods -l "
        "muster.dev/job-uid=uid-first ends them)"
    )
    assert cluster.world(again).sharing == (text,)
    # Others declare a pod ended whose Node object is gone, while its ranks may save.
    cluster.pods.store.assume(replace(pods[0], phase="Failed", resource_version=50))
    assert pods[0].name in cluster.world(again).sharing_first[0]
    ended = (ContainerView("trainer", terminated=True),)
    cluster.pods.store.assume(replace(pods[0], phase="Succeeded", containers=ended, resource_version=51))
    assert pods[0].name not in cluster.world(again).sharing_first[0]
    scene.rung.clear()
    cluster.pods.store.assume_deleted(("ns", pods[1].name), "p1")
    assert ("ns", "first") in scene.rung
    assert cluster.world(again).sharing_first == cluster.world(again).sharing == ()


@pytest.mark.parametrize(
    ("owner", "says"),
    [
        pytest.param("uid-of-a-replicaset", "(ejected; ", id="adopted"),
        pytest.param("uid-first", "(deleted; its pods have not ended)", id="of a job that is gone"),
    ],
)
def test_a_pod_that_no_job_owns_keeps_its_directory(scene: Any, make: Any, owner: str, says: str) -> None:
    cluster, spec = scene.cluster, make.job().spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/run")})
    first, second = (make.job(name).model_copy(update={"spec": spec}) for name in ("first", "second"))
    cluster.jobs.store.assume(second)
    pod = make.pod(first, 0, "p0", owner_uid=owner, saves_to=saves_to(first))
    cluster.pods.store.assume(pod)
    (text,) = cluster.world(second).sharing_first
    assert text.startswith(f"first {says}")
    cluster.pods.store.assume(replace(pod, owner_uid="uid-second", resource_version=50))
    assert cluster.world(second).sharing_first == ()
    cluster.pods.store.assume_deleted(("ns", pod.name), "p0")
    assert (cluster._saving, cluster._saving_as) == ({}, {})


def test_a_forged_pod_has_no_job_of_another_namespace_decided_again(scene: Any, make: Any) -> None:
    cluster, spec = scene.cluster, make.job().spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/run")})
    victim = make.job("victim").model_copy(update={"spec": spec})
    own = make.job("own", namespace="attacker").model_copy(update={"spec": spec})
    for job in (victim, own):
        cluster.jobs.store.assume(job)
    scene.rung.clear()
    cluster.pods.store.assume(make.pod(own, 0, "evil", namespace="attacker", owner_uid="", saves_to=saves_to(victim)))
    assert set(scene.rung) == {("attacker", "own")}


def keep_ending_jobs(scene: Any, make: Any, count: int, namespace: str, directory: str) -> None:
    """Jobs that a finalizer keeps after their deletion, with a pod each that does not end."""
    for number in range(count):
        job = make.job(f"e{number}", namespace=namespace)
        spec = job.spec.model_copy(update={"checkpoint": Checkpoint(directory=directory)})
        meta = job.metadata.model_copy(update={"deletion_timestamp": datetime(2026, 11, 1, tzinfo=UTC)})
        scene.cluster.pods.store.assume(make.pod(job, 0, f"p{number}", namespace=namespace))
        scene.cluster.jobs.store.assume(job.model_copy(update={"spec": spec, "metadata": meta}))


@pytest.mark.parametrize("directory", ["s3://b/run", "s3://b/other"])
def test_no_decision_looks_at_jobs_of_other_namespaces_that_end(
    scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch, directory: str
) -> None:
    cluster, spec = scene.cluster, make.job().spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/run")})
    job = make.job().model_copy(update={"spec": spec})
    cluster.jobs.store.assume(job)
    keep_ending_jobs(scene, make, 20, "attacker", directory)
    assert len(cluster._deleted) == 20
    looked: list[str] = []
    pods_of = cluster.pods_of

    def place_seen(of: TrainingJob) -> str:
        looked.append(of.metadata.namespace)
        return place_of(of)

    def pods_seen(namespace: str, uid: str) -> Any:
        looked.append(namespace)
        return pods_of(namespace, uid)

    monkeypatch.setattr(cluster_module, "place_of", place_seen)
    monkeypatch.setattr(cluster, "pods_of", pods_seen)
    assert cluster.world(job).sharing_first == ()
    assert looked
    assert set(looked) == {"ns"}


def test_only_news_of_a_deleted_job_have_its_neighbours_decided_again(scene: Any, make: Any) -> None:
    cluster, spec = scene.cluster, make.job().spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/run")})
    for namespace in ("ns", "attacker"):
        cluster.jobs.store.assume(make.job(namespace=namespace, name="beside").model_copy(update={"spec": spec}))
    keep_ending_jobs(scene, make, 1, "attacker", "s3://b/run")
    ending = cluster.job(("attacker", "e0"))
    scene.rung.clear()
    changes = {"annotations": {"any": "thing"}, "resource_version": "98"}
    cluster.jobs.store.assume(ending.model_copy(update={"metadata": ending.metadata.model_copy(update=changes)}))
    assert set(scene.rung) == {("attacker", "e0")}
    scene.rung.clear()
    elsewhere = ending.spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/other")})
    changes = {"resource_version": "99"}
    cluster.jobs.store.assume(
        ending.model_copy(update={"metadata": ending.metadata.model_copy(update=changes), "spec": elsewhere})
    )
    assert set(scene.rung) == {("attacker", "e0"), ("attacker", "beside")}
    assert cluster.world(cluster.job(("attacker", "beside"))).sharing_first == ()


def test_an_ejected_gang_holds_the_nodes_of_its_pods_alone(scene: Any, make: Any) -> None:
    job, cluster = make.job(workers=1), scene.cluster
    cluster.jobs.store.assume(job)
    cluster.gangs.store.assume(make.gang(job, "p0", ejected=True))
    pod = make.pod(job, 0, "p0")
    cluster.pods.store.assume(pod)
    assert cluster.fleet.holders("n0") == {"uid-j"}
    cluster.pods.store.assume(replace(pod, phase="Succeeded", resource_version=50))
    assert cluster.fleet.holders("n0") == frozenset()


def test_pods_that_no_job_owns_keep_none_of_another_directory_or_namespace_waiting(scene: Any, make: Any) -> None:
    cluster, spec = scene.cluster, make.job().spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/run")})
    job = make.job("job").model_copy(update={"spec": spec})
    cluster.jobs.store.assume(job)
    for name, changes in {
        "elsewhere": {"namespace": "other"},
        "another": {"saves_to": "s3://b/other "},
        "bound-nowhere": {"node": ""},
    }.items():
        values: dict[str, Any] = {"owner_uid": "", "saves_to": saves_to(job), **changes}
        cluster.pods.store.assume(make.pod(job, 0, f"uid-{name}", **{"name": f"x-{name}-0-1", **values}))
    assert cluster.world(job).sharing_first == cluster.world(job).sharing == ()
    forged = make.pod(job, 0, "forged", owner_uid="", saves_to=saves_to(job), name="x-forged-0-1")
    cluster.pods.store.assume(forged)
    assert len(cluster.world(job).sharing_first) == 1
    cluster.pods.store.assume(replace(forged, saves_to="", resource_version=50))
    assert cluster.world(job).sharing_first == ()


@pytest.mark.parametrize("label", ["none", "uid-j", "uid-node"])
def test_a_kubelets_own_pod_keeps_no_job_waiting(scene: Any, make: Any, label: str) -> None:
    cluster, spec = scene.cluster, make.job().spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/run")})
    job = make.job(workers=1).model_copy(update={"spec": spec})
    cluster.jobs.store.assume(job)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n0", "uid": "uid-node", "controller": True}
    meta = {
        "name": pod_name("j", "uid-j", 0, 1),
        "namespace": "ns",
        "uid": "m",
        "resourceVersion": "77",
        "labels": {"muster.dev/job-uid": label, "muster.dev/job": "j", "muster.dev/index": "0"},
        "annotations": {"kubernetes.io/config.mirror": "hash", "muster.dev/saves-to": saves_to(job)},
        "ownerReferences": [owner],
    }
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    body = {"metadata": meta, "spec": {"nodeName": "n0", "containers": [container]}, "status": {"phase": "Running"}}
    scene.rung.clear()
    cluster.pods.store.assume(decode.pod(json.dumps(body).encode()))
    assert scene.rung == []
    world = cluster.world(job)
    assert (world.sharing_first, world.sharing, world.pods) == ((), (), {})
    assert cluster.uid_of(make.gang(job, ""), make.gang(job, "").spec.members[0]) == ""
    assert cluster.fleet.used("n0") == {"cpu": 1000, "pods": 1}


def test_the_silence_of_an_ejected_gang_counts_for_nothing(scene: Any, make: Any) -> None:
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0"))
    hear(scene, "p0")
    assert scene.hub.silence(20.0, "ns") == SilentShare(0, 1)
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0", version=50, owner_uid=""))
    assert scene.hub.silence(20.0, "ns") == SilentShare(0, 0)


def test_an_ejected_pod_takes_its_node_for_what_it_asks_for(scene: Any, make: Any) -> None:
    job, cluster = make.job(workers=1), scene.cluster
    cluster.jobs.store.assume(job)
    cluster.gangs.store.assume(make.gang(job, "p0"))
    pod = make.pod(job, 0, "p0", requests={"nvidia.com/gpu": 8})
    cluster.pods.store.assume(pod)
    cluster.pods.store.assume(replace(pod, owner_uid="", resource_version=50))
    cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
    assert cluster.fleet.holders("n0") == {f"pod/ns/{pod.name}"}
    assert cluster.fleet.used("n0") == {"nvidia.com/gpu": 8}
    assert not cluster.is_empty("n0")


def test_of_deleted_jobs_none_is_kept_that_has_no_pods(scene: Any, make: Any) -> None:
    cluster, spec = scene.cluster, make.job().spec.model_copy(update={"checkpoint": Checkpoint(directory="s3://b/run")})
    deleted = {"deletion_timestamp": datetime(2026, 11, 1, tzinfo=UTC), "resource_version": "99"}
    first, second = (make.job(name).model_copy(update={"spec": spec}) for name in ("first", "second"))
    cluster.pods.store.assume(make.pod(first, 0, "p0"))
    for job in (first, second):  # a finalizer keeps the object of the second one for as long as its owner likes
        cluster.jobs.store.assume(job)
        cluster.jobs.store.assume(job.model_copy(update={"metadata": job.metadata.model_copy(update=deleted)}))
    assert set(cluster._deleted) == {"uid-first"}
    cluster.pods.store.assume(replace(make.pod(first, 0, "p0", version=30), job_uid="uid-other"))
    assert cluster._deleted == {}, "its pod got another job's label"


def test_a_world_is_a_value(scene: Any, make: Any) -> None:
    job = make.job(workers=2)
    scene.cluster.jobs.store.assume(job)
    scene.cluster.nodes.store.assume(NodeView("n0", "uid-n0", 1))
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    world = scene.cluster.world(job)
    before = (dict(world.fleet.nodes), world.fleet.holders("n0"), world.fleet.name_of("uid-j"), world.fleet.version)
    assert scene.cluster.world(job).fleet.nodes is world.fleet.nodes, "it is copied once"
    scene.cluster.nodes.store.assume(NodeView("n9", "uid-n9", 60))
    scene.cluster.gangs.store.assume_deleted(("ns", make.gang(job).metadata.name), "gang-uid-j")
    scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
    after = (dict(world.fleet.nodes), world.fleet.holders("n0"), world.fleet.name_of("uid-j"), world.fleet.version)
    assert after == before
    assert scene.cluster.fleet.holders("n0") == frozenset()


def test_an_informer_is_stale_only_while_the_api_server_answers_others(scene: Any) -> None:
    clock, cluster = scene.clock, scene.cluster

    def hear_all_but(*deaf: str) -> None:
        scene.api.answers.heard()
        for source in cluster.informers:
            if source.name not in deaf:
                source.last_contact = clock.now

    hear_all_but()
    clock.advance(3600.0)
    assert cluster.stalest_seconds()[1] == 0.0, "the API server is away"
    hear_all_but("nodes")
    assert cluster.stalest_seconds()[1] == 0.0, "it has just come back"
    for _ in range(40):
        clock.advance(AWAY_SECONDS / 2)
        hear_all_but("nodes")
    assert cluster.stalest_seconds() == ("nodes", 20 * AWAY_SECONDS)
    clock.advance(3600.0)
    assert cluster.stalest_seconds() == ("nodes", 20 * AWAY_SECONDS)
    hear_all_but()
    assert cluster.stalest_seconds()[1] == 0.0


async def test_a_refresh_reads_what_a_decision_must_not_miss(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    async def get(path: str, query: Any, most_bytes: int | None = None) -> bytes:
        assert most_bytes
        assert "resourceVersion" not in query, "any would do for that, an old one, too"
        read.append(path.rsplit("/", 1)[1])
        return b'{"metadata": {"resourceVersion": "7"}, "items": []}'

    monkeypatch.setattr(scene.api, "get", get)
    await scene.cluster.refresh()
    assert sorted(read) == ["gangs", "nodehealths", "pods", "trainingjobs"]


ENDED = {"result": "Succeeded", "reason": "Completed", "time": "2026-01-31T12:00:00Z", "attempt": 1}


def going(job: Any) -> Any:
    meta = job.metadata.model_copy(
        update={"deletion_timestamp": datetime(2026, 1, 31, tzinfo=UTC), "resource_version": "50"}
    )
    return job.model_copy(update={"metadata": meta})


@pytest.mark.parametrize("end", ["orphaned", "being deleted", "ended"])
def test_a_job_that_goes_frees_its_nodes_and_late_pods_take_requests_only(scene: Any, make: Any, end: str) -> None:
    """A pod that is created there afterwards takes no more than it asks for."""
    job, store = make.job(), scene.cluster.jobs.store
    store.assume(job)
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0", requests={"cpu": 100}))
    scene.freed = 0
    if end == "orphaned":
        store.assume_deleted(("ns", "j"), "uid-j")
    else:
        store.assume(going(job) if end == "being deleted" else make.job(version=50, completion=ENDED))
    holders = scene.cluster.fleet.holders
    assert (holders("n0"), holders("n1"), scene.freed) == ({"uid-j"}, set(), 1), "its worker still runs on n0"
    scene.cluster.pods.store.assume(make.pod(job, 1, "late", name="late", requests={"cpu": 100}))
    assert (holders("n1"), scene.cluster.fleet.used("n1")) == (set(), {"cpu": 100})
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0", version=60, phase="Failed"))
    assert holders("n0") == set()


def test_a_gang_that_is_seen_before_its_job_holds_its_nodes_once_the_job_is_seen(scene: Any, make: Any) -> None:
    job = make.job()
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0", requests={"cpu": 100}))
    scene.cluster.jobs.store.assume(job)
    assert scene.holders(job) == {"n0": {"uid-j"}, "n1": {"uid-j"}}


def test_thousands_of_pods_with_the_labels_of_a_job_do_not_ring_it(scene: Any, make: Any) -> None:
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    scene.rung.clear()
    for namespace, owner in (("attacker", "uid-j"), ("attacker", ""), ("ns", "")):
        forged = make.pod(job, 0, f"{namespace}-{owner}", name=f"evil{owner}", namespace=namespace, owner_uid=owner)
        scene.cluster.pods.store.assume(forged)
    assert scene.rung == []
    assert scene.cluster.pods_of("ns", "uid-j") == []
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0"))
    assert scene.rung == [("ns", "j")]


def test_a_node_is_nobodys_for_the_name_of_a_resource_that_it_does_not_have(scene: Any) -> None:
    cluster = scene.cluster
    invented = OccupantView("tenant", "pin", "u1", 1, "n0", {"tenant.example/invented": 1, "pods": 1})
    real = OccupantView("other", "notebook", "u2", 2, "n0", {"nvidia.com/gpu": 1, "pods": 1})
    for pod in (invented, real):
        cluster.occupants.store.assume(pod)
    node = NodeView("n0", "uid-n0", 3, ready=True, allocatable={"cpu": 8000, "pods": 110})
    cluster.nodes.store.assume(node)
    assert cluster.fleet.holders("n0") == set()
    assert cluster.fleet.used("n0")["pods"] == 2
    known = replace(node, resource_version=4, capacity={"nvidia.com/gpu": 8})  # none of them healthy
    cluster.nodes.store.assume(known)
    assert cluster.fleet.holders("n0") == {"pod/other/notebook"}
    cluster.occupants.store.assume_deleted(("other", "notebook"), "u2")
    assert (cluster.fleet.holders("n0"), cluster.fleet.used("n0")["pods"]) == (set(), 1)


def test_without_jobs_nothing_that_is_only_about_them_is_read(scene: Any) -> None:
    of_jobs = {"trainingjobs", "gangs", "worker_pods", "priority_classes", "resource_quotas", "namespaces"}
    names = {source.name for source in scene.cluster.informers}
    for profile in InstallationProfile:
        cluster = Cluster(scene.api, Hub(scene.clock), Bus(), profile=profile)
        read = {source.name for source in cluster.informers}
        assert read == (names if profile.has_jobs else names - of_jobs), profile


async def test_without_jobs_it_is_synced_once_the_rest_is_and_catches_up_with_that(scene: Any) -> None:
    cluster = Cluster(scene.api, Hub(scene.clock), Bus(), profile=InstallationProfile.OBSERVE)
    meta = {"name": "default", "uid": "p", "resourceVersion": "9"}
    spec = {"queueing": {"namespaceSelector": {}}, "health": {"enforcement": "Nodes"}}
    cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": spec}))
    assert cluster.fleet.policy.health.enforcement is Enforcement.OBSERVE
    refreshed = list[str]()
    for source in (cluster.jobs, cluster.gangs, cluster.pods, cluster.healths):
        source.refresh = functools.partial(_note, refreshed, source.name)  # type: ignore[method-assign]
    assert not cluster.synced
    for source in cluster.informers:
        source.synced.set()
    await cluster.wait_synced()
    await cluster.refresh()
    assert cluster.synced
    assert refreshed == ["nodehealths"]


async def _note(names: list[str], name: str) -> None:
    names.append(name)


def test_without_jobs_a_pod_that_is_labelled_as_a_worker_is_one_of_the_others(scene: Any) -> None:
    """Nothing else would show that it has the node's accelerators."""
    cluster = Cluster(scene.api, Hub(scene.clock), Bus(), profile=InstallationProfile.HEALTH)
    assert "labelSelector" in scene.cluster.occupants.kind.query
    assert "labelSelector" not in cluster.occupants.kind.query


def test_decisions_see_a_job_within_the_limits_of_the_policy(scene: Any, make: Any) -> None:
    job = make.job()
    checkpoint = job.spec.checkpoint.model_copy(update={"save_timeout_seconds": 86400})
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"checkpoint": checkpoint})})
    scene.cluster.jobs.store.assume(job)
    assert scene.cluster.world(job).job.spec.checkpoint.save_timeout_seconds == 3600, "a drain waits for an hour"
    assert "saveTimeoutSeconds is 86400, and 3600 is applied" in scene.cluster.world(job).lowered
    meta = {"name": "default", "uid": "p", "resourceVersion": "9"}
    spec = {"jobLimits": {"saveTimeoutSeconds": 600}}
    scene.rung.clear()
    scene.cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": spec}))
    assert scene.cluster.world(job).job.spec.checkpoint.save_timeout_seconds == 600
    assert scene.rung == [("ns", "j")]


def test_what_holds_a_node_whole_follows_the_fleets_accelerator(scene: Any) -> None:
    cluster = scene.cluster
    cluster.nodes.store.assume(
        NodeView("n0", "uid-n0", 3, ready=True, allocatable={"nvidia.com/gpu": 8, "amd.com/gpu": 8})
    )
    cluster.occupants.store.assume(OccupantView("other", "notebook", "u2", 2, "n0", {"amd.com/gpu": 1}))
    assert (cluster.fleet.holders("n0"), cluster.fleet.used("n0")) == (set(), {"amd.com/gpu": 1})
    meta = {"name": "default", "uid": "p", "resourceVersion": "9"}
    policy = FleetPolicy.model_validate({"metadata": meta, "spec": {"acceleratorResource": "amd.com/gpu"}})
    cluster.policies.store.assume(policy)
    assert cluster.fleet.holders("n0") == {"pod/other/notebook"}


def hear_checker(scene: Any, node: str, sequence: int = 1, **changes: Any) -> None:
    report = CheckReport(sequence, state=READY, model="m", **changes)
    scene.cluster.checkers.record(Caller("muster-check", node, f"c-{node}", node, "u", "muster-check"), report)


def test_a_gang_that_has_not_begun_sees_the_checkers_of_its_nodes(scene: Any, make: Any) -> None:
    threshold = ProbeThreshold("p", "m", "", "", "", None, 0.75, 1.0, 0.01, "GB/s", "")
    asked: list[list[str]] = []
    scene.cluster._thresholds = lambda reports, _policy: asked.append([r.model for r in reports]) or (threshold,)
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    answers = (CheckAnswer("o", NODE, "Result", probes=(ProbeReport("p", "Result", 1.5),)),)
    for node in ("n0", "n1", "n2"):
        hear_checker(scene, node, answers=answers, passes=(PassReport("Quick", 1.0),))
    assert (scene.cluster.world(job).checkers, scene.cluster.world(job).thresholds) == ({}, ())
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1", start=None))
    scene.clock.advance(2.0)
    world = scene.cluster.world(job)
    assert {node: view.heard_age_seconds for node, view in world.checkers.items()} == {"n0": 2.0, "n1": 2.0}
    assert (world.thresholds, asked) == ((threshold,), [["m", "m"]])
    again = written.read(json.loads(json.dumps(written.write(world))))
    assert (again.checkers, again.thresholds) == (world.checkers, world.thresholds)
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1", version=11))
    assert (scene.cluster.world(job).checkers, scene.cluster.world(job).thresholds) == ({}, ())
    assert len(asked) == 1


def test_news_of_a_checker_are_for_the_gang_that_waits_there(scene: Any, make: Any) -> None:
    waits, trains = make.job("waits"), make.job("trains")
    for job, changes in ((waits, {"start": None}), (trains, {})):
        scene.cluster.jobs.store.assume(job)
        scene.cluster.gangs.store.assume(make.gang(job, "p0", **changes))
    found = [scene.cluster.tested_on(node) for node in ("n0", "n1")]
    assert [[scene.cluster.keys_of(uid) for uid in uids] for uids in found] == [[[("ns", "waits")]], []]


def test_the_checker_of_a_node_that_is_gone_is_forgotten(scene: Any) -> None:
    scene.cluster.nodes.store.assume(NodeView("n0", "u", 1))
    hear_checker(scene, "n0")
    scene.cluster.nodes.store.assume_deleted(("", "n0"), "u")
    assert scene.cluster.checkers.nodes == []


def test_heartbeats_are_read_closely_while_a_worker_is_not_as_expected(
    scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = scene.cluster
    asked: list[float] = []

    def ask() -> None:
        asked.append(scene.clock.now)

    monkeypatch.setattr(cluster.leases, "ask", ask)
    job = make.job()
    cluster.jobs.store.assume(job)
    for number, node in enumerate(("n0", "n1")):
        cluster.nodes.store.assume(NodeView(node, f"uid-{node}", number + 1, ready=True))
    cluster.gangs.store.assume(make.gang(job, "p0", "p1"))

    def asks() -> bool:
        before = len(asked)
        cluster.world(job)
        return len(asked) > before

    assert asks(), "a launcher that this leader has never heard"
    hear(scene, "p0")
    hear(scene, "p1")
    assert not asks()
    scene.clock.advance(FRESH_SECONDS)
    hear(scene, "p0")
    assert asks(), "one is silent, and a second witness will be wanted"
    hear(scene, "p1")
    assert not asks()
    cluster.nodes.store.assume(NodeView("n1", "uid-n1", 9, ready=False))
    assert asks()
    cluster.nodes.store.assume(NodeView("n1", "uid-n1", 10, ready=True))
    assert not asks()
    unfenced_worker = {"pod": "old", "podUid": "px", "node": "n7", "fencedTime": "2026-01-31T12:00:30Z"}
    cluster.gangs.store.assume(make.gang(job, "p0", "p1", version=11, unfenced_workers=[unfenced_worker]))
    assert asks(), "whether an unfenced worker's kubelet lives has to be seen"


GPUS = "requests.nvidia.com/gpu"


def of_quotas(scene: Any) -> tuple[list[QuotaView], list[Held]]:
    found: NamespaceQuotas = scene.cluster.quotas_of("ns")
    return list(found.quotas), list(found.held)


def test_a_gang_takes_of_quotas_the_pods_that_are_not_there_yet_and_its_nodes_whole(scene: Any, make: Any) -> None:
    job = make.job(workers=3)
    scene.cluster.jobs.store.assume(job)
    assert of_quotas(scene) == ([], []), "without quotas nothing is worked out"
    quota = QuotaView("ns", "gpus", "q", 4, {GPUS: 24}, {GPUS: 1})
    elsewhere, empty = QuotaView("other", "gpus", "q2", 4, {GPUS: 8}), QuotaView("ns", "services", "q3", 4)
    for each in (quota, elsewhere, empty):
        scene.cluster.quotas.store.assume(each)
    assert of_quotas(scene) == ([quota], [])
    for number in range(3):
        scene.cluster.fleet.put_node(NodeView(f"n{number}", f"u{number}", 1, allocatable={"nvidia.com/gpu": 8}))
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1", ""))
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0", requests={"nvidia.com/gpu": 1}))
    scene.cluster.pods.store.assume(make.pod(job, 1, "p1", phase="Succeeded", requests={"nvidia.com/gpu": 1}))
    forged = replace(make.pod(job, 0, "forged", requests={"nvidia.com/gpu": 7}), name="no-member")
    scene.cluster.pods.store.assume(forged)
    (held,) = scene.cluster.quotas_of("ns").held
    assert (held.podless, held.accelerators) == (2, 23)
    assert held.claim == scene.cluster.claim_of(job)
    scene.cluster.jobs.store.apply("DELETED", make.job(workers=3, version=30))
    assert scene.cluster._uids == {}


@pytest.mark.parametrize(("count", "names"), [(65, 1), (2, 600)], ids=["quotas", "names"])
def test_a_namespace_with_more_quotas_than_are_read_has_room_for_nobody(
    scene: Any, make: Any, count: int, names: int
) -> None:
    job = make.job(workers=1)
    scene.cluster.jobs.store.assume(job)
    hard = {"pods": 100, **{f"requests.tenant.example/r{number}": 1 for number in range(names)}}
    for number in range(count):
        scene.cluster.quotas.store.assume(QuotaView("ns", f"q{number}", f"u{number}", 10 + number, hard=hard))
    (only,) = scene.cluster.quotas_of("ns").quotas
    assert (only.hard, f"ns has {count} ResourceQuotas" in only.problem) == ({"pods": 0}, True)
    assert scene.cluster.claim_of(job).falls_under(only)
    assert scene.cluster.claim_of(job).usage["pods"] == 1
    scene.cluster.quotas.store.assume_deleted(("ns", "q0"), "u0")
    assert len(scene.cluster.quotas_of("ns").quotas) == count - 1


def test_a_job_replaced_by_one_of_its_name_takes_nothing_of_quotas(scene: Any, make: Any) -> None:
    old, new = make.job(), make.job(version=9)
    new = new.model_copy(update={"metadata": new.metadata.model_copy(update={"uid": "uid-new"})})
    for job in (old, new):
        scene.cluster.jobs.store.assume(job)
    assert scene.cluster._uids == {"ns": {"uid-new"}}


def test_a_pods_claim_follows_the_template_until_the_api_server_answers(scene: Any, make: Any) -> None:
    job = make.job()
    assert scene.cluster.claim_of(job).usage == {"pods": 1, "count/pods": 1, GPUS: 8}
    answered = replace(scene.cluster.claim_of(job), priority_class="usual")
    scene.cluster.memory(job.metadata.uid).claim = answered
    assert scene.cluster.claim_of(job) == answered


def test_a_job_of_unknown_claim_counts_under_each_quota_that_may_count_it(scene: Any, make: Any) -> None:
    """A new leader: the job has the cluster's default PriorityClass, which its template does not show."""
    job = make.job(workers=1)
    scene.cluster.jobs.store.assume(job)
    scene.cluster.fleet.put_node(NodeView("n0", "u0", 1, allocatable={"nvidia.com/gpu": 8}))
    usual = QuotaView("ns", "usual", "q", 4, {GPUS: 8}, {}, (Scope("PriorityClass", "In", ("usual",)),))
    deadline = QuotaView("ns", "deadline", "q2", 4, {GPUS: 8}, {}, (Scope("Terminating"),))
    scene.cluster.quotas.store.assume(usual)
    assert scene.cluster.pods_with_unknown_claims() == [], "it holds nothing yet"
    scene.cluster.gangs.store.assume(make.gang(job, "p0"))
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0", requests={"nvidia.com/gpu": 1}))
    (held,) = scene.cluster.quotas_of("ns").held
    assert not held.claim.falls_under(usual)
    assert held.claim.may_fall_under(usual)
    assert not held.claim.may_fall_under(deadline), "no default adds a deadline"
    ((uid, pod),) = scene.cluster.pods_with_unknown_claims()
    assert (uid, pod.name) == (job.metadata.uid, make.pod(job, 0, "p0").name)
    scene.cluster.memory(uid).claim = replace(held.claim, priority_class="other", is_answered=True)
    assert scene.cluster.pods_with_unknown_claims() == []
    assert not scene.cluster.claim_of(job).may_fall_under(usual)


def test_a_namespace_holds_what_its_gangs_and_pods_do_but_no_dead_node_that_was_left(scene: Any, make: Any) -> None:
    cluster = scene.cluster
    mine, other = make.job("a", workers=2), make.job("b", workers=2)
    for job in (mine, other):
        cluster.jobs.store.assume(job)
    for number in range(5):
        cluster.fleet.put_node(NodeView(f"n{number}", f"u{number}", 1, allocatable={"nvidia.com/gpu": 8}, ready=True))
    cluster.gangs.store.assume(make.gang(mine, "a0", "a1"))  # n0, n1
    members = [{"index": i, "rank": i, "node": f"n{i + 2}", "incarnation": 2} for i in range(2)]
    cluster.gangs.store.assume(make.gang(other, members=members, start=None))  # n2, n3
    left = make.pod(other, 0, "b0", node="n4", requests={"nvidia.com/gpu": 8})
    cluster.pods.store.assume(left)
    assert cluster.held_by_namespace() == {"ns": 5}
    assert cluster.world(mine).limit is None
    cluster.fleet.put_node(NodeView("n4", "u4", 2, allocatable={"nvidia.com/gpu": 8}, ready=False))
    cluster.fleet.put_node(NodeView("n3", "u3", 2, allocatable={"nvidia.com/gpu": 8}, ready=False))
    assert cluster.held_by_namespace() == {"ns": 4}, "n3 is the gang's, n4 was left and is dead"
    policy = FleetPolicySpec.model_validate({"queueing": {"defaultLimit": 7}})
    cluster._policy = policy
    assert cluster.world(mine).limit == NodeLimit(7, beside=2)
    assert cluster.world(other).limit == NodeLimit(7, beside=2)


def test_a_node_that_was_left_and_is_the_last_choice_for_its_health_counts(scene: Any, make: Any) -> None:
    job = make.job(workers=1)
    scene.cluster.jobs.store.assume(job)
    scene.cluster.fleet.put_node(NodeView("n0", "u0", 1, allocatable={"nvidia.com/gpu": 8}, ready=True))
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0", requests={"nvidia.com/gpu": 8}))
    counts = []
    for exclusion in (None, Exclusion("Xid79", last_choice=True), Exclusion("Xid79")):
        scene.cluster.fleet.exclude("n0", exclusion)
        counts.append(scene.cluster.held_by_namespace())
    assert counts == [{"ns": 1}, {"ns": 1}, {"ns": 0}]


def test_a_job_replaced_while_nobody_watched_leaves_nothing_behind(scene: Any, make: Any) -> None:
    old, new = make.job(), make.job(version=9)
    new = new.model_copy(update={"metadata": new.metadata.model_copy(update={"uid": "uid-new"})})
    gone = []
    scene.bus.job_gone.subscribe(gone.append)
    scene.cluster.jobs.store.assume(old)
    scene.cluster.gangs.store.assume(make.gang(old, "p0", "p1"))
    scene.cluster.memory("uid-j").create_failures = 3
    scene.cluster.jobs.store.assume(new)
    assert gone == [old]
    assert scene.cluster.fleet.names == {"uid-new": "ns/j"}
    assert scene.cluster.memories.keys() == set()
    assert scene.cluster.fleet.nodes_of("uid-j") == (), "its record holds nothing any more"
    assert scene.cluster.jobs_on("n0") == ()


class TestAReservationThatIsNotUsed:
    """A job has nodes, its pods do not come to be, and somebody deletes or suspends it before it would give them
    back."""

    @pytest.fixture
    def charged(self, scene: Any) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        scene.bus.reservation_unused.subscribe(lambda namespace, uid: found.append((namespace, uid)))
        return found

    @pytest.fixture
    def job(self, scene: Any, make: Any) -> Any:
        job = make.job()
        scene.cluster.jobs.store.assume(job)
        return job

    def place(self, scene: Any, make: Any, job: Any, version: int = 10, **spec: Any) -> None:
        gang = make.gang(job, "", "", version=version, **{"start": None, **spec})
        scene.cluster.gangs.store.assume(gang)

    def give_back(self, scene: Any, make: Any, job: Any, reason: str, version: int = 20) -> None:
        gang = make.gang(job, version=version, members=[], start=None, reason=reason, attempt=2)
        scene.cluster.gangs.store.assume(gang)

    @pytest.mark.parametrize(("seconds", "want"), [(60.0, []), (60.5, [("ns", "uid-j")])])
    @pytest.mark.parametrize("way", ["job deleted", "job going", "record deleted", "suspended"])
    def test_costs_its_job_the_place_after_a_minute(
        self, scene: Any, make: Any, job: Any, charged: list[Any], way: str, seconds: float, want: list[Any]
    ) -> None:
        self.place(scene, make, job)
        scene.clock.now += 30
        self.place(scene, make, job, version=12, attempt=2)  # one of its nodes was closed: it is the same reservation
        scene.clock.now += seconds - 30
        if way == "job deleted":
            scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
        elif way == "job going":
            metadata = job.metadata.model_copy(
                update={"deletion_timestamp": datetime.now(UTC), "resource_version": "30"}
            )
            scene.cluster.jobs.store.assume(job.model_copy(update={"metadata": metadata}))
        elif way == "record deleted":
            gang = make.gang(job)
            scene.cluster.gangs.store.assume_deleted(("ns", gang.metadata.name), gang.metadata.uid)
        else:
            self.give_back(scene, make, job, "Suspended")
        assert charged == want

    def test_several_times_of_a_job_that_is_suspended_count_together(
        self, scene: Any, make: Any, job: Any, charged: list[Any]
    ) -> None:
        for times in range(4):
            self.place(scene, make, job, version=10 + 10 * times)
            scene.clock.now += 25
            self.give_back(scene, make, job, "Suspended", version=15 + 10 * times)
            assert charged == ([] if times < 2 else [("ns", "uid-j")])
            scene.clock.now += 1000

    def test_short_ones_of_many_jobs_add_up_and_their_namespace_pays_after_the_third_sum(
        self, scene: Any, make: Any
    ) -> None:
        """A thousand jobs made in advance would hold the fleet for 59 s each, one after the other."""
        charges, passed = Charges(), 0
        scene.bus.reservation_unused.subscribe(lambda namespace, uid: charges.charge(namespace, uid, scene.clock.now))
        begun = scene.clock.now
        for number in range(1000):
            if scene.clock.now - begun >= 86400:
                break
            if charges.charged(scene.clock.now).namespaces:
                scene.clock.now += 600  # a neighbour has its turn
                continue
            job = make.job(f"j{number}")
            scene.cluster.jobs.store.assume(job)
            self.place(scene, make, job, version=10 + 10 * number)
            scene.clock.now += 59
            scene.cluster.jobs.store.assume_deleted(("ns", f"j{number}"), f"uid-j{number}")
            passed += 1
        assert passed <= 42, "three sums, then one after each pause of an hour, two, four, eight"
        assert scene.clock.now - begun >= 86400

    def test_a_day_without_short_ones_forgets_their_sum(self, scene: Any, make: Any, charged: list[Any]) -> None:
        for number in range(12):
            job = make.job(f"j{number}")
            scene.cluster.jobs.store.assume(job)
            self.place(scene, make, job, version=10 + 10 * number)
            scene.clock.now += 40
            scene.cluster.jobs.store.assume_deleted(("ns", f"j{number}"), f"uid-j{number}")
            scene.clock.now += 86400 if number == 5 else 0
        assert charged == []

    @pytest.mark.parametrize("reason", ["AssemblyTimedOut", "BurnInFailed", "NodesYielded", "NamespaceLimit"])
    def test_is_not_counted_here_where_muster_gives_it_back(
        self, scene: Any, make: Any, job: Any, charged: list[Any], reason: str
    ) -> None:
        """A timeout is charged by its record; for the others nobody pays."""
        self.place(scene, make, job)
        scene.clock.now += 300
        self.give_back(scene, make, job, reason)
        scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
        assert charged == []

    def test_a_gang_that_has_begun_pays_nothing(self, scene: Any, make: Any, job: Any, charged: list[Any]) -> None:
        self.place(scene, make, job)
        scene.clock.now += 100
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1", version=11))
        self.place(scene, make, job, version=12, attempt=2)  # a rank has failed
        scene.clock.now += 100
        scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
        assert charged == []

    def test_one_that_had_begun_before_this_process_was_there_pays_nothing(
        self, scene: Any, make: Any, job: Any, charged: list[Any]
    ) -> None:
        incident = an_incident().to_json()
        self.place(scene, make, job, attempt=2, incidents=[incident])
        scene.clock.now += 100
        scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
        assert charged == []

    def test_one_whose_pods_all_run_pays_nothing(self, scene: Any, make: Any, job: Any, charged: list[Any]) -> None:
        """It waits for its checkpoints or a burn-in: quotas hold what it takes."""
        self.place(scene, make, job)
        for index in (0, 1):
            scene.cluster.pods.store.assume(make.pod(job, index, f"p{index}"))
        scene.clock.now += 100
        scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
        assert charged == []

    def test_pods_that_the_record_does_not_name_do_not_count_as_running(
        self, scene: Any, make: Any, job: Any, charged: list[Any]
    ) -> None:
        self.place(scene, make, job)
        for index in (0, 1):
            scene.cluster.pods.store.assume(replace(make.pod(job, index, f"p{index}"), name=f"no-member-{index}"))
        scene.clock.now += 100
        scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
        assert charged == [("ns", "uid-j")]

    def test_one_that_has_ended_pays_nothing(self, scene: Any, make: Any, job: Any, charged: list[Any]) -> None:
        self.place(scene, make, job)
        scene.clock.now += 100
        end = {
            "result": "Failed",
            "reason": "StartFailed",
            "message": "m",
            "time": "2026-01-31T12:00:00Z",
            "attempt": 1,
        }
        scene.cluster.jobs.store.assume(make.job(version=40, completion=end))
        scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
        assert charged == []

    def test_one_that_holds_nothing_for_its_namespaces_limit_pays_nothing(
        self, scene: Any, make: Any, job: Any, charged: list[Any]
    ) -> None:
        limited(scene, 1)
        self.place(scene, make, job)
        scene.clock.now += 100
        scene.cluster.jobs.store.assume_deleted(("ns", "j"), "uid-j")
        assert charged == []


def limited(scene: Any, nodes: int, version: int = 3) -> None:
    """The namespace of the jobs may hold so many nodes."""
    spec = {"queueing": {"limits": [{"namespace": "ns", "nodes": nodes}]}}
    meta = {"name": "default", "uid": "policy", "resourceVersion": str(version)}
    scene.cluster.policies.store.assume(FleetPolicy.model_validate({"metadata": meta, "spec": spec}))


def forged(gang: Any, **metadata: Any) -> Any:
    return gang.model_copy(update={"metadata": gang.metadata.model_copy(update=metadata)})


@pytest.mark.parametrize("jobs_first", [True, False], ids=["job first", "Gang first"])
@pytest.mark.parametrize(
    "metadata",
    [
        {"owner_references": []},
        {"owner_references": [Owner(kind="TrainingJob", name="j", uid="uid-other", controller=True)]},
        {"owner_references": [Owner(kind="TrainingJob", name="j", uid="uid-j")]},
        {"owner_references": [Owner(kind="Job", name="j", uid="uid-j", controller=True)]},
        {"name": "j-fffff"},
        {"namespace": "attacker"},
    ],
    ids=["no owner", "the uid of another job", "no controller", "another kind", "another name", "another namespace"],
)
def test_a_gang_that_is_not_a_jobs_holds_nothing(
    scene: Any, make: Any, metadata: dict[str, Any], *, jobs_first: bool
) -> None:
    job = make.job()
    gang = forged(make.gang(job, "p0", "p1"), **metadata)
    stores = [(scene.cluster.jobs.store, job), (scene.cluster.gangs.store, gang)]
    for store, value in stores if jobs_first else reversed(stores):
        store.assume(value)
    tiny = make.pod(job, 0, "p0", name="tiny", requests={"cpu": 100})
    scene.cluster.pods.store.assume(tiny)
    assert scene.holders(job) == {}
    assert scene.cluster.fleet.used("n0") == {"cpu": 100}, "a pod of it takes what it asks for"
    assert scene.cluster.jobs_on("n0") == ()


def test_a_gang_of_a_job_that_is_not_there_holds_nothing(scene: Any, make: Any) -> None:
    job = make.job()
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    scene.cluster.pods.store.assume(make.pod(job, 0, "p0", requests={"cpu": 100}))
    assert scene.cluster.fleet.holders("n0") == set()


def test_a_forged_gang_in_another_namespace_is_not_taken_for_the_record(scene: Any, make: Any) -> None:
    job = make.job()
    scene.cluster.jobs.store.assume(job)
    mine = make.gang(job, "p0", "p1")
    hear(scene, "p0")
    scene.cluster.gangs.store.assume(forged(make.gang(job, "p0"), namespace="attacker", uid="other"))
    scene.cluster.gangs.store.assume(mine)
    scene.cluster.gangs.store.assume(
        forged(make.gang(job, version=12), namespace="attacker", uid="other", resource_version="12")
    )
    assert scene.cluster.gang_of("uid-j") == mine
    assert set(scene.holders(job)) == {"n0", "n1"}
    assert scene.hub.last("p0") is not None, "its launcher is not forgotten either"


def test_a_gang_with_more_members_than_its_job_holds_nothing_and_the_job_says_so(scene: Any, make: Any) -> None:
    job = make.job(workers=2)
    scene.cluster.jobs.store.assume(job)
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1", "p2"))
    assert scene.holders(job) == {}
    found = scene.cluster.unreadable_record_of(job)
    assert found.error.startswith("spec.members: 3 members, and spec.nodes of the TrainingJob is 2")


def test_a_job_that_cannot_be_read_holds_what_its_size_allows(scene: Any, make: Any) -> None:
    job = make.job()
    bad = Undecodable("ns", "j", "uid-j", 5, 1, "spec.launch: bad", nodes=2)
    scene.cluster.jobs.store.assume(bad)
    scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
    assert set(scene.cluster.fleet.nodes_of("uid-j")) == {"n0", "n1"}
    scene.cluster.jobs.store.assume(replace(bad, nodes=1, resource_version=6))
    assert set(scene.cluster.fleet.nodes_of("uid-j")) == set()


def test_the_size_of_a_job_that_cannot_be_read_is_read() -> None:
    body = {"metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1"}}
    for spec, nodes in (({"nodes": 7, "template": 1}, 7), ({"nodes": "x"}, 0), (None, 0)):
        found = decode.undecodable(json.dumps({**body, "spec": spec}).encode(), "bad")
        assert found.nodes == nodes


class TestTheLimitOfANamespace:
    def test_records_beyond_it_hold_nothing_and_leave_no_room(self, scene: Any, make: Any) -> None:
        limited(scene, 3)
        first, second = make.job("a"), make.job("b")
        for job in (first, second):
            scene.cluster.jobs.store.assume(job)
            scene.cluster.gangs.store.assume(make.gang(job, f"{job.metadata.name}0", f"{job.metadata.name}1"))
        held = scene.cluster.fleet.nodes_of
        assert (set(held("uid-a")), set(held("uid-b"))) == ({"n0", "n1"}, set())
        assert scene.cluster.held_by_namespace() == {"ns": 4}
        tiny = make.pod(second, 0, "b0", requests={"cpu": 100}, node="n0")
        scene.cluster.pods.store.assume(tiny)
        assert set(held("uid-b")) == set()
        assert scene.cluster.gang_of("uid-b") == make.gang(second, "b0", "b1"), "its job is decided about as ever"

    def test_its_job_knows_that_its_record_is_refused_and_counts_the_others_alone(self, scene: Any, make: Any) -> None:
        limited(scene, 3)
        first, second = make.job("a"), make.job("b")
        for job in (first, second):
            scene.cluster.jobs.store.assume(job)
            scene.cluster.gangs.store.assume(make.gang(job, f"{job.metadata.name}0", f"{job.metadata.name}1"))
        worlds = [scene.cluster.world(job) for job in (first, second)]
        assert [world.beyond_limit for world in worlds] == [False, True]
        assert [world.limit for world in worlds] == [NodeLimit(3, beside=2), NodeLimit(3, beside=2)]

    def test_what_the_pods_of_a_refused_record_hold_counts_once(self, scene: Any, make: Any) -> None:
        limited(scene, 1)
        job = make.job()
        scene.cluster.jobs.store.assume(job)
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
        scene.cluster.pods.store.assume(make.pod(job, 0, "p0", requests={"nvidia.com/gpu": 8}))
        assert set(scene.cluster.fleet.nodes_of("uid-j")) == {"n0"}
        assert scene.cluster.held_by_namespace() == {"ns": 2}

    async def test_a_record_at_the_start_is_believed_once_most_of_its_pods_are_bound(
        self, scene: Any, make: Any
    ) -> None:
        """At the start its pods were there and not bound, as far as was known."""
        limited(scene, 1)
        met, later = make.job("a", workers=3), make.job("b", workers=3)
        scene.cluster.jobs.store.assume(met)
        scene.cluster.gangs.store.assume(make.gang(met, "a0", "a1", "a2"))
        for source in scene.cluster.informers:
            source.synced.set()
        await scene.cluster.wait_synced()
        scene.cluster.jobs.store.assume(later)
        scene.cluster.gangs.store.assume(make.gang(later, "b0", "b1", "b2"))
        held = scene.cluster.fleet.nodes_of
        for count, index in enumerate((0, 1)):
            assert set(held("uid-a")) == set(), f"{count} of 3"
            for job in (met, later):
                pod = make.pod(job, index, f"{job.metadata.name}{index}", requests={"cpu": 100})
                scene.cluster.pods.store.assume(pod)
        assert set(held("uid-a")) == {"n0", "n1", "n2"}
        assert set(held("uid-b")) == set(), "whoever writes a Gang later cannot do that with small pods"

    def test_they_hold_their_nodes_once_there_is_room(self, scene: Any, make: Any) -> None:
        limited(scene, 3)
        first, second = make.job("a"), make.job("b")
        for job in (first, second):
            scene.cluster.jobs.store.assume(job)
            scene.cluster.gangs.store.assume(make.gang(job, f"{job.metadata.name}0", f"{job.metadata.name}1"))
        scene.cluster.jobs.store.assume_deleted(("ns", "a"), "uid-a")
        assert set(scene.cluster.fleet.nodes_of("uid-b")) == {"n0", "n1"}
        third = make.job("c")
        scene.cluster.jobs.store.assume(third)
        scene.cluster.gangs.store.assume(make.gang(third, "c0", "c1"))
        assert set(scene.cluster.fleet.nodes_of("uid-c")) == set()
        limited(scene, 4, version=8)
        assert set(scene.cluster.fleet.nodes_of("uid-c")) == {"n0", "n1"}

    def test_one_that_is_lowered_takes_nodes_from_nobody(self, scene: Any, make: Any) -> None:
        limited(scene, 2)
        job = make.job()
        scene.cluster.jobs.store.assume(job)
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
        limited(scene, 0, version=8)
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p2", version=11))
        assert set(scene.holders(job)) == {"n0", "n1"}

    async def test_a_new_leader_believes_a_record_beyond_it_with_most_pods_bound(self, scene: Any, make: Any) -> None:
        """Whoever lowers a limit takes nodes from nobody, a leader that starts after that included."""
        limited(scene, 1)
        job = make.job(workers=3)
        scene.cluster.jobs.store.assume(job)
        for index in (0, 1):
            scene.cluster.pods.store.assume(make.pod(job, index, f"p{index}", node=f"n{index}", requests={"cpu": 100}))
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1", "p2"))
        assert set(scene.cluster.fleet.nodes_of("uid-j")) == set(), "nothing is decided yet"
        for source in scene.cluster.informers:
            source.synced.set()
        await scene.cluster.wait_synced()
        assert set(scene.cluster.fleet.nodes_of("uid-j")) == {"n0", "n1", "n2"}
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1", "p2", version=12))
        assert set(scene.cluster.fleet.nodes_of("uid-j")) == {"n0", "n1", "n2"}, "what it holds it keeps"

    async def test_one_that_is_read_after_the_records_counts_before_anything_is_decided(
        self, scene: Any, make: Any
    ) -> None:
        job = make.job()
        scene.cluster.jobs.store.assume(job)
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
        limited(scene, 1)
        for source in scene.cluster.informers:
            source.synced.set()
        await scene.cluster.wait_synced()
        assert scene.holders(job) == {}

    def test_a_gang_is_repaired_after_it_was_lowered_and_counts_with_its_size_meanwhile(
        self, scene: Any, make: Any
    ) -> None:
        limited(scene, 2)
        job, other = make.job(), make.job("other", workers=1)
        for each in (job, other):
            scene.cluster.jobs.store.assume(each)
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
        limited(scene, 1, version=8)
        scene.cluster.gangs.store.assume(make.gang(job, members=[seat(0, "n0"), seat(1, "")], start=None, version=11))
        assert (set(scene.holders(job)), scene.cluster.held_by_namespace()) == ({"n0"}, {"ns": 2})
        scene.cluster.gangs.store.assume(make.gang(other, "o0"))
        assert scene.cluster.world(other).beyond_limit, "nobody else gets what the gang needs"
        scene.cluster.gangs.store.assume(make.gang(job, members=[seat(0, "n0"), seat(1, "n5")], start=None, version=12))
        assert set(scene.cluster.fleet.nodes_of("uid-j")) == {"n0", "n5"}

    async def test_a_new_leader_repairs_a_gang_beyond_it(self, scene: Any, make: Any) -> None:
        """The gang has lost a worker's node before the leader changed, and a limit was lowered to 0 before that."""
        limited(scene, 0)
        job = make.job()
        scene.cluster.jobs.store.assume(job)
        scene.cluster.pods.store.assume(make.pod(job, 0, "p0", requests={"cpu": 100}))
        scene.cluster.gangs.store.assume(make.gang(job, members=[seat(0, "n0"), seat(1, "")], start=None))
        for source in scene.cluster.informers:
            source.synced.set()
        await scene.cluster.wait_synced()
        assert not scene.cluster.world(job).beyond_limit
        scene.cluster.gangs.store.assume(make.gang(job, members=[seat(0, "n0"), seat(1, "n5")], start=None, version=12))
        assert set(scene.cluster.fleet.nodes_of("uid-j")) == {"n0", "n5"}

    def test_a_record_without_nodes_gives_no_job_more_than_it_allows(self, scene: Any, make: Any) -> None:
        """A forged record may say that its gang has lost all of its nodes."""
        limited(scene, 1)
        job = make.job()
        scene.cluster.jobs.store.assume(job)
        scene.cluster.gangs.store.assume(make.gang(job, members=[seat(0, ""), seat(1, "")], start=None))
        assert scene.cluster.world(job).beyond_limit

    def test_a_record_that_cannot_be_read_gives_no_node_there(self, scene: Any, make: Any) -> None:
        limited(scene, 1)
        job = make.job()
        scene.cluster.jobs.store.assume(job)
        scene.cluster.gangs.store.assume(unreadable(make.gang(job, "p0"), 9))
        scene.cluster.pods.store.assume(make.pod(job, 0, "p0", requests={"cpu": 100}))
        assert scene.cluster.fleet.holders("n0") == set()


def seat(index: int, node: str) -> dict[str, Any]:
    return {"index": index, "rank": index, "node": node, "incarnation": 1}


ENABLED = {"queueing": {"namespaceSelector": {"matchLabels": {"muster.dev/training": "enabled"}}}}


def label(scene: Any, version: int, **labels: str) -> None:
    """The namespace of the jobs has these labels; `training` is that of the policy."""
    named = {"muster.dev/training" if key == "training" else key: value for key, value in labels.items()}
    scene.cluster.namespaces.store.assume(NamespaceView("ns", "uid-ns", version, named))


class TestClosedNamespaces:
    def test_jobs_start_where_the_label_is(self, scene: Any, make: Any) -> None:
        scene.apply_policy(ENABLED, version=2)
        job = make.job()
        scene.cluster.jobs.store.assume(job)
        label(scene, 3)
        assert scene.cluster.closed("ns").message == "namespace ns is not enabled for training"
        assert scene.cluster.limits_of(["ns"]) == {"ns": 0}
        scene.rung, scene.freed = [], 0
        label(scene, 4, training="enabled")
        assert scene.cluster.closed("ns") is None
        assert scene.cluster.limits_of(["ns"]) == {}
        assert (scene.rung, scene.freed) == ([("ns", "j")], 1), "its jobs are decided about, and a plan is made"

    def test_a_change_of_other_things_of_a_namespace_decides_nothing(self, scene: Any, make: Any) -> None:
        scene.apply_policy(ENABLED, version=2)
        scene.cluster.jobs.store.assume(make.job())
        label(scene, 3, team="a")
        scene.rung, scene.freed = [], 0
        label(scene, 4, team="a")
        assert (scene.rung, scene.freed) == ([], 0)

    def test_a_policy_without_a_selector_asks_for_no_labels(self, scene: Any) -> None:
        assert scene.cluster.closed("ns") is None

    def test_without_a_policy_no_job_starts(self, scene: Any) -> None:
        scene.cluster.policies.store.assume_deleted(("", "default"), "policy")
        scene.cluster.policies.synced.set()
        answer = scene.cluster.closed("ns")
        assert answer.message == "there is no FleetPolicy default, so no job starts"
        assert "kubectl create -f manifests/fleetpolicy.yaml" in answer.remedy
        assert scene.cluster.limits_of(["ns"]) == {"ns": 0}
        scene.apply_policy({}, version=9, uid="another")
        assert scene.cluster.closed("ns") is None

    def test_with_a_policy_that_was_never_read_no_job_starts_and_gangs_keep_their_nodes(
        self, scene: Any, make: Any
    ) -> None:
        scene.cluster.policies.store.assume_deleted(("", "default"), "policy")
        scene.cluster.policies.store.assume(Undecodable("", "default", "p", 60, 2, "spec.topology: bad"))
        assert "FleetPolicy default cannot be read" in scene.cluster.closed("ns").message
        scene.cluster.jobs.store.assume(make.job())
        scene.cluster.gangs.store.assume(make.gang(make.job(), "p0", "p1"))
        assert set(scene.holders(make.job())) == {"n0", "n1"}

    async def test_without_the_labels_no_job_starts_and_gangs_go_on(
        self, scene: Any, make: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As with an older ClusterRole, which has no right to read them."""
        monkeypatch.setattr(cluster_module, "NAMESPACES_SECONDS", 0)
        scene.apply_policy(ENABLED, version=2)
        scene.cluster.jobs.store.assume(make.job())
        scene.cluster.gangs.store.assume(make.gang(make.job(), "p0", "p1"))
        for source in scene.cluster.informers:
            if source is not scene.cluster.namespaces:
                source.synced.set()
        await scene.cluster.wait_synced()
        assert scene.cluster.synced
        answer = scene.cluster.closed("ns")
        assert answer.message == "Muster has not read the labels of namespace ns yet"
        assert set(scene.holders(make.job())) == {"n0", "n1"}

    def test_a_gang_keeps_its_nodes_when_its_namespace_is_closed(self, scene: Any, make: Any) -> None:
        scene.apply_policy(ENABLED, version=2)
        label(scene, 3, training="enabled")
        job = make.job()
        scene.cluster.jobs.store.assume(job)
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
        label(scene, 4)
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p2", version=11))
        assert set(scene.holders(job)) == {"n0", "n1"}
        assert not scene.cluster.world(job).beyond_limit

    def test_a_record_in_a_closed_namespace_holds_nothing(self, scene: Any, make: Any) -> None:
        """A tenant that may write any Gang there could take nodes otherwise."""
        scene.apply_policy(ENABLED, version=2)
        label(scene, 3)
        job = make.job()
        scene.cluster.jobs.store.assume(job)
        scene.cluster.gangs.store.assume(make.gang(job, "p0", "p1"))
        assert scene.holders(job) == {}
        label(scene, 4, training="enabled")
        assert set(scene.holders(job)) == {"n0", "n1"}


def test_more_unfenced_workers_than_a_job_can_have_left_give_no_node(scene: Any, make: Any) -> None:
    job = make.job(workers=1)
    unfenced_workers = [
        {"pod": f"g{number}", "podUid": f"g{number}", "node": f"n{number}", "fencedTime": "2026-01-31T12:00:00Z"}
        for number in (5, 6)
    ]
    scene.cluster.jobs.store.assume(job)
    scene.cluster.gangs.store.assume(make.gang(job, "p0", unfenced_workers=unfenced_workers))
    scene.cluster.pods.store.assume(make.pod(job, 0, "g5", name="g5", node="n5", requests={"cpu": 100}))
    assert scene.cluster.fleet.holders("n5") == set()

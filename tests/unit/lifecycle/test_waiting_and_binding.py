"""From the queue to nodes: turns, promises that do not hold, direct binding, and gangs that give their nodes back."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_unfenced_worker, at, in_queue, running

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import Level, Member
from muster.api.trainingjob import TrainingJobStatus
from muster.lifecycle import moves, placing
from muster.lifecycle.plan import BindPod, CommitGang, CreatePod, Plan
from muster.lifecycle.queue_needs import request_of
from muster.lifecycle.start_nodes import are_few
from muster.lifecycle.step import decide
from muster.placement.fleet_index import PART
from muster.placement.tree import Tree
from muster.pods.requirements import scheduler_for
from muster.record.attempts import was_never_assembled
from muster.recovery import holds
from muster.world.fleet import Exclusion, KnownAges
from muster.world.job import CreateError, JobWorld, NodeLimit
from muster.world.names import pod_name
from muster.world.queuedecision import NotPlaced, Placed, QueueDecision
from muster.world.views import SCHEDULER_NAME, ContainerView

DIRECT = FleetPolicySpec.model_validate({"pools": [{"name": "all", "binding": "Direct"}]})


def committed(plan: Plan) -> Any:
    """The spec that the plan commits."""
    (action,) = plan.actions
    assert isinstance(action, CommitGang)
    return action.spec


def directly(scene: Scene) -> JobWorld:
    """The scene with all nodes in a pool that Muster binds."""
    scene.fleet_changes["policy"] = DIRECT
    return scene.world()


def told(plan: Plan) -> tuple[str, str]:
    """State and reason of the plan's status."""
    assert plan.status is not None
    return plan.status.state, plan.status.reason


# The turn.


def test_before_the_queue_has_answered_nothing_is_done_and_nothing_is_told() -> None:
    plan = decide(Scene(a_job()).fleet().but(queue_decision=None).world(), SETTINGS)
    assert (plan.actions, plan.status, plan.overtaken) == ((), None, False)


def test_what_the_queue_promises_is_committed_with_its_domains() -> None:
    plan = decide(Scene(a_job(nodes=3)).fleet(4).world(), SETTINGS)
    spec = committed(plan)
    assert [member.node for member in spec.members] == ["n0", "n1", "n2"]
    assert [(count.level, count.domains) for count in spec.topology] == [("block", 1), ("rack", 2)]
    assert "(1 block, 2 racks)" in plan.announcements[0].note


def test_a_promise_that_no_longer_holds_is_given_back_to_the_queue() -> None:
    turn = QueueDecision(1, 1, Placed(("n0", "n1", "n2")))
    scene = Scene(a_job(nodes=3)).fleet(4).node("n1", unschedulable=True).but(queue_decision=turn)
    plan = decide(scene.world(), SETTINGS)
    assert (plan.actions, plan.overtaken) == ((), True)


def test_a_promise_of_a_node_that_is_the_last_choice_for_its_health_holds() -> None:
    scene = Scene(a_job(nodes=3)).fleet(3).but(queue_decision=QueueDecision(1, 1, Placed(("n0", "n1", "n2"))))
    world = scene.world()
    world.fleet.exclude("n1", Exclusion("IbPortDown", last_choice=True))
    assert [member.node for member in committed(decide(world, SETTINGS)).members] == ["n0", "n1", "n2"]
    world.fleet.exclude("n1", Exclusion("IbPortDown"))
    assert decide(world, SETTINGS).overtaken


def test_a_pod_that_is_on_its_way_to_the_last_choice_goes_on() -> None:
    world = Scene(a_job(nodes=2)).fleet(3).gang().world()
    world.fleet.exclude("n1", Exclusion("IbPortDown", last_choice=True))
    assert world.gang is not None
    assert placing.closed_before_binding(world, world.gang.spec) == {}
    world.fleet.exclude("n1", Exclusion("IbPortDown"))
    assert placing.closed_before_binding(world, world.gang.spec) == {1: "unhealthy (IbPortDown)"}


def test_who_waits_says_why_in_numbers() -> None:
    plan = decide(Scene(a_job(nodes=5)).fleet(4).world(), SETTINGS)
    assert told(plan)[0] == "Pending"
    assert plan.status is not None
    assert plan.status.waiting is not None
    assert (plan.status.waiting.needs, plan.status.waiting.free, plan.status.waiting.position) == (5, 4, 1)
    running = decide(Scene(a_job(nodes=3)).fleet(4).gang().pods().world(), SETTINGS)
    assert running.status is not None
    assert running.status.waiting is None


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(Scene(a_job(suspend=True)).fleet(), id="suspended"),
        pytest.param(Scene(a_job(placement={"required": "galaxy"})).fleet(), id="stalled"),
        pytest.param(Scene(a_job()).fleet().gang().pods(), id="has its nodes"),
        pytest.param(Scene(a_job()).fleet().pod(0), id="old pods are left"),
        pytest.param(Scene(a_job()).fleet().gang(go=False, members=[], hold_until=at(200)), id="gave its nodes back"),
    ],
)
def test_who_waits_for_no_nodes_is_not_in_the_queue(scene: Scene) -> None:
    assert request_of(scene.world()) is None


@pytest.mark.parametrize(
    ("dead", "removed_seconds", "now_seconds", "are_kept"),
    [
        ({"a", "b"}, 0.0, 100.0, False),
        ({"a"}, 90.0, 100.0, False),
        ({"a"}, 89.0, 100.0, True),
        ({"a"}, 0.0, 9_000.0, True),  # the fence of the other is over, but it may be heard again
    ],
)
@pytest.mark.parametrize("spec", [{"suspend": True}, {}, {"launch": {"mode": "Plain"}}])
def test_without_nodes_a_job_forgets_former_workers_once_all_are_dead(
    dead: set[str], removed_seconds: float, now_seconds: float, are_kept: bool, spec: dict[str, Any]
) -> None:
    """A leader forgets what it has seen, and nodes go, before the job gets nodes again."""
    workers = [an_unfenced_worker(uid, 30) for uid in ("a", "b")]
    scene = Scene(a_job(**spec), now_seconds).fleet(1).gang(go=False, members=[], unfenced_workers=workers)
    scene.but(proved_dead=frozenset(dead), removed_seconds={"b": removed_seconds})
    plan = decide(scene.world(), SETTINGS)
    if are_kept:
        assert (plan.actions, plan.wake_in_seconds) == ((), 30.0)
    else:
        before = scene.record
        assert before is not None
        assert committed(plan) == before.model_copy(update={"unfenced_workers": []})


def test_a_gang_that_has_lost_a_node_waits_beside_the_others() -> None:
    lost_one = worker_views("n0", "", "n2")
    request = request_of(Scene(a_job()).fleet(3).gang(go=False, members=lost_one).world())
    assert request is not None
    assert (request.count, request.kept, request.broken) == (1, ("n0", "n2"), ())


def test_a_broken_segment_is_mended_beside_what_is_left_of_it() -> None:
    job = a_job(nodes=4, placement={"segmentSize": 2})
    lost_three = worker_views("n0", "", "", "")
    request = request_of(Scene(job).fleet(4).gang(go=False, members=lost_three).world())
    assert request is not None
    assert [(part.missing, part.beside) for part in request.broken] == [(1, ("n0",)), (2, ())]


def test_segments_and_nodes_go_by_rank_whatever_index_and_place_are() -> None:
    """A spare that stepped in has an index beyond the gang's size, and stands where its record was appended."""
    job = a_job(nodes=4, placement={"segmentSize": 2, "required": "rack"})
    members = [
        Member(index=7, rank=2, node=""),
        Member(index=3, rank=3, node="n3"),
        Member(index=0, rank=0, node="n0"),
        Member(index=5, rank=1, node=""),
    ]
    scene = Scene(job).fleet(4).gang(go=False, members=members)
    request = request_of(scene.world())
    assert request is not None
    assert [(part.missing, part.beside) for part in request.broken] == [(1, ("n0",)), (1, ("n3",))]
    answer = QueueDecision(1, 1, Placed(("n1", "n2")))
    (commit,) = decide(scene.but(queue_decision=answer).world(), SETTINGS).actions
    assert isinstance(commit, CommitGang)
    assert {member.rank: member.node for member in commit.spec.members} == {0: "n0", 1: "n1", 2: "n2", 3: "n3"}


# Binding.


def unbound(scene: Scene, **changes: Any) -> Scene:
    """All pods exist and wait for Muster to bind them."""
    for index in range(scene.job.spec.nodes):
        scene.pod(index, node="", phase="Pending", containers=(), scheduler=SCHEDULER_NAME, **changes)
    return scene


def test_pods_on_nodes_of_a_direct_pool_are_musters_to_bind() -> None:
    pods = [
        a for a in decide(directly(Scene(a_job()).fleet().gang(go=False)), SETTINGS).actions if type(a) is CreatePod
    ]
    assert {pod.manifest["spec"]["schedulerName"] for pod in pods} == {"muster"}
    others = decide(Scene(a_job()).fleet().gang(go=False).world(), SETTINGS).actions
    assert not any("schedulerName" in pod.manifest["spec"] for pod in others if type(pod) is CreatePod)


def test_a_gang_is_bound_when_every_pod_exists() -> None:
    scene = unbound(Scene(a_job()).fleet().gang(go=False))
    assert decide(directly(scene), SETTINGS).actions == tuple(
        BindPod(pod.name, pod.uid, f"n{index}") for index, pod in enumerate(scene.pod_views.values())
    )
    del scene.pod_views[next(iter(scene.pod_views))]
    assert not any(isinstance(action, BindPod) for action in decide(directly(scene), SETTINGS).actions)


def test_what_is_bound_or_somebody_elses_to_bind_is_left_alone() -> None:
    scene = unbound(Scene(a_job()).fleet().gang(go=False))
    scene.pod(0, node="n0").pod(1, scheduler="default-scheduler")
    (binding,) = decide(directly(scene), SETTINGS).actions
    assert isinstance(binding, BindPod)
    assert binding.node == "n2"


def test_a_scheduling_gate_holds_back_the_whole_gang() -> None:
    scene = unbound(Scene(a_job()).fleet().gang(go=False)).pod(1, gates=("example.org/quota",))
    plan = decide(directly(scene), SETTINGS)
    assert (plan.actions, told(plan)) == ((), ("Starting", "SchedulingGated"))


def test_a_pod_that_a_kubelet_refused_after_muster_bound_it_is_nobodys_failure() -> None:
    scene = Scene(a_job()).fleet(4).gang(go=False).pods()
    scene.ended(1, reason="", scheduler=SCHEDULER_NAME).pod(1, reason="OutOfnvidia.com/gpu", message="no room")
    plan = decide(directly(scene), SETTINGS)
    spec = committed(plan)
    assert [member.node for member in spec.members] == ["n0", "n3", "n2"]
    assert (spec.incidents, spec.level, set(spec.excluded_nodes)) == ([], Level.START, {"n1"})
    assert plan.announcements[0].reason == "NodeConflict"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, ""),
        ({"schedulerName": "default-scheduler"}, ""),
        ({"schedulerName": "volcano"}, "a scheduler named in the template"),
        ({"resourceClaims": [{"name": "gpus"}]}, "resource claims"),
        ({"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}, "ephemeral volumes"),
        ({"volumes": [{"name": "scratch", "emptyDir": {}}]}, ""),
        (
            {
                "affinity": {
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}
                }
            },
            "required affinity between pods",
        ),
        ({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{}]}}}, ""),
        ({"topologySpreadConstraints": [{"topologyKey": "x"}]}, "topology spread constraints"),
        ({"topologySpreadConstraints": [{"topologyKey": "x", "whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
    ],
)
def test_what_only_the_scheduler_can_deal_with(spec: dict[str, Any], words: str) -> None:
    assert scheduler_for(spec) == words


def test_a_template_that_needs_the_scheduler_waits_for_other_nodes_and_says_why() -> None:
    template = {
        "spec": {
            "containers": [{"name": "main", "image": "trainer:1", "command": ["train"]}],
            "resourceClaims": [{"name": "gpus"}],
        }
    }
    plan = decide(directly(Scene(a_job(nodes=2, template=template)).fleet(2)), SETTINGS)
    assert told(plan)[0] == "Pending"
    assert plan.status is not None
    placed = next(condition for condition in plan.status.conditions if condition.type == "Placed")
    assert "bound directly, which does not work with resource claims" in placed.message


# Giving back.


def worker_views(*nodes: str) -> list[Member]:
    """Members on these nodes; "" for one that has none."""
    return [Member(index=place, rank=place, node=node) for place, node in enumerate(nodes)]


def late(scene: Scene, seconds: float = 301.0) -> Scene:
    """The gang was committed so long ago."""
    assert scene.record is not None
    scene.record = scene.record.model_copy(update={"time": at(scene.seconds - seconds)})
    return scene


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        pytest.param(
            Scene(a_job()).fleet().gang(go=False).pods().but(create_error=CreateError("QuotaExceeded", "no quota")),
            "its pod does not exist: no quota",
            id="creation stopped halfway",
        ),
        pytest.param(
            Scene(a_job())
            .fleet(3)
            .gang(go=False)
            .pods()
            .pod(2, node="", phase="Pending", unschedulable_message="busy"),
            "its pod is not bound: busy",
            id="not bound, and no other node",
        ),
    ],
)
def test_a_gang_that_cannot_be_assembled_gives_its_nodes_back(scene: Scene, words: str) -> None:
    if "does not exist" in words:
        scene.pod_views.popitem()
    early = decide(late(scene, 299.0).world(), SETTINGS)
    assert not any(isinstance(action, CommitGang) for action in early.actions)
    plan = decide(late(scene).world(), SETTINGS)
    spec = committed(plan)
    assert (spec.members, spec.reason, spec.releases, spec.hold_until) == ([], "AssemblyTimedOut", 1, at(160))
    assert f"worker 2 on n2: {words}" in plan.announcements[0].note
    assert "stand behind those of other namespaces" in plan.announcements[0].note
    assert was_never_assembled(spec)


def test_a_claim_that_is_not_there_is_said_once() -> None:
    said = 'persistentvolumeclaim "ckptt" not found. not found'
    scene = Scene(a_job()).fleet().gang(go=False).pods().pod(2, node="", phase="Pending", unschedulable_message=said)
    status = decide(scene.world(), SETTINGS).status
    assert status is not None
    (message,) = {each.message for each in status.conditions if each.reason == "Unschedulable"}
    assert message == 'worker 2 on n2: persistentvolumeclaim "ckptt" not found.'


def test_only_those_who_are_late_move_where_there_are_other_nodes() -> None:
    scene = Scene(a_job()).fleet().gang(go=False).pods().pod(2, node="", phase="Pending", unschedulable_message="busy")
    plan = decide(late(scene).world(), SETTINGS)
    spec = committed(plan)
    assert [(member.node, member.incarnation) for member in spec.members] == [("n0", 1), ("n1", 1), ("n3", 2)]
    assert (spec.reason, spec.releases, spec.hold_until) == ("AssemblyTimedOut", 0, None)
    assert "n2" in spec.excluded_nodes
    assert "worker 2 on n2: its pod is not bound: busy" in plan.announcements[0].note


def drained_too_late(scene: Scene, *, node: str = "") -> Scene:
    """Worker 2 was to come back on n2, which has been cordoned meanwhile; its pod is on no node, or on this one."""
    return scene.node("n2", unschedulable=True).gang(go=False).pods().pod(2, node=node, phase="Pending")


def test_a_worker_that_waits_for_a_node_that_was_closed_meanwhile_moves_to_another() -> None:
    scene = drained_too_late(Scene(a_job()).fleet())
    assert not any(isinstance(action, CommitGang) for action in decide(late(scene, 4.0).world(), SETTINGS).actions)
    plan = decide(late(scene, 6.0).world(), SETTINGS)
    spec = committed(plan)
    assert [(member.node, member.incarnation) for member in spec.members] == [("n0", 1), ("n1", 1), ("n3", 2)]
    assert (spec.reason, spec.excluded_nodes, spec.incidents) == ("NodeNotUsable", {}, [])
    assert "worker 2 on n2 (cordoned). Muster moves it: attempt 2 on n0, n1, n3" in plan.announcements[0].note


def left_out(scene: Scene, *names: str) -> Scene:
    """The policy's scope selects all nodes but these."""
    scope = {"nodeSelector": {"matchExpressions": [{"key": "other", "operator": "DoesNotExist"}]}}
    scene.fleet_changes["policy"] = FleetPolicySpec.model_validate({"scope": scope})
    for name in names:
        scene.node(name, labels={**scene.nodes[name].labels, "other": "yes"})
    return scene


def test_a_gang_on_nodes_that_the_scope_leaves_out_goes_on() -> None:
    scene = left_out(Scene(a_job()).fleet().gang().pods().all(running(1, step=7)), "n0", "n1", "n2")
    assert decide(scene.world(), SETTINGS).actions == decide(left_out(scene).world(), SETTINGS).actions
    assert told(decide(scene.world(), SETTINGS))[0] == "Running"


@pytest.mark.parametrize(("free", "nodes"), [(True, ["n0", "n3", "n2"]), (False, ["n0", "", "n2"])])
def test_a_worker_that_dies_outside_the_scope_is_replaced_within_it(free: bool, nodes: list[str]) -> None:
    scene = left_out(Scene(a_job()).fleet().gang().pods().all(running(1, step=7)), "n0", "n1")
    scene.node("n3", unschedulable=not free)
    scene.pod(1, phase="Failed", containers=(ContainerView("trainer", terminated=True, exit_code=137),))
    spec = committed(decide(scene.world(), SETTINGS))
    assert [member.node for member in spec.members] == nodes


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(drained_too_late(Scene(a_job()).fleet(3)), id="no other node"),
        pytest.param(drained_too_late(Scene(a_job()).fleet(), node="n2"), id="its pod is there already"),
    ],
)
def test_it_waits_on_where_nothing_is_won(scene: Scene) -> None:
    plan = decide(late(scene, 60.0).world(), SETTINGS)
    assert not any(isinstance(action, CommitGang) for action in plan.actions)


def test_it_waits_longer_each_time_and_a_start_forgets_it() -> None:
    scene = late(Scene(a_job()).fleet().gang(go=False, releases=6))
    spec = committed(decide(scene.world(), SETTINGS))
    assert (spec.releases, spec.hold_until) == (7, at(100 + 3600))
    again = decide(replace(scene, record=spec, seconds=at_seconds(spec) + 1).world(), SETTINGS)
    assert [member.node for member in committed(again).members] == ["n0", "n1", "n2"]


def at_seconds(spec: Any) -> float:
    """When the record may be tried again, in seconds into the test."""
    return float((spec.hold_until - at(0)).total_seconds())


@pytest.mark.parametrize(
    ("reason", "why"),
    [
        ("AssemblyTimedOut", "it could not be assembled on them"),
        ("NodesYielded", "it found no nodes for all of its workers"),
    ],
)
def test_meanwhile_it_says_why_and_when_it_tries_again(reason: str, why: str) -> None:
    scene = Scene(a_job()).fleet().gang(go=False, members=[], hold_until=at(160), reason=reason)
    plan = decide(scene.world(), SETTINGS)
    assert (told(plan), plan.wake_in_seconds) == (("Pending", reason), 60.0)
    assert plan.status is not None
    messages = {condition.message for condition in plan.status.conditions}
    assert f"gave its nodes back because {why}; next try at 00:02:40 UTC" in messages


@pytest.mark.parametrize(
    ("seen_seconds", "held_seconds"),
    [(0.0, 3600.0), (3000.0, 600.0), (3600.0, 0.0), (9000.0, 0.0)],
)
def test_a_hold_lasts_no_longer_than_the_longest_whatever_clocks_showed(
    seen_seconds: float, held_seconds: float
) -> None:
    """An earlier leader's clock was hours ahead."""
    ahead = at(100 + 7 * 3600)
    scene = Scene(a_job()).fleet().gang(go=False, members=[], hold_until=ahead, reason="AssemblyTimedOut")
    world = scene.but(attempt_age_seconds=seen_seconds).world()
    assert holds.held_seconds(world, scene.record) == held_seconds
    plan = decide(world, SETTINGS)
    if held_seconds:
        assert (told(plan), plan.wake_in_seconds) == (("Pending", "AssemblyTimedOut"), held_seconds)
    else:
        assert [member.node for member in committed(plan).members] == ["n0", "n1", "n2"]
    assert holds.seconds_since_hold(world, scene.record) == min(seen_seconds, max(-7 * 3600, seen_seconds - 3600))


def with_a_hole(scene: Scene) -> Scene:
    """Worker 1 has lost its node, and there is no other."""
    return late(scene.fleet(3).node("n1", unschedulable=True).gang(go=False, members=worker_views("n0", "", "n2")))


def test_a_gang_with_a_hole_keeps_its_nodes_while_nobody_else_wants_them() -> None:
    plan = decide(with_a_hole(Scene(a_job())).world(), SETTINGS)
    assert not any(isinstance(action, CommitGang) for action in plan.actions)
    assert told(plan) == ("Starting", "InsufficientNodes")


def test_of_two_gangs_that_hold_what_the_other_needs_one_gives_back() -> None:
    mine = with_a_hole(Scene(a_job())).world()
    other = Scene(a_job("other", nodes=2)).fleet(0).but(fleet=mine.fleet).world()
    world, _ = in_queue(mine, other)
    plan = decide(world, SETTINGS)
    assert committed(plan).members == []
    assert "other jobs wait for nodes" in plan.announcements[0].note
    spec = committed(plan)
    assert (spec.reason, was_never_assembled(spec)) == ("NodesYielded", False), (
        "it has trained: its namespace pays nothing"
    )


@pytest.mark.parametrize(
    "limit",
    [
        pytest.param(None, id="no limit"),
        pytest.param(NodeLimit(3), id="the gang is as large as the limit"),
        pytest.param(NodeLimit(8, beside=5), id="with others of the namespace"),
        pytest.param(NodeLimit(8, beside=6), id="others of the namespace have the rest"),
        pytest.param(NodeLimit(2), id="the limit was lowered"),
        pytest.param(NodeLimit(0), id="its namespace is not enabled any more"),
    ],
)
def test_a_gang_gets_a_node_in_place_of_a_lost_one_whatever_the_limit_is(limit: NodeLimit | None) -> None:
    """Workers on n0, n1 and n2, of which n1 is lost; n3 is free."""
    scene = Scene(a_job()).fleet(4).node("n1", ready=False).gang().pods().but(limit=limit)
    scene.fleet_changes["holders"] = {f"n{number}": {scene.job.metadata.uid} for number in range(3)}
    world = scene.world()
    assert world.gang is not None
    found = moves.with_members_moved(world, world.gang.spec, {1}, "NodeUnreachable")
    assert [member.node for member in found.members] == ["n0", "n3", "n2"]


@pytest.mark.parametrize(("limit", "gives_way"), [(None, False), (NodeLimit(6), False), (NodeLimit(4), True)])
def test_a_gang_whose_limit_has_no_room_to_move_gives_way_without_waiters(
    limit: NodeLimit | None, gives_way: bool
) -> None:
    """It would have to move as a whole."""
    answer = NotPlaced("TopologyUnsatisfied", "needs 1 more node in rack r0")
    scene = with_a_hole(Scene(a_job())).pods().but(queue_decision=QueueDecision(1, 1, answer), limit=limit)
    scene.fleet_changes["holders"] = {node: {scene.job.metadata.uid} for node in ("n0", "n2")}
    plan = decide(scene.world(), SETTINGS)
    assert any(isinstance(action, CommitGang) for action in plan.actions) is gives_way
    if gives_way:
        assert (committed(plan).members, committed(plan).reason) == ([], "NodesYielded")


def test_a_promise_beyond_the_limit_is_given_back_to_the_queue() -> None:
    """Between the plan and the taking another gang of the namespace has lost a node and has another one."""
    scene = Scene(a_job(nodes=2)).fleet(4).but(queue_decision=QueueDecision(1, 1, Placed(("n0", "n1"))))
    assert len(committed(decide(scene.but(limit=NodeLimit(4, beside=2)).world(), SETTINGS)).members) == 2
    plan = decide(scene.but(limit=NodeLimit(4, beside=3)).world(), SETTINGS)
    assert (plan.actions, plan.overtaken) == ((), True)


@pytest.mark.parametrize(
    "members", [("n0", "n1", "n2"), ("n0", "", "n2")], ids=["all nodes named", "one node to be found"]
)
def test_for_a_record_beyond_its_namespaces_limit_no_pod_is_made_and_its_job_waits(members: tuple[str, ...]) -> None:
    """Nobody was refused these nodes for it, so that pods there would take them from others."""
    scene = Scene(a_job()).fleet(4).gang(go=False, members=worker_views(*members))
    plan = decide(scene.but(limit=NodeLimit(2), beyond_limit=True).world(), SETTINGS)
    spec = committed(plan)
    assert (spec.members, spec.reason, was_never_assembled(spec)) == ([], "NamespaceLimit", False)
    (told_so,) = plan.announcements
    assert (told_so.reason, told_so.warning) == ("NamespaceLimit", True)
    assert (
        "more than the limit of namespace default has room for: it may hold 2, and its other jobs have 0."
        in told_so.note
    )
    assert "makes no pods" in told_so.note
    assert "ask the fleet's administrators for a higher limit" in told_so.note
    scene.record, scene.changes = spec, {}
    assert request_of(scene.but(limit=NodeLimit(2)).world()) is not None, "it is in the queue"


@pytest.mark.parametrize(("changes", "count"), [({}, 1), ({"unschedulable": True}, 0), ({"ready": False}, 0)])
def test_a_node_that_a_gang_has_left_counts_while_its_pod_is_there(changes: dict[str, Any], count: int) -> None:
    """A node that is out of service does not count."""
    scene = Scene(a_job()).fleet(4).node("n1", **changes).gang(members=worker_views("n0", "", "n2")).pods()
    scene.pod(1, node="n1")
    scene.fleet_changes["holders"] = {f"n{number}": {scene.job.metadata.uid} for number in range(3)}
    world = scene.but(limit=NodeLimit(3)).world()
    over = placing.over_limit(world, ("n0", "n2"), 1)
    assert (over is not None) == bool(count)


def test_the_status_tells_how_many_domains_the_gang_is_in() -> None:
    scene = Scene(a_job(nodes=3)).fleet(4)
    spec = committed(decide(scene.world(), SETTINGS))
    scene.record = spec
    plan = decide(scene.world(), SETTINGS)
    assert isinstance(plan.status, TrainingJobStatus)
    assert [(count.level, count.domains) for count in plan.status.topology] == [("block", 1), ("rack", 2)]


def test_nodes_that_never_suffice_are_told_so() -> None:
    answer = NotPlaced("NeverFits", "needs 9 nodes: the fleet has 4")
    plan = decide(Scene(a_job(nodes=3)).fleet(4).but(queue_decision=QueueDecision(1, 1, answer)).world(), SETTINGS)
    assert told(plan) == ("Pending", "NeverFits")


@pytest.mark.parametrize("mode", ["Managed", "Plain"])
def test_whose_pod_does_not_come_to_run_is_said_after_a_minute(mode: str) -> None:
    job = a_job(nodes=2, launch={"mode": mode}, checkpoint={})
    members = [Member(index=i, rank=i, node=f"n{i}", incarnation=1, pod_uid=f"pod-{i}-1") for i in range(2)]
    scene = Scene(job).fleet(2).gang(go=False, members=members).pods().pod(0, node="n0", phase="Pending")
    assert told(decide(scene.but(attempt_age_seconds=59.0).world(), SETTINGS)) == ("Starting", "Assembling")
    plan = decide(scene.but(attempt_age_seconds=61.0).world(), SETTINGS)
    assert told(plan) == ("Starting", "PodNotRunning")
    assert plan.status is not None
    assert any("waiting for the pod of worker 0 on n0 to run" in c.message for c in plan.status.conditions)


VOLUMES = [
    {"name": "settings", "configMap": {"name": "settings"}},
    {"name": "maybe", "configMap": {"name": "maybe", "optional": True}},
    {"name": "token", "secret": {"secretName": "hf-token"}},
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "all", "projected": {"sources": [{"secret": {"name": "tls"}}, {"configMap": {"name": "ca"}}, "odd"]}},
    {"name": "scratch", "emptyDir": {}},
    {"name": "odd", "configMap": "odd", "projected": []},
]


def waits(volumes: list[dict[str, Any]], **pod: Any) -> str:
    """What is said of a worker whose pod does not run."""
    container = {"name": "main", "image": "trainer:1", "command": ["train"]}
    job = a_job(nodes=2, checkpoint={}, template={"spec": {"containers": [container], "volumes": volumes}})
    members = [Member(index=i, rank=i, node=f"n{i}", incarnation=1, pod_uid=f"pod-{i}-1") for i in range(2)]
    scene = Scene(job).fleet(2).gang(go=False, members=members).pods().pod(0, phase="Pending", **pod)
    plan = decide(scene.but(attempt_age_seconds=61.0).world(), SETTINGS)
    assert plan.status is not None
    return next(each.message for each in plan.status.conditions if each.message.startswith("waiting for the pod"))


def test_what_the_kubelet_may_lack_for_a_pod_is_said_with_where_its_cause_stands() -> None:
    mounts = "or mounts ConfigMap ca, ConfigMap settings, Secret hf-token, Secret tls, claim data. What fails"
    assert mounts in waits(VOLUMES)
    assert "it pulls images. What fails" in waits([])
    assert waits([]).endswith(": kubectl describe pod -n default " + pod_name("job", "uid-of-job", 0, 1))
    many = [{"name": f"v{at}", "secret": {"secretName": f"s{at}"}} for at in range(12)]
    assert "Secret s5 and 4 more. What" in waits(many)
    begun = (ContainerView("setup", init=True, terminated=True), ContainerView("main"))
    assert waits(VOLUMES, containers=begun) == waits(VOLUMES, node="") == "waiting for the pod of worker 0 on n0 to run"


def test_a_decision_without_a_prepared_solver_names_only_what_to_prepare() -> None:
    scene = Scene(a_job()).fleet(PART + 8).gang().pods().all(running(1, step=7))
    del scene.nodes["n1"]
    world = scene.world()
    live = world.fleet

    def decided() -> Plan:
        return decide(replace(world, fleet=live.snapshot(KnownAges({}))), SETTINGS)

    plan = decided()
    assert plan.unprepared is not None
    assert plan == Plan(unprepared=plan.unprepared)
    list(Tree.prepare(live, plan.unprepared))
    assert decided().commits


@pytest.mark.parametrize(
    ("some", "members", "few"), [(1, 1, False), (1, 2, True), (2, 3, False), (2, 4, False), (2, 5, True), (3, 6, False)]
)
def test_fewer_than_half_of_a_gang_move_or_one_alone(some: int, members: int, few: bool) -> None:
    assert are_few(some, members) is few

"""The order of the gates of a start: where two of them would wait, the first one says for what."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_unfenced_worker, at

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import Member
from muster.lifecycle import starting
from muster.lifecycle.plan import BindPod, CommitGang, CreatePod, Plan
from muster.lifecycle.start_barrier import await_all_pods, open_barrier
from muster.lifecycle.start_burn_in import burn_in, burn_in_before_pods
from muster.lifecycle.start_context import StartContext
from muster.lifecycle.start_earlier_attempts import await_fences, back_off, list_checkpoints_again
from muster.lifecycle.start_nodes import (
    give_members_nodes,
    move_late_workers,
    move_off_closed_nodes,
    move_off_nodes_outside,
    return_nodes_beyond_limit,
)
from muster.lifecycle.start_pods import (
    await_bindable_pods,
    bind_pods,
    check_template_shape,
    create_pods,
    record_pod_uids,
)
from muster.world.job import CreateError
from muster.world.views import SCHEDULER_NAME


def members(*nodes: str, are_recorded: bool = False) -> dict[str, Any]:
    """The members of a gang on these nodes; whether it is on record which pods are theirs."""
    uids = [f"pod-{index}-1" if are_recorded else "" for index in range(len(nodes))]
    return {
        "members": [
            Member(index=index, rank=index, node=node, incarnation=1, pod_uid=uid)
            for index, (node, uid) in enumerate(zip(nodes, uids, strict=True))
        ]
    }


LACKS_A_NODE = members("n0", "n1", "")
RECORDED = members("n0", "n1", "n2", are_recorded=True)
HELD = {"hold_until": at(500)}
ALIVE = {"unfenced_workers": [an_unfenced_worker("old", 900)]}
LATE = {"time": at(-400)}
REFUSED = CreateError("QuotaExceeded", "exceeded quota: pods")
MISSHAPEN: dict[str, Any] = {"template": {"spec": {"containers": "none"}}}
PLAIN: dict[str, Any] = {"launch": {"mode": "Plain"}, "checkpoint": {}}
BURN_IN = {"policy": FleetPolicySpec.model_validate({"preflight": {"profile": "Quick", "onInconclusive": "Wait"}})}


def a_start(spec: dict[str, Any] | None = None, **gang: Any) -> Scene:
    """A gang without pods on n0 to n2 of six nodes."""
    scene = Scene(a_job(**(spec or {}))).fleet(6).gang(go=False, **gang)
    scene.fleet_changes |= BURN_IN
    return scene


def unbound(scene: Scene, indices: Sequence[int] = range(3), **changes: Any) -> Scene:
    """Pods that Muster is to bind."""
    for index in indices:
        scene.pod(index, node="", phase="Pending", scheduler=SCHEDULER_NAME, **changes)
    return scene


def without_burn_in(scene: Scene) -> Scene:
    scene.fleet_changes.clear()
    return scene


def closed(scene: Scene) -> Scene:
    return scene.node("n1", unschedulable=True)


def outside(scene: Scene) -> Scene:
    """Its node n1 is outside the policy's scope."""
    for name, node in scene.nodes.items():
        scene.node(name, labels={**node.labels, "cell": "b" if name == "n1" else "a"})
    scope = {"nodeSelector": {"matchLabels": {"cell": "a"}}}
    scene.fleet_changes["policy"] = FleetPolicySpec.model_validate({"scope": scope})
    return scene


@pytest.mark.parametrize(
    ("scene", "first", "second"),
    [
        (a_start(**LACKS_A_NODE).but(beyond_limit=True), return_nodes_beyond_limit, give_members_nodes),
        (a_start(**LACKS_A_NODE, **ALIVE).but(lost={"old"}), give_members_nodes, list_checkpoints_again),
        (outside(a_start(**LACKS_A_NODE)), give_members_nodes, move_off_nodes_outside),
        (outside(a_start(**ALIVE)).but(lost={"old"}), move_off_nodes_outside, list_checkpoints_again),
        (a_start(**LATE, **ALIVE).but(lost={"old"}), list_checkpoints_again, move_late_workers),
        (closed(a_start(**LATE)), move_late_workers, move_off_closed_nodes),
        (closed(a_start(MISSHAPEN)), move_off_closed_nodes, check_template_shape),
        (unbound(a_start(), [0], gates=("quota",)), create_pods, await_bindable_pods),
        (unbound(a_start(), gates=("quota",)), await_bindable_pods, bind_pods),
        (unbound(a_start()), bind_pods, burn_in),
        (a_start(**HELD).pods(), burn_in, back_off),
        (without_burn_in(a_start(**HELD)).pods(), back_off, open_barrier),
        (a_start(PLAIN, **LACKS_A_NODE).but(beyond_limit=True), return_nodes_beyond_limit, give_members_nodes),
        (a_start(PLAIN, **LACKS_A_NODE, **HELD), give_members_nodes, back_off),
        (outside(a_start(PLAIN, **HELD)), move_off_nodes_outside, back_off),
        (a_start(PLAIN, **HELD, **ALIVE), back_off, await_fences),
        (a_start(PLAIN, **LATE, **ALIVE).but(create_error=REFUSED), await_fences, move_late_workers),
        (closed(a_start(PLAIN, **LATE)).but(create_error=REFUSED), move_late_workers, move_off_closed_nodes),
        (closed(a_start(PLAIN)), move_off_closed_nodes, burn_in_before_pods),
        (a_start(PLAIN | MISSHAPEN), burn_in_before_pods, check_template_shape),
        # However long the tests take: no pod of it is late that was not to be made yet.
        (a_start(PLAIN | MISSHAPEN, **LATE), burn_in_before_pods, check_template_shape),
        (unbound(a_start(PLAIN), [0], gates=("quota",)), create_pods, await_bindable_pods),
        (unbound(a_start(PLAIN), gates=("quota",)), await_bindable_pods, record_pod_uids),
        (unbound(a_start(PLAIN), deleting=True), await_bindable_pods, record_pod_uids),
        (unbound(a_start(PLAIN)), record_pod_uids, bind_pods),
        (unbound(a_start(PLAIN, **RECORDED)), bind_pods, await_all_pods),
    ],
)
def test_the_first_gate_that_waits_decides(scene: Scene, first: starting.Gate, second: starting.Gate) -> None:
    world = scene.world()
    assert world.gang is not None
    start = StartContext(world, world.gang.spec, SETTINGS)
    assert second(start) not in (None, first(start))
    assert starting.plan(world, world.gang, SETTINGS) == first(start)


def plan_outside(scene: Scene, *, free: bool = True) -> Plan:
    """What is done about a start with n1 outside the scope; `free`: another node takes a worker."""
    outside(scene)
    for name in () if free else ("n3", "n4", "n5"):
        scene.node(name, unschedulable=True)
    world = scene.world()
    assert world.gang is not None
    return starting.plan(world, world.gang, SETTINGS)


@pytest.mark.parametrize(
    ("spec", "free", "nodes"),
    [
        pytest.param({}, True, ["n0", "n3", "n2"], id="managed"),
        pytest.param({}, False, ["n0", "", "n2"], id="managed, no node is free"),
        pytest.param(PLAIN, True, ["n0", "n2", "n3"], id="plain"),
        pytest.param(PLAIN, False, ["", "", ""], id="plain, no node is free"),
    ],
)
def test_no_pod_is_made_outside_the_scope_whatever_the_record_says(
    spec: dict[str, Any], free: bool, nodes: list[str]
) -> None:
    plan = plan_outside(without_burn_in(a_start(spec)), free=free)
    (commit,) = plan.actions
    assert isinstance(commit, CommitGang)
    assert [member.node for member in commit.spec.members] == nodes
    assert (commit.spec.reason, commit.spec.incidents) == ("NodeNotUsable", [])
    assert "leaves out nodes that were chosen before: worker 1 on n1" in plan.announcements[0].note


def test_a_worker_whose_pod_is_outside_the_scope_already_starts_there() -> None:
    plan = plan_outside(without_burn_in(a_start()).pods())
    assert not any(isinstance(action, CommitGang | CreatePod) for action in plan.actions)
    plan = plan_outside(unbound(without_burn_in(a_start())))
    assert not any(isinstance(action, BindPod) for action in plan.actions), "not before it is bound"


@pytest.mark.parametrize("spec", [MISSHAPEN, PLAIN | MISSHAPEN], ids=["managed", "plain"])
def test_no_pod_is_made_of_a_misshapen_template(spec: dict[str, Any]) -> None:
    world = without_burn_in(a_start(spec)).world()
    assert world.gang is not None
    stalled = check_template_shape(StartContext(world, world.gang.spec, SETTINGS))
    assert stalled is not None
    assert starting.plan(world, world.gang, SETTINGS) == stalled

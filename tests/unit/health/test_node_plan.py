"""What is done about a node, by what is there: record, taint, Events."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.health.builders import Stored, after, evidence, rules

from muster.api.base import ObjectMeta
from muster.api.nodehealth import CheckOutcome, CheckResult, NodeHealth, NodeHealthStatus, Offences
from muster.api.preflight import Profile
from muster.health.node_plan import ChangeTaint, NodePlan, Present, plan_node
from muster.health.orders import Order
from muster.health.sources import UNHEALTHY_TAINT
from muster.world.fleet import Removal
from muster.world.views import Taint

NODE = "node-0001"
OURS = (Taint(UNHEALTHY_TAINT, "Xid79", "NoSchedule"),)


def an_order(*codes: int, observes: Sequence[str] = ()) -> tuple[Order, Present]:
    """What is decided about a node with these XIDs, before anything was done."""
    stored = Stored.of(10, rules(enforcement="Nodes", observedReasons=list(observes)))
    stored.report(NODE, *(evidence("Xid", code) for code in codes))
    metadata = ObjectMeta(name=NODE, uid="health")
    record = stored.healths[NODE].model_copy(update={"metadata": metadata})
    verdicts, rulings, effects, _ = stored.step(after(60))
    order = Order(NODE, verdicts[NODE], rulings[NODE], effects[NODE])
    return order, Present(record, stored.facts[NODE].node, None)


def planned(order: Order, present: Present, **changes: Any) -> NodePlan:
    return plan_node(order, replace(present, **changes), rules(enforcement="Nodes"))


def recorded(order: Order, present: Present) -> Present:
    """The record is written, and nothing else is done."""
    write = planned(order, present).record
    assert write is not None
    status = NodeHealthStatus.model_validate(write.status)
    status = status.model_copy(update={"agent": present.record.status.agent})
    return replace(present, record=present.record.model_copy(update={"status": status}))


def test_a_sick_node_is_recorded_tainted_and_announced() -> None:
    plan = planned(*an_order(79))
    assert plan.record is not None
    assert (plan.record.excludes, plan.record.may_wait) == (True, False)
    assert plan.record.status["exclusion"]
    assert plan.taint == ChangeTaint(True, "Xid79", "spec.health.enforcement")
    (event,) = plan.events
    assert (event.reason, event.is_warning, event.is_of_record) == ("NodeUnhealthy", True, True)
    assert event.text == plan.record.status["message"]


def test_what_is_there_already_is_not_done_again() -> None:
    order, present = an_order(79)
    present = recorded(order, present)
    assert present.node is not None
    tainted = replace(present.node, taints=OURS)
    plan = planned(order, present, node=tainted, in_force=order.outcome)
    assert plan == NodePlan(None, (), None)
    assert planned(order, present, in_force=order.outcome).taint == ChangeTaint(
        True, "Xid79", "spec.health.enforcement"
    ), "somebody took it away"
    assert planned(order, present, node=None, in_force=order.outcome) == NodePlan(None, (), None)


def test_a_new_leader_announces_what_is_wrong_and_nothing_of_nodes_that_are_well() -> None:
    order, present = an_order(79)
    assert [event.reason for event in planned(order, recorded(order, present)).events] == ["NodeUnhealthy"]
    assert planned(*an_order()).events == ()


def test_a_node_that_is_well_again_loses_the_taint_and_is_announced() -> None:
    sick, _ = an_order(79)
    order, present = an_order()
    assert present.node is not None
    plan = planned(order, present, node=replace(present.node, taints=OURS), in_force=sick.outcome)
    assert plan.taint == ChangeTaint(False, "")
    assert [(event.reason, event.is_warning) for event in plan.events] == [("NodeHealthy", False)]


@pytest.mark.parametrize(
    ("codes", "may_wait"),
    [((), True), ((79,), False), (None, False)],
    ids=["it is used as before", "it was out of use", "a new leader"],
)
def test_what_only_informs_people_may_wait(codes: tuple[int, ...] | None, may_wait: bool) -> None:
    present, (order, _) = recorded(*an_order()), an_order(13)
    before = None if codes is None else an_order(*codes)[0].outcome
    write = planned(order, present, in_force=before).record
    assert write is not None
    assert [finding["reason"] for finding in write.status["findings"]] == ["Xid13"]
    assert write.may_wait is may_wait


@pytest.mark.parametrize(
    "lasts",
    [
        {"check": CheckResult(id="1", profile=Profile.DEEP, outcome=CheckOutcome.PASS, time=after(60))},
        {"offences": Offences(score="1", as_of=after(60))},
        {"earlier_offences": (Offences(hardware="board:", score="1", as_of=after(60)),)},
        {"node_uid": "another"},
        {"boot_id": "boot-2"},
    ],
    ids=lambda lasts: next(iter(lasts)),
)
def test_what_lasts_does_not_wait(lasts: dict[str, Any]) -> None:
    order, present = an_order()
    verdict = replace(order.verdict, record=replace(order.verdict.record, **lasts))
    write = planned(replace(order, verdict=verdict), recorded(order, present), in_force=order.outcome).record
    assert write is not None
    assert write.may_wait is False


def test_what_the_policy_only_observes_is_announced_once_it_is_new() -> None:
    order, present = an_order(79, observes=["Xid79"])
    assert order.outcome.observed
    before = replace(order.outcome, observed="")
    (event,) = planned(order, present, in_force=before).events
    assert (event.reason, event.is_warning, event.is_of_record) == ("NodeObserved", False, False)
    assert planned(order, present, in_force=order.outcome).events == ()
    assert planned(order, present).events == (), "a new leader has nothing new to tell"


@pytest.mark.parametrize(
    ("removal", "reason"), [(None, "NodeMaintenance"), (Removal("gke", None, False), "NodeRemoval")]
)
def test_what_is_planned_is_announced_as_such(removal: Removal | None, reason: str) -> None:
    order, present = an_order(79)
    grounds = replace(order.verdict.grounds, only_planned=True, removal=removal)
    planned_order = replace(order, verdict=replace(order.verdict, grounds=grounds))
    (event,) = planned(planned_order, present).events
    assert (event.reason, event.is_warning) == (reason, False)


@pytest.mark.parametrize("name", ["incidents", "offences", "effect", "exclusion", "fault"])
def test_what_jobs_and_budgets_read_does_not_wait(name: str) -> None:
    sick, (order, _) = recorded(*an_order(79)).record, an_order()
    present = recorded(*an_order())
    status = present.record.status.model_copy(update={name: getattr(sick.status, name)})
    write = planned(
        order, present, record=present.record.model_copy(update={"status": status}), in_force=order.outcome
    ).record
    assert write is not None
    assert write.may_wait is False


def test_a_record_that_says_nothing_is_not_made() -> None:
    order, present = an_order()
    bare = NodeHealth(metadata=ObjectMeta(name=NODE))
    assert planned(order, present).record is not None
    assert planned(order, present, record=bare).record is None
    sick, present = an_order(79)
    write = planned(sick, present, record=bare).record
    assert write is not None
    assert write.is_new

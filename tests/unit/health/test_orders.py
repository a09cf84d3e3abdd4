"""What has to be put into force for which nodes: pure, from what is known at one moment."""

from typing import Any

from tests.unit.health.builders import NOW, evidence, sick, world
from tests.unit.lifecycle.builders import a_fleet, a_node

from muster.api.nodehealth import Evacuate, NodeHealth, VerdictState
from muster.health.assess import assess
from muster.health.effects import Effect
from muster.health.facts import NodeFacts
from muster.health.node_world import NodeWorld
from muster.health.orders import Circumstances, InForce, View, decide
from muster.health.rulings import Act
from muster.health.sources import Rules
from muster.health.verdict import Verdict
from muster.health.verdict_index import NodeIndex, VerdictIndex

SICK = {"n0", "n2"}


def verdict(name: str) -> Verdict:
    seen = {"kind": "Xid", "code": 79, "firstSeen": NOW.isoformat(), "lastSeen": NOW.isoformat(), "bootId": "boot-1"}
    status = {"evidence": [seen] if name in SICK else [], "agent": {"bootId": "boot-1"}}
    health = NodeHealth.model_validate({"metadata": {"name": name}, "status": status})
    return assess(NodeWorld(NodeFacts.from_node(a_node(name)), health, Rules.from_policy(a_fleet([]).policy), NOW))


def view(**changes: Any) -> View:
    """Four nodes, or `names`, two of them sick, of which one was judged just now."""
    names = changes.pop("names", [f"n{number}" for number in range(4)])
    fleet, index, nodes = a_fleet([a_node(name) for name in names]), VerdictIndex(), NodeIndex()
    nodes.rebuild(fleet)
    for name in names:
        index.set_verdict(name, verdict(name))
    circumstances: dict[str, Any] = {"nodes": names, "in_force": {}, "under_way": {}}
    judged = changes.pop("judged", {"n0", "n1"})
    rules = Rules.from_policy(fleet.policy)
    return View(NOW, rules, index, nodes, judged, Circumstances(**(circumstances | changes)))


def test_the_same_view_gives_the_same_orders() -> None:
    seen = view()
    assert decide(seen) == decide(seen)


def test_who_is_sick_comes_first_and_who_was_not_judged_and_is_well_is_left_alone() -> None:
    orders, breaker = decide(view())
    assert [order.name for order in orders] == ["n0", "n2", "n1"]
    assert [order.effect.avoid for order in orders] == [True, True, False]
    assert breaker.held == 1  # one of four at a time
    taken = next(order for order in orders if order.ruling.charge)
    assert taken.verdict.open_incident is not None
    assert taken.verdict.open_incident.taken_out_time == NOW
    assert taken.effect.evacuate is Evacuate.NOW


def test_equals_come_in_the_order_of_their_names() -> None:
    """The order of a set of names differs from process to process."""
    names = [f"n{number}" for number in range(40)]
    seen = view(names=names, judged=set(names))
    tainted = names[10:20]
    seen.node_index.tainted.update(tainted)
    others = [name for name in sorted(names) if name not in {*SICK, *tainted}]
    assert [order.name for order in decide(seen)[0]] == [*tainted, "n0", "n2", *others]


def test_what_is_in_force_or_under_way_is_not_ordered_again() -> None:
    orders, _ = decide(view(judged=set()))
    effects = {order.name: order.effect for order in orders}
    held = next(order for order in orders if not order.ruling.charge)
    known = InForce(VerdictState.UNHEALTHY, "Xid79", held.effect)
    again, _ = decide(view(judged=set(), in_force={held.name: known}))
    assert [order.name for order in again] == [name for name in effects if name != held.name]
    assert decide(view(judged=set(), under_way=effects))[0] == []
    assert decide(view(judged=set(), under_way={**effects, held.name: Effect()}))[0] == [held]


def test_a_node_whose_record_was_refused_comes_after_the_others() -> None:
    orders, _ = decide(view(refused={"n0"}))
    assert [order.name for order in orders if order.ruling.charge] == ["n2"]
    assert decide(view(refused={"n0", "n2"})) == decide(view())


def test_no_budget_is_asked_for_a_node_whose_record_cannot_be_read() -> None:
    orders, breaker = decide(view(unreadable={"n0"}))
    assert [order.name for order in orders if order.ruling.charge] == ["n2"]
    ruling = next(order.ruling for order in orders if order.name == "n0")
    assert (ruling.act, breaker.held, breaker.out) == (Act.HOLD, 0, 1)
    assert "NodeHealth cannot be read" in ruling.why


def test_while_the_policy_is_unknown_nothing_is_charged() -> None:
    orders, _ = decide(view(policy_unknown=True))
    assert not any(order.ruling.charge for order in orders)
    assert {order.effect.evacuate for order in orders} == {Evacuate.NO}
    assert not any(order.effect.taint for order in orders)


def test_nodes_out_of_use_are_counted_by_the_reason_of_the_strongest_finding() -> None:
    verdict_index = VerdictIndex()
    for name, xid in (("a", 79), ("b", 79), ("c", 48)):
        verdict_index.set_verdict(name, assess(world(sick(evidence("Xid", xid)))))
    assert verdict_index.reasons == {"Xid79": 2, "Xid48": 1}
    verdict_index.set_verdict("b", None)
    assert verdict_index.reasons == {"Xid79": 1, "Xid48": 1}

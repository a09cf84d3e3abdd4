"""What operator and simulator share: when nodes are judged again, and for which something has to be done."""

from dataclasses import replace
from datetime import datetime, timedelta

from tests.unit.health.builders import NOW
from tests.unit.health.test_orders import verdict
from tests.unit.lifecycle.builders import a_fleet, a_node

from muster.api.fleetpolicy import FleetPolicySpec
from muster.health.engine import Engine
from muster.health.orders import Circumstances
from muster.health.sources import Rules
from muster.health.verdict import Verdict

LATER = NOW + timedelta(minutes=5)


def waking(verdict: Verdict, moment: datetime) -> Verdict:
    return replace(verdict, follow_up=replace(verdict.follow_up, wake=moment))


def test_a_node_is_judged_again_at_the_first_moment_that_asks_for_it() -> None:
    engine = Engine()
    engine.wake_at("n0", LATER)
    engine.set_verdict("n0", waking(verdict("n0"), NOW))
    engine.wake_at("n0", LATER)
    assert engine.moments() == [NOW]
    assert engine.woken(NOW) == {"n0"}
    assert (engine.woken(LATER), engine.moments()) == (set(), [])


def test_an_echo_of_a_verdict_that_stays_causes_no_work() -> None:
    engine, before = Engine(), verdict("n0")
    engine.set_verdict("n0", waking(before, LATER))
    assert engine.note_difference("n0", before), "the record has not come back yet"
    engine.note_echo("n0", is_echo=True)
    assert not engine.note_difference("n0", before), "only what follows later is another"
    assert engine.note_difference("n0", before), "an echo answers one change"
    engine.note_echo("n0", is_echo=True)
    assert engine.note_difference("n0", verdict("n1"))
    engine.note_echo("n0", is_echo=True)
    engine.forget_echoes()
    assert engine.note_difference("n0", before)


def test_an_echo_of_a_node_that_has_changed_its_pool_is_no_answer() -> None:
    engine, before = Engine(), verdict("n0")
    pools = [{"name": "first", "nodeSelector": {"x": "y"}, "health": {}}]
    fleet = a_fleet([a_node("n0")])
    fleet.policy = FleetPolicySpec.model_validate({"pools": pools})
    engine.node_index.rebuild(fleet)
    engine.set_verdict("n0", before)
    for labels, differs in (({}, False), ({"x": "y"}, True), ({"x": "y"}, False), ({}, True)):
        engine.node_index.set_node("n0", a_node("n0", labels=labels), fleet)
        engine.note_echo("n0", is_echo=True)
        assert engine.note_difference("n0", before) is differs


def test_a_budget_that_is_used_up_is_asked_again_when_it_says() -> None:
    engine, names = Engine(), [f"n{number}" for number in range(4)]
    fleet = a_fleet([a_node(name) for name in names])
    engine.node_index.rebuild(fleet)
    for name in names:
        engine.set_verdict(name, verdict(name))
    orders = engine.decide(NOW, Rules.from_policy(fleet.policy), {"n0", "n1"}, Circumstances(names, {}, {}))
    assert [order.name for order in orders] == ["n0", "n2", "n1"]
    assert engine.breaker is not None
    assert (engine.breaker.held, engine.moments()) == (1, [])
    engine.breaker = replace(engine.breaker, next_try=LATER)
    assert engine.moments() == [LATER]

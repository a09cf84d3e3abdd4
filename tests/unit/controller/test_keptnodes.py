"""What is kept of the last decisions about nodes: a few of each that is or was not healthy, bounded in all."""

import itertools
import json
from collections.abc import Sequence

import pytest
from tests.unit.controller.health_stage import Stage, stage_with_a_policy
from tests.unit.health.builders import NOW, after, agent, evidence, facts, healthy, rules, sick

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import HealthIncident, NodeHealth, Offences, VerdictState
from muster.controller import nodereconciler as module
from muster.controller.keptdecisions import PER_KEY
from muster.controller.keptnodes import ENTRIES_PER_NODE, KeptNodes
from muster.health.assess import assess
from muster.health.effects import Effect
from muster.health.memory import MachineOffences, identity
from muster.health.node_decision import NodeDecision, replay, write
from muster.health.node_world import NodeWorld
from muster.health.orders import Order
from muster.health.rulings import Act, Ruling
from muster.kube.errors import Invalid

XID_79, XID_48 = evidence("Xid", 79), evidence("Xid", 48)
POLICY, RULES = FleetPolicySpec(), rules()
_seconds = itertools.count(60)


def keep(kept: KeptNodes, health: NodeHealth, memory: MachineOffences | None = None) -> None:
    name = health.metadata.name
    kept.assess_and_keep(assess, POLICY, NodeWorld(facts(name), health, RULES, after(next(_seconds)), memory=memory))


def reasons(found: Sequence[NodeDecision]) -> list[str]:
    return [each.verdict.conclusion.reason if each.verdict else each.error for each in found]


def order(kept: KeptNodes, ruling: Ruling) -> None:
    verdict = kept.decisions_of("node-1")[-1].verdict
    assert verdict is not None
    kept.note_order(Order("node-1", verdict, ruling, Effect(avoid=True)))


def test_a_node_that_is_healthy_all_along_is_not_kept() -> None:
    kept = KeptNodes()
    keep(kept, healthy())
    assert kept.decisions_of("node-1") == []


def test_the_last_decisions_about_a_node_are_kept_with_the_one_that_clears_it() -> None:
    kept = KeptNodes()
    for health in (sick(XID_48), sick(XID_79), sick(XID_48), healthy()):
        keep(kept, health)
    assert reasons(kept.decisions_of("node-1")) == ["Xid79", "Xid48", ""]
    assert len(kept.decisions_of("node-1")) == PER_KEY


def test_a_new_leader_keeps_the_decision_that_clears_a_node() -> None:
    kept, before = KeptNodes(), healthy()
    status = before.status.model_copy(update={"state": VerdictState.UNHEALTHY})
    keep(kept, before.model_copy(update={"status": status}))
    assert reasons(kept.decisions_of("node-1")) == [""]


def test_what_says_the_same_again_and_again_is_one_decision_with_its_order() -> None:
    kept = KeptNodes()
    keep(kept, healthy("node-2"))
    keep(kept, sick(XID_48))
    keep(kept, sick(XID_79))
    order(kept, Ruling(Act.HOLD, "too many"))
    for _ in range(5):
        keep(kept, sick(XID_79))
    first, last = kept.decisions_of("node-1")
    assert first.world.now < last.world.now == after(next(_seconds) - 1)
    assert (first.order, last.order and last.order.ruling.act) == (None, Act.HOLD)


def test_the_decision_that_took_a_node_out_outlasts_those_that_repeat_it() -> None:
    kept = KeptNodes()
    keep(kept, sick(XID_79))
    order(kept, Ruling(Act.TAKE, charge=True, cause="agent/Xid79"))
    taken = [HealthIncident(time=NOW, state=VerdictState.UNHEALTHY, reason="Xid79", taken_out_time=NOW)]
    for _ in range(5):
        health = sick(XID_79)
        keep(kept, health.model_copy(update={"status": health.status.model_copy(update={"incidents": taken})}))
        order(kept, Ruling(Act.TAKE))
    charged = [each.order.ruling.charge for each in kept.decisions_of("node-1") if each.order]
    assert charged == [True, False]


def test_all_together_are_bounded_and_the_oldest_go_first() -> None:
    kept = KeptNodes(most_entries=4 * (ENTRIES_PER_NODE + 1))
    for evidence_now, name in itertools.product((XID_48, XID_79), "abc"):
        keep(kept, sick(evidence_now, health=healthy(name)))
    assert [reasons(kept.decisions_of(name)) for name in "abc"] == [["Xid79"], ["Xid79"], ["Xid48", "Xid79"]]
    keep(kept, sick(XID_48, health=healthy("d")))
    keep(kept, sick(XID_48, health=healthy("e")))
    assert sum(len(kept.decisions_of(name)) for name in "abcde") == 4
    assert (kept.size, len(kept._of)) == (4 * (ENTRIES_PER_NODE + 1), 4)


def test_a_large_record_counts_for_more_and_the_newest_is_kept_whatever_its_size() -> None:
    kept = KeptNodes(most_entries=40)
    keep(kept, sick(XID_79, health=healthy("small")))
    keep(kept, sick(*(evidence("Xid", code) for code in range(64)), health=healthy("large")))
    assert [len(kept.decisions_of(name)) for name in ("small", "large")] == [0, 1]
    assert kept.size == ENTRIES_PER_NODE + 64


def test_an_order_for_a_node_of_which_nothing_is_kept_is_none() -> None:
    kept = KeptNodes()
    keep(kept, sick(XID_79))
    verdict = kept.decisions_of("node-1")[0].verdict
    assert verdict is not None
    kept.note_order(Order("node-2", verdict, Ruling(Act.NOTHING), Effect()))
    assert kept.decisions_of("node-2") == []
    assert kept.decisions_of("node-1")[0].order is None


def test_what_is_kept_stays_what_it_was_when_offences_change_later() -> None:
    account = Offences(score="2.5", as_of=NOW, hardware=identity(agent()))
    memory, kept = MachineOffences([account]), KeptNodes()
    keep(kept, sick(XID_79), memory)
    memory.set_accounts(0, [account.model_copy(update={"score": "1"})])
    (found,) = kept.decisions_of("node-1")
    assert "2.5" in write(found)
    assert "known" not in vars(found.world), "what was worked out on the way is not kept"
    assert assess(found.world) == found.verdict


def test_an_error_is_kept_and_raised() -> None:
    kept = KeptNodes()

    def fails(_world: NodeWorld) -> None:
        raise OverflowError("date value out of range")

    for _ in range(3):
        with pytest.raises(OverflowError):
            kept.assess_and_keep(fails, POLICY, NodeWorld(facts(), healthy(), RULES, NOW))  # type: ignore[arg-type]
    assert reasons(kept.decisions_of("node-1")) == ["OverflowError: date value out of range"]


async def test_an_order_that_cannot_be_recorded_drives_out_nothing() -> None:
    stage = stage_with_a_policy()
    stage.add("a")
    stage.say("a", 94)
    await stage.look()
    stage.say("a", 79)
    stage.api.fails["a"] = [Invalid(422, "Invalid", "no") for _ in range(5)]
    for _ in range(5):
        await stage.look()
        stage.rested("a")
    assert "Xid94" in str(stage.nodes.reconciler.kept.decisions_of("a"))


@pytest.fixture
def stage() -> Stage:
    return stage_with_a_policy()


def again(stage: Stage, name: str) -> list[tuple[bool, str]]:
    lines = [write(each) for each in stage.nodes.reconciler.kept.decisions_of(name)]
    replayed = [replay(json.loads(line)) for line in lines]
    return [(each.same, (each.order or {"ruling": {"act": ""}})["ruling"]["act"]) for each in replayed]


async def test_the_loop_over_nodes_keeps_what_it_judged_and_what_followed(stage: Stage) -> None:
    stage.add("a", "b")
    stage.say("a", 79)
    stage.say("b")
    await stage.look()
    assert again(stage, "a") == [(True, "Take"), (True, "")]
    first, _ = stage.nodes.reconciler.kept.decisions_of("a")
    assert first.order is not None
    assert (first.order.ruling.charge, first.order.effect.taint) == (True, True)
    assert first.policy == stage.cluster.fleet.policy
    assert stage.nodes.reconciler.kept.decisions_of("b") == []


async def test_the_loop_over_nodes_keeps_a_judgement_that_failed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_world: NodeWorld) -> None:
        raise OverflowError("date value out of range")

    monkeypatch.setattr(module, "assess", fails)
    stage.add("a")
    stage.say("a")
    await stage.look()
    assert reasons(stage.nodes.reconciler.kept.decisions_of("a")) == ["OverflowError: date value out of range"]

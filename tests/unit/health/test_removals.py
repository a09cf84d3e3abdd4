"""Machines that are being taken away: when they go, and what holds whatever the policy, the breaker and people say."""

from datetime import UTC, datetime

import pytest
from tests.unit.health.builders import NOW, Stored, after, decided, evidence, facts, healthy, written

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import Decision, Evacuate, ExclusionCause, VerdictState
from muster.health.assess import assess
from muster.health.fitness import exclusion_of
from muster.health.node_world import NodeWorld
from muster.health.removals import Notice
from muster.health.rulings import Act, Ruling
from muster.health.sources import Rules
from muster.health.verdict import Verdict
from muster.world.fleet import Removal
from muster.world.views import Taint

SPOT = Taint("aws-node-termination-handler/spot-itn", "spot-itn-0f1e", "NoSchedule")
KARPENTER = Taint("karpenter.sh/disrupted", "", "NoSchedule")


def rules(**health: object) -> Rules:
    return Rules.from_policy(FleetPolicySpec.model_validate({"health": health}))


def verdict(*taints: Taint, **more: object) -> Verdict:
    return assess(NodeWorld(facts(taints=taints, **more), healthy(), rules(), NOW))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("goes at Fri, 20 Nov 2026 09:41:37 GMT.", datetime(2026, 11, 20, 9, 41, 37, tzinfo=UTC)),
        ("goes at Fri, 2 Oct 2026 09:41:37 UTC", datetime(2026, 10, 2, 9, 41, 37, tzinfo=UTC)),
        ("goes at Fri, 32 Nov 2026 09:41:37 GMT", after(30)),
        ("goes soon", after(30)),
    ],
)
def test_a_time_that_cannot_be_read_is_the_promised_one(message: str, expected: datetime) -> None:
    notice = Notice(seconds=30, time="goes at (.*? (?:GMT|UTC))")
    assert notice.removal("aks", NOW, message) == Removal("aks", expected)


def test_under_any_leader_the_time_counts_from_when_the_mark_was_first_seen() -> None:
    first = verdict(SPOT)
    assert first.grounds.removal == Removal("aws-nth", after(120), final=True)
    later = assess(NodeWorld(facts(taints=(SPOT,)), written(healthy(), first), rules(), after(50)))
    assert later.grounds.gone_by == after(120)
    assert "aws-nth removes the machine by 2026-11-20 09:43:07 UTC" in later.conclusion.message


def test_of_two_marks_the_earlier_time_counts_and_one_is_final_for_both() -> None:
    assert verdict(KARPENTER, SPOT).grounds.removal == Removal("aws-nth", after(120), final=True)
    deleted = verdict(KARPENTER, deleting=after(-60))
    assert deleted.grounds.removal == Removal("karpenter", None, final=True)


def test_no_budget_holds_a_removal_back_and_nothing_is_charged() -> None:
    stored = Stored.of(10, rules(enforcement="Nodes"), per_domain=5)
    for name in stored.facts:
        stored.facts[name] = facts(name, taints=(KARPENTER,))
    verdicts, rulings, effects, breaker = stored.step(NOW)
    assert {effect.evacuate for effect in effects.values()} == {Evacuate.AFTER_CHECKPOINT}
    assert not any(effect.taint or effect.last_choice for effect in effects.values())
    assert not any(ruling.charge for ruling in rulings.values())
    assert {each.record.offences_if_taken.score for each in verdicts.values()} == {"0"}
    assert breaker.held == 0


def test_it_is_left_also_where_nothing_is_done_about_faults() -> None:
    stored = Stored.of(3, rules(enforcement="Observe"))
    stored.facts["node-0001"] = facts("node-0001", taints=(KARPENTER,))
    _, _, effects, _ = stored.step(NOW)
    assert (effects["node-0001"].avoid, effects["node-0001"].evacuate) == (True, Evacuate.AFTER_CHECKPOINT)


def test_a_source_that_is_only_observed_moves_nobody() -> None:
    observing = rules(sources=[{"name": "karpenter", "observeOnly": True}])
    seen = assess(NodeWorld(facts(taints=(KARPENTER,)), healthy(), observing, NOW))
    assert (seen.grounds.removal, seen.out) == (None, False)


def test_a_release_does_not_keep_the_machine() -> None:
    marked = written(healthy(), verdict(KARPENTER))
    released = decided(marked, Decision.RELEASE, 60)
    again = assess(NodeWorld(facts(taints=(KARPENTER,)), released, rules(), after(120)))
    assert again.grounds.removal == Removal("karpenter")


def test_a_node_whose_mark_is_gone_is_used_again_without_a_test() -> None:
    stored = Stored.of(3, rules())
    stored.facts["node-0001"] = facts("node-0001", taints=(KARPENTER,))
    stored.step(NOW)
    stored.facts["node-0001"] = facts("node-0001")
    verdicts, _, effects, _ = stored.step(after(60))
    assert verdicts["node-0001"].conclusion.state is VerdictState.HEALTHY
    assert not effects["node-0001"].avoid


def test_a_fault_beside_it_has_its_own_way() -> None:
    stored = Stored.of(3, rules(enforcement="Nodes"))
    stored.facts["node-0001"] = facts("node-0001", taints=(SPOT,))
    stored.report("node-0001", evidence("Xid", 79))
    verdicts, rulings, effects, _ = stored.step(NOW)
    exclusion = exclusion_of(verdicts["node-0001"], effects["node-0001"])
    assert exclusion is not None
    assert rulings["node-0001"] == Ruling(Act.YIELD, "aws-nth repairs the node", charge=True)
    assert (exclusion.reason, exclusion.evacuate) == ("Xid79", Evacuate.AFTER_CHECKPOINT)
    assert (exclusion.gone_by_time, exclusion.cause) == (after(120), ExclusionCause.HEALTH)

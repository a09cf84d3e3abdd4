"""What of a verdict stands: partners who are well themselves, and ways that somebody else gets through."""

import pytest
from tests.unit.preflight.fabric import (
    THRESHOLDS,
    Rate,
    both,
    burned_in,
    dead,
    gang,
    outcome,
    slow,
    standing,
    verdict_on,
)

from muster.preflight.evidence import BurnInEvidence, MemberTopology, merge_outcomes
from muster.preflight.outcomes import BurnInMember
from muster.preflight.own_tests import NO_OWN_TESTS
from muster.preflight.unproved import GangNodes, control_pairs, unproved_failures, without_unproved_failures
from muster.preflight.verdict import BurnInVerdict, Outcome

LEAF = 4


def upheld_verdict(
    members: list[BurnInMember], rate: Rate, models: dict[str, str] | None = None
) -> tuple[BurnInVerdict, list[tuple[str, str]]]:
    """What stands after the controls, and which they were."""
    outcomes, asked = burned_in(members, rate), list[tuple[str, str]]()
    while True:
        verdict = verdict_on(members, outcomes, THRESHOLDS)
        evidence = BurnInEvidence(MemberTopology(members), merge_outcomes(outcomes), THRESHOLDS)
        more = [pair for pair in control_pairs(verdict, evidence) if pair not in asked]
        if not more:
            nodes = GangNodes(len(members), models or {})
            return without_unproved_failures(verdict, evidence, NO_OWN_TESTS, nodes), asked
        asked += more
        outcomes += [outcome(6, a, b, rate) for a, b in more]


def leaf_of(name: str) -> int:
    return int(name[1:]) // LEAF


def out_of_leaf(leaf: int, rate: float) -> Rate:
    """What leads out of a leaf."""
    return lambda a, b: rate if (leaf_of(a) == leaf) != (leaf_of(b) == leaf) else 1.0


def spine(a: str, b: str) -> float:
    return 0.3 if leaf_of(a) != leaf_of(b) else 1.0


def leaf_itself(a: str, b: str) -> float:
    return 0.3 if 1 in (leaf_of(a), leaf_of(b)) else 1.0


@pytest.mark.parametrize(
    "rate",
    [out_of_leaf(1, 0.3), out_of_leaf(0, 0.3), spine, leaf_itself],
    ids=["its own uplink", "theirs", "spine", "leaf"],
)
def test_a_replacement_is_not_blamed_for_a_way_that_it_shares_with_survivors(rate: Rate) -> None:
    """They have trained and are not tested again, so that only the new one would be seen to miss."""
    members = standing(gang(16, per_leaf=LEAF), but=["n005"])
    verdict, asked = upheld_verdict(members, rate)
    assert verdict.failed == ()
    assert verdict.outcome is not Outcome.FAIL
    assert len(asked) <= 12


@pytest.mark.parametrize("rate", [slow("n005", rate=0.3), dead("n005")], ids=["slow", "dead"])
def test_a_bad_replacement_is_blamed_once_a_neighbour_was_seen_to_get_through(rate: Rate) -> None:
    members = standing(gang(16, per_leaf=LEAF), but=["n005"])
    verdict, asked = upheld_verdict(members, rate)
    assert [fail.node for fail in verdict.failed] == ["n005"]
    assert asked
    assert not any("n005" in pair for pair in asked)


def test_a_whole_gang_in_its_first_burn_in_needs_no_controls() -> None:
    members = gang(16, per_leaf=LEAF)
    verdict, asked = upheld_verdict(members, slow("n005", rate=0.3))
    assert ([fail.node for fail in verdict.failed], asked) == (["n005"], [])


def test_where_nobody_else_can_be_tested_the_node_is_blamed() -> None:
    """Alone in its leaf beside one other leaf: it cannot be told from its uplink."""
    members = standing(gang(5, per_leaf=LEAF), but=["n004"])
    verdict, _ = upheld_verdict(members, slow("n004", rate=0.3))
    assert [fail.node for fail in verdict.failed] == ["n004"]


def test_partners_that_are_slow_with_each_other_condemn_nobody() -> None:
    members = standing(gang(4, per_leaf=LEAF), but=["n003"])
    outcomes = burned_in(members, slow("n003", "n000", "n001", "n002", rate=0.3))
    verdict = verdict_on(members, outcomes, THRESHOLDS)
    evidence = BurnInEvidence(MemberTopology(members), merge_outcomes(outcomes), THRESHOLDS)
    assert [fail.node for fail in verdict.failed] == list(unproved_failures(verdict, evidence)) == ["n003"]


@pytest.mark.parametrize(
    ("rate", "blamed"),
    [
        (slow("n001", "n006", rate=0.4), []),
        (slow("n001", rate=0.4), []),
        (dead("n001"), ["n001"]),
        (slow("n002", rate=0.4), ["n002"]),
        (both(slow("n001", "n006", rate=0.4), slow("n006", rate=0.1)), ["n006"]),
        (slow("n006", rate=0.4), ["n006"]),
    ],
    ids=[
        "all of it",
        "the only one of it",
        "silent",
        "of the usual model",
        "far slower than its like",
        "slower than its like",
    ],
)
def test_a_model_with_slower_ports_is_not_taken_for_bad_nodes(rate: Rate, blamed: list[str]) -> None:
    members = gang(12, per_leaf=LEAF)
    older = {"n001", "n006"} if rate("n006", "n000") != 1.0 else {"n001"}
    verdict, _ = upheld_verdict(members, rate, {m.name: "A100" if m.name in older else "H100" for m in members})
    assert [fail.node for fail in verdict.failed] == blamed

"""Whom the outcomes of a burn-in blame."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from tests.unit.preflight.fabric import (
    HEALTHY_GBPS,
    THRESHOLDS,
    WRONG,
    Rate,
    both,
    burned_in,
    dead,
    gang,
    judged,
    slow,
    verdict_on,
)

from muster.preflight.evidence import NOTHING_KNOWN, BurnInEvidence, MemberTopology, merge_outcomes
from muster.preflight.outcomes import BurnInMember, How, LocalOutcome, PairOutcome
from muster.preflight.pair_thresholds import PairThresholds
from muster.preflight.verdict import Outcome, Part
from muster.world.checks import ProbeThreshold

OVER_IB = replace(THRESHOLDS, transport="IB")

healthy: Rate = slow()


@dataclass(frozen=True)
class Case:
    """A gang, what is wrong with it, and what has to be said of it."""

    rate: Rate
    members: list[BurnInMember] = field(default_factory=lambda: gang(64))
    want: Outcome = Outcome.FAIL
    want_failed: Sequence[str] = ()
    want_shared: Sequence[tuple[Part, tuple[str, ...]]] = ()
    want_words: str = ""


def leaf(members: list[BurnInMember], name: str) -> set[str]:
    return {member.name for member in members if name in member.domains}


def inside(names: set[str], rate: float = 0.5) -> Rate:
    """All pairs with any of these are slow: a slow leaf switch."""
    return slow(*names, rate=rate)


def leaving(names: set[str], rate: float = 0.5) -> Rate:
    """Pairs of which one end is among these are slow: what leads out of them."""
    return lambda a, b: rate if len({a, b} & names) == 1 else 1.0


def port(name: str, members: list[BurnInMember]) -> Rate:
    """A slow network port: NVLink inside the innermost domain is not slow."""
    domains = {member.name: member.domains for member in members}
    return lambda a, b: 0.5 if name in (a, b) and domains[a] != domains[b] else 1.0


def link(one: str, other: str) -> Rate:
    return lambda a, b: 0.3 if {a, b} == {one, other} else 1.0


def all_alike(rate: float) -> Rate:
    return lambda _a, _b: rate


LEAVES = gang(64)
BLOCKS = gang(96, per_leaf=8, leaves_per_block=4)
NVLINK = gang(64, per_leaf=16, nvlink=8)
CASES = {
    "nothing wrong": Case(healthy, want=Outcome.PASS),
    "a slow node": Case(slow("n011"), want_failed=["n011"]),
    "a dead node": Case(dead("n011"), want_failed=["n011"]),
    "a slow and a dead node, paired or not": Case(both(slow("n010"), dead("n011")), want_failed=["n010", "n011"]),
    "a quarter of a small gang": Case(slow("n001", "n006"), gang(8), want_failed=["n001", "n006"]),
    "three nodes, one bad": Case(slow("n001"), gang(3), want_failed=["n001"]),
    "a slow port, good NVLink": Case(port("n011", NVLINK), NVLINK, want_failed=["n011"]),
    "slow only across leaves": Case(
        lambda a, b: 0.5 if "n011" in (a, b) and len({a, b} & leaf(LEAVES, "l1")) == 1 else 1.0, want_failed=["n011"]
    ),
    "two of two, nobody proven": Case(
        all_alike(0.5),
        gang(2),
        Outcome.INCONCLUSIVE,
        want_words="no proven node is left that could show which node is bad",
    ),
    "everybody dead": Case(
        all_alike(0.0), want=Outcome.INCONCLUSIVE, want_shared=[(Part.FABRIC, ()), (Part.FABRIC, ())]
    ),
    "everybody slow alike": Case(
        all_alike(0.6),
        want=Outcome.INCONCLUSIVE,
        want_shared=[(Part.FABRIC, ()), (Part.FABRIC, ())],
        want_words="it is the whole gang: three of four pairs reach no more than 30 GB/s, where 40 is the least",
    ),
    "thirty of a hundred slow alike": Case(
        slow(*(f"n{place * 3:03}" for place in range(20))),
        want=Outcome.INCONCLUSIVE,
        want_words="20 of 64 nodes fail alike: not so many are bad",
    ),
    "a slow leaf": Case(
        inside(leaf(LEAVES, "l3")), want=Outcome.INCONCLUSIVE, want_shared=[(Part.DOMAIN, ("b0", "l3"))]
    ),
    "a leaf that is slow to leave": Case(
        leaving(leaf(LEAVES, "l3")), want=Outcome.INCONCLUSIVE, want_shared=[(Part.UPLINKS, ("b0", "l3"))]
    ),
    "a slow leaf and a slow node elsewhere": Case(
        both(inside(leaf(LEAVES, "l3")), slow("n050", rate=0.2)),
        want_failed=["n050"],
        want_shared=[(Part.DOMAIN, ("b0", "l3"))],
    ),
    "a block that is slow to leave": Case(
        leaving(leaf(BLOCKS, "b1")), BLOCKS, Outcome.INCONCLUSIVE, want_shared=[(Part.UPLINKS, ("b1",))]
    ),
    "a slow spine": Case(
        lambda a, b: 1.0 if any({a, b} <= leaf(LEAVES, f"l{place}") for place in range(8)) else 0.5,
        want=Outcome.INCONCLUSIVE,
        want_shared=[(Part.FABRIC, ())],
    ),
}


@pytest.mark.parametrize("seed", ["uid/1", "uid/2", "other/1"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_verdicts(case: Case, seed: str) -> None:
    verdict = judged(case.members, case.rate, seed)
    assert [fail.node for fail in verdict.failed] == list(case.want_failed)
    assert [(part.part, part.domain) for part in verdict.shared] == list(case.want_shared)
    assert verdict.outcome is case.want
    if case.want_words:
        assert verdict.message == case.want_words


def test_a_fail_tells_what_proves_it() -> None:
    (fail,) = judged(gang(64), slow("n011")).failed
    assert (fail.probe, fail.figure, fail.threshold, fail.unit) == ("pair", 25.0, 40.0, "GB/s")
    assert len(fail.partners) >= 2
    assert fail.message.startswith("reached 25 GB/s at best in ")
    assert fail.message.endswith(f"with {len(fail.partners)} proven partners; 40 is the least")


def test_a_bad_link_is_named_and_blames_nobody() -> None:
    members = gang(64)
    first = burned_in(members, healthy)[0]
    verdict = judged(members, link(first.a, first.b))
    assert verdict.outcome is Outcome.PASS
    assert [(part.part, part.pairs) for part in verdict.shared] == [(Part.LINK, (tuple(sorted((first.a, first.b))),))]


@pytest.mark.parametrize(
    ("rate", "retransmits", "want"),
    [
        (0.3, 0.0, "is slow: 15 GB/s where 40 is the least"),
        (How.NO_RESULT, 0.0, "gives no result"),
        (0.5, 9.0, "loses segments or is not what tests have to run over, at 50 GB/s"),
    ],
    ids=["slow", "dead", "lossy"],
)
def test_of_a_bad_link_is_said_what_ails_it(rate: float | How, retransmits: float, want: str) -> None:
    members = gang(64)
    first = burned_in(members, healthy)[0]
    ends = sorted((first.a, first.b))
    outcomes = [
        replace(each, gbps=HEALTHY_GBPS, retransmits=retransmits)
        if retransmits and {each.a, each.b} == {*ends}
        else each
        for each in burned_in(members, lambda a, b: rate if {a, b} == {*ends} else 1.0)
    ]
    (part,) = verdict_on(members, outcomes, THRESHOLDS).shared
    assert part.message == f"the link between {ends[0]} and {ends[1]} {want}; both pass with others"


@pytest.mark.parametrize(
    ("rate", "what"),
    [(inside(leaf(LEAVES, "l3")), "leaf b0/l3"), (leaving(leaf(LEAVES, "l3")), "what leads out of leaf b0/l3")],
    ids=["inside", "leaving"],
)
def test_of_a_bad_domain_is_said_what_ails_it(rate: Rate, what: str) -> None:
    (part,) = judged(gang(64), rate).shared
    assert part.message == f"{what} is slow: 25 GB/s where 40 is the least; its members miss alike"


def test_where_the_mates_miss_too_a_miss_says_less_of_a_node() -> None:
    """One of eight uplinks is bad: some pairs that leave the leaf miss, whichever of its nodes they are with."""
    members = gang(64)
    behind = leaf(members, "l3")

    def uplink(a: str, b: str) -> float:
        return 0.4 if len({a, b} & behind) == 1 and (int(a[1:]) + int(b[1:])) % 4 == 0 else 1.0

    outcomes = burned_in(members, uplink)
    evidence = BurnInEvidence(MemberTopology(members), merge_outcomes(outcomes), THRESHOLDS)
    here, elsewhere = evidence.number["n025"], evidence.number["n050"]
    assert evidence.weights(here, 1)[0] < evidence.weights(elsewhere, 1)[0]
    assert verdict_on(members, outcomes, THRESHOLDS).failed == ()


def test_the_partner_of_a_bad_node_is_not_counted_among_those_that_fail_alike() -> None:
    members = gang(12, per_leaf=2)
    verdict = judged(members, slow("n000", "n002", "n004"))
    assert [fail.node for fail in verdict.failed] == ["n000", "n002", "n004"]
    # Nobody else is inside their leaves; to other leaves they go by the same ports.
    assert {"n001", "n003", "n005"} <= set(verdict.passed)
    assert verdict.open == ()


def test_without_history_the_round_is_its_own_measure() -> None:
    verdict = judged(gang(64), slow("n011"), thresholds=NOTHING_KNOWN)
    assert [fail.node for fail in verdict.failed] == ["n011"]


def test_the_noise_of_three_nodes_without_history_blames_nobody() -> None:
    """Of figures that vary by 20 % the best of six lies a quarter above the middle."""
    blamed = 0
    for number in range(100):
        drawn = Random(number)
        blamed += len(
            judged(gang(3), lambda a, b, drawn=drawn: drawn.lognormvariate(0.0, 0.2), thresholds=NOTHING_KNOWN).failed
        )
    assert blamed == 0


def test_a_lone_node_with_poor_links_is_reported_where_no_history_is() -> None:
    """It is alone in its rack, and its links carry next to nothing."""
    members = gang(5, per_leaf=4)
    (alone,) = (name for name, where in ((m.name, m.domains[-1]) for m in members) if where == members[-1].domains[-1])
    told = judged(members, slow(alone, rate=0.03), thresholds=NOTHING_KNOWN)
    assert not told.failed
    assert "and no history says what is usual" in " ".join(each.message for each in told.shared)
    for rate, thresholds in ((0.03, THRESHOLDS), (0.1, NOTHING_KNOWN)):
        told = judged(members, slow(alone, rate=rate), thresholds=thresholds)
        assert "no history says" not in " ".join(each.message for each in told.shared)


def test_below_the_floor_all_are_slow_whatever_the_others_reach() -> None:
    verdict = judged(gang(64), healthy, thresholds=PairThresholds((ProbeThreshold(floor=HEALTHY_GBPS + 1),)))
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.message.startswith("it is the whole gang")


@pytest.mark.parametrize(
    "thresholds",
    [THRESHOLDS, NOTHING_KNOWN, PairThresholds((ProbeThreshold(ratio=0.0),))],
    ids=["history", "none", "any will do"],
)
def test_whose_sums_with_others_are_wrong_is_told_apart_from_who_is_slow(thresholds: PairThresholds) -> None:
    verdict = judged(gang(16), slow("n005", rate=WRONG), thresholds=thresholds)
    (fail,) = verdict.failed
    assert (fail.node, fail.probe, fail.figure, fail.wrong) == ("n005", "pair", None, True)
    assert fail.message.startswith("gave wrong sums ")
    assert fail.message.endswith(" proven partners")
    assert not verdict.shared
    if thresholds == THRESHOLDS:
        (fail,) = judged(gang(16), slow("n005"), thresholds=thresholds).failed
        assert not fail.wrong


def test_wrong_sums_that_blame_nobody_are_told() -> None:
    members = gang(8)
    outcomes = burned_in(members, healthy)
    first = replace(outcomes[0], gbps=0.0, wrong=True)
    verdict = verdict_on(members, [first, *outcomes[1:]], THRESHOLDS)
    assert verdict.failed == ()
    (part,) = verdict.shared
    assert (
        part.message == f"sums of {first.a} and {first.b} were wrong; the tests do not show which of them is the cause"
    )
    link = judged(members, lambda a, b: WRONG if {a, b} == {"n001", "n002"} else 1.0)
    assert [part.message for part in link.shared] == [
        "the link between n001 and n002 gives wrong sums; both pass with others"
    ]


def test_where_most_sums_are_wrong_it_is_no_node() -> None:
    verdict = judged(gang(16), lambda a, b: WRONG)
    assert verdict.failed == ()
    assert {part.part for part in verdict.shared} == {Part.FABRIC}
    assert verdict.message == "it is the whole gang: most pairs give wrong sums"


def test_within_a_domain_nvlink_is_as_good_as_the_network_and_nothing_else_is() -> None:
    members = gang(16, nvlink=4)

    def within(name: str) -> list[PairOutcome]:
        leaf = {member.name: member.domains for member in members}
        told = burned_in(members, healthy)
        return [replace(each, transport=name if leaf[each.a] == leaf[each.b] else "IB") for each in told]

    for over, outcome in (("NVLink", Outcome.PASS), ("IB", Outcome.PASS), ("TCP", Outcome.INCONCLUSIVE)):
        assert verdict_on(members, within(over), OVER_IB).outcome is outcome


def test_each_level_is_measured_by_what_its_pairs_run_over() -> None:
    members = [BurnInMember("a", ("x",)), BurnInMember("b", ("x",)), BurnInMember("c", ("y",))]
    told = [
        PairOutcome(1, "a", "b", How.RESULT, 400.0, transport="NVLink"),
        PairOutcome(1, "a", "c", How.RESULT, 40.0, transport="IB"),
    ]
    known = PairThresholds(
        (
            ProbeThreshold(transport="IB", middle=40.0, ratio=0.8),
            ProbeThreshold(transport="NVLink", middle=400.0, ratio=0.8),
            ProbeThreshold(middle=1.0, ratio=0.5),
        )
    )
    evidence = BurnInEvidence(MemberTopology(members), told, known)
    assert [evidence.threshold_gbps(level) for level in (0, 1)] == pytest.approx([32.0, 320.0])
    assert BurnInEvidence(MemberTopology(members), [], known).threshold_gbps(0) == pytest.approx(0.5)


def test_another_transport_than_expected_blames_the_environment_or_the_one_node() -> None:
    members = gang(64)

    def over(name: str) -> list[PairOutcome]:
        return [replace(each, transport=name) for each in burned_in(members, healthy)]

    everybody = verdict_on(members, over("TCP"), OVER_IB)
    assert everybody.outcome is Outcome.INCONCLUSIVE
    assert "the pairs run over TCP, where IB is expected" in everybody.message
    assert everybody.failed == ()
    assert verdict_on(members, over("IB"), OVER_IB).outcome is Outcome.PASS


def test_loss_is_a_miss_at_full_rate() -> None:
    members = gang(8)
    outcomes = [
        replace(each, retransmits=12.0 if "n003" in (each.a, each.b) else 0.5) for each in burned_in(members, healthy)
    ]
    (fail,) = verdict_on(members, outcomes, THRESHOLDS).failed
    assert fail.node == "n003"
    assert "12 segments of 1,000 sent again" in fail.message


OWN = {
    "gpus": ProbeThreshold(floor=8, unit="GPUs", source="the node's own labels"),
    "gemm-bf16": ProbeThreshold(floor=560, unit="TFLOP/s", source="the floor"),
}
LOCAL = {
    "enough": (LocalOutcome("n001", "gemm-bf16", How.RESULT, 660.0), ""),
    "too slow": (
        LocalOutcome("n001", "gemm-bf16", How.RESULT, 420.0),
        "gemm-bf16 measured 420 TFLOP/s, at least 560 is expected by the floor",
    ),
    "a GPU missing": (
        LocalOutcome("n001", "gpus", How.RESULT, 7.0),
        "gpus measured 7 GPUs, at least 8 is expected by the node's own labels",
    ),
    "hung": (
        LocalOutcome("n001", "gemm-bf16", How.NO_RESULT, message="killed after 12 s"),
        "gemm-bf16 gave no result within its deadline (killed after 12 s)",
    ),
    "no limit known": (LocalOutcome("n001", "storage", How.RESULT, 0.1), ""),
    "nothing to measure": (LocalOutcome("n001", "all-reduce-node", How.RESULT), ""),
    "not a member": (LocalOutcome("other", "gpus", How.RESULT, 0.0), ""),
}


@pytest.mark.parametrize(("told", "want"), LOCAL.values(), ids=LOCAL)
def test_what_a_node_shows_by_itself(told: LocalOutcome, want: str) -> None:
    verdict = verdict_on(gang(8), burned_in(gang(8), healthy), THRESHOLDS, [told], OWN)
    assert [fail.message for fail in verdict.failed] == ([want] if want else [])
    assert verdict.outcome is (Outcome.FAIL if want else Outcome.PASS)
    assert ("n001" in verdict.passed) is not bool(want)


def test_every_node_that_fails_a_probe_is_blamed_for_it() -> None:
    told = [LocalOutcome(node, "gpus", How.RESULT, 7.0) for node in ("n001", "n005")]
    verdict = verdict_on(gang(8), burned_in(gang(8), healthy), THRESHOLDS, told, OWN)
    assert [(fail.node, fail.probe) for fail in verdict.failed] == [("n001", "gpus"), ("n005", "gpus")]


def test_a_probe_that_could_not_run_blames_nobody() -> None:
    told = LocalOutcome("n001", "gpus", How.ENVIRONMENT, message="GPUs in use by process 4711")
    verdict = verdict_on(gang(8), burned_in(gang(8), healthy), THRESHOLDS, [told], OWN)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.open == ("n001",)
    assert verdict.message == "a probe could not run on 1 node, n001 first"


def test_a_probe_that_fails_on_most_nodes_alike_is_not_the_nodes() -> None:
    told = [LocalOutcome(f"n{place:03}", "gemm-bf16", How.RESULT, 400.0 + place) for place in range(5)]
    verdict = verdict_on(gang(8), burned_in(gang(8), healthy), THRESHOLDS, told, OWN)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.message == "gemm-bf16 fails on 5 of 8 nodes alike: not so many are bad"
    assert verdict_on(gang(8), burned_in(gang(8), healthy), THRESHOLDS, told[:3], OWN).outcome is Outcome.FAIL


@pytest.mark.parametrize("size", [2, 3])
def test_a_probe_that_fails_on_all_of_a_few_blames_only_wrong_results(size: int) -> None:
    members = gang(size)
    hung = [LocalOutcome(member.name, "memory-pattern", How.NO_RESULT) for member in members]
    verdict = verdict_on(members, (), own=hung)
    assert (verdict.outcome, verdict.failed) == (Outcome.INCONCLUSIVE, ())
    assert verdict.message == f"memory-pattern fails on {size} of {size} nodes alike: not so many are bad"
    assert verdict.open == tuple(member.name for member in members)
    wrong = [replace(each, how=How.RESULT, wrong=True) for each in hung]
    assert len(verdict_on(members, (), own=wrong).failed) == size
    assert len(verdict_on(members, (), own=hung[1:]).failed) == size - 1


def test_results_that_are_wrong_on_many_nodes_blame_nobody() -> None:
    """A library can give wrong bits on all."""
    members = gang(12)
    wrong = [LocalOutcome(member.name, "bit-exact", How.RESULT, wrong=True) for member in members]
    assert [fail.node for fail in verdict_on(members, (), own=wrong[:3]).failed] == ["n000", "n001", "n002"]
    found = verdict_on(members, (), own=wrong[:4])
    assert (found.outcome, found.failed) == (Outcome.INCONCLUSIVE, ())
    assert found.message == "bit-exact fails on 4 of 12 nodes alike: not so many are bad"


def test_a_bad_node_behind_a_slow_uplink_does_not_hide_it() -> None:
    """What its mates have in common is the uplink, whatever fault of its own one of them has."""
    members = gang(12, per_leaf=3)

    def rate(a: str, b: str) -> float:
        leaves = {int(name[1:]) // 3 for name in (a, b)}
        if "n005" in (a, b):
            return WRONG
        return 0.5 if 1 in leaves and len(leaves) > 1 else 1.0

    verdict = judged(members, rate)
    assert [fail.node for fail in verdict.failed] in ([], ["n005"])
    assert Part.UPLINKS in [shared.part for shared in verdict.shared]

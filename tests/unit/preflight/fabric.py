"""Gangs whose tests go as a plain function of the pair says, without noise, and burn-ins of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from muster.preflight.evidence import NOTHING_KNOWN, BurnInEvidence, MemberTopology, merge_outcomes
from muster.preflight.outcomes import BurnInMember, How, LocalOutcome, PairOutcome, Round
from muster.preflight.own_tests import evaluate_own_tests
from muster.preflight.pair_thresholds import PairThresholds
from muster.preflight.rounds import next_round
from muster.preflight.verdict import BurnInVerdict, reach_verdict
from muster.world.checks import ProbeThreshold

HEALTHY_GBPS = 50.0
THRESHOLDS = PairThresholds((ProbeThreshold(middle=HEALTHY_GBPS, ratio=0.8),))
WRONG = -1.0
"""As a rate: the sums are wrong."""
Rate = Callable[[str, str], float | How]


def gang(size: int, per_leaf: int = 8, leaves_per_block: int = 1000, nvlink: int = 0) -> list[BurnInMember]:
    """Members n000, n001, ... in blocks, leaves and, if asked for, NVLink domains of so many."""
    members = []
    for place in range(size):
        leaf = place // per_leaf
        domains = [f"b{leaf // leaves_per_block}", f"l{leaf}", *([f"v{place // nvlink}"] if nvlink else [])]
        members.append(BurnInMember(f"n{place:03}", tuple(domains)))
    return members


def slow(*names: str, rate: float = 0.5) -> Rate:
    """All pairs with these are slow."""
    return lambda a, b: rate if {a, b} & set(names) else 1.0


def dead(*names: str) -> Rate:
    """No pair with these gives a result."""
    return lambda a, b: How.NO_RESULT if {a, b} & set(names) else 1.0


def both(*rates: Rate) -> Rate:
    """The worst of several."""

    def worst(a: str, b: str) -> float | How:
        found = [rate(a, b) for rate in rates]
        silent = [each for each in found if isinstance(each, How)]
        return silent[0] if silent else min(each for each in found if not isinstance(each, How))

    return worst


def ran(due: Round, rate: Rate) -> list[PairOutcome]:
    """What the tests of a round tell."""
    return [outcome(due.number, pair.a, pair.b, rate) for slot in due.slots for pair in slot]


def outcome(number: int, a: str, b: str, rate: Rate) -> PairOutcome:
    """What one test tells."""
    found = rate(a, b)
    if isinstance(found, How):
        return PairOutcome(number, a, b, found)
    return PairOutcome(number, a, b, How.RESULT, HEALTHY_GBPS * max(found, 0.0), wrong=found == WRONG)


def burned_in(
    members: Sequence[BurnInMember],
    rate: Rate,
    seed: str = "uid/1",
    thresholds: PairThresholds = THRESHOLDS,
) -> list[PairOutcome]:
    """All outcomes from the first round to the last."""
    outcomes: list[PairOutcome] = []
    while (due := next_round(members, seed, outcomes, thresholds)) is not None:
        outcomes += ran(due, rate)
    return outcomes


def verdict_on(
    members: Sequence[BurnInMember],
    outcomes: Iterable[PairOutcome],
    thresholds: PairThresholds = NOTHING_KNOWN,
    own: Sequence[LocalOutcome] = (),
    own_thresholds: Mapping[str, ProbeThreshold] | None = None,
) -> BurnInVerdict:
    """The verdict on the pairs and on the nodes' own probes; who fails these is not paired."""
    tested = evaluate_own_tests(members, own, own_thresholds or {})
    fit = MemberTopology(member for member in members if member.name not in tested.unfit)
    return reach_verdict(BurnInEvidence(fit, merge_outcomes(outcomes), thresholds), tested, ("block", "leaf"))


def judged(
    members: Sequence[BurnInMember], rate: Rate, seed: str = "uid/1", thresholds: PairThresholds = THRESHOLDS
) -> BurnInVerdict:
    return verdict_on(members, burned_in(members, rate, seed, thresholds), thresholds)


def standing(members: Iterable[BurnInMember], *, but: Iterable[str]) -> list[BurnInMember]:
    """All but some have passed before."""
    new = set(but)
    return [replace(member, proven=member.name not in new) for member in members]

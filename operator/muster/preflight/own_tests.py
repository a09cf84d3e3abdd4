"""What the nodes' own probes have shown: which nodes fail, which could not be tested, and which are not tested with
others for that. Pure.

Tests: tests/unit/preflight/test_verdict.py, tests/unit/preflight/test_single_node.py.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster.preflight.evidence import alike
from muster.preflight.outcomes import BurnInMember, Fail, How, LocalOutcome
from muster.preflight.single_node import SHARED
from muster.protocol.numerals import significant
from muster.world.checks import ProbeThreshold

# More failures of one kind than these are not so many bad nodes.
MOST_ALIKE_SHARE, LEAST_ALIKE = 0.25, 4
# Beyond so many it does not matter whether they are alike: too few are left to prove anything.
MOST_SHARE = 0.5
# Figures within this factor of each other (their middle half) may have one cause.
ALIKE = 1.3


@dataclass(frozen=True, slots=True)
class OwnTests:
    """What the own probes of a burn-in's nodes have shown.

    Attributes:
        outcomes: of all probes.
        failed: the failures of nodes.
        broken: nodes on which a probe could not run.
        unfit: nodes that are not tested with others for that.
    """

    outcomes: tuple[LocalOutcome, ...] = ()
    failed: tuple[Fail, ...] = ()
    broken: tuple[str, ...] = ()
    unfit: frozenset[str] = frozenset()


NO_OWN_TESTS = OwnTests()


def evaluate_own_tests(
    members: Iterable[BurnInMember], outcomes: Sequence[LocalOutcome], thresholds: Mapping[str, ProbeThreshold]
) -> OwnTests:
    """Return what the outcomes of nodes' own probes show.

    Args:
        members: the nodes that take part.
        outcomes: of their own probes.
        thresholds: by probe; a figure without a threshold is only measured.
    """
    judged = {member.name for member in members}
    ended = [outcome for outcome in outcomes if outcome.node in judged]
    broken = sorted({outcome.node for outcome in ended if outcome.how is How.ENVIRONMENT})
    failed = _failures((outcome for outcome in ended if outcome.how is not How.ENVIRONMENT), thresholds)
    unfit = _unfit(failed, broken, ran_on(outcomes), len(judged))
    return OwnTests(tuple(outcomes), tuple(failed), tuple(broken), frozenset(unfit))


def _failures(outcomes: Iterable[LocalOutcome], thresholds: Mapping[str, ProbeThreshold]) -> list[Fail]:
    """Return the worst failure of each node in each probe, by node."""
    fails = [fail for outcome in outcomes if (fail := _fail(outcome, thresholds.get(outcome.probe))) is not None]
    worst: dict[tuple[str, str], Fail] = {}
    for fail in sorted(
        fails, key=lambda failure: (failure.node, failure.probe, failure.figure is not None, failure.figure or 0.0)
    ):
        worst.setdefault((fail.node, fail.probe), fail)
    return list(worst.values())


def _unfit(own: Sequence[Fail], broken: Collection[str], ran: Mapping[str, int], count: int) -> set[str]:
    """Return the nodes that are not tested with others, because of their own probes.

    A failure that so many nodes share that it may not be the nodes' fault excludes none. But a probe that hung may hang
    again, and would then look like the node's links.

    Args:
        own: the failures in nodes' own probes.
        broken: nodes on which a probe could not run.
        ran: by probe, on how many nodes it ran.
        count: how many nodes are judged.
    """
    many = common_failures(own, broken, count)
    failed = Counter(fail.probe for fail in own)
    unfit = set(broken)
    for fail in own:
        shared = is_of_many(fail.probe, failed[fail.probe], ran)
        answered = fail.wrong or fail.figure is not None
        if not shared and not (fail.probe in many and answered):
            unfit.add(fail.node)
    return unfit


def ran_on(outcomes: Iterable[LocalOutcome]) -> Counter[str]:
    """Return, by probe, on how many nodes it could run."""
    ran = {(outcome.node, outcome.probe) for outcome in outcomes if outcome.how is not How.ENVIRONMENT}
    return Counter(probe for _, probe in ran)


def is_of_many(probe: str, failed: int, ran: Mapping[str, int]) -> bool:
    """Whether a probe of a service that many nodes share failed on so many that it may not be the nodes' fault.

    Args:
        probe: its name.
        failed: on how many nodes it failed.
        ran: by probe, on how many nodes it ran.
    """
    return probe.partition(" on ")[0] in SHARED and failed > MOST_ALIKE_SHARE * ran[probe]


def common_failures(own: Sequence[Fail], broken: Collection[str], count: int) -> dict[str, str]:
    """Return, by probe that fails on so many nodes alike that it may not be their fault, that as a message.

    Args:
        own: the failures in nodes' own probes.
        broken: nodes on which a probe could not run.
        count: how many nodes are judged.
    """
    by_probe: dict[str, list[Fail]] = defaultdict(list)
    for fail in own:
        by_probe[fail.probe].append(fail)
    messages = {}
    for probe, fails in sorted(by_probe.items()):
        nodes = {fail.node for fail in fails}
        # In the smallest gangs no node is left that could show that the cause is not shared.
        left = count - len(nodes.union(broken))
        all_alike = len(fails) > 1 and left <= 0 and not any(fail.wrong for fail in fails)
        if all_alike or are_too_many([fail.figure or 0.0 for fail in fails], len(fails), count):
            messages[probe] = f"{probe} fails on {len(fails)} of {count} nodes alike: not so many are bad"
    return messages


def are_too_many(figures: Sequence[float], some: int, count: int) -> bool:
    """Whether so many nodes fail, and so alike, that they are not so many bad ones.

    Args:
        figures: the best of each that fails.
        some: how many fail.
        count: how many nodes are judged.
    """
    if some < LEAST_ALIKE or some <= MOST_ALIKE_SHARE * count:
        return False
    return some > MOST_SHARE * count or alike(figures, ALIKE)


def _fail(outcome: LocalOutcome, threshold: ProbeThreshold | None) -> Fail | None:
    message = f" ({outcome.message})" if outcome.message else ""
    least, unit = (threshold.least, threshold.unit) if threshold else (0.0, "")
    if outcome.how is How.LATE:
        words = f"its tests have not ended in time{message}"
        return Fail(outcome.node, outcome.probe, None, least, unit, (), words)
    if outcome.how is not How.RESULT:
        words = f"{outcome.probe} gave no result within its deadline{message}"
        return Fail(outcome.node, outcome.probe, None, least, unit, (), words)
    if outcome.wrong:
        words = f"{outcome.probe} found what must not be{message}"
        return Fail(outcome.node, outcome.probe, outcome.figure, least, unit, (), words, wrong=True)
    if threshold is None or outcome.figure is None or outcome.figure >= least:
        return None  # without a figure there was nothing to measure, say with one GPU between GPUs
    measured = f"{significant(outcome.figure, 4)} {unit}".strip()
    expected = f"at least {significant(least, 4)} is expected by {threshold.source}"
    words = f"{outcome.probe} measured {measured}, {expected}{message}"
    return Fail(outcome.node, outcome.probe, outcome.figure, least, unit, (), words)

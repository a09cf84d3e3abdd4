"""Checkers' reports as outcomes to be judged: a node's own probes, their names, and their thresholds. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from muster.preflight.outcomes import How, LocalOutcome
from muster.protocol.checks import READY, CheckAnswer
from muster.world.checks import CheckerView, ProbeThreshold

CHECKER = "checker"
"""The name of the outcome that nothing could be tested."""
PROFILE = "profile"
"""The name of the outcome that a node's probes together have not ended in time."""
SHARED = frozenset({"storage", "storage-read"})
"""Probes of services that many nodes share: an outage fails one node after the other, or all that are tested then."""
LEAST_VOTES = 2
"""Nodes that have to agree before another one is wrong."""
MAX_NAMED = 4
_HOWS = {str(how): how for how in How}


def how_ended(word: str) -> How:
    """Return how a test ended, by the checker's word; an unknown word, of a newer checker, counts as ENVIRONMENT."""
    return _HOWS.get(word, How.ENVIRONMENT)


def has_wrong_sums(answer: CheckAnswer) -> bool:
    """Whether an all-reduce with other nodes gave wrong sums: the answer then has a message and no figure."""
    return how_ended(answer.outcome) is How.RESULT and answer.gbps <= 0.0 and bool(answer.message)


def outcomes_of_answer(node: str, answer: CheckAnswer | None) -> Iterator[LocalOutcome]:
    """Yield the outcomes of an order that tests one node; all probes that were late are one outcome.

    Args:
        node: its name.
        answer: of its checker; None: it did not answer in time.
    """
    if answer is None:
        words = "its checker has not answered: look at its log (kubectl -n muster-check logs)"
        yield LocalOutcome(node, PROFILE, How.LATE, message=words)
        return
    if not answer.probes:
        yield LocalOutcome(node, CHECKER, how_ended(answer.outcome), message=f"{node}: {answer.message}")
    late = [probe for probe in answer.probes if how_ended(probe.outcome) is How.LATE]
    if late:
        # What others use, too, keeps its name: where it is slow for many, it is not the nodes.
        name = late[0].probe if all(probe.probe in SHARED for probe in late) else PROFILE
        more = f" (and {len(late) - 1} more)" if late[1:] else ""
        yield LocalOutcome(node, name, How.LATE, message=f"{late[0].probe}: {late[0].message}{more}")
    for probe in answer.probes:
        ended = how_ended(probe.outcome)
        if ended is How.LATE:
            continue
        words = f"{node}: {probe.message}" if ended is How.ENVIRONMENT else probe.message
        yield LocalOutcome(
            node=node,
            probe=probe.probe,
            how=ended,
            figure=probe.figure,
            message=words,
            wrong=probe.wrong,
            unit=probe.unit,
            fingerprint=probe.fingerprint,
        )


def ended_in_time(node: str, answer: CheckAnswer | None) -> bool:
    """Whether all probes of a node came to an end, with whatever result."""
    return all(outcome.how is How.RESULT for outcome in outcomes_of_answer(node, answer))


def without_common_delays(outcomes: Iterable[LocalOutcome], in_time: Collection[str]) -> list[LocalOutcome]:
    """Return the outcomes; a late one counts against its node only if other nodes, tested at the same moment, were in
    time.

    Args:
        outcomes: of nodes' own probes.
        in_time: nodes whose probes have ended in time.
    """
    adjusted = []
    for outcome in outcomes:
        others = sorted(set(in_time) - {outcome.node})
        if outcome.how is not How.LATE:
            adjusted.append(outcome)
        elif others:
            beside = f"{others[0]} was" if len(others) == 1 else f"{', '.join(others[:MAX_NAMED])} were"
            adjusted.append(replace(outcome, message=f"{outcome.message}; {beside} in time"))
        else:
            words = f"{outcome.node}: {outcome.message}; no other node that could be compared with it was in time"
            adjusted.append(replace(outcome, how=How.ENVIRONMENT, message=words))
    return adjusted


def with_wrong_bits(outcomes: Sequence[LocalOutcome], checkers: Mapping[str, CheckerView]) -> list[LocalOutcome]:
    """Return the outcomes; one with other bits than most nodes of its kind is wrong.

    A node that always errs in the same way agrees with itself, so that only others can show it. Without a majority
    nothing is proved of any node of the kind.

    Args:
        outcomes: of nodes' own probes.
        checkers: by node.
    """
    kinds: dict[tuple[str, ...], list[LocalOutcome]] = {}
    for outcome in outcomes:
        view = checkers.get(outcome.node)
        if view is not None and outcome.how is How.RESULT and not outcome.wrong and ":" in outcome.fingerprint:
            kind = outcome.fingerprint.partition(":")[0]
            kinds.setdefault((outcome.probe, view.report.library, view.report.version, kind), []).append(outcome)
    changed: dict[LocalOutcome, LocalOutcome] = {}
    for alike in kinds.values():
        ((usual, count), *others) = Counter(outcome.fingerprint for outcome in alike).most_common()
        if not others:
            continue
        has_majority = 2 * count > len(alike) and count >= LEAST_VOTES
        for outcome in alike:
            if not has_majority:
                words = f"{outcome.probe}: nodes of one kind have different bits, and no majority shows which are wrong"
                changed[outcome] = replace(outcome, how=How.ENVIRONMENT, message=words)
            elif outcome.fingerprint != usual:
                words = f"other bits than {count} of {len(alike)} nodes of its kind"
                changed[outcome] = replace(outcome, wrong=True, message=words)
    return [changed.get(outcome, outcome) for outcome in outcomes]


def unlike_nodes(checkers: Mapping[str, CheckerView]) -> dict[str, LocalOutcome]:
    """Return, by node, the outcome for nodes that cannot be tested together with most others.

    An all-reduce between other numbers of GPUs, libraries or probe versions hangs or breaks, and that is no fault of a
    node.

    Args:
        checkers: by node; one that is not ready is left out.
    """
    kinds = {
        node: (view.report.gpus, view.report.library, view.report.version)
        for node, view in sorted(checkers.items())
        if view.report.state == READY
    }
    counts = Counter(kinds.values())
    usual = max(sorted(counts), key=counts.__getitem__, default=None)
    unlike = {}
    for node, kind in kinds.items():
        if usual is not None and kind != usual:
            words = f"{node} cannot be tested with others: {_difference(kind, usual)}"
            unlike[node] = LocalOutcome(node, CHECKER, How.ENVIRONMENT, message=words)
    return unlike


def _difference(kind: tuple[int, str, str], usual: tuple[int, str, str]) -> str:
    if kind[0] != usual[0]:
        return f"its checker sees {kind[0]} GPUs, those of most others {usual[0]}"
    if kind[1] != usual[1]:
        return f"its checker has {kind[1]}, those of most others {usual[1]}"
    return "its checker has another version of the probes than those of most others"


def with_thresholds(
    outcomes: Iterable[LocalOutcome], checkers: Mapping[str, CheckerView], thresholds: Sequence[ProbeThreshold]
) -> tuple[dict[str, ProbeThreshold], list[LocalOutcome]]:
    """Return what probes have to reach, by the probe's name, and the outcomes under these names.

    A probe on another GPU model than the first node's has a name of its own, as thresholds differ.

    Args:
        outcomes: of nodes' own probes.
        checkers: by node.
        thresholds: of the fleet.
    """
    # Of several transports the one that asks for most: a node that has fallen back to a slower one must not be its own
    # measure.
    by_key: dict[tuple[str, str, str, str], ProbeThreshold] = {}
    for fleet_threshold in thresholds:
        key = (fleet_threshold.probe, fleet_threshold.model, fleet_threshold.library, fleet_threshold.version)
        if key not in by_key or fleet_threshold.least > by_key[key].least:
            by_key[key] = fleet_threshold
    first = next(iter(checkers.values())).report if checkers else None
    usual = (first.model, first.library, first.version) if first else ("", "", "")
    by_name: dict[str, ProbeThreshold] = {}
    renamed = []
    for outcome in outcomes:
        view = checkers.get(outcome.node)
        report = view.report if view else None
        threshold = by_key.get((outcome.probe, report.model, report.library, report.version)) if report else None
        if threshold is None:
            renamed.append(outcome)
            continue
        kind = (threshold.model, threshold.library, threshold.version)
        by = " ".join(part for part in kind if part not in usual)
        name = outcome.probe if kind == usual else f"{outcome.probe} on {by}"
        by_name[name] = threshold
        renamed.append(replace(outcome, probe=name))
    return by_name, renamed

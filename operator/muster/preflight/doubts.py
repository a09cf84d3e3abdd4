"""What of a verdict stands: whether those who speak against a node are well themselves, and whether it is the nodes at all. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from muster.preflight.evidence import LEAST_WITNESSES
from muster.preflight.outcomes import How, PairOutcome
from muster.preflight.verdict import LEAST_ALIKE, MOST_ALIKE_SHARE, Fail, Outcome, Verdict

MOST_CONTROLS = 4
"""So many partners of one node are tested with each other at most."""


def controls(verdict: Verdict, outcomes: Sequence[PairOutcome]) -> list[tuple[str, str]]:
    """Partners that are to be tested with each other, because their word alone would condemn a node."""
    found: list[tuple[str, str]] = []
    for fail in doubtful(verdict, outcomes):
        found += pairwise(sorted(fail.partners)[:MOST_CONTROLS])
    return list(dict.fromkeys(found))


def doubtful(verdict: Verdict, outcomes: Iterable[PairOutcome]) -> list[Fail]:
    """Failures beside partners that have not shown in this burn-in that they are well themselves."""
    results = [each for each in outcomes if each.how is How.RESULT]
    found = []
    for fail in verdict.failed:
        good = {
            node
            for each in results
            if each.gbps >= fail.threshold and not each.wrong and fail.node not in (each.a, each.b)
            for node in (each.a, each.b)
        }
        if fail.partners and len(good.intersection(fail.partners)) < LEAST_WITNESSES:
            found.append(fail)
    return found


def upheld(
    verdict: Verdict, outcomes: Iterable[PairOutcome], earlier: Iterable[tuple[str, str]], members: int
) -> Verdict:
    """The verdict without failures for which only the word of doubtful partners stands, or that are too common.

    Args:
        earlier: node and probe of those that have failed in this gang before and left.
        members: how many nodes the gang has now.
    """
    before = list(earlier)
    dropped = {
        fail.node: f"{fail.node} misses beside {', '.join(fail.partners)}, which pass with nobody else"
        for fail in doubtful(verdict, outcomes)
    }
    tried = members + len({node for node, _ in before})
    for fail in verdict.failed:
        alike = {node for node, probe in before if probe == fail.probe}
        alike |= {each.node for each in verdict.failed if each.probe == fail.probe}
        if len(alike) >= LEAST_ALIKE and len(alike) > MOST_ALIKE_SHARE * tried:
            words = f"{fail.probe} has failed on {len(alike)} of {tried} nodes that were tried: not so many are bad"
            dropped[fail.node] = words
    if not dropped:
        return verdict
    failed = tuple(fail for fail in verdict.failed if fail.node not in dropped)
    return replace(
        verdict,
        outcome=Outcome.FAIL if failed else Outcome.INCONCLUSIVE,
        failed=failed,
        open=tuple(sorted({*verdict.open, *dropped})),
        words="; ".join(dict.fromkeys(dropped.values())),
    )

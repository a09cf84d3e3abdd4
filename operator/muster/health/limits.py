"""Computes what remains of each budget of a pool, in one pass: what it allows, what is used of it, what is left.

Tests: tests/unit/health/test_breaker.py, tests/unit/health/test_budgets.py.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from muster.health.budgets import Budgets, Share
from muster.health.remaining import Budget, Candidate, Domain, Part, Remaining, Removal, Span, budgets_for
from muster.health.window_budgets import Charge, Gate, Times, Window, WindowBudget


@dataclass(frozen=True, slots=True)
class Limits:
    """The budgets of one pool as numbers of nodes.

    Attributes:
        budgets: of the FleetPolicy.
        size: the number of the pool's nodes.
        domain_sizes: by domain, the number of the pool's nodes there.
    """

    budgets: Budgets
    size: int
    domain_sizes: Mapping[Domain, int]

    def share(self, limits: Span | Domain) -> Share:
        """Return how many nodes the budgets that limit this allow."""
        if limits is Span.AT_ONCE:
            return self.budgets.at_once(self.size)
        if limits is Span.WINDOW:
            return self.budgets.in_window(self.size)
        return self.budgets.in_domain(self.domain_sizes[limits])

    def remaining(
        self, out: Iterable[Removal], taken: Iterable[Charge], waiting: Collection[Candidate], window: Window
    ) -> Remaining:
        """Return what remains of each budget of which a node that waits needs room.

        The budgets at the same time are computed first, because a node that waits for the return of others does not
        wait for a window.

        Args:
            out: the removals of the nodes that are out now.
            taken: what windows count.
            waiting: the nodes that wait.
            window: in which removals are counted.
        """
        if not waiting:
            return Remaining({}, {})
        used = Counter(budget for removal in out for budget in budgets_for(removal))
        alike = {candidate.choices for candidate in waiting}
        asked = {budget for choices in alike for choice in choices for budget in budgets_for(choice)}
        shares = {limits: self.share(limits) for limits in {budget.limits for budget in asked}}
        room = {
            budget: _limit(shares[budget.limits], budget.part) - used[budget]
            for budget in asked
            if budget.limits is not Span.WINDOW
        }
        at_once = Remaining(room, {})
        blocked = {choices for choices in alike if at_once.waits_for_others(choices)}
        able = [candidate for candidate in waiting if candidate.choices not in blocked]
        gates = _gates(shares[Span.WINDOW], list(taken), able, window)
        return Remaining(room | {Budget(Span.WINDOW, part): gate.room for part, gate in gates.items()}, gates)


def _limit(share: Share, part: Part | str) -> int:
    """Return how many nodes this part of a budget allows; certain faults may use all of it."""
    if part is Part.UNCERTAIN:
        return share.uncertain
    return share.total if isinstance(part, Part) else share.cause


def _gates(share: Share, taken: Sequence[Charge], able: Iterable[Candidate], window: Window) -> dict[Part | str, Gate]:
    """Return how many nodes each budget per window allows now.

    The narrow budgets are computed first: a node that waits for a narrow budget does not wait for a wide one. Uncertain
    faults do not lengthen the pause of certain ones.
    """
    of_cause: defaultdict[str, list[Charge]] = defaultdict(list)
    for charge in taken:
        if not charge.certain:
            of_cause[charge.cause].append(charge)
    waits = {(candidate.since, candidate.choices) for candidate in able}
    unsure = [(since, choices) for since, choices in waits if not choices[0].certain]
    since_of: defaultdict[str, set[datetime]] = defaultdict(set)
    for since, choices in unsure:
        for choice in choices:
            since_of[choice.cause].add(since)
    gates: dict[Part | str, Gate] = {}
    for cause, moments in since_of.items():
        times = Times.of_charges(of_cause[cause])
        gates[cause] = Gate.of_budget(WindowBudget(share.cause, times, times), moments, window)
    up = {since for since, choices in unsure if any(gates[choice.cause].room for choice in choices)}
    sure = {since for since, choices in waits if choices[0].certain}
    every = Times.of_charges(taken)
    certain, uncertain = (Times.of_charges(c for c in taken if c.certain is which) for which in (True, False))
    gates[Part.UNCERTAIN] = Gate.of_budget(WindowBudget(share.uncertain, uncertain, uncertain), up, window)
    gates[Part.CERTAIN] = Gate.of_budget(WindowBudget(share.total, every, certain), sure, window)
    gates[Part.ALL] = Gate.of_budget(WindowBudget(share.total, every, every), (), window)
    return gates

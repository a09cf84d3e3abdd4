"""What remains of each budget of a pool, computed in one pass, and which budgets pay for a node.

A node is taken out if every budget that pays for it has room. The budgets limit three things: the nodes of the pool
that are out at the same time, those of one innermost domain, and those taken out within the window. Each has a part for
all faults. A fault that is not certain needs room in two more: the part for uncertain faults, so that the rest stays
reserved for certain ones, and that of its cause, so that a false alarm leaves room for others (`muster.health.causes`).

Tests: tests/unit/health/test_breaker.py, tests/unit/health/test_budgets.py.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

from muster.health.budgets import Budgets, Share
from muster.health.window_budgets import Charge, Gate, Times, Window, WindowBudget, latest

Domain = tuple[str, tuple[str, ...]]
"""A pool of like nodes, and the path of an innermost domain: the pool's nodes there have budgets of their own."""


class Span(Enum):
    """What a budget of the whole pool limits: the nodes out at the same time, or those taken out within the window."""

    AT_ONCE = auto()
    WINDOW = auto()


class Part(Enum):
    """The faults that a part of a budget is for. A part for the uncertain faults of one cause is named by the cause."""

    ALL = auto()
    CERTAIN = auto()
    UNCERTAIN = auto()


class Budget(NamedTuple):
    """One budget of a pool.

    Attributes:
        limits: what it limits; a domain stands for its nodes that are out at the same time.
        part: for which faults.
    """

    limits: Span | Domain
    part: Part | str


class Disruption(NamedTuple):
    """A node that is taken out, or could be, as the budgets see it.

    Attributes:
        certain: whether the fault is certain.
        cause: to which the disruption is charged, e.g. `agent/Xid79`.
        domain: of the node; None: it is in none.
    """

    certain: bool
    cause: str
    domain: Domain | None


Choices = tuple[Disruption, ...]
"""The disruptions that would take one node out: one for each cause of its fault, strongest first."""


class Candidate(NamedTuple):
    """A node that waits for the budgets.

    Attributes:
        name: of the node.
        since: since when it is unhealthy.
        choices: the disruptions that would take it out.
    """

    name: str
    since: datetime
    choices: Choices


@lru_cache(maxsize=4096)  # thousands of nodes wait for the same few
def budgets_for(disruption: Disruption) -> tuple[Budget, ...]:
    """Return the budgets that pay for this disruption."""
    parts = (Part.ALL, Part.CERTAIN) if disruption.certain else (Part.ALL, Part.UNCERTAIN, disruption.cause)
    limited = (Span.AT_ONCE, disruption.domain, Span.WINDOW)
    return tuple(Budget(limits, part) for limits in limited if limits is not None for part in parts)


@dataclass(frozen=True, slots=True)
class Remaining:
    """What remains of a pool's budgets.

    Attributes:
        room: by budget, how many more nodes it lets be taken out now; absent: none.
        gates: by part, the budget per window with its pause.
    """

    room: Mapping[Budget, int]
    gates: Mapping[Part | str, Gate]

    def payer(self, choices: Choices) -> Disruption | None:
        """Return the first of these disruptions that the budgets pay for; None: they pay for none."""
        return next((choice for choice in choices if all(map(self.has_room, budgets_for(choice)))), None)

    def after(self, disruption: Disruption) -> "Remaining":
        """Return what remains once the budgets have paid for this disruption."""
        return replace(
            self, room={**self.room, **{budget: self.room[budget] - 1 for budget in budgets_for(disruption)}}
        )

    def has_room(self, budget: Budget) -> bool:
        """Whether this budget lets one more node be taken out."""
        return self.room.get(budget, 0) > 0

    def is_used_up(self, limits: Span | Domain, choices: Choices) -> bool:
        """Whether the budgets that limit this pay for none of these disruptions."""
        return not any(
            all(self.has_room(budget) for budget in budgets_for(choice) if budget.limits == limits)
            for choice in choices
        )

    def waits_for_others(self, choices: Choices) -> bool:
        """Whether only the return of other nodes, and no time, lets a node with these choices be taken out."""
        domain = choices[0].domain
        return self.is_used_up(Span.AT_ONCE, choices) or (domain is not None and self.is_used_up(domain, choices))

    def opens_at(self, choices: Choices) -> datetime | None:
        """Return when the budgets per window pay for one of these disruptions by time alone; None: they do now."""
        if choices[0].certain:
            return latest(self.gates[Part.ALL], self.gates[Part.CERTAIN])
        own = [moment for choice in choices if (moment := latest(self.gates[choice.cause])) is not None]
        others = latest(self.gates[Part.ALL], self.gates[Part.UNCERTAIN])
        if len(own) < len(choices):  # one of its causes has room
            return others
        return max(min(own), others) if others is not None else min(own)


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
        self, out: Iterable[Disruption], charges: Iterable[Charge], waiting: Collection[Candidate], window: Window
    ) -> Remaining:
        """Return what remains of each budget of which a node that waits needs room.

        The budgets at the same time are computed first, because a node that waits for the return of others does not
        wait for a window.

        Args:
            out: the disruptions of the nodes that are out now.
            charges: what windows count.
            waiting: the nodes that wait.
            window: in which disruptions are counted.
        """
        if not waiting:
            return Remaining({}, {})
        used = Counter(budget for disruption in out for budget in budgets_for(disruption))
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
        gates = _gates(shares[Span.WINDOW], list(charges), able, window)
        return Remaining(room | {Budget(Span.WINDOW, part): gate.room for part, gate in gates.items()}, gates)


def _limit(share: Share, part: Part | str) -> int:
    """Return how many nodes this part of a budget allows; certain faults may use all of it."""
    if part is Part.UNCERTAIN:
        return share.uncertain
    return share.total if isinstance(part, Part) else share.cause


def _gates(
    share: Share, charges: Sequence[Charge], able: Iterable[Candidate], window: Window
) -> dict[Part | str, Gate]:
    """Return how many nodes each budget per window allows now.

    The narrow budgets are computed first: a node that waits for a narrow budget does not wait for a wide one. Uncertain
    faults do not lengthen the pause of certain ones.
    """
    of_cause: defaultdict[str, list[Charge]] = defaultdict(list)
    for charge in charges:
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
        times = Times.of_charges(of_cause[cause], window)
        gates[cause] = Gate.of_budget(WindowBudget(share.cause, times, times), moments, window)
    up = {since for since, choices in unsure if any(gates[choice.cause].room for choice in choices)}
    sure = {since for since, choices in waits if choices[0].certain}
    every = Times.of_charges(charges, window)
    certain, uncertain = (
        Times.of_charges((c for c in charges if c.certain is which), window) for which in (True, False)
    )
    gates[Part.UNCERTAIN] = Gate.of_budget(WindowBudget(share.uncertain, uncertain, uncertain), up, window)
    gates[Part.CERTAIN] = Gate.of_budget(WindowBudget(share.total, every, certain), sure, window)
    gates[Part.ALL] = Gate.of_budget(WindowBudget(share.total, every, every), (), window)
    return gates

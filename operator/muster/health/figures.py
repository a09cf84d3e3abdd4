"""The breaker's figures, for the FleetPolicy's Events, metrics and status texts.

Tests: tests/unit/health/test_breaker.py, tests/unit/health/test_budgets.py.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from muster.world.names import nodes_text, shortened

MESSAGE_LENGTH = 1024
"""The most that an Event holds."""

_MAX_BUDGETS = 3
"""Racks have budgets of their own: a message names those of a pool that hold most nodes."""

_MAX_PATHS = 2
"""Pools have budgets of their own: a message names so many of their fields."""


class BudgetKind(StrEnum):
    """A kind of budget: its value says which items of the list of budgets are meant."""

    AT_ONCE = "without windowSeconds"
    DOMAIN = "with per: Domain"
    WINDOW = "with windowSeconds"


class ExhaustedBudget(NamedTuple):
    """A budget that holds nodes.

    Attributes:
        kind: of the budget.
        limit: what it allows, as text for users: of which pool or domain, for which faults or cause, in which window.
    """

    kind: BudgetKind
    limit: str


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """The figures of one pool's breaker, for status texts and metrics.

    Attributes:
        pool: its name.
        budget: how many nodes may be taken out per window, for all causes together.
        used: how many nodes were taken out within the window that ends now.
        cap: how many nodes may be out at the same time.
        out: how many nodes Muster has out now.
        held: how many unhealthy nodes the budget keeps in use.
        yields: how many nodes are left to other systems that repair them.
        held_yields: how many nodes other systems claim beyond the number that may be left to them.
        by_cause: for each cause, how many of the `held` nodes name it first.
        by_budget: for each budget that holds nodes, how many of the `held` nodes, most first.
    """

    pool: str
    budget: int
    used: int
    cap: int
    out: int
    held: int
    yields: int = 0
    held_yields: int = 0
    by_cause: tuple[tuple[str, int], ...] = ()
    by_budget: tuple[tuple[ExhaustedBudget, int], ...] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether the pool has nothing to report: no node out, held or claimed, and no budget used."""
        return not (self.out or self.held or self.yields or self.held_yields or self.used)


@dataclass(frozen=True, slots=True)
class Breaker:
    """The breaker's figures for status texts: the sums over all pools, and each pool that has something to report.

    Attributes:
        budget: how many nodes may be taken out per window.
        used: how many nodes were taken out within the window that ends now.
        cap: how many nodes may be out at the same time.
        out: how many nodes Muster has out now.
        held: how many nodes the budget keeps in use, with those that other systems claim beyond their number. The
            breaker is open while there are any.
        next_try: when one of the held nodes may be taken out; None: none is held, or time alone frees none.
        message: what is held and why, as text for users; "" while no node is held.
        pools: the figures of each pool that has a node out, held or yielded, or a used budget.
    """

    budget: int
    used: int
    cap: int
    out: int
    held: int
    next_try: datetime | None
    message: str
    pools: tuple[PoolFigures, ...] = ()


def breaker_of(
    pools: Iterable[PoolFigures],
    next_try: datetime | None,
    now: datetime,
    path_of: Callable[[str], str],
) -> Breaker:
    """Return the figures of all pools together.

    Args:
        pools: the figures of each pool that has nodes.
        next_try: when one of the held nodes may be taken out; None: time alone frees none.
        now: the time.
        path_of: returns the field of the FleetPolicy that has the budgets of a pool.
    """
    every = sorted(pools, key=attrgetter("pool"))
    loud = [pool for pool in every if not pool.is_quiet]
    held = sum(pool.held + pool.held_yields for pool in loud)
    return Breaker(
        budget=sum(pool.budget for pool in every),
        used=sum(pool.used for pool in loud),
        cap=sum(pool.cap for pool in every),
        out=sum(pool.out for pool in loud),
        held=held,
        next_try=next_try if held else None,
        message=_message(loud, next_try, now, path_of) if held else "",
        pools=tuple(loud),
    )


def _message(
    pools: Sequence[PoolFigures], next_try: datetime | None, now: datetime, path_of: Callable[[str], str]
) -> str:
    """Return what is held, and by which budgets, with what follows and what to do, as text that fits into an Event."""
    parts = ["New workers are placed on held nodes only where no other node is left."]
    if next_try and next_try > now:
        parts.append(f"Muster takes the next node out at {next_try:%Y-%m-%d %H:%M:%S} UTC.")
    parts.append(
        "Several unhealthy nodes at once usually have one cause: look for what they share (a rack, a roll-out, a "
        "driver, a switch, the monitor itself)."
    )
    if kinds := sorted({budget.kind for pool in pools for budget, _ in pool.by_budget}):
        paths = sorted({path_of(pool.pool) for pool in pools if pool.by_budget})
        parts.append(
            f"If each has a fault of its own, raise the items {' and '.join(kinds)} in "
            f"{shortened(paths, _MAX_PATHS)} of the FleetPolicy."
        )
    rest = " ".join(parts)
    most_held = sorted(pools, key=lambda pool: -(pool.held + pool.held_yields))
    facts = " ".join(part for pool in most_held for part in _held_parts(pool, path_of(pool.pool)))
    return f"{_cut(facts, len(rest))} {rest}"


def _cut(facts: str, rest: int) -> str:
    """Return the facts, cut so that they fit into a message beside so many other characters."""
    room = MESSAGE_LENGTH - rest - 1
    return facts if len(facts) <= room else f"{facts[: room - 3]}..."


def _held_parts(pool: PoolFigures, path: str) -> Iterable[str]:
    where = f" of pool {pool.pool!r}" if pool.pool else ""
    if pool.held:
        causes = ", ".join(f"{cause}: {count}" for cause, count in pool.by_cause[:4])
        yield f"The budgets keep {nodes_text(pool.held, 'unhealthy')}{where} in use ({causes})."
        for budget, count in pool.by_budget[:_MAX_BUDGETS]:
            yield f"{count} wait{'s' * (count == 1)} because {budget.limit}."
        if rest := sum(count for _, count in pool.by_budget[_MAX_BUDGETS:]):
            yield f"{rest} wait{'s' * (rest == 1)} for other budgets."
        yield (
            f"Now {pool.out} of at most {pool.cap} nodes are out; {pool.used} of at most {pool.budget} were taken out "
            "in this window."
        )
    if pool.held_yields:
        yield (
            f"Other systems claim {nodes_text(pool.held_yields)}{where} for repair beyond the budget; Muster has left "
            f"{pool.yields} to them. If this is maintenance, raise the budget for RepairByOthers in "
            f"{path} of the FleetPolicy."
        )

"""The breaker's figures, for the FleetPolicy's Events, metrics and status texts.

Tests: tests/unit/health/test_breaker.py, tests/unit/health/test_budgets.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from operator import attrgetter


class BreakerState(StrEnum):
    """The state of a pool's breaker, which limits how many nodes are taken out.

    Closed: the demand is within the budgets. Open: more nodes are unhealthy than a budget or a cap allows. HalfOpen:
    the breaker is open, and one more node is tried now.
    """

    CLOSED = "Closed"
    OPEN = "Open"
    HALF_OPEN = "HalfOpen"


@dataclass(frozen=True, slots=True)
class PoolFigures:
    """The figures of one pool's breaker, for status texts and metrics.

    Attributes:
        pool: its name.
        state: of the pool's breaker.
        budget: how many nodes may be taken out per window, for all causes together.
        used: how many nodes were taken out within the window that ends now.
        cap: how many nodes may be out at the same time.
        out: how many nodes Muster has out now.
        held: how many unhealthy nodes the budget keeps in use.
        yields: how many nodes are left to other systems that repair them.
        held_yields: how many nodes other systems claim beyond the number that may be left to them.
        by_cause: for each cause, how many of the `held` nodes name it first.
    """

    pool: str
    state: BreakerState
    budget: int
    used: int
    cap: int
    out: int
    held: int
    yields: int = 0
    held_yields: int = 0
    by_cause: tuple[tuple[str, int], ...] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether the pool has nothing to report: no node out, held or claimed, and no budget used."""
        return not (self.out or self.held or self.yields or self.held_yields or self.used)


@dataclass(frozen=True, slots=True)
class Breaker:
    """The breaker's state and figures for status texts: the sums over all pools, and each pool that has something to
    report.

    Attributes:
        state: the worst of the pools' states: Open before HalfOpen before Closed.
        budget: how many nodes may be taken out per window.
        used: how many nodes were taken out within the window that ends now.
        cap: how many nodes may be out at the same time.
        out: how many nodes Muster has out now.
        held: how many nodes the budget keeps in use, with those that other systems claim beyond their number.
        next_try: when one of the held nodes may be taken out; None: none is held, or time alone frees none.
        message: the state as text for users; "" while no node is held.
        pools: the figures of each pool that has a node out, held or yielded, or a used budget.
    """

    state: BreakerState
    budget: int
    used: int
    cap: int
    out: int
    held: int
    next_try: datetime | None
    message: str
    pools: tuple[PoolFigures, ...] = ()


_WORST = (BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED)


def breaker_of(pools: Iterable[PoolFigures], next_try: datetime | None, now: datetime) -> Breaker:
    """Return the figures of all pools together.

    Args:
        pools: the figures of each pool that has nodes.
        next_try: when one of the held nodes may be taken out; None: time alone frees none.
        now: the time.
    """
    every = sorted(pools, key=attrgetter("pool"))
    loud = [pool for pool in every if not pool.is_quiet]
    held = sum(pool.held + pool.held_yields for pool in loud)
    return Breaker(
        state=min((pool.state for pool in loud), key=_WORST.index, default=BreakerState.CLOSED),
        budget=sum(pool.budget for pool in every),
        used=sum(pool.used for pool in loud),
        cap=sum(pool.cap for pool in every),
        out=sum(pool.out for pool in loud),
        held=held,
        next_try=next_try if held else None,
        message=_message(loud, next_try, now) if held else "",
        pools=tuple(loud),
    )


def nodes(count: int) -> str:
    """Return a number of nodes as text."""
    return f"{count} node{'s' * (count != 1)}"


def _message(pools: Sequence[PoolFigures], next_try: datetime | None, now: datetime) -> str:
    parts = [part for pool in pools for part in _held_parts(pool)]
    parts.append("New workers are placed on these nodes only where no other node is left.")
    if next_try and next_try > now:
        parts.append(f"Muster takes the next node out at {next_try:%Y-%m-%d %H:%M:%S} UTC.")
    if any(pool.state is not BreakerState.CLOSED for pool in pools):
        parts.append(
            "So many nodes at once usually have one cause: look for what they share (a roll-out, a driver, a switch, "
            "the monitor itself). If the nodes are really unhealthy, raise spec.health.budgets of the FleetPolicy."
        )
    return " ".join(parts)


def _held_parts(pool: PoolFigures) -> Iterable[str]:
    where = f" of pool {pool.pool!r}" if pool.pool else ""
    if pool.held:
        causes = ", ".join(f"{cause}: {count}" for cause, count in pool.by_cause[:4])
        yield (
            f"The budget keeps {pool.held} unhealthy node{'s' * (pool.held != 1)}{where} in use ({causes}): Muster "
            f"took out {pool.used} of {pool.budget} nodes in this window; {pool.out} of at most {pool.cap} are out."
        )
    if pool.held_yields:
        yield (
            f"Other systems claim {nodes(pool.held_yields)}{where} for repair beyond the budget; Muster has left "
            f"{pool.yields} to them. If this is maintenance, raise the budget for RepairByOthers in "
            "spec.health.budgets of the FleetPolicy."
        )

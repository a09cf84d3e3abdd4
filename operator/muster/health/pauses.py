"""How many nodes a budget per window lets be taken out now, and the pauses of the breaker once it is exhausted.

The breaker of a budget opens when the budget is exhausted and more nodes wait for it. It then lets one node be taken
out at a time, after a pause that doubles with each. It closes by itself when no node waits any more.

Tests: tests/unit/health/test_breaker.py, tests/unit/health/test_budgets.py.
"""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from muster.health.charges import Times, Window

MAX_PAUSE_SECONDS = 14400
"""The pause between two tries doubles up to four hours."""


@dataclass(frozen=True, slots=True)
class WindowBudget:
    """A budget per window, and what it has paid for.

    Attributes:
        limit: how many nodes may be taken out per window.
        taken: when nodes were taken out by this budget.
        tries: those of them that lengthen the pause.
    """

    limit: int
    taken: Times
    tries: Times

    def opened(self, waiting_since: Iterable[datetime], window: Window) -> datetime | None:
        """Return since when the breaker of this budget is open; None: it is closed.

        A node that could be taken out was taken out at once. So a node that waits, and became unhealthy while the
        budget was exhausted, shows that the breaker opened then.

        Args:
            waiting_since: since when each node has waited for this budget alone.
            window: in which removals are counted.
        """
        return min(
            (since for since in waiting_since if self.taken.within(window.length, since) >= self.limit), default=None
        )

    def pause_ends(self, opened: datetime, window: Window) -> datetime:
        """Return when the next node may be tried: the tries since the breaker opened give the pause."""
        count = self.tries.after(opened)
        # 2 ** 16 windows are beyond any pause.
        seconds = window.length.total_seconds() * 2 ** min(count, 16)
        longest = max(MAX_PAUSE_SECONDS, window.length.total_seconds())
        return (self.tries.all[-1] if count else opened) + timedelta(seconds=min(seconds, longest))


@dataclass(frozen=True, slots=True)
class Gate:
    """How many nodes one budget per window allows now.

    Attributes:
        room: this many nodes.
        is_open: whether the breaker of this budget is open, so that its pause counts and not the window alone.
        next: when the next node may pass, if none may now; None: one may now.
    """

    room: int
    is_open: bool
    next: datetime | None

    @classmethod
    def of_budget(cls, budget: WindowBudget, waiting_since: Iterable[datetime], window: Window) -> "Gate":
        """Return how many of the nodes that wait for one budget may pass now.

        Args:
            budget: for which they wait.
            waiting_since: since when each node has waited for this budget alone.
            window: in which removals are counted.
        """
        times = budget.taken.all
        in_window = times[bisect_right(times, window.now - window.length) :]
        room = max(0, budget.limit - budget.taken.within(window.length, window.now))
        slot = in_window[len(in_window) - budget.limit] + window.length if not room else None
        opened = budget.opened(waiting_since, window)
        if opened is None:
            return cls(room, False, slot)
        ends = budget.pause_ends(opened, window)
        if window.now < ends:
            return cls(0, True, max(ends, slot) if slot else ends)
        return cls(min(room, 1), True, slot)


def latest(*gates: Gate) -> datetime | None:
    """Return when all of these budgets allow a node; None: all do now."""
    return max((gate.next for gate in gates if not gate.room and gate.next is not None), default=None)

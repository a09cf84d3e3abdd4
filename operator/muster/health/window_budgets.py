"""The budgets per window: which removals they count, how many nodes they let be taken out now, and the pauses of the
breaker once one is exhausted.

Nothing of this is kept. It follows from the incidents in NodeHealth, which say when Muster took a node out, and for
which cause.

The breaker of a budget opens when the budget is exhausted and more nodes wait for it. It then lets one node be taken
out at a time, after a pause that doubles with each. It closes by itself when no node waits any more.

Tests: tests/unit/health/test_breaker.py, tests/unit/health/test_budgets.py, tests/unit/health/test_charges.py.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from muster.api.nodehealth import HealthIncident
from muster.health.verdict import Verdict

MAX_PAUSE_SECONDS = 14400
"""The pause between two tries doubles up to four hours."""


class Charge(NamedTuple):
    """One time that Muster took a node out.

    Attributes:
        time: when Muster took the node out.
        node: its name; "": the node does not exist any more.
        certain: whether the fault is certain.
        cause: to which the removal is charged, e.g. `agent/Xid79`.
    """

    time: datetime
    node: str
    certain: bool
    cause: str


@dataclass(frozen=True, slots=True)
class Window:
    """The window that ends now, in which removals of nodes are counted.

    Attributes:
        length: of the window.
        now: the time.
        ahead: for how many seconds each incident time in the future has been known; absent: it is new.
    """

    length: timedelta
    now: datetime
    ahead: Mapping[datetime, float] = field(default_factory=dict)

    def counted_time(self, recorded: datetime) -> datetime:
        """Return the time at which a removal counts: the recorded time, or, if that lies ahead, when it was first met.

        A recorded time ahead of now comes from a clock that is, or was, wrong.
        """
        met = self.now - timedelta(seconds=self.ahead[recorded]) if recorded in self.ahead else self.now
        return min(recorded, met)


def charges_on_record(
    verdicts: Mapping[str, Verdict], removed_incidents: Iterable[HealthIncident], window: Window
) -> Iterator[Charge]:
    """Yield the removals on record.

    Args:
        verdicts: by node of one pool.
        removed_incidents: incidents of NodeHealth objects whose node does not exist.
        window: in which removals are counted.
    """
    recorded = [(name, incident) for name, verdict in verdicts.items() for incident in verdict.record.incidents]
    for name, incident in (*recorded, *(("", incident) for incident in removed_incidents)):
        if incident.taken_out_time is not None:
            time = window.counted_time(incident.taken_out_time)
            yield Charge(time, name, incident.certain, incident.charged_to)


@dataclass(frozen=True, slots=True)
class Times:
    """The times at which nodes were taken out by one budget.

    Attributes:
        all: oldest first.
    """

    all: Sequence[datetime]

    @classmethod
    def of_charges(cls, charges: Iterable[Charge], window: Window) -> "Times":
        """Return the times of the charges that one budget counts.

        A node that was taken out again within the window counts once, by the last time: budgets are numbers of nodes,
        and one agent whose reports come and go must not use up what other nodes need. A removal that another budget
        pays for frees no place in this one: it may yet be undone, because its record cannot be written.

        Args:
            charges: those for which the budget pays.
            window: in which removals are counted.
        """
        times, later = list[datetime](), dict[str, datetime]()
        for charge in sorted(charges, reverse=True):
            if charge.node not in later or later[charge.node] - charge.time >= window.length:
                times.append(charge.time)
            if charge.node:
                later[charge.node] = charge.time
        return cls(times[::-1])

    def within(self, length: timedelta, until: datetime) -> int:
        """How many removals of nodes there were in the window that ends at this moment."""
        return bisect_right(self.all, until) - bisect_right(self.all, until - length)

    def after(self, moment: datetime) -> int:
        """How many removals of nodes there were after this moment."""
        return len(self.all) - bisect_right(self.all, moment)


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
        next: when the next node may pass, if none may now; None: one may now.
    """

    room: int
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
            return cls(room, slot)
        ends = budget.pause_ends(opened, window)
        if window.now < ends:
            return cls(0, max(ends, slot) if slot else ends)
        return cls(min(room, 1), slot)


def latest(*gates: Gate) -> datetime | None:
    """Return when all of these budgets allow a node; None: all do now."""
    return max((gate.next for gate in gates if not gate.room and gate.next is not None), default=None)

"""What the budgets per window count: when Muster took nodes out, and for which cause.

Nothing of this is kept. It follows from the incidents in NodeHealth, which say when Muster took a node out, and for
which cause.

Tests: tests/unit/health/test_breaker.py, tests/unit/health/test_budgets.py.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from muster.api.nodehealth import HealthIncident
from muster.health.verdict import Verdict

Domain = tuple[str, tuple[str, ...]]
"""A pool of like nodes, and the path of an innermost domain: the pool's nodes there have budgets of their own."""


class Charge(NamedTuple):
    """One time that Muster took a node out.

    Attributes:
        time: when Muster took the node out.
        certain: whether the fault is certain.
        cause: to which the removal is charged, e.g. `agent/Xid79`.
    """

    time: datetime
    certain: bool = False
    cause: str = ""


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


def charges_on_record(verdicts: Iterable[Verdict], gone: Iterable[HealthIncident], window: Window) -> Iterator[Charge]:
    """Yield the removals on record that windows count.

    A node that was taken out again within the window counts once, by the last time: budgets are numbers of nodes, and
    one agent whose reports come and go must not use up what other nodes need.

    Args:
        verdicts: on the nodes of one pool.
        gone: incidents of NodeHealth objects whose node does not exist.
        window: in which removals are counted.
    """
    for verdict in verdicts:
        later = None
        for incident in reversed(verdict.record.incidents):
            if incident.taken_out_time is not None:
                time = window.counted_time(incident.taken_out_time)
                if later is None or later - time >= window.length:
                    yield Charge(time, incident.certain, incident.charged_to)
                later = time
    for incident in gone:
        if incident.taken_out_time is not None:
            yield Charge(window.counted_time(incident.taken_out_time), incident.certain, incident.charged_to)


@dataclass(frozen=True, slots=True)
class Times:
    """The times at which nodes were taken out by one budget.

    Attributes:
        all: oldest first.
    """

    all: Sequence[datetime]

    @classmethod
    def of_charges(cls, charges: Iterable[Charge]) -> "Times":
        """Return the times of these charges."""
        return cls(sorted(charge.time for charge in charges))

    def within(self, length: timedelta, until: datetime) -> int:
        """How many removals of nodes there were in the window that ends at this moment."""
        return bisect_right(self.all, until) - bisect_right(self.all, until - length)

    def after(self, moment: datetime) -> int:
        """How many removals of nodes there were after this moment."""
        return len(self.all) - bisect_right(self.all, moment)

"""When a node is free for a waiting job, and what has to happen until then. Pure.

Tests: tests/unit/queueing/test_starts.py.
"""

from dataclasses import dataclass
from enum import Enum, auto


class Event(Enum):
    """What has to happen before a node is free."""

    NOTHING = auto()
    HOLDERS_GIVE_WAY = auto()
    HOLDER_ENDS = auto()
    HOLDER_LEAVES = auto()
    OTHER_PODS_END = auto()
    WAITING_JOB_STARTS = auto()
    WAITING_JOB_ENDS = auto()


@dataclass(frozen=True, slots=True, eq=False)  # by identity: a plan looks at each of thousands of nodes
class Freed:
    """When a node is free. There is one for each event.

    Attributes:
        seconds: from now on; infinite: not known.
        event: what has to happen until then.
        uid: of the job that it is about, or the name of the pod; "": of several, or of none.
        unasked_seconds: when it is free where the holder is not asked to give it back; None: no later.
    """

    seconds: float
    event: Event = Event.NOTHING
    uid: str = ""
    unasked_seconds: float | None = None

    @property
    def unasked(self) -> "Freed":
        """The same where the holder is not asked."""
        if self.unasked_seconds is None:
            return self
        return Freed(self.unasked_seconds, Event.HOLDER_ENDS, self.uid)


def time_order(freed: Freed) -> tuple[float, int]:
    """Return the order of times; of two that are equal, the one that something has to happen for is later."""
    return freed.seconds, freed.event.value

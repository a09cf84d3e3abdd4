"""Limits the writes about one node in an hour: what comes and goes all the time must not cost a write each time.

Tests: tests/unit/controller/test_nodereconciler.py.
"""

from collections import deque
from collections.abc import Callable

HOUR_SECONDS = 3600.0
MAX_WRITES_PER_HOUR = 10


class Pace:
    """The writes of each node in the last hour.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._written: dict[str, deque[float]] = {}

    def wrote(self, name: str) -> None:
        """Note that a write about this node was made just now."""
        written = self._written.setdefault(name, deque(maxlen=MAX_WRITES_PER_HOUR))
        written.append(self._clock())

    def wait_seconds(self, name: str) -> float:
        """The seconds until there may be another write about this node; 0 = now."""
        written = self._written.get(name)
        if written is None or len(written) < MAX_WRITES_PER_HOUR:
            return 0.0
        return max(0.0, HOUR_SECONDS - (self._clock() - written[0]))

    def forget(self, name: str) -> None:
        """Drop a node that is gone."""
        self._written.pop(name, None)

"""Times on record that lie ahead of the wall clock, and how long they have been known by a clock that only goes on.

A leader whose clock was hours ahead has dated what it did. For the next one that is no time at all: it can neither wait
for it to come nor take it as long past. It counts such a time as now when it first meets it, and lets it grow old by
its own clock.
"""

from collections.abc import Iterable
from datetime import datetime


class FutureTimes:
    """The recorded times that lie ahead of the wall clock, and since when this process has known each of them."""

    def __init__(self) -> None:
        self._since: dict[datetime, float] = {}

    def ages_of_future_times(self, times: Iterable[datetime], now: datetime, clock: float) -> dict[datetime, float]:
        """Return for how many seconds this process has known each of the given times that lies ahead of now.

        Times that are no longer given, or no longer lie ahead, are forgotten.

        Args:
            times: recorded times, in any order.
            now: the wall clock's time.
            clock: seconds of a clock that never goes back.

        Returns:
            The seconds by time; a time that is not ahead of now is absent.
        """
        self._since = {time: self._since.get(time, clock) for time in times if time > now}
        return {time: clock - since for time, since in self._since.items()}

"""Recorded times that lie in the future of the wall clock, and how long they have been known by a monotonic clock.

A leader whose clock was hours ahead has recorded such times. The next leader can neither wait until they come nor treat
them as long past. It counts such a time as now when it first reads it, and measures its age by its own clock.
"""

from collections.abc import Iterable
from datetime import datetime


class FutureTimes:
    """The recorded times that lie in the future, and since when this process has known each of them."""

    def __init__(self) -> None:
        self._since: dict[datetime, float] = {}

    def ages_of_future_times(self, times: Iterable[datetime], now: datetime, clock: float) -> dict[datetime, float]:
        """Return for how many seconds this process has known each of the given times that lies in the future.

        Times that are no longer given, or no longer lie in the future, are forgotten.

        Args:
            times: recorded times, in any order.
            now: the wall clock's time.
            clock: seconds of a monotonic clock.

        Returns:
            The seconds by time; a time that is not in the future is absent.
        """
        self._since = {time: self._since.get(time, clock) for time in times if time > now}
        return {time: clock - since for time, since in self._since.items()}

"""Clocks of machines: each has its own idea of what time it is, and can be set."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class WallClock:
    """A clock on the wall.

    Attributes:
        monotonic: the clock that only goes on, the same for all.
        ahead_seconds: of the true time; setting it is a step.
    """

    monotonic: Callable[[], float]
    ahead_seconds: float = 0.0

    def __call__(self) -> datetime:
        return self.at(self.monotonic())

    def at(self, moment: float) -> datetime:
        """What it shows at a moment of the monotonic clock."""
        return START + timedelta(seconds=moment + self.ahead_seconds)

"""For how long a start is held back. Pure.

The record holds the time by the clock of an earlier leader, and clocks step. So no start waits longer than the longest
hold, counted from when this leader first saw the attempt.

Tests: tests/unit/recovery/test_waits.py.
"""

from datetime import datetime, timedelta

from muster.api.gang import GangSpec
from muster.world.job import JobWorld

LONGEST_SECONDS = 3600.0


def held_seconds(world: JobWorld, record: GangSpec) -> float:
    """Return for how many more seconds the next start is held back; 0 if it may begin.

    The result is bounded by an hour after this leader first saw the attempt, because the recorded time is of another
    leader's clock.
    """
    if record.hold_until is None:
        return 0.0
    left = (record.hold_until - world.now).total_seconds()
    return max(0.0, min(left, LONGEST_SECONDS - world.attempt_age_seconds))


def held_until(world: JobWorld, record: GangSpec) -> datetime | None:
    """Return until when the next start is held back, by this leader's clock; None if it may begin."""
    held = held_seconds(world, record)
    return world.now + timedelta(seconds=held) if held else None


def seconds_since_hold(world: JobWorld, record: GangSpec) -> float:
    """Return for how many seconds this leader has seen that the start may begin; negative while it is held back."""
    age = world.attempt_age_seconds
    if record.hold_until is None:
        return age
    return min(age, max((world.now - record.hold_until).total_seconds(), age - LONGEST_SECONDS))

"""The hours of a fleet over random histories and over many days: what has to hold of them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from muster.api.fleethours import HOURLY_DAYS, FleetHours, GpuState
from muster.goodput.fleethours import hours_between, with_counted_hours

NOW = datetime(2026, 1, 31, 5, 40, tzinfo=UTC)
SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)

events = st.tuples(
    st.sampled_from(["sample", "sample", "sample", "leader", "step"]),
    st.sampled_from([0.0, 0.7, 30.0, 500.0, 4000.0, 90_000.0]),
    st.dictionaries(st.sampled_from(list(GpuState)[:5]), st.integers(0, 64), max_size=5),
)
histories = st.lists(events, max_size=60)


def known(until: datetime = NOW, spans: Any = None, gpus: int = 24) -> FleetHours:
    return FleetHours.model_validate({"until": until, "gpus": gpus, "spans": spans or {}})


def what_is_kept_is_bounded(days: int, most_days: int) -> None:
    """After so many days, of which fewer are kept, the last ones by hours.

    The first hour and the first two days are there in part.
    """
    hours = known()
    for day in range(days):
        hours = with_counted_hours(hours, NOW + day * DAY, DAY, dict.fromkeys(GpuState, 100_000), most_days)
    most_spans = (most_days - HOURLY_DAYS + 2) + (24 * HOURLY_DAYS + 1)
    assert len(hours.spans) <= most_spans < (days - HOURLY_DAYS) + 24 * HOURLY_DAYS, "else nothing has been dropped"
    assert len(json.dumps(hours.to_json())) < 200_000
    assert FleetHours.model_validate(hours.to_json()) == hours


def no_second_is_there_twice(history: list[tuple[str, float, dict[GpuState, int]]]) -> None:
    """Never more than the most accelerators times what the clocks have shown."""
    now, ahead, sampled = 0.0, 0.0, 0.0
    hours = with_counted_hours(None, NOW, timedelta(), {}, 400)
    gpus: dict[GpuState, int] = {}
    most, furthest = 0, 0.0
    for kind, seconds, found in history:
        now += seconds
        if kind == "step":
            ahead = seconds - 2000.0
        elif kind == "leader":
            sampled = now  # it has seen nothing before; what the one before it had not written is gone
            hours = FleetHours.model_validate(hours.to_json())
        before = hours.until
        hours = with_counted_hours(
            hours, NOW + timedelta(seconds=now + ahead), timedelta(seconds=now - sampled), gpus, 400
        )
        assert hours.until >= before or before - hours.until > HOUR
        hours, gpus, sampled = hours.model_copy(update={"gpus": sum(found.values())}), found, now
        most, furthest = max(most, sum(found.values())), max(furthest, now + ahead)
        assert sum(hours_between(hours, None).values()) <= most * round(furthest * 1000)
        assert all(amount >= 0 for amount in hours_between(hours, None).values())

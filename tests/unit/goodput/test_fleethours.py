"""What the fleet's accelerators did: every second of each in one state, whoever leads and whatever clocks do."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from tests.unit.goodput.hours import (
    DAY,
    HOUR,
    NOW,
    SECOND,
    histories,
    known,
    no_second_is_there_twice,
    what_is_kept_is_bounded,
)

from muster.api.fleethours import MAX_SPANS, FleetHours, GpuState
from muster.api.nodehealth import ExclusionCause
from muster.goodput.fleethours import counted_from, hours_between, state_of, with_counted_hours
from muster.world.fleet import Exclusion, Fleet
from muster.world.views import NodeView, Taint

GPUS = {GpuState.HELD: 16, GpuState.FREE: 8}


def test_time_goes_to_its_hours() -> None:
    hours = with_counted_hours(known(), NOW + HOUR, HOUR, GPUS, 400)
    assert hours.spans == {
        "2026-01-31T05": {"held": 16 * 1_200_000, "free": 8 * 1_200_000},
        "2026-01-31T06": {"held": 16 * 2_400_000, "free": 8 * 2_400_000},
    }
    assert (hours.until, hours.gpus) == (NOW + HOUR, 24)


def test_time_in_which_nobody_led_is_unseen_and_a_clock_that_jumps_is_no_more() -> None:
    hours = with_counted_hours(known(), NOW + HOUR, 58 * SECOND, GPUS, 400)
    assert hours_between(hours, None) == {"notObserved": 24 * 3_540_000, "held": 16 * 60_000, "free": 8 * 60_000}


def test_a_clock_that_has_gone_back_adds_nothing_until_it_has_caught_up() -> None:
    first = with_counted_hours(known(), NOW + HOUR, HOUR, GPUS, 400)
    again = with_counted_hours(first, NOW + HOUR / 2, 30 * SECOND, GPUS, 400)
    assert again == first
    assert (
        hours_between(with_counted_hours(again, NOW + HOUR + SECOND, HOUR, GPUS, 400), None)["held"] == 16 * 3_601_000
    )


def test_of_a_clock_that_was_far_ahead_nothing_stays_that_lies_before_us() -> None:
    ahead = with_counted_hours(known(), NOW + 10 * DAY, timedelta(), GPUS, 400)
    back = with_counted_hours(ahead, NOW + HOUR, 30 * SECOND, GPUS, 400)
    assert back.until == NOW + HOUR
    assert hours_between(back, None) == {"notObserved": 24 * 1_200_000}, "the hour in which we are is not counted twice"
    assert (
        sum(hours_between(with_counted_hours(back, NOW + 2 * HOUR, HOUR, GPUS, 400), None).values()) <= 24 * 7_200_000
    )


def test_old_hours_are_days_and_what_is_too_old_goes() -> None:
    spans = {
        "2025-01-02T03": {"held": 60},
        "2026-01-02": {"free": 120},
        "2026-01-02T03": {"held": 180, "free": 240},
        "2026-01-30T03": {"held": 300},
    }
    hours = with_counted_hours(known(spans=spans), NOW + SECOND, SECOND, {}, 100)
    assert hours.spans == {"2026-01-02": {"free": 360, "held": 180}, "2026-01-30T03": {"held": 300}}
    assert hours_between(hours, NOW - 2 * DAY) == {"held": 300}
    assert hours_between(hours, datetime(2026, 1, 2, 18, tzinfo=UTC)) == {"free": 90, "held": 345}, (
        "a quarter of the day"
    )
    assert hours_between(hours, None, datetime(2026, 1, 30, 3, tzinfo=UTC)) == {"free": 360, "held": 180}
    assert hours_between(hours, None, datetime(2026, 1, 30, 3, 1, tzinfo=UTC)) == {"free": 360, "held": 185}
    assert hours_between(hours, None, datetime(2026, 1, 2, tzinfo=UTC)) == {}


@pytest.mark.parametrize(
    ("since", "until", "days"),
    [
        pytest.param(14, 13, 1, id="the first day after the border"),
        pytest.param(14, 0, 14, id="all that is kept by hours"),
        pytest.param(16, 14, 2, id="two days before the border"),
        pytest.param(15, 13, 2, id="a day on either side of it"),
    ],
)
def test_a_cut_at_the_border_between_days_and_hours_counts_all_time_once(since: int, until: int, days: int) -> None:
    """60 GPUs held and 40 free for 20 days, now 15:30: the day of the border is summed up until 16:00."""
    now = datetime(2026, 1, 31, 15, 30, tzinfo=UTC)
    hours = with_counted_hours(
        known(now - 20 * DAY, gpus=100), now, 20 * DAY, {GpuState.HELD: 60, GpuState.FREE: 40}, 400
    )
    assert {"2026-01-17", "2026-01-17T16"} <= hours.spans.keys()
    assert "2026-01-17T15" not in hours.spans
    found = hours_between(hours, now - since * DAY, now - until * DAY)
    of_an_hour = 3_600_000
    assert found == {"held": days * 24 * 60 * of_an_hour, "free": days * 24 * 40 * of_an_hour}


def test_of_the_hour_that_goes_on_what_is_counted_is_its_whole() -> None:
    hours = known(spans={"2026-01-31T05": {"held": 40}})  # until 05:40
    assert hours_between(hours, datetime(2026, 1, 31, 5, 30, tzinfo=UTC)) == {"held": 10}
    assert hours_between(hours, None, NOW + HOUR) == {"held": 40}


def test_the_first_hour_or_day_may_be_counted_in_part() -> None:
    assert counted_from(known()) is None
    assert counted_from(known(spans={"2026-01-31T05": {"held": 5}})) == datetime(2026, 1, 31, 6, tzinfo=UTC)
    spans = {"2026-01-31T05": {"held": 5}, "2026-01-03": {"held": 5}}
    assert counted_from(known(spans=spans)) == datetime(2026, 1, 4, tzinfo=UTC)
    spans = {"2026-01-03": {"held": 5}, "2026-01-03T16": {"held": 5}}
    assert counted_from(known(spans=spans)) == datetime(2026, 1, 3, 16, tzinfo=UTC)


def test_of_more_days_than_one_object_holds_the_newest_are_kept() -> None:
    first = datetime(2020, 1, 1, tzinfo=UTC)
    spans = {f"{first + day * DAY:%Y-%m-%d}": {"held": 1} for day in range(MAX_SPANS)}
    hours = with_counted_hours(known(spans=spans), NOW + SECOND, SECOND, GPUS, 3650)
    assert len(hours.spans) == MAX_SPANS
    assert "2020-01-01" not in hours.spans
    assert hours.spans["2026-01-31T05"] == {"held": 16_000, "free": 8_000}
    assert FleetHours.model_validate(hours.to_json()) == hours


def test_what_is_kept_is_bounded() -> None:
    """Nightly after more than a year (tests/unit/nightly/goodput/test_fleethours.py)."""
    what_is_kept_is_bounded(days=40, most_days=20)


@pytest.mark.parametrize(
    ("node", "state"),
    [
        ({}, "free"),
        ({"holders": ["uid"]}, "held"),
        ({"holders": ["uid"], "excluded": ExclusionCause.HEALTH}, "held"),
        ({"holders": ["pod/team-b/notebook"]}, "otherPods"),
        ({"holders": ["pod/team-b/notebook", "uid"]}, "held"),
        ({"excluded": ExclusionCause.HEALTH}, "quarantined"),
        ({"excluded": ExclusionCause.HEALTH, "ready": False}, "quarantined"),
        ({"excluded": ExclusionCause.MAINTENANCE}, "maintenance"),
        ({"excluded": ExclusionCause.REMOVAL, "unschedulable": True}, "maintenance"),
        ({"ready": False}, "excluded"),
        ({"unschedulable": True}, "excluded"),
        ({"taint": Taint("ToBeDeletedByClusterAutoscaler", "1", "NoSchedule")}, "excluded"),
        ({"taint": Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule")}, "excluded"),
        ({"taint": Taint("karpenter.sh/disrupted", "", "NoSchedule"), "reserved": True}, "excluded"),
        ({"taint": Taint("node.kubernetes.io/disk-pressure", "", "NoSchedule"), "holders": ["uid"]}, "held"),
        ({"taint": Taint("node.kubernetes.io/doubt", "", "PreferNoSchedule")}, "free"),
        ({"taint": Taint("nvidia.com/gpu", "present", "NoSchedule")}, "free"),
        ({"reserved": True}, "reserved"),
        ({"reserved": True, "excluded": ExclusionCause.HEALTH}, "quarantined"),
    ],
)
def test_each_node_is_in_one_state(node: dict[str, Any], state: str) -> None:
    taints = (node["taint"],) if "taint" in node else ()
    ready, unschedulable = node.get("ready", True), node.get("unschedulable", False)
    view = NodeView("n", "u", 1, taints=taints, ready=ready, unschedulable=unschedulable)
    excluded = {"n": Exclusion("Xid79", cause=node["excluded"])} if "excluded" in node else {}
    fleet = Fleet.from_parts({"n": view}, {"n": node.get("holders", [])}, excluded=excluded)
    assert state_of(fleet, view, {"n"} if node.get("reserved") else set()) == state


@given(histories)
def test_whatever_happens_no_second_is_there_twice(history: list[tuple[str, float, dict[GpuState, int]]]) -> None:
    """Leaders that come and go, clocks that step (more in tests/unit/nightly/goodput/test_fleethours.py)."""
    no_second_is_there_twice(history)

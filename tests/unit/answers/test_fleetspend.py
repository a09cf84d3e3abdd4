"""What became of all GPU-hours: one sum over what jobs held and what no job held, by numbers that are worked out by
hand."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.answers.fleetspend import FleetSpend, HeldTime, fleet_spend
from muster.api.fleethours import FleetHours

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2026, 4, 1, tzinfo=UTC)
GPU_HOUR = 3_600_000  # milliseconds
QUARTER = {
    "held": 700 * GPU_HOUR,
    "otherPods": 50 * GPU_HOUR,
    "quarantined": 40 * GPU_HOUR,
    "maintenance": 60 * GPU_HOUR,
    "reserved": 20 * GPU_HOUR,
    "free": 180 * GPU_HOUR,
}
JOBS = [
    # 500 GPU-hours, of which 400 in steps that count
    HeldTime({"compute": 350 * 3600, "inputWait": 50 * 3600, "lostWork": 100 * 3600}, 0.0, False, 2.0),
    # 200 GPU-hours of one that runs: 190 in steps, of which 30 are not saved yet
    HeldTime({"compute": 190 * 3600, "starting": 10 * 3600}, 30 * 3600.0, False, 3.0),
]


def hours(amounts: dict[str, Any], until: datetime = END) -> FleetHours:
    spans = {"2025-12-31": {}, "2026-02-01": amounts}
    return FleetHours.model_validate({"until": until, "gpus": 8, "spans": spans})


def parts(it: FleetSpend) -> dict[str, tuple[float, float | None]]:
    return {each.part: (each.gpu_hours, each.cost) for each in it.parts}


def test_all_gpu_hours_are_in_one_part_and_of_other_pods_nobody_knows() -> None:
    it = fleet_spend(JOBS, hours(QUARTER), BEGIN, END, 2.0)
    assert parts(it) == {
        "progress": (560, 400 * 2 + 160 * 3),
        "notSavedYet": (30, 90),
        "noProgress": (110, 100 * 2 + 10 * 3),
        "quarantined": (40, 80),
        "maintenance": (60, 120),
        "reserved": (20, 40),
        "free": (180, 360),
    }
    assert (it.unknown_reason, it.gpu_hours, it.other_pods_gpu_hours) == ("", 1000, 50)
    assert it.cost == 1280 + 90 + 230 + 80 + 120 + 40 + 360
    assert (it.progress, it.progress_at_most) == (0.56, pytest.approx(0.59))
    assert sum(each.share for each in it.parts) == pytest.approx(1)


def test_what_nobody_knows_is_between_the_least_and_the_most() -> None:
    """1,000 GPU-hours: 300 of a job without a checkpoint directory, 20 not observed, and 80 that jobs held and no
    account explains."""
    job = HeldTime({"compute": 400 * 3600, "unknown": 100 * 3600}, 0.0, False, 2.0)
    blind = HeldTime({"compute": 290 * 3600, "starting": 10 * 3600}, 0.0, True, 2.0)
    amounts = {"held": 880 * GPU_HOUR, "notObserved": 20 * GPU_HOUR, "free": 100 * GPU_HOUR}
    it = fleet_spend([job, blind], hours(amounts), BEGIN, END, 2.0)
    assert parts(it) == {
        "progress": (400, 800),
        "unknown": (400, 800),
        "noAccount": (80, 160),
        "notObserved": (20, 40),
        "free": (100, 200),
    }
    assert (it.progress, it.progress_at_most) == (0.4, pytest.approx(0.9))


def test_accounts_that_say_more_than_was_held_are_believed() -> None:
    """A job that is cut is an estimate: it may hold more than what the leader has counted."""
    it = fleet_spend(JOBS, hours({"held": 650 * GPU_HOUR, "free": 300 * GPU_HOUR}), BEGIN, END, None)
    assert (it.gpu_hours, it.progress) == (1000, 0.56)


@pytest.mark.parametrize(("idle", "of_job"), [(None, 2.0), (2.0, None)])
def test_a_price_that_is_not_known_leaves_no_sum(idle: float | None, of_job: float | None) -> None:
    job = HeldTime({"compute": 3600}, 0.0, False, of_job)
    it = fleet_spend([job], hours({"held": GPU_HOUR, "free": GPU_HOUR}), BEGIN, END, idle)
    assert it.cost is None
    assert parts(it) == {
        "progress": (1, of_job),
        "free": (1, idle),
    }


@pytest.mark.parametrize(
    ("known", "begin", "says"),
    [
        (None, BEGIN, "were not counted yet"),
        (FleetHours(until=END, gpus=8, spans={}), BEGIN, "were not counted yet"),
        (hours(QUARTER), BEGIN - timedelta(days=2), "from 2026-01-01 00:00:00 UTC on: say --since 2026-01-01T00:00Z"),
        (
            hours(QUARTER, END - timedelta(hours=2)),
            BEGIN,
            "until 2026-03-31 22:00:00 UTC: say --until 2026-03-31T22:00Z",
        ),
    ],
)
def test_where_the_two_counts_cover_different_times_nothing_is_guessed(
    known: FleetHours | None, begin: datetime, says: str
) -> None:
    it = fleet_spend(JOBS, known, begin, END, 2.0)
    assert says in it.unknown_reason
    assert (it.progress, it.progress_at_most, it.parts, it.cost) == (None, None, [], None)


@pytest.mark.parametrize(
    ("lag", "not_observed"),
    [
        pytest.param(0, 0, id="just written"),
        pytest.param(5, 40 * 5 / 60, id="5 minutes"),
        pytest.param(30, 20, id="half an hour"),
        pytest.param(60, 40, id="an hour: nothing is counted of the period"),
    ],
)
def test_accelerators_of_the_newest_minutes_are_not_observed_until_they_are_counted(
    lag: int, not_observed: float
) -> None:
    """60 of 100 GPUs in steps for the hour that is asked for; the hours of the fleet were written before its end."""
    spans = {
        "2026-03-31T22": {"held": 60 * GPU_HOUR, "free": 40 * GPU_HOUR},
        "2026-03-31T23": {"held": (60 - lag) * GPU_HOUR, "free": (60 - lag) * GPU_HOUR * 2 // 3},
    }
    until = END - timedelta(minutes=lag)
    known = FleetHours.model_validate({"until": until, "gpus": 100, "spans": spans})
    job = HeldTime({"compute": 60 * 3600}, 0.0, False, 2.0)
    it = fleet_spend([job], known, END - timedelta(hours=1), END, 2.0)
    assert (it.unknown_reason, it.gpu_hours, it.progress) == ("", pytest.approx(100), pytest.approx(0.6))
    assert parts(it).get("notObserved", (0,))[0] == pytest.approx(not_observed, abs=0.01)
    assert it.progress_at_most == pytest.approx(0.6 + not_observed / 100)


def test_of_jobs_without_accounts_the_newest_minutes_are_unseen_too() -> None:
    """The history has lost a job of 60 GPUs of 100; half an hour of the hour is counted."""
    spans = {"2026-03-31T22": {"held": 1}, "2026-03-31T23": {"held": 30 * GPU_HOUR, "free": 20 * GPU_HOUR}}
    known = FleetHours.model_validate({"until": END - timedelta(minutes=30), "gpus": 100, "spans": spans})
    it = fleet_spend([], known, END - timedelta(hours=1), END, None)
    assert parts(it) == {"noAccount": (30, None), "free": (20, None), "notObserved": (50, None)}
    assert (it.progress, it.progress_at_most) == (0, 0.8)


def test_in_the_first_hour_no_time_is_named_that_lies_ahead_as_one_to_ask_for_now() -> None:
    """Counting began at 00:10; `report` refuses a --since that is still to come."""
    midnight = datetime(2026, 3, 1, tzinfo=UTC)
    now = midnight + timedelta(minutes=40)
    known = FleetHours.model_validate({"until": now, "gpus": 8, "spans": {"2026-03-01T00": {"held": GPU_HOUR}}})
    for end in (now, midnight + timedelta(hours=1)):
        assert fleet_spend(JOBS, known, midnight, end, 2.0).unknown_reason == (
            "the fleet's accelerators are counted from 2026-03-01 01:00:00 UTC on: "
            "ask again after that, with --since 2026-03-01T01:00Z or later"
        )
    later = fleet_spend(JOBS, known, midnight, midnight + timedelta(minutes=61), 2.0)
    assert later.unknown_reason.endswith("say --since 2026-03-01T01:00Z, or later")


def test_a_fleet_without_accelerators_has_no_share() -> None:
    it = fleet_spend([], hours({}), None, END, 2.0)
    assert "no accelerators" in it.unknown_reason

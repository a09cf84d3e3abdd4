"""Many lives: held to the closed forms where these hold, and to common sense where they do not."""

import math

import pytest
from tests.unit.whatif.builders import DICE, a_plan
from tests.unit.whatif.lives import (
    alone,
    asked,
    assert_that_another_spare_changes_what_the_plan_with_it_gives,
    assert_that_more_spares_help_less_and_less,
    assert_that_the_gpu_hours_add_up,
    assert_that_the_same_chance_gives_the_same_answer,
    assert_that_who_is_away_does_not_fail,
    by_hand,
)

from muster.whatif.answer import BudgetExhausted, answer
from muster.whatif.failure_model import blows
from muster.whatif.formula import expected_ettr, young_daly_seconds
from muster.whatif.plan import DAY_SECONDS, usual_start_seconds
from muster.whatif.rates import LLAMA3


def test_what_it_is_compared_with_changes_nothing_for_a_plan() -> None:
    plan = a_plan(spares=2)
    compared = asked(plan, 20)
    assert len(compared.spares) + len(compared.checkpoints) > 3
    own = {"ettr", "causes", "useful_gpu_hours", "saving_gpu_hours", "budget_exhausted", "closed_form_ettr"}
    assert alone(plan, 20).model_dump(include=own) == compared.model_dump(include=own)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"checkpoint_seconds": 3600, "save_seconds": 0},
        {"checkpoint_seconds": 120, "save_seconds": 30},
        {"nodes": 512, "spares": 64, "durable_seconds": 300},
        {"mttf_days": 50},
    ],
)
def test_where_failures_are_rare_lives_agree_with_the_closed_form(changes: dict[str, float]) -> None:
    found = alone(a_plan(**changes))
    # Twice as wide as 95 %, so that five cases hold together; and a failure during a recovery is left out by the form.
    width = 2 * (found.ettr.high - found.ettr.mean) + 0.0003
    assert found.closed_form_ettr == pytest.approx(found.ettr.mean, abs=width)
    assert width < 0.004


def test_to_first_order_the_closed_form_is_the_one_that_everybody_knows() -> None:
    plan = a_plan(save_seconds=0, checkpoint_seconds=600, mttf_days=264)
    mttf, recovery = 264 * DAY_SECONDS / 128, 200.0
    assert expected_ettr(plan, recovery) == pytest.approx(1 - (600 / 2 + recovery) / mttf, abs=1e-5)


@pytest.mark.parametrize(("minutes", "start", "published"), [(60, 300, 0.7), (5, 300, 0.93)])
def test_it_gives_what_meta_gives_for_16384_gpus(minutes: int, start: int, published: float) -> None:
    """Revisiting Reliability: 6.5 failures in 1,000 node-days, five minutes to restart."""
    plan = a_plan(nodes=2048, mttf_days=1000 / 6.5, save_seconds=0, checkpoint_seconds=60 * minutes)
    assert expected_ettr(plan, start) == pytest.approx(published, abs=0.02)


def test_the_best_interval_is_young_and_dalys_where_that_holds() -> None:
    plan = a_plan(mttf_days=264, save_seconds=30)
    mttf = 264 * DAY_SECONDS / 128
    assert young_daly_seconds(plan) == pytest.approx(math.sqrt(2 * 30 * mttf) - 30)
    found = asked(plan)
    assert young_daly_seconds(plan) / 1.6 < found.best_checkpoint_seconds < young_daly_seconds(plan) * 1.6
    by_interval = {option.checkpoint_seconds: option.ettr for option in found.checkpoints}
    assert by_interval[found.best_checkpoint_seconds] > by_interval[600.0]
    assert by_interval[600.0] == found.ettr.mean


def test_no_interval_is_shorter_than_a_save_a_step_or_the_time_until_it_is_complete() -> None:
    plan = a_plan(save_seconds=0, step_seconds=20, durable_seconds=150)
    found = asked(plan)
    assert young_daly_seconds(plan) == 150
    assert min(option.checkpoint_seconds for option in found.checkpoints) == 150


def test_what_is_reckoned_by_hand_is_reckoned_right() -> None:
    assert by_hand(1, 0, 1, 1) == pytest.approx(0.5)
    assert by_hand(1, 1, 1, 1) == pytest.approx(0.8)
    assert by_hand(2, 0, 10, 2) == pytest.approx((1 / 1.2) ** 2)


@pytest.mark.parametrize(("nodes", "spares", "mttf_days", "repair_hours"), [(1, 0, 1, 24), (1, 1, 1, 24)])
def test_who_is_away_does_not_fail(nodes: int, spares: int, mttf_days: float, repair_hours: float) -> None:
    assert_that_who_is_away_does_not_fail(nodes, spares, mttf_days, repair_hours)


def test_more_spares_are_never_worse_and_help_less_and_less() -> None:
    assert_that_more_spares_help_less_and_less(lives=5)


def test_what_another_spare_changes_is_what_the_plan_with_it_gives() -> None:
    assert_that_another_spare_changes_what_the_plan_with_it_gives(lives=20)


@pytest.fixture(scope="module")
def usual_ettr() -> float:
    return alone(a_plan()).ettr.mean


@pytest.mark.parametrize(
    "worse",
    [
        {"mttf_days": 100},
        {"repair_seconds": 100_000, "spares": 0},
        {"save_seconds": 60},
        {"durable_seconds": 500},
        {"hang_seconds": 7200},
        {"pod_seconds": 1000},
        {"start_seconds": 600},
        {"step_seconds": 300},
        {"checkpoint_seconds": 14400},
    ],
)
def test_each_thing_that_is_worse_makes_it_worse(worse: dict[str, float], usual_ettr: float) -> None:
    assert alone(a_plan(**worse)).ettr.high < usual_ettr


def test_the_gpu_hours_add_up_and_the_shares_are_those_of_the_rates() -> None:
    assert_that_the_gpu_hours_add_up(lives=20)


def test_failures_come_as_often_as_they_should_and_independently() -> None:
    counts = [len(blows(DICE(number), 8, 3600.0, 100 * 3600.0, [1.0])) for number in range(400)]
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / (len(counts) - 1)
    assert mean == pytest.approx(100, abs=1.5)
    assert variance / mean == pytest.approx(1, abs=0.25)


def test_the_same_chance_gives_the_same_answer() -> None:
    assert_that_the_same_chance_gives_the_same_answer(lives=20)


def test_who_waits_is_told_after_each_life() -> None:
    told: list[int] = []
    answer(a_plan(days=1), LLAMA3, DICE, 20, told.append)
    assert told == list(range(1, 21))


def test_lives_that_a_default_budget_would_have_ended_are_counted() -> None:
    assert alone(a_plan(), 20).budget_exhausted == BudgetExhausted(application=0, hardware=0)
    hopeless = alone(a_plan(nodes=16384, mttf_days=60, spares=64, start_seconds=600, days=5), 20)
    assert hopeless.budget_exhausted == BudgetExhausted(application=20, hardware=20)


def test_the_usual_start_is_what_was_published() -> None:
    published = {16384: 200, 22528: 300, 65536: 600, 98304: 900}
    for gpus, seconds in published.items():
        assert usual_start_seconds(gpus) == pytest.approx(seconds, rel=0.2)

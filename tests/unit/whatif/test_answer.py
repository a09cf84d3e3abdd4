"""Many lives: held to the closed forms where these hold, and to common sense where they do not."""

import itertools
import math
from unittest.mock import patch

import pytest
from tests.unit.whatif.builders import DICE, a_plan

from muster.whatif import answer as answers
from muster.whatif.answer import Answer, BudgetExhausted, answer
from muster.whatif.formula import expected_ettr, young_daly_seconds
from muster.whatif.plan import DAY_SECONDS, Plan, usual_start_seconds
from muster.whatif.rates import LLAMA3, Cause, Rates
from muster.whatif.weather import blows

LIVES = 100


def asked(plan: Plan, lives: int = LIVES) -> Answer:
    return answer(plan, LLAMA3, DICE, lives)


def alone(plan: Plan, lives: int = LIVES, rates: Rates = LLAMA3) -> Answer:
    """What its lives show of the plan itself: without those of the plans that it is compared with, three to nine."""
    with patch.object(answers, "others_than", lambda _: []):
        return answer(plan, rates, DICE, lives)


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


def by_hand(nodes: int, spares: int, mttf_days: float, repair_days: float) -> float:
    """How often no place is empty: a birth and death process, in which only nodes that are in service fail."""
    weights = [1.0]
    for away in range(1, nodes + spares + 1):
        in_service = min(nodes, nodes + spares - (away - 1))
        weights.append(weights[-1] * in_service / mttf_days * repair_days / away)
    return sum(weights[: spares + 1]) / sum(weights)


def test_what_is_reckoned_by_hand_is_reckoned_right() -> None:
    assert by_hand(1, 0, 1, 1) == pytest.approx(0.5)
    assert by_hand(1, 1, 1, 1) == pytest.approx(0.8)
    assert by_hand(2, 0, 10, 2) == pytest.approx((1 / 1.2) ** 2)


@pytest.mark.parametrize(
    ("nodes", "spares", "mttf_days", "repair_hours"),
    [(1, 0, 1, 24), (1, 1, 1, 24), (2, 0, 10, 48), (4, 1, 5, 24), (8, 3, 10, 72)],
)
def test_who_is_away_does_not_fail(nodes: int, spares: int, mttf_days: float, repair_hours: float) -> None:
    """Nodes that are often away, and all else as good as free: ETTR is how often there is a node for everybody."""
    plan = a_plan(
        nodes=nodes,
        spares=spares,
        mttf_days=mttf_days,
        repair_seconds=3600 * repair_hours,
        days=300.0 * mttf_days,
        checkpoint_seconds=60,
        save_seconds=0,
        pod_seconds=0,
        start_seconds=0,
    )
    lost = LLAMA3.model_copy(update={"causes": [Cause(name="lost", share=1, symptom="Xid79")]})
    found = alone(plan, 60, lost).ettr
    truth = by_hand(nodes, spares, mttf_days, repair_hours / 24)
    # Twice as wide as 95 %; at first all are there, and each failure costs half a minute of training besides.
    width = 2 * (found.high - found.mean) + 0.003
    assert found.mean == pytest.approx(truth, abs=width)
    assert width < 0.02


def test_more_spares_are_never_worse_and_help_less_and_less() -> None:
    plan = a_plan(nodes=512, mttf_days=50, repair_seconds=4 * 3600, days=20)
    ettrs = [alone(plan.model_copy(update={"spares": spares}), 40).ettr.mean for spares in range(8)]
    gains = [after - before for before, after in itertools.pairwise(ettrs)]
    assert min(gains) > -1e-4
    assert gains[0] > 0.05
    assert gains[0] > gains[3] > gains[6]


def test_what_another_spare_changes_is_what_the_plan_with_it_gives() -> None:
    plan = a_plan(spares=1, repair_seconds=20 * 3600)
    found = asked(plan)
    fewer, more = found.spares
    assert (fewer.spares, more.spares) == (0, 2)
    assert more.ettr == asked(plan.model_copy(update={"spares": 2})).ettr.mean
    assert more.gain.mean == pytest.approx(more.ettr - found.ettr.mean)
    assert more.gain.low > 0 > fewer.gain.high


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
def test_each_thing_that_is_worse_makes_it_worse(worse: dict[str, float]) -> None:
    assert alone(a_plan(**worse)).ettr.high < alone(a_plan()).ettr.mean


def test_the_gpu_hours_add_up_and_the_shares_are_those_of_the_rates() -> None:
    found = alone(a_plan(nodes=2048, spares=4))
    lost = sum(row.gpu_hours for row in found.causes)
    assert found.useful_gpu_hours + found.saving_gpu_hours + lost == pytest.approx(found.gpu_hours)
    assert found.gpu_hours == 2048 * 8 * 54 * 24
    for row in found.causes:
        parts = (
            row.lost_work_gpu_hours
            + row.detection_gpu_hours
            + row.queue_gpu_hours
            + row.pod_gpu_hours
            + row.start_gpu_hours
        )
        assert parts == pytest.approx(row.gpu_hours)
    by_name = {row.name: row.failures for row in found.causes}
    assert by_name["HBM3 memory"] == pytest.approx(72, rel=0.05)
    assert sum(by_name.values()) == pytest.approx(419, rel=0.03)


def test_failures_come_as_often_as_they_should_and_independently() -> None:
    counts = [len(blows(DICE(number), 8, 3600.0, 100 * 3600.0, [1.0])) for number in range(400)]
    mean = sum(counts) / len(counts)
    variance = sum((count - mean) ** 2 for count in counts) / (len(counts) - 1)
    assert mean == pytest.approx(100, abs=1.5)
    assert variance / mean == pytest.approx(1, abs=0.25)


def test_the_same_chance_gives_the_same_answer() -> None:
    assert asked(a_plan(spares=0)) == asked(a_plan(spares=0))


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

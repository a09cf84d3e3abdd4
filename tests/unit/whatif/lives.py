"""What many lives of a plan show, and what is held to it."""

import itertools
from unittest.mock import patch

import pytest
from tests.unit.whatif.builders import DICE, a_plan

from muster.whatif import answer as answers
from muster.whatif.answer import Answer, answer
from muster.whatif.plan import Plan
from muster.whatif.rates import LLAMA3, Cause, Rates

LIVES = 100


def asked(plan: Plan, lives: int = LIVES) -> Answer:
    return answer(plan, LLAMA3, DICE, lives)


def alone(plan: Plan, lives: int = LIVES, rates: Rates = LLAMA3) -> Answer:
    """What its lives show of the plan itself: without those of the plans that it is compared with, three to nine."""
    with patch.object(answers, "others_than", lambda _: []):
        return answer(plan, rates, DICE, lives)


def by_hand(nodes: int, spares: int, mttf_days: float, repair_days: float) -> float:
    """How often no place is empty: a birth and death process, in which only nodes that are in service fail."""
    weights = [1.0]
    for away in range(1, nodes + spares + 1):
        in_service = min(nodes, nodes + spares - (away - 1))
        weights.append(weights[-1] * in_service / mttf_days * repair_days / away)
    return sum(weights[: spares + 1]) / sum(weights)


def assert_that_who_is_away_does_not_fail(nodes: int, spares: int, mttf_days: float, repair_hours: float) -> None:
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


def assert_that_more_spares_help_less_and_less(lives: int) -> None:
    plan = a_plan(nodes=512, mttf_days=50, repair_seconds=4 * 3600, days=20)
    ettrs = [alone(plan.model_copy(update={"spares": spares}), lives).ettr.mean for spares in range(8)]
    gains = [after - before for before, after in itertools.pairwise(ettrs)]
    assert min(gains) > -1e-4
    assert gains[0] > 0.05
    assert gains[0] > gains[3] > gains[6]


def assert_that_another_spare_changes_what_the_plan_with_it_gives(lives: int) -> None:
    plan = a_plan(spares=1, repair_seconds=20 * 3600)
    found = asked(plan, lives)
    fewer, more = found.spares
    assert (fewer.spares, more.spares) == (0, 2)
    assert more.ettr == asked(plan.model_copy(update={"spares": 2}), lives).ettr.mean
    assert more.gain.mean == pytest.approx(more.ettr - found.ettr.mean)
    assert more.gain.low > 0 > fewer.gain.high


def assert_that_the_gpu_hours_add_up(lives: int) -> None:
    """And that the shares are those of the rates."""
    found = alone(a_plan(nodes=2048, spares=4), lives)
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


def assert_that_the_same_chance_gives_the_same_answer(lives: int) -> None:
    assert asked(a_plan(spares=0), lives) == asked(a_plan(spares=0), lives)

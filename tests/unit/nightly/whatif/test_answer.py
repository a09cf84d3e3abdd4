"""What-if answers of many lives and of large gangs; and their intervals, held to the truth of very many lives."""

import pytest
from tests.unit.whatif.accounts import assert_that_every_second_is_on_one_account
from tests.unit.whatif.builders import DICE, a_plan
from tests.unit.whatif.lives import (
    LIVES,
    asked,
    assert_that_another_spare_changes_what_the_plan_with_it_gives,
    assert_that_more_spares_help_less_and_less,
    assert_that_the_gpu_hours_add_up,
    assert_that_the_same_chance_gives_the_same_answer,
    assert_that_who_is_away_does_not_fail,
)

from muster.whatif.answer import answer
from muster.whatif.rates import LLAMA3


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    plan = a_plan(days=20)
    truth = asked(plan.model_copy(update={"days": 54.0 * 30})).ettr.mean  # so long that chance hardly matters
    covered = 0
    for block in range(60):
        found = answer(plan, LLAMA3, lambda number, block=block: DICE(1000 + 20 * block + number), 20).ettr
        covered += found.low <= truth <= found.high
    assert 50 <= covered <= 60


@pytest.mark.parametrize(
    ("nodes", "spares", "mttf_days", "repair_hours"),
    [(1, 0, 1, 24), (1, 1, 1, 24), (2, 0, 10, 48), (4, 1, 5, 24), (8, 3, 10, 72)],
)
def test_who_is_away_does_not_fail(nodes: int, spares: int, mttf_days: float, repair_hours: float) -> None:
    assert_that_who_is_away_does_not_fail(nodes, spares, mttf_days, repair_hours)


def test_more_spares_are_never_worse_and_help_less_and_less() -> None:
    assert_that_more_spares_help_less_and_less(lives=40)


def test_what_another_spare_changes_is_what_the_plan_with_it_gives() -> None:
    assert_that_another_spare_changes_what_the_plan_with_it_gives(LIVES)


def test_the_gpu_hours_add_up_and_the_shares_are_those_of_the_rates() -> None:
    assert_that_the_gpu_hours_add_up(LIVES)


def test_the_same_chance_gives_the_same_answer() -> None:
    assert_that_the_same_chance_gives_the_same_answer(LIVES)


@pytest.mark.parametrize("spares", [0, 3])
def test_every_second_of_16384_nodes_is_on_one_account(spares: int) -> None:
    assert_that_every_second_is_on_one_account(16384, spares)

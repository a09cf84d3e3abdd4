"""The account of one job over random histories: the same as in the gate, with more examples."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from tests.unit.goodput.histories import (
    histories,
    histories_with_a_liar,
    the_sum_is_the_wall_clock,
    what_counts_are_the_steps_that_were_not_lost,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories)
def test_whatever_happens_the_sum_is_the_wall_clock(history: list[tuple[str, Any]]) -> None:
    the_sum_is_the_wall_clock(history)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(histories_with_a_liar)
def test_steps_that_were_not_lost_count_whatever_one_rank_of_three_says(history: list[tuple[str, Any]]) -> None:
    what_counts_are_the_steps_that_were_not_lost(history)

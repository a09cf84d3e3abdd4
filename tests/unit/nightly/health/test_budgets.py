"""Budgets under many false alarms, for a week, and in a fleet of a thousand nodes."""

import pytest
from hypothesis import settings
from tests.unit.health.pools import (
    Alarms,
    assert_that_a_certain_fault_is_taken_at_once,
    assert_that_a_label_spreads_over_one_rack_of_two,
    assert_that_labels_do_not_multiply_budgets,
    gpu_nodes_fall_off_the_bus,
)


class ManyAlarms(Alarms):
    """The same as in the gate, with more examples."""


ManyAlarms.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestAlarms = ManyAlarms.TestCase


@pytest.mark.parametrize(("others", "every_hours"), [(100, 6), (900, 2)])
def test_a_hundred_gpu_nodes_among_others_lose_their_share_of_a_hundred(others: int, every_hours: int) -> None:
    gpu_nodes_fall_off_the_bus(100, others, every_hours)


def test_a_label_that_differs_on_each_of_hundreds_of_nodes_does_not_multiply_budgets() -> None:
    assert_that_labels_do_not_multiply_budgets(400)


@pytest.mark.parametrize("days", [0, 1, 7])
@pytest.mark.parametrize("count", [2, 3, 20, 100])
def test_a_certain_fault_is_taken_at_once_whatever_false_alarm_is_held(count: int, days: int) -> None:
    assert_that_a_certain_fault_is_taken_at_once(count, days)


def test_a_label_that_spreads_from_rack_to_rack_stops_at_the_share() -> None:
    assert_that_a_label_spreads_over_one_rack_of_two(20)

"""Budgets under many false alarms, and in a fleet of a thousand nodes."""

from hypothesis import settings
from tests.unit.health.test_budgets import Alarms, gpu_nodes_fall_off_the_bus


class ManyAlarms(Alarms):
    """The same as in the gate, with more examples."""


ManyAlarms.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestAlarms = ManyAlarms.TestCase


def test_a_hundred_gpu_nodes_among_nine_hundred_others_lose_their_share_of_a_hundred() -> None:
    gpu_nodes_fall_off_the_bus(others=900, every_hours=2)

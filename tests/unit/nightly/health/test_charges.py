"""Budgets under many orders of decisions, writes, failures and deaths of leaders."""

from hypothesis import settings
from tests.unit.health.writes import Writes


class ManyWrites(Writes):
    """The same as in the gate, with more examples."""


ManyWrites.TestCase.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
TestWrites = ManyWrites.TestCase

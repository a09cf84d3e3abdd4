"""Repairs under more examples than the gate draws."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.controller.repair_shop import STEPS, live_through


@settings(max_examples=100, deadline=None)
@given(steps=st.lists(st.sampled_from(STEPS), min_size=20, max_size=60))
def test_whatever_anybody_does_nobody_is_disturbed_and_nobody_is_held_for_ever(steps: list[str]) -> None:
    live_through(steps)

"""More programs that take steps back, or tell anything, than the gate draws."""

from __future__ import annotations

from hypothesis import given, settings
from tests.unit.launcher.histories import (
    HISTORIES,
    LINES,
    nothing_is_negative_and_no_more_is_lost_than_has_passed,
    what_is_left_was_not_taken_back,
)


@settings(max_examples=300, deadline=None)
@given(HISTORIES)
def test_what_is_left_are_the_steps_that_were_not_taken_back(history):
    what_is_left_was_not_taken_back(history)


@settings(max_examples=300, deadline=None)
@given(LINES)
def test_whatever_is_told_nothing_is_negative_and_no_more_is_lost_than_has_passed(lines):
    nothing_is_negative_and_no_more_is_lost_than_has_passed(lines)

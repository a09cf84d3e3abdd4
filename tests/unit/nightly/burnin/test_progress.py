"""The burn-in over many leaders, and where tests give no answer for half an hour again and again."""

import pytest
from hypothesis import given, settings
from tests.unit.lifecycle.burning_in import (
    Succession,
    all_are_given_back,
    ends_with_another_node,
    successions,
    the_culprits_leave_and_nobody_else,
)


def test_an_answer_that_never_comes_to_a_conclusion_ends_with_another_node() -> None:
    ends_with_another_node(pace=5.0)


@pytest.mark.parametrize("left", ["all are so", "no other node"])
def test_where_no_other_nodes_help_all_are_given_back_and_the_job_says_why(left: str) -> None:
    all_are_given_back(left, pace=5.0)


@settings(max_examples=60)
@given(successors=successions)
def test_whatever_leaders_come_the_culprits_leave_and_nobody_else(successors: Succession) -> None:
    the_culprits_leave_and_nobody_else(successors)

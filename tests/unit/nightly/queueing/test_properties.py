"""What holds of the order of a plan, whatever the fleet, the queue and the limits are."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queueing.drawn_queues import (
    Case,
    cases,
    the_first_gets_what_it_would_get_alone,
    the_order_in_which_jobs_are_handed_in_does_not_matter,
    those_behind_change_nothing_for_those_before_them,
    who_is_told_to_be_behind_would_have_a_place_otherwise,
)


@given(cases(), st.integers(0, 8))
def test_those_behind_change_nothing_for_those_before_them(case: Case, count: int) -> None:
    those_behind_change_nothing_for_those_before_them(case, count)


@given(cases())
def test_the_first_gets_what_it_would_get_alone(case: Case) -> None:
    the_first_gets_what_it_would_get_alone(case)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_in_which_jobs_are_handed_in_does_not_matter(case: Case, random: Random) -> None:
    the_order_in_which_jobs_are_handed_in_does_not_matter(case, random)


@given(cases())
def test_who_is_told_to_be_behind_would_have_a_place_otherwise(case: Case) -> None:
    who_is_told_to_be_behind_would_have_a_place_otherwise(case)

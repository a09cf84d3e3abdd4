"""How many nodes are taken out, in large fleets, over many looks, and by many sequences of events and restarts."""

import pytest
from hypothesis import settings
from tests.unit.health.alarms import (
    AnySequence,
    assert_that_a_condition_that_flaps_does_not_creep,
    assert_that_a_jump_takes_no_more_than_the_cap,
    assert_that_one_is_tried_after_pauses_that_double,
    assert_that_the_budget_is_taken,
    assert_that_xid_79_on_every_node_may_be_wrong,
)


class ManySequences(AnySequence):
    """The same as in the gate, with more examples."""


ManySequences.TestCase.settings = settings(max_examples=40, stateful_step_count=20)
TestAnySequence = ManySequences.TestCase


def test_the_budget_of_two_thousand_nodes_is_taken_and_the_rest_is_only_avoided() -> None:
    assert_that_the_budget_is_taken(2048, 123, 615)


def test_it_tries_one_at_a_time_after_pauses_that_double_up_to_the_cap() -> None:
    assert_that_one_is_tried_after_pauses_that_double(100, at_once=6, cap=18, uncertain=24)


def test_every_node_reports_xid_79_at_once_and_it_was_all_wrong() -> None:
    assert_that_xid_79_on_every_node_may_be_wrong(200, 12, range(0, 3000, 150))


def test_a_condition_that_flaps_on_every_node_does_not_creep() -> None:
    assert_that_a_condition_that_flaps_does_not_creep(100, every=20, budget=6)


@pytest.mark.parametrize("jump", [-(10**8), -86400, -60, 86400, 10**8])
def test_a_jump_never_takes_more_than_the_cap_and_recovery_goes_on(jump: float) -> None:
    assert_that_a_jump_takes_no_more_than_the_cap(100, jump)

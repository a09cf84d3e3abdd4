"""All sets that are cut off together, and larger gangs than the gate has: one takes up to half a minute."""

from __future__ import annotations

import pytest
from tests.unit.launcher.cut_off import (
    a_gang_makes_no_steps,
    a_length_that_is_lowered_within_an_attempt_stays,
    a_length_that_was_just_served_counts,
    any_set_is_cut_off_together,
    half_is_cut_off,
    neighbours_behind_one_switch,
    packets_pass_in_one_direction_only,
    the_coordinator_alone_is_lost,
    the_fence_file_is_asked_once_an_answer_is_overdue,
    the_length_counts_that_the_coordinator_was_told,
    the_length_that_is_served_counts,
)

SIZE = 12
HALVES = [(40, range(10, 30)), (40, range(0, 40, 2)), (160, range(40, 120)), (160, range(0, 160, 2))]


@pytest.mark.parametrize(("size", "block"), HALVES)
def test_half_of_a_large_gang(size, block):
    half_is_cut_off(size, block)


def test_five_neighbours_behind_one_switch():
    neighbours_behind_one_switch(SIZE)


SETS = [(size, seed) for size in (2, 3, 12, 24) for seed in range(4)]


@pytest.mark.parametrize(("size", "seed"), SETS)
def test_any_set_that_is_cut_off_together(size, seed):
    any_set_is_cut_off_together(size, seed)


@pytest.mark.parametrize(("outward", "inward"), [(True, False), (False, True)], ids=["they send", "they hear"])
def test_packets_that_pass_in_one_direction_only(outward, inward):
    packets_pass_in_one_direction_only(SIZE, outward=outward, inward=inward)


def test_a_gang_that_makes_no_steps_of_which_its_launchers_know():
    a_gang_makes_no_steps(SIZE)


def test_the_length_that_is_served_counts():
    the_length_that_is_served_counts(SIZE)


def test_a_length_that_was_just_served_counts_though_no_report_has_told_it():
    a_length_that_was_just_served_counts(SIZE)


def test_a_length_that_is_lowered_within_an_attempt_stays():
    a_length_that_is_lowered_within_an_attempt_stays(SIZE)


def test_without_a_length_that_is_served_the_one_counts_that_the_coordinator_was_told():
    the_length_counts_that_the_coordinator_was_told(SIZE)


@pytest.mark.parametrize("makes_steps", [True, False])
def test_without_the_coordinator_alone_training_goes_on(makes_steps):
    the_coordinator_alone_is_lost(SIZE, makes_steps=makes_steps)


@pytest.mark.parametrize("seconds", [1.0, 8.0, 20.0])
def test_at_any_pace_of_the_coordinator_the_fence_file_is_asked_only_once_an_answer_is_overdue(seconds):
    the_fence_file_is_asked_once_an_answer_is_overdue(seconds)

"""All sets that are cut off together, and larger gangs than the gate has: one takes up to half a minute."""

from __future__ import annotations

import pytest
from tests.unit.launcher.cut_off import (
    AT_ANY_SIZE,
    any_set_is_cut_off_together,
    half_is_cut_off,
    the_fence_file_is_asked_once_an_answer_is_overdue,
)

SIZE = 12
HALVES = [(40, range(10, 30)), (40, range(0, 40, 2)), (160, range(40, 120)), (160, range(0, 160, 2))]


@pytest.mark.parametrize(("size", "block"), HALVES)
def test_half_of_a_large_gang(size, block):
    half_is_cut_off(size, block)


@pytest.mark.parametrize("holds", AT_ANY_SIZE)
def test_a_gang_of_this_size(holds):
    holds(SIZE)


SETS = [(size, seed) for size in (2, 3, 12, 24) for seed in range(4)]


@pytest.mark.parametrize(("size", "seed"), SETS)
def test_any_set_that_is_cut_off_together(size, seed):
    any_set_is_cut_off_together(size, seed)


@pytest.mark.parametrize("seconds", [1.0, 8.0, 20.0])
def test_at_any_pace_the_fence_file_is_asked_only_after_an_overdue_answer(seconds):
    """The pace is the coordinator's."""
    the_fence_file_is_asked_once_an_answer_is_overdue(seconds)

"""What the operator saw, written down, and what it would do now: the same, in the lives that the gate leaves out."""

import pytest
from tests.unit.decision.written import (
    ALL_LIVES,
    CHIEF_LIVES,
    Fault,
    a_life_is_decided_again_the_same,
    two_jobs_for_one_place_are_decided_again_the_same,
)


@pytest.mark.parametrize(("fault", "mode"), [life for life in ALL_LIVES if life not in CHIEF_LIVES])
def test_a_whole_life_is_decided_again_the_same(fault: Fault, mode: str) -> None:
    a_life_is_decided_again_the_same(fault, mode)


def test_two_jobs_for_one_place() -> None:
    two_jobs_for_one_place_are_decided_again_the_same(until_the_end=True)

"""Jobs that preempt each other by their priority, on many random fleets and under many leaders."""

import pytest
from tests.unit.queueing.outranked_fleets import no_two_jobs_take_turns


@pytest.mark.parametrize("first", range(0, 2000, 200))
def test_no_two_jobs_take_turns(first: int) -> None:
    assert sum(no_two_jobs_take_turns(seed) for seed in range(first, first + 200)) > 50

"""All cases of the first step, of which the gate has one each."""

from __future__ import annotations

import pytest
from tests.unit.launcher.real_launchers import (
    FROM_SCRATCH,
    GOES_ON,
    a_progress_bars_first_number_is_no_finished_step,
    the_first_step_of_an_attempt_is_told,
)


@pytest.mark.parametrize("print_steps", [True, False])
def test_the_first_step_of_an_attempt_is_told(coordinator, run_python, print_steps):
    the_first_step_of_an_attempt_is_told(coordinator, run_python, print_steps=print_steps)


@pytest.mark.parametrize(("printed", "first", "newest"), [(GOES_ON, 301, 303), (FROM_SCRATCH, 1, 2)])
def test_a_progress_bars_first_number_is_no_finished_step(coordinator, run_python, printed, first, newest):
    a_progress_bars_first_number_is_no_finished_step(coordinator, run_python, printed, first, newest)

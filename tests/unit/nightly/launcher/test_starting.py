"""More cases of the first step than the gate has."""

from __future__ import annotations

from tests.unit.launcher.real_launchers import (
    a_progress_bars_first_number_is_no_finished_step,
    the_first_step_of_an_attempt_is_told,
)

FROM_SCRATCH = [
    "\r  0%|          | 0/500 [00:00<?, ?it/s]",
    "\r  0%|          | 1/500 [00:01<08:19,  1.00s/it]",
    "\r  0%|          | 2/500 [00:02<08:18,  1.00s/it]\r",
]


def test_the_first_step_of_an_attempt_that_prints_its_steps_is_told(coordinator, run_python):
    the_first_step_of_an_attempt_is_told(coordinator, run_python, print_steps=True)


def test_a_progress_bars_first_number_is_no_finished_step(coordinator, run_python):
    a_progress_bars_first_number_is_no_finished_step(coordinator, run_python, FROM_SCRATCH, 1, 2)

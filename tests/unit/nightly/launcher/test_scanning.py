"""What a save costs, in the seconds of real ranks, and checkpoints in stores.

The gate has how that cost is worked out (tests/unit/launcher/test_saves.py).
"""

from __future__ import annotations

import pytest
from tests.unit.launcher.real_launchers import another_job_may_save_elsewhere, what_a_save_costs_is_told


def test_a_save_that_takes_a_second_and_a_half_is_told_as_one(coordinator, run_python, tmp_path):
    saved = what_a_save_costs_is_told(coordinator, run_python, tmp_path, step_seconds=0.1, save_seconds=1.5)
    assert saved.stall_seconds > 1.0
    assert saved.durable_seconds > 1.4


@pytest.mark.parametrize(("own", "other"), [("noisy://", "noisy://"), ("noisy://", "")])
def test_another_job_may_save_to_a_store_or_not_as_this_one(coordinator, run_python, tmp_path, packages, own, other):
    another_job_may_save_elsewhere(coordinator, run_python, tmp_path, packages, own=own, other=other)

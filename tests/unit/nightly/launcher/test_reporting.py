"""How many reports a real launcher sends for a restart; on a machine that is busy there may be more."""

from __future__ import annotations

import pytest
from tests.unit.launcher.test_reporting import STEPS

from muster.protocol.messages import IDLE, RUNNING


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_restart_takes_two_reports(coordinator, run_python, tmp_path, checkpoints):
    (tmp_path / "checkpoints").mkdir()
    extra = {"MUSTER_CHECKPOINT_DIRECTORY": str(tmp_path / "checkpoints")} if checkpoints else {}
    run_python(STEPS, MUSTER_SCAN_SECONDS="600", **extra)
    coordinator.run(1, hold_seconds=600.0, poll_seconds=600.0)
    coordinator.wait_for(lambda r: r.state == RUNNING and r.directive_seen)
    for attempt in (2, 3):
        before = len(coordinator.received)
        coordinator.wait_to_run(attempt, hold_seconds=600.0, poll_seconds=600.0)
        coordinator.wait_for(lambda r, n=attempt: r.state == IDLE and r.attempt == n)
        coordinator.wait_for(lambda r, n=attempt: r.checkpoints_scanned_for_attempt == n)
        coordinator.run(attempt, hold_seconds=600.0, poll_seconds=600.0)
        coordinator.wait_for(lambda r, n=attempt: r.state == RUNNING and r.attempt == n)
        assert len(coordinator.received) - before <= 4, "Idle and Running; on a slow machine each in two reports"

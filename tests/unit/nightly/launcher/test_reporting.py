"""How many reports a real launcher sends for a restart, and all cases of its connection, of which the gate has one."""

from __future__ import annotations

import pytest
from tests.unit.launcher.paced import an_idle_worker_is_silent_while_its_answer_is_held
from tests.unit.launcher.real_launchers import (
    STEPS,
    a_missing_setting_is_named,
    a_restart_is_told_with_the_scan_for_it,
    an_error_answer_changes_nothing,
)

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


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_restart_is_told_with_the_scan_for_it(coordinator, run_python, tmp_path, checkpoints):
    (tmp_path / "checkpoints").mkdir()
    extra = {"MUSTER_CHECKPOINT_DIRECTORY": str(tmp_path / "checkpoints")} if checkpoints else {}
    a_restart_is_told_with_the_scan_for_it(coordinator, run_python, **extra)


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_an_error_answer_changes_nothing(coordinator, run_python, until, status):
    an_error_answer_changes_nothing(coordinator, run_python, until, status)


@pytest.mark.parametrize("missing", ["MUSTER_COORDINATOR", "MUSTER_TOKEN_FILE"])
def test_a_missing_setting_is_named(launch, missing):
    a_missing_setting_is_named(launch, missing)


def test_an_idle_worker_does_not_flood_the_coordinator():
    an_idle_worker_is_silent_while_its_answer_is_held(600.0)

"""What a save costs, in the seconds of real ranks. The gate has how it is worked out
(tests/unit/launcher/test_saves.py)."""

from __future__ import annotations

from tests.unit.launcher.test_scanning import SAVES_AND_WAITS


def test_a_save_that_takes_a_second_and_a_half_is_told_as_one(coordinator, run_python, tmp_path):
    (tmp_path / "ckpt").mkdir()
    run_python(SAVES_AND_WAITS, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"), MUSTER_SCAN_SECONDS="0.3")
    coordinator.wait_to_run(1)
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: any(one.stall_seconds is not None for one in r.checkpoints))
    (saved, *_) = [one for one in report.checkpoints if one.stall_seconds is not None]
    assert saved.stall_seconds > 1.0
    assert saved.durable_seconds > 1.4

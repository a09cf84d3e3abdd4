"""Checkpoints as the launcher reports them, and a filesystem that stalls."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.unit.launcher.real_launchers import (
    HANG,
    another_job_may_save_elsewhere,
    steps,
    what_a_save_costs_is_told,
    write_checkpoint,
)

from muster.protocol.messages import EXITED, IDLE, RUNNING


def test_idle_comes_first_then_a_scan_that_began_after_the_last_rank(coordinator, run_python, tmp_path):
    write_checkpoint(tmp_path / "ckpt", 10)
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"), MUSTER_SCAN_SECONDS="600")
    coordinator.wait_to_run(1)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 1)
    assert steps(report) == [10]
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    write_checkpoint(tmp_path / "ckpt", 20)
    coordinator.wait_to_run(2)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 2)
    assert (report.state, steps(report)) == (IDLE, [20, 10])
    assert report.checkpoints[0].path == str(tmp_path / "ckpt" / "step-20")


def test_the_checkpoints_are_listed_anew_when_that_is_asked_for(coordinator, run_python, tmp_path):
    """And what an answer says that was overtaken takes nothing back."""
    write_checkpoint(tmp_path / "ckpt", 10)
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"), MUSTER_SCAN_SECONDS="600")
    coordinator.wait_to_run(2)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 2)
    assert (steps(report), report.listing_round) == ([10], 0)
    write_checkpoint(tmp_path / "ckpt", 20)
    coordinator.wait_to_run(2, listing_round=1)
    report = coordinator.wait_for(lambda r: r.listing_round == 1)
    assert (steps(report), report.checkpoints_scanned_for_attempt) == ([20, 10], 2)
    write_checkpoint(tmp_path / "ckpt", 30)
    coordinator.wait_to_run(2, reason="overtaken")
    coordinator.wait_to_run(2, listing_round=2)
    report = coordinator.wait_for(lambda r: r.listing_round != 1)
    assert (steps(report), report.listing_round) == ([30, 20, 10], 2)
    coordinator.wait_to_run(3)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 3)
    assert report.listing_round == 0


def test_a_launcher_that_comes_late_lists_once(coordinator, run_python, tmp_path):
    write_checkpoint(tmp_path / "ckpt", 10)
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"), MUSTER_SCAN_SECONDS="600")
    coordinator.wait_to_run(2, listing_round=1)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 2)
    assert (steps(report), report.listing_round) == ([10], 1)


def test_without_a_directory_nothing_is_to_be_listed_anew_either(coordinator, run_python):
    run_python(HANG)
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 2)
    coordinator.wait_to_run(2, listing_round=1)
    coordinator.wait_for(lambda r: r.listing_round == 1)


def test_a_new_checkpoint_is_reported_while_ranks_run(coordinator, run_python, tmp_path):
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"))  # which does not exist yet
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    write_checkpoint(tmp_path / "ckpt", 30)
    report = coordinator.wait_for(steps)
    assert steps(report) == [30]
    assert report.checkpoints_scanned_for_attempt == 0


def test_a_worker_that_does_not_verify_scans_only_before_its_ranks_run(coordinator, run_python, tmp_path):
    """It reports what is there."""
    write_checkpoint(tmp_path / "ckpt", 10)
    (tmp_path / "ckpt/step-10/model.bin").write_bytes(b"torn")
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"), MUSTER_SCAN_SECONDS="0.05")
    coordinator.wait_to_run(1, verifies=False)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 1)
    marker = (tmp_path / "ckpt/step-10/muster-checkpoint.json").stat()
    told = [(c.step, c.verified, c.written_ns, c.format) for c in report.checkpoints]
    assert told == [(10, False, marker.st_mtime_ns, "Manifest")]
    coordinator.run(1, verifies=False)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    write_checkpoint(tmp_path / "ckpt", 20)
    coordinator.run(1, verifies=True)
    coordinator.wait_for(lambda r: steps(r) == [20])


def test_another_history_is_left_out(coordinator, run_python, tmp_path):
    for step in (10, 20, 30):
        write_checkpoint(tmp_path / "ckpt", step)
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"))
    coordinator.wait_to_run(1)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 1)
    assert steps(report) == [30, 20, 10]
    beyond = ",".join(f"{each.step}:{each.written_ns}" for each in report.checkpoints if each.step > 10)
    coordinator.wait_to_run(1, branch_step=10, excluded_checkpoints=beyond)
    coordinator.wait_for(lambda r: steps(r) == [10])
    write_checkpoint(tmp_path / "ckpt", 20)
    # Two mounts may tell one file's time with a second's difference: what is written within it is the one of before.
    later = report.checkpoints[1].written_ns + 5 * 10**9
    os.utime(tmp_path / "ckpt/step-20/muster-checkpoint.json", ns=(0, later))
    coordinator.wait_for(lambda r: steps(r) == [20, 10])


def test_what_is_disowned_does_not_count_until_it_is_written_anew(coordinator, run_python, tmp_path):
    for step in (10, 20, 30):
        write_checkpoint(tmp_path / "ckpt", step)
    ahead = 4_000_000_000 * 10**9  # the clock of whoever wrote it
    os.utime(tmp_path / "ckpt/step-30/muster-checkpoint.json", ns=(0, ahead))
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"))
    coordinator.wait_to_run(1)
    report = coordinator.wait_for(lambda r: r.stamps)
    assert f"30:{ahead},20:" in report.stamps
    coordinator.run(1, branch_step=20, excluded_checkpoints=f"30:{ahead}")
    report = coordinator.wait_for(lambda r: r.state == RUNNING and steps(r) == [20, 10])
    assert report.stamps is None
    write_checkpoint(tmp_path / "ckpt", 30)
    write_checkpoint(tmp_path / "ckpt", 25)
    coordinator.wait_for(lambda r: steps(r) == [30, 25, 20, 10])


def test_a_missing_directory_is_told_and_holds_nothing_up(coordinator, run_python, tmp_path):
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"))
    coordinator.wait_to_run(1)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 1)
    assert (report.checkpoints, report.checkpoint_error) == ((), f"{tmp_path / 'ckpt'} does not exist")


def test_without_a_directory_the_scan_is_done_at_once(coordinator, run_python):
    run_python(HANG)
    coordinator.wait_to_run(4)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 4)
    assert (report.checkpoints, report.checkpoint_error) == ((), "")


def children_of(launcher):
    pid = launcher.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_stalled_filesystem_stalls_nothing_else(coordinator, run_python, tmp_path, until):
    """What is told of it once the deadline is over, test_scanner.py shows by a clock of its own."""
    write_checkpoint(tmp_path / "ckpt", 10)
    launcher = run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"), MUSTER_SCAN_DEADLINE_SECONDS="600")
    coordinator.wait_to_run(1)
    coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 1)
    (scanning,) = children_of(launcher)
    os.kill(scanning, signal.SIGSTOP)  # as if it waited for the filesystem
    until(lambda: Path(f"/proc/{scanning}/stat").read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    coordinator.wait_to_run(2)
    report = coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    assert report.checkpoints_scanned_for_attempt == 1
    os.kill(scanning, signal.SIGCONT)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 2)
    assert (steps(report), report.checkpoint_error) == ([10], "")


def test_a_directory_that_is_none_is_an_error(coordinator, run_python, tmp_path):
    (tmp_path / "ckpt").write_text("a file")
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"))
    coordinator.wait_to_run(1)
    assert "Not a directory" in coordinator.wait_for(lambda r: r.checkpoint_error).checkpoint_error


def test_the_child_that_scans_is_replaced_when_it_dies(coordinator, run_python, tmp_path, until):
    write_checkpoint(tmp_path / "ckpt", 10)
    launcher = run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"))
    coordinator.wait_to_run(1)
    coordinator.wait_for(steps)
    os.kill(children_of(launcher)[0], signal.SIGKILL)
    write_checkpoint(tmp_path / "ckpt", 20)
    coordinator.wait_for(lambda r: steps(r) == [20, 10])


def test_scan_prints_what_it_found(archive, tmp_path):
    write_checkpoint(tmp_path, 10)
    done = subprocess.run([sys.executable, "-I", archive, "--scan", tmp_path], check=True, stdout=subprocess.PIPE)
    assert json.loads(done.stdout) == {"checkpoints": [{"step": 10, "path": str(tmp_path / "step-10")}], "error": ""}


def test_tree_prints_names_and_sizes_as_a_report(archive, tmp_path):
    for number, (name, size) in enumerate([("step-10/b.pt", 3), ("step-10/a.pt", 5), ("latest", 7)]):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(b"x" * size)
        os.utime(file, (number, number))
    done = subprocess.run([sys.executable, "-I", archive, "--tree", tmp_path], check=True, stdout=subprocess.PIPE)
    (case,) = json.loads(done.stdout)["cases"]
    assert list(case["input"].items()) == [("step-10/b.pt", 3), ("step-10/a.pt", 5), ("latest", 7)]
    assert case["right"] == ""


def test_without_a_command_the_usage_is_printed(archive):
    done = subprocess.run([sys.executable, "-I", archive], check=False, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.startswith(b"usage: run.pyz")


def test_works_from_a_read_only_directory_without_a_temporary_one(coordinator, run_python):
    launcher = run_python("import os; print(os.environ['MUSTER_PROGRESS'])", TMPDIR="/nonexistent")
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == EXITED)
    assert launcher.text.startswith(str(launcher.directory))


def test_what_a_url_leads_to_is_seen_by_the_packages_of_the_image(coordinator, run_python, tmp_path, packages):
    """Also where these print; and nothing is written there, nor imported from where the job was started."""
    (tmp_path / "json.py").write_text("raise SystemExit(1)")
    write_checkpoint(tmp_path / "ckpt", 10)
    url = f"noisy://{tmp_path}/ckpt"
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=url, MUSTER_GANG="gang", PYTHONPATH=str(packages))
    coordinator.wait_to_run(1)
    report = coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 1)
    assert [(c.step, c.path, c.verified) for c in report.checkpoints] == [(10, f"{url}/step-10", True)]
    coordinator.run(1, resume_path=f"{url}/step-10", resume_step=10)
    report = coordinator.wait_for(lambda r: r.state == RUNNING)
    assert not report.reads_fence_file
    assert [path.name for path in (tmp_path / "ckpt").iterdir()] == ["step-10"]


def test_another_job_may_save_to_a_store_and_this_one_not(coordinator, run_python, tmp_path, packages):
    """The look is asked for while the launcher waits already, and its child may see no packages."""
    another_job_may_save_elsewhere(coordinator, run_python, tmp_path, packages, own="", other="noisy://")


def test_a_store_of_another_job_that_cannot_be_opened_is_reported(coordinator, run_python, tmp_path):
    """The job's own directory counts all the same."""
    write_checkpoint(tmp_path / "ckpt", 10)
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"))
    coordinator.wait_to_run(1, requested_resume="", requested_directory="wibble://bucket/base")
    report = coordinator.wait_for(lambda r: r.other_directory_error and any(c.verified for c in r.checkpoints))
    assert report.other_directory_error.startswith(
        "unverified: wibble://bucket/base: fsspec in this image knows no scheme"
    )
    assert (report.other_directory, report.checkpoint_error) == ((), "")
    assert [(c.step, c.verified) for c in report.checkpoints] == [(10, True)]


def test_a_url_that_nobody_can_open_is_told_and_holds_no_ranks(coordinator, run_python):
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY="wibble://bucket/run")
    coordinator.wait_to_run(1)
    report = coordinator.wait_for(lambda r: r.checkpoint_error)
    assert report.checkpoint_error.startswith("unverified: wibble://bucket/run: fsspec in this image knows no scheme")
    assert (report.state, report.checkpoints_scanned_for_attempt) == (IDLE, 0)
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)


def test_a_listing_beside_the_ranks_is_told_with_its_age(coordinator, run_python, tmp_path):
    (tmp_path / "ckpt").mkdir()
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"), MUSTER_SCAN_SECONDS="0.3")
    coordinator.wait_to_run(1)
    coordinator.run(1)
    report = coordinator.wait_for(
        lambda r: r.listed_age_seconds is not None and r.listed_age_seconds < (r.started_age_seconds or 0.0)
    )
    assert report.state == RUNNING


def test_what_a_save_costs_is_told_with_the_checkpoint(coordinator, run_python, tmp_path):
    what_a_save_costs_is_told(coordinator, run_python, tmp_path, step_seconds=0.02, save_seconds=0.3)


def test_the_end_of_the_ranks_is_told_with_the_checkpoint_that_they_saved_last(coordinator, run_python, tmp_path):
    """The trainer saves step 4000 and exits: no scan of the usual pace is due before that."""
    write_checkpoint(tmp_path / "ckpt", 3970)
    script = """
import json, os
target = os.path.join(os.environ["MUSTER_CHECKPOINT_DIRECTORY"], "step-4000")
os.mkdir(target)
with open(os.path.join(target, "muster-checkpoint.json"), "w") as file:
    file.write(json.dumps({"step": 4000, "files": []}))
"""
    run_python(script, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"), MUSTER_SCAN_SECONDS="600")
    coordinator.wait_to_run(1)
    coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 1)
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.state == EXITED and not r.lists_after_end)
    assert steps(report)[0] == 4000

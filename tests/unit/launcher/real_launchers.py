"""What real launchers run in these tests, and promises that the gate and nightly tests look at in several cases."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.node.launcher.reclaim import descendants
from muster.protocol.messages import EXITED, IDLE, RUNNING, CheckpointReport, Report

Launch = Callable[..., Any]
Until = Callable[..., Any]

HANG = "import time; time.sleep(600)"
STEPS = """
import json, os, time
for step in range(1, 6001):
    with open(os.environ["MUSTER_PROGRESS"], "a") as file:
        file.write(json.dumps({"step": step}) + "\\n")
    time.sleep(0.05)
"""
DAEMON = """
import os, signal, sys, time
def publish(name):
    with open(os.path.join(os.environ["TEST_DIRECTORY"], name + ".new"), "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, file.name[:-4])
def daemon(name):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.closerange(0, 3) if name == "quiet" else None
            publish(name)
            time.sleep(600)
        os._exit(0)
"""
TROUBLES = {
    "ignores SIGTERM": "signal.signal(signal.SIGTERM, signal.SIG_IGN); publish('rank'); time.sleep(600)",
    "is stopped": "publish('rank'); os.kill(os.getpid(), signal.SIGSTOP)",
    "forks without end": """
publish('rank')
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        for _ in range(100000):
            if os.fork() != 0:
                os._exit(0)
            time.sleep(0.01)
time.sleep(600)
""",
}
NOISY = """
from fsspec.implementations.local import LocalFileSystem

print("this package prints")

class Noisy(LocalFileSystem):
    protocol = "noisy"

    @classmethod
    def _strip_protocol(cls, path):
        return LocalFileSystem._strip_protocol(path.replace("noisy://", ""))

    def ls(self, *arguments, **options):
        print("listing")
        return super().ls(*arguments, **options)
"""
SAVES_AND_WAITS = """
import json, os, pathlib, time
progress = open(os.environ["MUSTER_PROGRESS"], "a", buffering=1)
for step in range(1, 100000):
    time.sleep(float(os.environ["STEP_SECONDS"]))
    progress.write(json.dumps({"step": step}) + "\\n")
    if step % 20 == 0:
        time.sleep(float(os.environ["SAVE_SECONDS"]))
        target = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIRECTORY"]) / ("step-%d" % step)
        target.mkdir()
        (target / "model.bin").write_bytes(b"x" * 1000)
        manifest = {"step": step, "files": [{"path": "model.bin", "bytes": 1000}]}
        (target / "manifest.new").write_text(json.dumps(manifest))
        (target / "manifest.new").rename(target / "muster-checkpoint.json")
"""


# What Hugging Face's Trainer prints when it goes on from step 300: the bar begins with 0, and jumps at the first step.
GOES_ON = [
    "\r  0%|          | 0/500 [00:00<?, ?it/s]",
    "\r 60%|██████    | 301/500 [00:02<00:01, 148.51it/s]",
    "{'loss': 2.1704, 'grad_norm': 3.1, 'learning_rate': 1.98e-05, 'epoch': 3.02}\n",
    "\r 60%|██████    | 302/500 [00:03<00:01, 120.01it/s]",
    "\r 61%|██████    | 303/500 [00:04<00:02, 90.25it/s]\r",
]
FROM_SCRATCH = [
    "\r  0%|          | 0/500 [00:00<?, ?it/s]",
    "\r  0%|          | 1/500 [00:01<08:19,  1.00s/it]",
    "\r  0%|          | 2/500 [00:02<08:18,  1.00s/it]\r",
]


def write_checkpoint(directory: Path, step: int) -> None:
    target = directory / f"step-{step}"
    target.mkdir(parents=True, exist_ok=True)
    (target / "model.bin").write_bytes(b"x" * step)
    manifest = {"step": step, "files": [{"path": "model.bin", "bytes": step}]}
    (target / "manifest.new").write_text(json.dumps(manifest))
    (target / "manifest.new").rename(target / "muster-checkpoint.json")


def steps(report: Report) -> list[int]:
    return [checkpoint.step for checkpoint in report.checkpoints]


def an_error_answer_changes_nothing(coordinator: Any, run_python: Launch, until: Until, status: int) -> None:
    launcher = run_python(STEPS)
    coordinator.run(1)
    step = coordinator.wait_for(lambda r: r.step is not None).step
    coordinator.fail(status)
    until(lambda: "no answer from the coordinator" in launcher.error_text, "the trouble to be seen")
    assert f"it answered {status}" in launcher.error_text
    coordinator.fail(200)
    report = coordinator.wait_for(lambda r: r.step > step + 3)
    assert (report.state, report.attempt) == (RUNNING, 1)
    until(lambda: "the coordinator answers again" in launcher.error_text, "the end of the trouble to be seen")
    assert launcher.error_text.count(f"it answered {status}") == 1


def a_restart_is_told_with_the_scan_for_it(coordinator: Any, run_python: Launch, **environment: str) -> None:
    run_python(STEPS, MUSTER_SCAN_SECONDS="600", **environment)
    coordinator.run(1, hold_seconds=600.0, poll_seconds=600.0)
    coordinator.wait_for(lambda r: r.state == RUNNING and r.directive_seen)
    for attempt in (2, 3):
        coordinator.wait_to_run(attempt, hold_seconds=600.0, poll_seconds=600.0)
        idle = coordinator.wait_for(lambda r, n=attempt: r.state == IDLE and r.attempt == n)
        assert idle.previous_attempt == attempt - 1
        coordinator.wait_for(lambda r, n=attempt: r.checkpoints_scanned_for_attempt == n)
        coordinator.run(attempt, hold_seconds=600.0, poll_seconds=600.0)
        coordinator.wait_for(lambda r, n=attempt: r.state == RUNNING and r.attempt == n)


def a_missing_setting_is_named(launch: Launch, missing: str) -> None:
    launcher = launch("true", **{missing: ""})
    assert launcher.wait() == 78
    assert f"{missing} is not set" in launcher.error_text


def a_command_that_cannot_start_is_a_failed_rank(
    coordinator: Any, launch: Launch, command: str, code: int, text: str
) -> None:
    launch(command)
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.state == EXITED)
    assert report.ranks[0].exit_code == code
    assert command in report.ranks[0].tail
    assert text in report.ranks[0].tail


def megatron_finds_this_tracker(
    coordinator: Any, run_python: Launch, until: Until, tmp_path: Path, before: str | None, after: str | None
) -> None:
    file = tmp_path / "latest_checkpointed_iteration.txt"
    if before is not None:
        file.write_text(before)
    program = f"import os; print('says', os.path.exists({str(file)!r}) and open({str(file)!r}).read(), flush=True)"
    launcher = run_python(program, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path))
    coordinator.run(1, resume_path=str(tmp_path / "iter_0000040"), resume_step=40, resume_preset="Megatron")
    until(lambda: f"says {after if after is not None else False}" in launcher.text, "the file")


def composer_finds_this_link(
    coordinator: Any, run_python: Launch, until: Until, tmp_path: Path, before: str | None, after: str | None
) -> None:
    link = tmp_path / "latest-rank0.pt"
    if before is not None:
        link.symlink_to(before)
    program = f"import os; print('leads to', os.path.lexists({str(link)!r}) and os.readlink({str(link)!r}), flush=True)"
    launcher = run_python(program, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path))
    coordinator.run(1, resume_path=str(tmp_path / "ep1-ba40-rank0.pt"), resume_step=40, resume_preset="Composer")
    until(lambda: f"leads to {after if after is not None else False}" in launcher.text, "the link")
    assert [path.name for path in tmp_path.iterdir() if "latest" in path.name] == ["latest-rank0.pt"] * (
        after is not None
    )


def a_pipe_is_replaced_and_no_link_is_written_through(
    coordinator: Any, run_python: Launch, until: Until, tmp_path: Path, preset: str, name: str
) -> None:
    """To open a pipe waits for a writer, and a link may lead out of the directory."""
    directory, outside = tmp_path / "checkpoints", tmp_path / "outside"
    directory.mkdir()
    outside.write_text("as it was")
    file = {"DeepSpeed": "latest", "Megatron": "latest_checkpointed_iteration.txt"}[preset]
    os.mkfifo(directory / file)
    (directory / f".muster-{file}-0").symlink_to(outside)
    launcher = run_python("print('started', flush=True)", MUSTER_CHECKPOINT_DIRECTORY=str(directory))
    coordinator.run(1, resume_path=str(directory / name), resume_step=40, resume_preset=preset)
    until(lambda: "started" in launcher.text, "the ranks")
    assert (directory / file).read_text() in ("global_step40", "40")
    assert outside.read_text() == "as it was"


def read_pid(path: Path) -> int:
    return int(path.read_text())


def a_rank_is_gone_before_idle_is_reported(
    coordinator: Any, run_python: Launch, tmp_path: Path, alive: Callable[[int], bool], until: Until, trouble: str
) -> None:
    launcher = run_python(DAEMON + TROUBLES[trouble])
    coordinator.run(1)
    coordinator.wait_for(lambda r: r.state == RUNNING)
    pid = read_pid(until((tmp_path / "rank").exists, "the rank") and tmp_path / "rank")
    if trouble == "is stopped":
        until(lambda: "T" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0], "it to stop")
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    assert not alive(pid)
    assert descendants(launcher.process.pid) == []


def the_first_step_of_an_attempt_is_told(coordinator: Any, run_python: Launch, *, print_steps: bool) -> None:
    tell = (
        "print('step', step, flush=True)"
        if print_steps
        else ("open(os.environ['MUSTER_PROGRESS'], 'a').write('{\"step\": %d}\\n' % step)")
    )
    run_python(
        f"import os, time\nfor step in range(41, 6000):\n {tell}\n time.sleep(0.005)",
        MUSTER_STEP_PATTERN=r"step (\d+)" * print_steps,
    )
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.step is not None and r.step > 60)
    assert report.first_step == 41
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda r: r.state == IDLE and r.first_step is None)


def a_progress_bars_first_number_is_no_finished_step(
    coordinator: Any, run_python: Launch, printed: list[str], first: int, newest: int
) -> None:
    run_python(
        f"import sys, time\nfor text in {printed!r}:\n sys.stderr.write(text)\n sys.stderr.flush()\n time.sleep(0.3)\n"
        "time.sleep(600)",
        MUSTER_STEP_PATTERN=r"(\d+)/\d+",
    )
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: r.step == newest)
    assert report.first_step == first
    assert not [r for r in coordinator.received if r.report.step == 0 or r.report.first_step == 0]


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Of an image that knows noisy://."""
    packages = tmp_path / "packages"
    (packages / "noisy-1.dist-info").mkdir(parents=True)
    (packages / "noisy-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: noisy\nVersion: 1\n")
    (packages / "noisy-1.dist-info/entry_points.txt").write_text("[fsspec.specs]\nnoisy = noisy:Noisy\n")
    (packages / "noisy.py").write_text(NOISY)
    return packages


def another_job_may_save_elsewhere(
    coordinator: Any, run_python: Launch, tmp_path: Path, packages: Path, *, own: str, other: str
) -> None:
    write_checkpoint(tmp_path / "base", 100)
    write_checkpoint(tmp_path / "base", 200)
    write_checkpoint(tmp_path / "ckpt", 10)
    run_python(HANG, MUSTER_CHECKPOINT_DIRECTORY=f"{own}{tmp_path}/ckpt", PYTHONPATH=str(packages))
    coordinator.wait_to_run(1)
    coordinator.wait_for(lambda r: r.checkpoints_scanned_for_attempt == 1)
    there = f"{other}{tmp_path}/base"
    coordinator.wait_to_run(1, requested_resume="100", requested_directory=there)
    report = coordinator.wait_for(
        lambda r: r.other_directory and r.checkpoints and all(c.verified for c in r.checkpoints)
    )
    assert [(c.step, c.path, c.verified) for c in report.other_directory] == [
        (200, f"{there}/step-200", True),
        (100, f"{there}/step-100", True),
    ]
    assert (report.other_directory_error, report.checkpoint_error) == ("", "")
    assert [(c.step, c.verified) for c in report.checkpoints] == [(10, True)]
    coordinator.run(1, resume_path=f"{there}/step-100", resume_step=100)
    coordinator.wait_for(lambda r: r.state == RUNNING)


def what_a_save_costs_is_told(
    coordinator: Any, run_python: Launch, tmp_path: Path, *, step_seconds: float, save_seconds: float
) -> CheckpointReport:
    (tmp_path / "ckpt").mkdir()
    pauses = {"STEP_SECONDS": str(step_seconds), "SAVE_SECONDS": str(save_seconds), "MUSTER_SCAN_SECONDS": "0.3"}
    run_python(SAVES_AND_WAITS, MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path / "ckpt"), **pauses)
    coordinator.wait_to_run(1)
    coordinator.run(1)
    report = coordinator.wait_for(lambda r: any(one.stall_seconds is not None for one in r.checkpoints))
    saved: CheckpointReport
    (saved, *_) = [one for one in report.checkpoints if one.stall_seconds is not None]
    assert saved.step >= 40, "of the first one nobody knows what its number counts"
    assert saved.durable_seconds is not None
    assert saved.size_bytes > 1000
    coordinator.wait_for(lambda r: (r.free_bytes or 0) > 0)
    return saved

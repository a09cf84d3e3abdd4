"""`make test-gpu`: the shipped launcher beside a training program on this machine's first GPU, with torch and NCCL.

The program's `python3` has torch, as MUSTER_TORCH_PYTHON names it. No setting of the GPU is changed.
"""

import itertools
import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from tests.gpu.test_burn_in import used_bytes
from tests.unit.launcher.conftest import Launch, Launcher, ScriptedCoordinator, wait_until

from muster.node.launcher.reclaim import descendants
from muster.protocol.messages import EXIT, EXITED, Report

TRAINER = Path(__file__).with_name("trainer.py")
PYTHON = os.environ.get("MUSTER_TORCH_PYTHON", "/usr/bin/env python3").split()
SETTINGS = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "MUSTER_SCAN_SECONDS": "2"}
NUMBERS = itertools.count(2)
"""Of addresses: the coordinator tells launchers apart by theirs."""


class Job:
    """One worker with one rank, told what to do as the operator does."""

    def __init__(self, folder: Path, launch: Launch, coordinator: ScriptedCoordinator, *arguments: str) -> None:
        folder.mkdir()
        self.folder, self.coordinator = folder, coordinator
        coordinator.watched = f"127.0.0.{next(NUMBERS)}"
        self.checkpoints = folder / "checkpoints"
        self.launcher: Launcher = launch(
            *PYTHON,
            str(TRAINER),
            *arguments,
            MUSTER_CHECKPOINT_DIRECTORY=str(self.checkpoints),
            MUSTER_POD_IP=coordinator.watched,
            OUT_FILE=str(folder / "digest"),
            **SETTINGS,
        )
        coordinator.wait_to_run(1)
        coordinator.wait_for(lambda report: report.checkpoints_scanned_for_attempt == 1)
        coordinator.run(1)

    def step(self, number: int) -> Report:
        return self.coordinator.wait_for(lambda report: (report.step or 0) >= number, f"step {number}")

    def rank_pid(self) -> int:
        """Of the rank: the launcher's child that runs the program."""

        def find() -> int | None:
            launcher = self.launcher.process.pid
            children = (each.pid for each in descendants(launcher) if each.parent == launcher)
            trainer = str(TRAINER).encode()
            return next((pid for pid in children if trainer in Path(f"/proc/{pid}/cmdline").read_bytes()), None)

        found: int = wait_until(find, "the rank runs")
        return found

    def go_on(self, attempt: int) -> dict[str, float]:
        """The next attempt from the newest complete checkpoint; when each part of it had been done (monotonic)."""
        done = {"heard": time.monotonic()}
        self.coordinator.wait_to_run(attempt)
        report = self.coordinator.wait_for(
            lambda report: report.checkpoints_scanned_for_attempt == attempt, "ranks ended and checkpoints listed"
        )
        done["ended and listed"] = time.monotonic()
        newest = report.checkpoints[0]
        self.coordinator.run(attempt, resume_path=newest.path, resume_step=newest.step)
        first = self.coordinator.wait_for(lambda report: report.attempt == attempt and report.first_step is not None)
        assert first.first_step == newest.step + 1
        done["first step"] = time.monotonic()
        return done

    def end(self) -> str:
        """The digest of its weights, once its rank has ended well."""
        report = self.coordinator.wait_for(lambda report: report.state == EXITED and not report.lists_after_end)
        assert [(rank.exit_code, rank.signal) for rank in report.ranks] == [(0, None)], self.launcher.error_text[-3000:]
        self.coordinator.set(kind=EXIT, attempt=report.attempt, exit_code=0, reason="done")
        assert self.launcher.wait() == 0
        shutil.rmtree(self.checkpoints)  # of several jobs they fill a disk
        return (self.folder / "digest").read_text(encoding="utf-8")


def show(what: str, began: float, done: dict[str, float]) -> None:
    print(what + ": " + ", ".join(f"{name} {at - began:.2f} s" for name, at in done.items()))


def test_a_job_without_faults_tells_its_energy_and_its_library(
    tmp_path: Path, launch: Launch, coordinator: ScriptedCoordinator
) -> None:
    job = Job(tmp_path / "job", launch, coordinator, "2000")
    report = job.step(1)
    print(f"first step {report.started_age_seconds:.2f} s after the start")
    report = coordinator.wait_for(lambda report: report.energy_joules and report.collectives)
    assert report.energy_joules is not None
    assert report.energy_gpu_milliseconds is not None
    watts = report.energy_joules / report.energy_gpu_milliseconds * 1e3
    print(f"{report.collectives}, {watts:.0f} W a GPU, a step in {report.step_seconds} s, step {report.step}")
    assert report.collectives.startswith("NCCL 2.")
    assert 30 < watts < 2000
    assert report.progress_error == ""
    os.kill(job.rank_pid(), signal.SIGKILL)
    coordinator.wait_for(lambda report: report.state == EXITED)


@pytest.mark.parametrize("left_behind", ["", "fork"])
def test_a_killed_rank_trains_on_from_its_newest_checkpoint_with_equal_weights(
    left_behind: str, tmp_path: Path, launch: Launch, coordinator: ScriptedCoordinator
) -> None:
    wanted = Job(tmp_path / "undisturbed", launch, coordinator, "100").end()
    job = Job(tmp_path / "disturbed", launch, coordinator, "100", *filter(None, [left_behind]))
    coordinator.wait_for(lambda report: report.checkpoints, "a complete checkpoint")
    pid, began = job.rank_pid(), time.monotonic()
    os.kill(pid, signal.SIGKILL)
    report = coordinator.wait_for(lambda report: report.state == EXITED)
    assert [rank.signal for rank in report.ranks] == [signal.SIGKILL]
    show(f"killed ({left_behind or 'alone'})", began, job.go_on(2))
    assert job.end() == wanted


def test_an_endless_kernel_is_ended_and_frees_the_gpu_for_the_next_attempt(
    tmp_path: Path, launch: Launch, coordinator: ScriptedCoordinator
) -> None:
    before = used_bytes()
    job = Job(tmp_path / "job", launch, coordinator, "100", "hang", "30")
    job.step(29)
    coordinator.wait_for(lambda report: (report.step_age_seconds or 0) > 3, "it stands still")
    began = time.monotonic()
    coordinator.wait_to_run(2)
    coordinator.wait_for(lambda report: report.checkpoints_scanned_for_attempt == 2)
    print(f"ended and listed {time.monotonic() - began:.2f} s after the order")
    assert used_bytes() <= before + 2**26
    show("hung", began, job.go_on(2))
    job.end()

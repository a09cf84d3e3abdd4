"""Stages of a suite: commands that run tests, one at a time or side by side, with what each took and what failed.

A stage runs in a process group of its own. An interrupt (SIGINT, SIGTERM) of the gate is passed on to that group as
SIGINT, on which pytest tears its fixtures down, and the gate ends after the group's leader.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gate import results

ROOT = Path(__file__).resolve().parents[2]
SLOWEST = 3
# Exit statuses of a suite.
INTERRUPTED = 130  # as a shell gives it after a SIGINT
REFUSED = 2
# What would make a stage run a part of its tests or against another API server, or go on after an error: T=, K=,
# API_SERVER=, `make -i`, `pytest --co`.
NARROWING = ("T", "K", "API_SERVER", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "GNUMAKEFLAGS", "PYTEST_ADDOPTS")
_NO_TESTS = 5  # exit status of a stage that should have run tests and ran none; pytest's own
_NICE = 5  # a third of the first lane's share of the CPU
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_INTERRUPT_SECONDS = 2.0  # make and a shell may send the same signal each


@dataclass(frozen=True)
class Outcome:
    """What became of a stage.

    Attributes:
        name: of the stage.
        code: exit status of its command; 0 is a pass.
        wall_seconds: by the clock.
        cpu_seconds: of all processes that the command has waited for (RUSAGE_CHILDREN); what it detached is not in it.
        tests: a line for each test, as `gate.results` writes it; empty for a stage that runs none.
    """

    name: str
    code: int
    wall_seconds: float
    cpu_seconds: float
    tests: list[dict[str, Any]] = field(default_factory=list)

    @property
    def failed(self) -> list[str]:
        """The tests that failed; the stage itself where its command failed and no test did."""
        names = [test["name"] for test in self.tests if test["result"] == "failed"]
        return names or ([self.name] if self.code else [])

    @property
    def passed(self) -> bool:
        return not self.failed

    @property
    def skipped(self) -> int:
        return sum(test["result"] == "skipped" for test in self.tests)

    @property
    def reran(self) -> list[str]:
        return [test["name"] for test in self.tests if test.get("reruns")]

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "tests": len(self.tests),
            "skipped": self.skipped,
            "wallSeconds": round(self.wall_seconds, 1),
            "cpuSeconds": round(self.cpu_seconds, 1),
            "failed": self.failed,
            "reran": self.reran,
        }


def refusal(needs_root: bool) -> str:
    """Why the suite cannot run as it was asked to; "" where it can."""
    narrowed = [f"{name}={os.environ[name]}" for name in ("T", "K") if os.environ.get(name)]
    if narrowed:
        return (
            f"{' '.join(narrowed)}: the suite runs whole, and its result is kept for the commit. "
            "Run `make test-unit T=... K=...` (or test-integration, test-e2e) for a part, or unset the variable."
        )
    if needs_root and os.geteuid() != 0 and os.environ.get("CLUSTER") != "existing":
        return (
            "The end-to-end tests need root: they bring up a cluster on this machine. "
            "Run as root, or set CLUSTER=existing; `make test-unit` and `make test-integration` need neither."
        )
    return ""


@dataclass(frozen=True)
class Stage:
    """A command that runs tests, or checks without tests.

    Attributes:
        name: as results and the table name it.
        command: run in the repository's root.
        environment: variables besides ours.
        has_tests: without a single test the stage is red.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    has_tests: bool = False


class Interrupted(KeyboardInterrupt):
    """The gate was interrupted.

    Attributes:
        outcomes: of the stages that had ended before.
    """

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        super().__init__()
        self.outcomes = outcomes


def run(*lanes: Sequence[Stage]) -> list[Outcome]:
    """Run lanes of stages side by side; in each a stage begins after one that passed, as long as none has failed.

    The output of the first lane goes where ours goes. The others leave the CPU to it (nice) until it has ended, and
    their output is printed when all have ended.

    Returns:
        What became of each stage that began, lane by lane.

    Raises:
        Interrupted: the gate was interrupted; the commands have ended.
    """
    stages = {stage.name: stage for lane in lanes for stage in lane}
    outcomes: dict[str, Outcome] = {}

    def note(ended: _Command) -> bool:
        outcomes[ended.name] = _outcome(stages[ended.name], ended)
        return outcomes[ended.name].passed

    with tempfile.TemporaryDirectory(prefix="muster-gate-") as folder:
        commands = [
            [_command(stage, Path(folder) / stage.name, beside=number > 0) for stage in lane]
            for number, lane in enumerate(lanes)
        ]
        try:
            _complete(*commands, note=note)
        except KeyboardInterrupt as interrupt:
            raise Interrupted([outcomes[name] for name in stages if name in outcomes]) from interrupt
        finally:
            for command in (command for lane in commands for command in lane):
                if command.output is not None and command.output.exists():
                    print(f"\n=== {command.name}\n{command.output.read_text(errors='replace')}", end="", flush=True)
        return [outcomes[name] for name in stages if name in outcomes]


def _command(stage: Stage, results_file: Path, *, beside: bool) -> _Command:
    environment = {**stage.environment, results.VARIABLE: str(results_file)}
    return _Command(stage.name, stage.command, environment, results_file.with_suffix(".out") if beside else None)


def _outcome(stage: Stage, ended: _Command) -> Outcome:
    tests, code = results.read(Path(ended.environment[results.VARIABLE])), ended.code
    if stage.has_tests and not tests and code == 0:
        print(f"{stage.name}: no test has run", flush=True)
        code = _NO_TESTS
    return Outcome(stage.name, code, ended.wall_seconds, ended.cpu_seconds, tests)


def call(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command with these variables besides ours; returns its exit status.

    Raises:
        KeyboardInterrupt: the gate was interrupted; the command has ended.
    """
    called = _Command("", command, environment)
    _complete([called])
    return called.code


@dataclass
class _Command:
    """A command and, once it has ended, what it took.

    Attributes:
        name: printed when it begins; "" prints nothing.
        output: a file for its output, for a command that runs beside another and leaves the CPU to it; None for ours.
        began: when, by the monotonic clock.
        code: its exit status.
        wall_seconds: by the clock.
        cpu_seconds: of itself and of all processes that it has waited for.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    output: Path | None = None
    began: float = 0.0
    code: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0

    def start(self) -> subprocess.Popen[bytes]:
        """Start it in a process group of its own. The caller has blocked the signals; the command gets them."""
        if self.name:
            print(f"\n=== {self.name}" + (", printed when all have ended" if self.output else ""), flush=True)
        self.began = time.monotonic()
        ours = {name: value for name, value in os.environ.items() if name not in NARROWING}
        with contextlib.ExitStack() as files:
            output = files.enter_context(self.output.open("wb")) if self.output else None
            return subprocess.Popen(
                self.command,
                cwd=ROOT,
                env={**ours, **self.environment},
                stdin=subprocess.DEVNULL,  # a group in the background would be stopped where it reads the terminal
                stdout=output,
                stderr=output and subprocess.STDOUT,
                start_new_session=self.output is not None,
                process_group=None if self.output else 0,
                preexec_fn=self._begin,
            )

    def _begin(self) -> None:
        """In the new process: let interrupts through, and step back if it runs beside another."""
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        if self.output:
            _set_nice(os.getpid(), os.nice(0) + _NICE)


def _set_nice(leader: int, nice: int) -> None:
    """Set the niceness of a session's first process group. Lowering it needs a right; else nothing changes."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, leader, nice)
        # Linux may share the CPU out by session, and only then by the niceness of processes within one.
        Path(f"/proc/{leader}/autogroup").write_text(str(nice))


def _complete(*lanes: Sequence[_Command], note: Callable[[_Command], bool] = lambda ended: ended.code == 0) -> None:
    """Run the lanes side by side. After a command that failed none begins.

    Args:
        lanes: commands that run one after another.
        note: notes that a command has ended by itself; returns whether it passed.

    The first interrupt is passed on to their groups as SIGINT, a later one as SIGKILL.

    Raises:
        KeyboardInterrupt: the gate was interrupted; all commands have ended.
    """
    running: dict[int, tuple[_Command, subprocess.Popen[bytes], Iterator[_Command]]] = {}

    def begin_next(lane: Iterator[_Command]) -> None:
        for command in itertools.islice(lane, 1):
            process = command.start()
            running[process.pid] = (command, process, lane)

    interrupt: KeyboardInterrupt | None = None
    has_failed = False
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until there are groups to pass them on to
    for lane in lanes:
        begin_next(iter(lane))
    while running:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # what has ended is taken in whole
        except KeyboardInterrupt as error:
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL if interrupt else signal.SIGINT)
            interrupt = error
            continue
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid not in running:  # another child of this process
            continue
        command, process, rest = running.pop(pid)
        process.returncode = command.code = os.waitstatus_to_exitcode(status)
        command.wall_seconds = time.monotonic() - command.began
        command.cpu_seconds = usage.ru_utime + usage.ru_stime
        if interrupt is None:
            has_failed = not note(command) or has_failed
            if not has_failed:
                begin_next(rest)
            if all(beside.output for beside, _, _ in running.values()):  # the first lane has ended
                for leader in running:
                    _set_nice(leader, os.nice(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    if interrupt is not None:
        raise interrupt


def take_signals() -> None:
    """Raise KeyboardInterrupt on SIGTERM, too, and on SIGINT although a shell started us in the background."""
    interrupted_at = -math.inf

    def interrupt(_number: int, _frame: object) -> None:
        nonlocal interrupted_at
        before, interrupted_at = interrupted_at, time.monotonic()
        if interrupted_at > before + _SAME_INTERRUPT_SECONDS:
            raise KeyboardInterrupt

    for number in _SIGNALS:
        signal.signal(number, interrupt)


def report(outcome: Outcome) -> None:
    """Print what a stage took, and its slowest tests with their seconds."""
    print(f"{outcome.name}: {outcome.wall_seconds:.0f} s, {outcome.cpu_seconds:.0f} s of CPU")
    for test in sorted(outcome.tests, key=lambda test: -test["seconds"])[:SLOWEST]:
        print(f"    {test['seconds']:7.1f} s  {test['name']}")
    sys.stdout.flush()


def failed(outcomes: Sequence[Outcome]) -> list[str]:
    return [name for outcome in outcomes for name in outcome.failed]


def table(
    outcomes: Sequence[Outcome], budgets: Mapping[str, str] | None = None, wall_seconds: float | None = None
) -> str:
    """A line for each stage, and the sum; then the tests that were run again and those that failed.

    Args:
        outcomes: of the stages.
        budgets: by name of the stage, printed beside the figures; they judge nothing.
        wall_seconds: what all stages took together, where some ran side by side; else their sum.
    """
    rows: list[tuple[str, ...]] = [
        ("stage", "result", "tests", "skipped", "wall s", "cpu s", "budget" if budgets else "")
    ]
    for each in outcomes:
        result = "passed" if each.passed else f"FAILED ({each.code})"
        counts = (str(len(each.tests) or "-"), str(each.skipped or "-"))
        figures = (f"{each.wall_seconds:.0f}", f"{each.cpu_seconds:.0f}")
        rows.append((each.name, result, *counts, *figures, (budgets or {}).get(each.name, "")))
    counts = (str(sum(len(e.tests) for e in outcomes)), str(sum(e.skipped for e in outcomes) or "-"))
    wall_seconds = sum(e.wall_seconds for e in outcomes) if wall_seconds is None else wall_seconds
    sums = (wall_seconds, sum(e.cpu_seconds for e in outcomes))
    rows.append(("all", "", *counts, *(f"{seconds:.0f}" for seconds in sums), ""))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if n in (0, 1, 6) else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    again = [f"run again: {name}" for outcome in outcomes for name in outcome.reran]
    return "\n".join(["", *lines, "", *again, *(f"failed: {name}" for name in failed(outcomes))])

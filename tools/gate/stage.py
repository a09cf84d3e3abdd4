"""One stage of a suite: a command that runs tests, with what it took and what failed.

A stage runs in a process group of its own. An interrupt (SIGINT, SIGTERM) of the gate is passed on to that group as
SIGINT, on which pytest tears its fixtures down, and the gate ends after the group's leader.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gate import results

ROOT = Path(__file__).resolve().parents[2]
SLOWEST = 3
# Exit statuses of a suite.
INTERRUPTED = 130  # as a shell gives it after a SIGINT
REFUSED = 2
# What would make a stage run a part of its tests, or go on after an error: T=, K=, `make -i`, `pytest --co`.
NARROWING = ("T", "K", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "GNUMAKEFLAGS", "PYTEST_ADDOPTS")
_NO_TESTS = 5  # exit status of a stage that should have run tests and ran none; pytest's own
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


def run(
    name: str, command: Sequence[str], environment: Mapping[str, str] | None = None, *, has_tests: bool = False
) -> Outcome:
    """Run the command in the repository's root, its output going where ours goes.

    Raises:
        KeyboardInterrupt: the gate was interrupted; the command has ended.
    """
    with tempfile.TemporaryDirectory(prefix="muster-gate-") as folder:
        file = Path(folder) / "results.jsonl"
        before, began = _cpu_seconds(), time.monotonic()
        code = call(command, {**(environment or {}), results.VARIABLE: str(file)})
        wall, cpu = time.monotonic() - began, _cpu_seconds() - before
        tests = results.read(file)
        if has_tests and not tests and code == 0:
            print(f"{name}: no test has run", flush=True)
            code = _NO_TESTS
        return Outcome(name, code, wall, cpu, tests)


def call(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command in a process group of its own, with these variables besides ours; returns its exit status.

    The first interrupt is passed on as SIGINT, a later one as SIGKILL.

    Raises:
        KeyboardInterrupt: the gate was interrupted; the command has ended.
    """
    ours = {name: value for name, value in os.environ.items() if name not in NARROWING}
    interrupt: KeyboardInterrupt | None = None
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until there is a group to pass them on to
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**ours, **environment},
        stdin=subprocess.DEVNULL,  # a group in the background would be stopped where it reads the terminal
        process_group=0,
        preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS),
    )
    while process.returncode is None:
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            process.wait()
        except KeyboardInterrupt as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL if interrupt else signal.SIGINT)
            interrupt = error
    if interrupt is not None:
        raise interrupt
    return process.returncode


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


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def report(outcome: Outcome) -> None:
    """Print what a stage took, and its slowest tests with their seconds."""
    print(f"{outcome.name}: {outcome.wall_seconds:.0f} s, {outcome.cpu_seconds:.0f} s of CPU")
    for test in sorted(outcome.tests, key=lambda test: -test["seconds"])[:SLOWEST]:
        print(f"    {test['seconds']:7.1f} s  {test['name']}")
    sys.stdout.flush()


def failed(outcomes: Sequence[Outcome]) -> list[str]:
    return [name for outcome in outcomes for name in outcome.failed]


def table(outcomes: Sequence[Outcome], budgets: Mapping[str, str] | None = None) -> str:
    """A line for each stage, and the sum; then the tests that were run again and those that failed.

    Budgets are printed beside the figures and judge nothing.
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
    sums = (sum(e.wall_seconds for e in outcomes), sum(e.cpu_seconds for e in outcomes))
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

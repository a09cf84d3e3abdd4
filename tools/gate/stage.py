"""One stage of a suite: a command that runs tests, with what it took and what failed."""

from __future__ import annotations

import os
import resource
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
    def reran(self) -> list[str]:
        return [test["name"] for test in self.tests if test.get("reruns")]

    def as_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "tests": len(self.tests),
            "wallSeconds": round(self.wall_seconds, 1),
            "cpuSeconds": round(self.cpu_seconds, 1),
            "failed": self.failed,
            "reran": self.reran,
        }


def run(name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Outcome:
    """Run the command in the repository's root, its output going where ours goes."""
    with tempfile.TemporaryDirectory(prefix="muster-gate-") as folder:
        file = Path(folder) / "results.jsonl"
        variables = {**os.environ, **(environment or {}), results.VARIABLE: str(file)}
        before, began = _cpu_seconds(), time.monotonic()
        code = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
        wall, cpu = time.monotonic() - began, _cpu_seconds() - before
        return Outcome(name, code, wall, cpu, results.read(file))


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
    rows = [("stage", "result", "tests", "wall s", "cpu s", "budget" if budgets else "")]
    for each in outcomes:
        result = "passed" if each.code == 0 else f"FAILED ({each.code})"
        figures = (str(len(each.tests) or "-"), f"{each.wall_seconds:.0f}", f"{each.cpu_seconds:.0f}")
        rows.append((each.name, result, *figures, (budgets or {}).get(each.name, "")))
    sums = (sum(e.wall_seconds for e in outcomes), sum(e.cpu_seconds for e in outcomes))
    rows.append(("all", "", str(sum(len(e.tests) for e in outcomes)), f"{sums[0]:.0f}", f"{sums[1]:.0f}", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if n in (0, 1, 5) else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    again = [f"run again: {name}" for outcome in outcomes for name in outcome.reran]
    return "\n".join(["", *lines, "", *again, *(f"failed: {name}" for name in failed(outcomes))])

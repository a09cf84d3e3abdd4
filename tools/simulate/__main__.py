"""`python -m simulate`: lives at random until one fails, or one life again."""

import argparse
import copy
import json
import math
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from simulate import record, stories
from simulate.faults import KINDS
from simulate.hashes import fix_hashes
from simulate.many import lives
from simulate.play import Outcome, play
from simulate.shrink import shrunk

OUTPUT = Path("build/bench/simulate.json")
FAILED = Path("build/simulate")
# Phases of a job in which every kind of fault has to be met, once there are enough lives for that.
PHASES = ("Pending", "Starting", "Running", "Recovering")
ENOUGH_FAULTS = 20_000
MOST_FAILURES = 3
KEEP_SECONDS = 60.0


class Sum:
    """What many lives have shown."""

    def __init__(self) -> None:
        self.seeds = 0
        self.next_seed = 0
        self.faults = 0
        self.seconds = 0.0
        self.cpu_seconds = 0.0
        self.events = 0
        self.violations = 0
        self.cells: Counter[tuple[str, str]] = Counter()
        self.checks: Counter[str] = Counter()
        self.dense_faults = 0
        self.dense_cpu_seconds = 0.0

    def add(self, outcome: Outcome, cpu_seconds: float) -> None:
        faults = outcome.faults
        self.seeds += 1
        self.next_seed = max(self.next_seed, outcome.story.seed + 1)
        self.faults += faults
        self.seconds += outcome.seconds
        self.cpu_seconds += cpu_seconds
        self.events += outcome.events
        self.violations += bool(outcome.violation)
        self.cells += outcome.cells
        self.checks += outcome.checks
        if not outcome.story.sparse:
            self.dense_faults += faults
            self.dense_cpu_seconds += cpu_seconds

    @property
    def never_met(self) -> list[str]:
        """Cells of the table that are empty."""
        return [f"{phase} x {kind}" for phase in PHASES for kind in KINDS if not self.cells[phase, kind]]

    @property
    def misses_cells(self) -> bool:
        """Whether cells are empty though there were faults enough to fill them."""
        return self.faults >= ENOUGH_FAULTS and bool(self.never_met)

    @property
    def fails(self) -> bool:
        """Whether the run has to tell that something is wrong."""
        return self.violations > 0 or self.misses_cells

    def to_json(self) -> dict[str, object]:
        cells = len(PHASES) * len(KINDS)
        cpu = max(self.cpu_seconds, 0.001)
        return {
            "machine": {"platform": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version()},
            "seeds": self.seeds,
            "faults": self.faults,
            "simulated_hours": round(self.seconds / 3600, 2),
            "events": self.events,
            "cpu_s": round(self.cpu_seconds, 1),
            "simulated_s_per_cpu_s": round(self.seconds / cpu, 1),
            "faults_per_cpu_s": round(self.faults / cpu, 2),
            "dense_faults_per_cpu_s": round(self.dense_faults / max(self.dense_cpu_seconds, 0.001), 2),
            "violations": self.violations,
            "cells_met": cells - len(self.never_met),
            "cells": cells,
            "checks": dict(sorted(self.checks.items())),
        }

    def table(self) -> str:
        """How often each kind of fault was met in each phase."""
        width = max(map(len, KINDS))
        head = " ".join([" " * width, *(f"{phase:>10}" for phase in PHASES), f"{'others':>10}"])
        lines = [head]
        for kind in KINDS:
            counts = [self.cells[phase, kind] for phase in PHASES]
            others = sum(count for (_, other), count in self.cells.items() if other == kind) - sum(counts)
            lines.append(" ".join([f"{kind:<{width}}", *(f"{count:>10}" for count in [*counts, others])]))
        return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 when nothing was violated."""
    asked = _parser().parse_args(arguments)
    if asked.replay is not None:
        return _replay(asked.replay)
    if asked.record is None:
        first = int(time.time()) if asked.seed is None else asked.seed
        return int(_many(first, asked.seeds, asked.minutes * 60, asked.jobs).fails)
    try:
        return _recorded(asked.record, asked.seeds, asked.minutes * 60, asked.jobs)
    except record.RecordError as error:
        print(error, file=sys.stderr)
        return 2


def _recorded(path: Path, seeds: int, seconds: float, jobs: int) -> int:
    """Go on behind the last seed of a file; what is played is there a minute later at the latest."""
    kept = record.Record.read(path)
    revision = record.revision()
    kept.write(path)  # a place where nothing can be written is found out before hours are spent
    latest = time.monotonic()
    first = kept.next_seed

    def keep(found: Sum) -> None:
        nonlocal latest
        if time.monotonic() < latest + KEEP_SECONDS:
            return
        latest = time.monotonic()
        so_far = copy.deepcopy(kept)
        so_far.add(revision, found.next_seed, found.to_json())
        so_far.write(path)

    found = _many(first, seeds, seconds, jobs, keep)
    kept.add(revision, found.next_seed, found.to_json())
    kept.write(path)
    print(f"{path}: {kept.faults:,} faults in all, {kept.violations} violations")
    return int(found.fails)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulate", description="Lives of a simulated fleet, at random.")
    first = parser.add_mutually_exclusive_group()
    first.add_argument("--seed", type=_number(int, 0), help="the first one; default: by the clock")
    parser.add_argument("--seeds", type=_number(int, 1), default=1_000_000, help="so many lives at most")
    parser.add_argument("--minutes", type=_number(float, 0.01), default=3.0, help="for so long at most")
    parser.add_argument("--jobs", type=_number(int, 1), default=1, help="so many lives side by side, each in a process")
    first.add_argument("--record", type=Path, help="go on behind the last seed in this file, and add what comes to it")
    parser.add_argument("--replay", type=Path, help="play this story again and print what happens")
    return parser


def _number(kind: type[int] | type[float], least: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no {'whole ' * (kind is int)}number") from None
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not possible: give {least} or more")
        return value

    return read


def _replay(path: Path) -> int:
    try:
        told = stories.read(path)
    except stories.StoryError as error:
        print(error, file=sys.stderr)
        return 2
    outcome = play(told)
    print("\n".join(outcome.tail[-200:]))
    print(outcome.violation or f"nothing was violated in {outcome.seconds:.0f} simulated seconds")
    return int(bool(outcome.violation))


def _many(first: int, seeds: int, seconds: float, jobs: int, keep: Callable[[Sum], None] = lambda _: None) -> Sum:
    """What the lives have shown; those that failed are shrunk and kept.

    Args:
        keep: told after each life what all have shown so far.
    """
    print(f"the first life is SEED={first}", flush=True)
    found = Sum()
    for outcome, cpu_seconds in lives(first, seeds, seconds, jobs):
        found.add(outcome, cpu_seconds)
        keep(found)
        if outcome.violation:
            _report(outcome)
            if found.violations >= MOST_FAILURES:
                break
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(found.to_json(), indent=1) + "\n")
    print(found.table())
    print(json.dumps(found.to_json(), indent=1))
    if found.misses_cells:
        print("never met: " + ", ".join(found.never_met))
    return found


def _report(outcome: Outcome) -> None:
    seed = outcome.story.seed
    print(f"seed {seed}, {len(outcome.story.faults)} faults: {outcome.violation}", flush=True)
    path = FAILED / f"{seed}.json"
    stories.write(path, outcome.story, outcome.violation)
    smallest = shrunk(outcome)
    stories.write(path, smallest.story, smallest.violation)
    print(f"the shortest that shows it has {len(smallest.story.faults)} faults: {path}; play it again with")
    print(f"  make simulate REPLAY={path}")
    print(path.read_text(), flush=True)  # the file may be gone with the machine


if __name__ == "__main__":
    fix_hashes("simulate")
    sys.exit(main())

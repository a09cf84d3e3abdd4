"""`python -m muster.simulate`: lives at random until one fails, or one life again."""

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from pathlib import Path

from muster.simulate import stories
from muster.simulate.faults import KINDS
from muster.simulate.play import Outcome, play, story
from muster.simulate.shrink import shrunk

OUTPUT = Path("build/bench/simulate.json")
FAILED = Path("build/simulate")
# Phases of a job in which every kind of fault has to be met, once there are enough lives for that.
PHASES = ("Pending", "Starting", "Running", "Recovering")
ENOUGH_FAULTS = 20_000


class Sum:
    """What many lives have shown."""

    def __init__(self) -> None:
        self.seeds = 0
        self.faults = 0
        self.seconds = 0.0
        self.events = 0
        self.violations = 0
        self.cells: Counter[tuple[str, str]] = Counter()
        self.checks: Counter[str] = Counter()
        self.begun = time.process_time()

    def add(self, outcome: Outcome) -> None:
        """One more life."""
        self.seeds += 1
        self.faults += len(outcome.story.faults)
        self.seconds += outcome.seconds
        self.events += outcome.events
        self.violations += bool(outcome.violation)
        self.cells += outcome.cells
        self.checks += outcome.checks

    @property
    def never_met(self) -> list[str]:
        """Cells of the table that are empty."""
        return [f"{phase} x {kind}" for phase in PHASES for kind in KINDS if not self.cells[phase, kind]]

    def to_json(self) -> dict[str, object]:
        """As it is kept in build/bench."""
        cells = len(PHASES) * len(KINDS)
        cpu = time.process_time() - self.begun
        return {
            "machine": {"platform": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version()},
            "seeds": self.seeds,
            "faults": self.faults,
            "simulated_hours": round(self.seconds / 3600, 2),
            "events": self.events,
            "cpu_s": round(cpu, 1),
            "simulated_s_per_cpu_s": round(self.seconds / cpu, 1),
            "faults_per_cpu_s": round(self.faults / cpu, 2),
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
    return _many(asked.seed, asked.seeds, asked.minutes * 60)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="muster.simulate", description="Lives of a simulated fleet, at random.")
    parser.add_argument("--seed", type=int, default=None, help="the first one; default: by the clock")
    parser.add_argument("--seeds", type=int, default=1_000_000, help="so many lives at most")
    parser.add_argument("--minutes", type=float, default=3.0, help="for so long at most")
    parser.add_argument("--replay", type=Path, help="play this story again and print what happens")
    return parser


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


def _many(first: int | None, seeds: int, seconds: float) -> int:
    first = int(time.time()) if first is None else first
    found, until = Sum(), time.monotonic() + seconds
    failed: list[int] = []
    for seed in range(first, first + seeds):
        if time.monotonic() > until:
            break
        outcome = play(story(seed))
        found.add(outcome)
        if outcome.violation:
            failed.append(seed)
            _tell(outcome)
            if len(failed) >= 3:
                break
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(found.to_json(), indent=1) + "\n")
    print(found.table())
    print(json.dumps(found.to_json(), indent=1))
    if found.faults >= ENOUGH_FAULTS and found.never_met:
        print("never met: " + ", ".join(found.never_met))
        return 1
    return int(bool(failed))


def _tell(outcome: Outcome) -> None:
    seed = outcome.story.seed
    print(f"seed {seed}, {len(outcome.story.faults)} faults: {outcome.violation}", flush=True)
    smallest = shrunk(outcome)
    path = FAILED / f"{seed}.json"
    stories.write(path, smallest.story, smallest.violation)
    print(f"the shortest that shows it has {len(smallest.story.faults)} faults: {path}; play it again with")
    print(f"  make simulate REPLAY={path}", flush=True)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a part of a life
        os.execve(  # noqa: S606
            sys.executable,
            [sys.executable, "-m", "muster.simulate", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())

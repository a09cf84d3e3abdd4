"""`python -m bench.health_fleets`: what the rules of health make of fleets over a month, into
build/bench/health-fleets.json.

All 300 take hours. With `--resume FILE` each fleet is kept in that file as it ends, and what is there is summed up and
not lived through again, as long as the code is the same that lived through it.
"""

import argparse
import gc
import hashlib
import itertools
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.bed import ROOT
from bench.facts import facts
from muster.controller.settings import COLLECT_AFTER
from simulate.fleets.life import DAYS, FLEETS, LARGEST, SMALLEST, Outcome, live, plan
from simulate.fleets.sums import Sum, kept, line, read, told
from simulate.hashes import fix_hashes

OUTPUT = ROOT / "build" / "bench" / "health-fleets.json"
MOST_TOLD = 5
_PLAYED = ("agent", "api", "health", "simulate", "world")


def fleet(seed: int) -> tuple[Outcome, float]:
    """A fleet, and what it took of the processor."""
    gc.set_threshold(*COLLECT_AFTER)  # as in the operator
    begun = time.process_time()
    return live(plan(seed)), time.process_time() - begun


class Kept:
    """Fleets that were lived through before, in a file with a line for each; without a file nothing is kept."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._code = file, _code()
        self.fleets: dict[int, tuple[Outcome, float]] = {}
        for text in file.read_text().splitlines() if file is not None and file.exists() else ():
            try:
                each = json.loads(text)
            except ValueError:  # cut off while it was written
                continue
            if each["code"] == self._code:
                self.fleets[each["outcome"]["plan"]["seed"]] = read(each["outcome"]), each["cpu_s"]

    def add(self, outcome: Outcome, seconds: float) -> None:
        """One more."""
        if self._file is not None and outcome.plan.seed not in self.fleets:
            text = json.dumps({"code": self._code, "cpu_s": seconds, "outcome": kept(outcome)})
            with self._file.open("a") as file:
                file.write(f"\n{text}\n")  # the line before may have been cut off


def _code() -> str:
    """Of what is played."""
    digest = hashlib.sha256()
    for room in _PLAYED:
        for file in sorted((ROOT / "operator" / "muster" / room).rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def fleets(seeds: Sequence[int], minutes: float, jobs: int) -> Iterator[tuple[Outcome, float]]:
    """Fleet after fleet by seed; none is begun when the time is over, and none is left out that was begun."""
    until = time.monotonic() + 60.0 * minutes
    if jobs <= 1:
        for seed in seeds:
            if time.monotonic() > until:
                return
            yield fleet(seed)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for begin in range(0, len(seeds), jobs):
            if time.monotonic() > until:
                return
            yield from pool.map(fleet, seeds[begin : begin + jobs])


def main() -> int:
    """Measure; 1 where a goal is missed."""
    fix_hashes("bench.health_fleets")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=FLEETS)
    parser.add_argument("--seed", type=int, default=1, help="of the first")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no fleet is begun after that")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--resume", type=Path, help="a file that keeps each fleet, for runs in several parts")
    arguments = parser.parse_args()
    total, cpu, shown = Sum(), 0.0, 0
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    before = Kept(arguments.resume)
    seeds = range(arguments.seed, arguments.seed + arguments.fleets)
    left = [seed for seed in seeds if seed not in before.fleets]
    known = (before.fleets[seed] for seed in seeds if seed in before.fleets)
    for outcome, seconds in itertools.chain(known, fleets(left, arguments.minutes, arguments.jobs)):
        before.add(outcome, seconds)
        total.add(outcome)
        cpu += seconds
        print(line(outcome), flush=True)
        for violation in outcome.violations:
            if shown < MOST_TOLD:
                print(told(violation, outcome.plan.seed), flush=True)
                shown += 1
        settings = {"seed": arguments.seed, "days": DAYS, "nodes": [SMALLEST, LARGEST], "of_fleets": arguments.fleets}
        written = {**facts(), **settings, "cpu_s": round(cpu, 1), **total.figures()}
        OUTPUT.write_text(json.dumps(written, indent=2) + "\n")
    missed = total.missed()
    print("\n".join(missed) if missed else f"all goals are met by {total.fleets} fleets of {total.nodes} nodes")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

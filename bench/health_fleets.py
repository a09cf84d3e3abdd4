"""`python -m bench.health_fleets`: what the rules of health make of fleets over a month, into build/bench/health-fleets.json."""

import argparse
import gc
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from bench.bed import ROOT
from bench.facts import facts
from muster.controller.settings import COLLECT_AFTER
from muster.simulate.fleets.life import DAYS, FLEETS, LARGEST, SMALLEST, Outcome, live, plan
from muster.simulate.fleets.sums import Sum, line, told
from muster.simulate.hashes import fix_hashes

OUTPUT = ROOT / "build" / "bench" / "health-fleets.json"
MOST_TOLD = 5


def fleet(seed: int) -> tuple[Outcome, float]:
    """A fleet, and what it took of the processor."""
    gc.set_threshold(*COLLECT_AFTER)  # as in the operator
    begun = time.process_time()
    return live(plan(seed)), time.process_time() - begun


def fleets(first: int, number: int, minutes: float, jobs: int) -> Iterator[tuple[Outcome, float]]:
    """Fleet after fleet by seed; none is begun when the time is over, and none is left out that was begun."""
    until = time.monotonic() + 60.0 * minutes
    seeds = range(first, first + number)
    if jobs <= 1:
        for seed in seeds:
            if time.monotonic() > until:
                return
            yield fleet(seed)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for begin in range(0, number, jobs):
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
    arguments = parser.parse_args()
    total, cpu, shown = Sum(), 0.0, 0
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    for outcome, seconds in fleets(arguments.seed, arguments.fleets, arguments.minutes, arguments.jobs):
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

"""`python -m fuzz`: rounds of mutated inputs until time is over, or one round again."""

import argparse
import json
import os
import platform
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from fuzz import inputs, samples
from fuzz.draw import drawn
from fuzz.play import Outcome, Times, median_ratio, play
from fuzz.shrink import shrunk
from simulate.hashes import fix_hashes

OUTPUT = Path("build/bench/fuzz.json")
FAILED = Path("build/fuzz")
MOST_FAILURES = 5


class Sum:
    """What many rounds have shown."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.rounds = 0
        self.inputs: Counter[str] = Counter()
        self.understood: Counter[str] = Counter()
        self.failures: dict[str, list[int]] = {}
        self._medians: dict[str, list[tuple[float, float]]] = {"decided": [], "deciding": [], "steps": []}
        self._worst: dict[str, list[float]] = {"decided": [0.0, 0.0], "deciding": [0.0, 0.0], "steps": [0.0, 0.0]}
        self._begun = time.monotonic(), time.process_time()

    def add(self, outcome: Outcome) -> None:
        self.rounds += 1
        self.inputs += outcome.inputs
        self.understood += outcome.understood
        if outcome.failure:
            self.failures.setdefault(outcome.failure.partition("\n")[0][:300], []).append(outcome.told.seed)
            return
        for name, pairs in self._medians.items():
            alone, beside = _several(outcome.alone, name), _several(outcome.beside, name)
            pairs.append((alone[len(alone) // 2], beside[len(beside) // 2]))
            worst = self._worst[name]
            worst[:] = max(worst[0], alone[-1]), max(worst[1], beside[-1])

    def to_json(self) -> dict[str, Any]:
        """As it is kept in build/bench. Ratios: beside mutated neighbours to alone, the median of each round, over all
        rounds."""
        return {
            "machine": {"platform": platform.platform(), "cpus": os.cpu_count(), "python": platform.python_version()},
            "seeds": [self.first, self.first + self.rounds - 1],
            "inputs": sum(self.inputs.values()),
            "inputs_by_kind": {kind: self.inputs[kind] for kind in inputs.KINDS},
            "understood_by_kind": {kind: self.understood[kind] for kind in inputs.RESOURCES},
            "seconds": round(time.monotonic() - self._begun[0], 1),
            "cpu_s": round(time.process_time() - self._begun[1], 1),
            "failures": self.failures,
            "ratios": {
                "healthy_job_decided_simulated": median_ratio(self._medians["decided"]),
                "healthy_job_deciding_cpu": median_ratio(self._medians["deciding"]),
                "loop_step_cpu": median_ratio(self._medians["steps"]),
            },
            "longest_s": {
                "healthy_job_decided_simulated": _pair(self._worst["decided"]),
                "healthy_job_deciding_cpu": _pair(self._worst["deciding"]),
                "loop_step_cpu": _pair(self._worst["steps"]),
            },
        }


def _several(times: Times, name: str) -> list[float]:
    return sorted(getattr(times, name)) or [0.0]


def _pair(worst: list[float]) -> dict[str, float]:
    return {"alone": round(worst[0], 4), "beside": round(worst[1], 4)}


def main(arguments: list[str] | None = None) -> int:
    """Returns the exit status: 0 when nothing failed."""
    parser = argparse.ArgumentParser(prog="fuzz", description="Mutated inputs beside a healthy job.")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; default: by the clock")
    parser.add_argument("--seconds", type=float, default=60.0, help="for so long at most")
    parser.add_argument("--inputs", type=int, default=10**9, help="so many mutated inputs at most")
    parser.add_argument("--replay", type=Path, help="play this round again and print what happens")
    asked = parser.parse_args(arguments)
    if asked.replay is not None:
        return _replay(asked.replay)
    return _many(int(time.time()) if asked.seed is None else asked.seed, asked.seconds, asked.inputs)


def _replay(path: Path) -> int:
    try:
        told = inputs.read(path)
    except inputs.RoundError as error:
        print(error, file=sys.stderr)
        return 2
    outcome = play(told)
    print("\n".join(outcome.tail[-100:]))
    print(outcome.failure or "nothing failed")
    return int(bool(outcome.failure))


def _many(first: int, seconds: float, most: int) -> int:
    print(f"the first round is SEED={first}", flush=True)
    until = time.monotonic() + seconds
    samples.families()
    found = Sum(first)
    while time.monotonic() < until and sum(found.inputs.values()) < most and len(found.failures) < MOST_FAILURES:
        known = len(found.failures)
        outcome = play(drawn(first + found.rounds))
        found.add(outcome)
        if len(found.failures) > known:
            _print_outcome(outcome)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(found.to_json(), indent=1) + "\n")
    print(json.dumps(found.to_json(), indent=1))
    return int(bool(found.failures))


def _print_outcome(outcome: Outcome) -> None:
    print(f"seed {outcome.told.seed}: {outcome.failure[:2000]}", flush=True)
    smallest = shrunk(outcome)
    path = FAILED / f"{outcome.told.seed}.json"
    inputs.write(path, smallest.told, smallest.failure)
    print(f"the least that shows it has {len(smallest.told.inputs)} inputs: {path}; play it again with")
    print(f"  make fuzz REPLAY={path}", flush=True)


if __name__ == "__main__":
    fix_hashes("fuzz")
    sys.exit(main())

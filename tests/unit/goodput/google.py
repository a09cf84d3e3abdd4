"""What ml-goodput-measurement, Google's library, makes of event logs, into tests/fixtures/ml-goodput.json.

The product does not depend on it: this module is run by hand with a Python that has the library, and the tests compare
what was kept.

    python3 -m venv V && V/bin/pip install ml-goodput-measurement==0.2.3
    PYTHONPATH=. V/bin/python -m tests.unit.goodput.google

Standard library only but for the library itself. Times are milliseconds since the job began, steps count from 1.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import random
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Any

FIXTURE = Path(__file__).parents[2] / "fixtures" / "ml-goodput.json"
LIBRARY = "ml-goodput-measurement"
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Attempt:
    """One start of the ranks.

    Attributes:
        start: when they were started.
        first: when their first step began.
        resume: the step after which they go on.
        steps: what each of their steps took, those that were finished.
        broken: when a failure ended them, after the last finished step; None: they ended well, with their last step.
        seen: when that was acted on.
    """

    start: int
    first: int
    resume: int
    steps: list[int]
    broken: int | None = None
    seen: int | None = None

    @property
    def finished(self) -> list[int]:
        """When each step was."""
        return [self.first + each for each in accumulate(self.steps)]


def lives(seed: int, *, even: bool) -> list[Attempt]:
    """A job with a few failures.

    Args:
        even: all steps but the first of an attempt take alike.
    """
    chance = random.Random(seed)
    attempts: list[Attempt] = []
    usual = chance.randrange(400, 3000)
    begin = resume = 0
    count = chance.randrange(2, 6)
    for number in range(count):
        made = chance.randrange(12, 40)
        steps = [usual if even else round(usual * chance.uniform(0.8, 1.3)) for _ in range(made)]
        steps[0] = 2 * usual + chance.randrange(100, 9000)  # it compiles
        first = begin + chance.randrange(usual + 100, 40_000)
        attempt = Attempt(begin, first, resume, steps)
        if number < count - 1:
            broken = attempt.finished[-1] + chance.randrange(1, usual)
            seen = broken + chance.randrange(1, 2000)
            attempt = Attempt(begin, first, resume, steps, broken, seen)
            begin = seen + chance.randrange(1000, 60_000)
            resume += made - chance.choice([0, 1, chance.randrange(made)])
        attempts.append(attempt)
    return attempts


def behind() -> list[Attempt]:
    """The third start goes on from a step before all that the second one made."""
    return [
        Attempt(0, 10_000, 0, [5000, *[1000] * 19], 29_500 + 5000, 35_000),
        Attempt(40_000, 50_000, 20, [5000, *[1000] * 9], 64_500, 65_000),
        Attempt(70_000, 80_000, 10, [5000, *[1000] * 29]),
    ]


def events(life: list[Attempt]) -> Iterator[tuple[str, int, int]]:
    """What a trainer with the library records: what, when, which step. A step's end is the start of the next."""
    for attempt in life:
        yield "job_start", attempt.start, 0
        starts = [attempt.first, *attempt.finished]
        if attempt.broken is None:
            starts = starts[:-1]
        for number, start in enumerate(starts):
            yield "step", start, attempt.resume + 1 + number
    yield "job_end", life[-1].finished[-1], 0


class _Log:
    """The log in memory, as the library reads it."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)

    def read_cloud_logging_entries(self, *_: object, **__: object) -> tuple[list[dict[str, Any]], tuple[Any, Any]]:
        return self.entries, (EPOCH, "last")


def asked(life: list[Attempt]) -> dict[str, Any]:
    """What the library answers."""
    library = importlib.import_module("ml_goodput_measurement.src.goodput")
    kinds = importlib.import_module("ml_goodput_measurement.src.goodput_utils").BadputType
    log = _Log()
    recorder = library.GoodputRecorder("job", "log", True, log)
    for what, milliseconds, step in events(life):
        when = EPOCH + timedelta(milliseconds=milliseconds)
        if what == "step":
            recorder.record_step_start_time(step, when)
        elif what == "job_start":
            recorder.record_job_start_time(when)
        else:
            recorder.record_job_end_time(when)
    with tempfile.TemporaryDirectory() as folder:
        calculator = library.GoodputCalculator("job", "log", log, cache_dir=folder)
        calculator.get_job_goodput(include_badput_breakdown=True)
        found = calculator.get_job_goodput_details()
    badput = found["badput_time"]
    return {
        "productive": _milliseconds(found["goodput_time"]),
        "elapsed": round(found["total_elapsed_time"] * 1000),
        "disruptions": found["disruption_count"],
        "step": found["max_productive_step"],
        "wasted": round(badput.get(kinds.WASTED_PROGRESS_FROM_DISRUPTION, 0.0) * 1000),
        "startup": round(badput.get(kinds.PROGRAM_STARTUP, 0.0) * 1000),
        "recovery": round(badput.get(kinds.INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION, 0.0) * 1000),
    }


def _milliseconds(by_kind: dict[Any, float]) -> int:
    return round(sum(by_kind.values()) * 1000)


def main() -> None:
    """Ask the library and keep what it says."""
    kept: dict[str, Any] = {"library": f"{LIBRARY} {importlib.metadata.version(LIBRARY)}"}
    for name, some in (
        ("even", [lives(seed, even=True) for seed in range(12)]),
        ("uneven", [lives(seed, even=False) for seed in range(12)]),
        ("behind", [behind()]),
    ):
        kept[name] = [{"life": [asdict(attempt) for attempt in life], "google": asked(life)} for life in some]
    FIXTURE.write_text(json.dumps(kept, separators=(",", ":")).replace('{"life"', '\n{"life"') + "\n")


if __name__ == "__main__":
    main()

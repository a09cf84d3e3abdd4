"""What a job's account has to say, reckoned from the trainers' own log alone, by the definitions of docs/goodput.md.

The trainers (tests/e2e/trainers/steps.py) write when each step began and when it ended, by the machine's clock. Nothing
of Muster is used here, so that an error of Muster's cannot be in both.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """One step of the gang: it begins with the rank that is last to begin, and ends with the last one, too."""

    began: float
    ended: float


@dataclass(frozen=True)
class Reference:
    """The figures of a job. Times are in seconds.

    Attributes:
        productive: in steps that count, without saves.
        stalled: in saves that stopped the training, after steps that count.
        steps: that count.
        lost_steps: made, and made again by a later attempt.
        lost: in these steps, and in saves after them.
        wall: from the creation of the job to the moment that was asked for, or to the end of the newest step.
        median: of a step.
        attempts: of which a step was made.
        uncertain: by how much the times of saves may be off that launchers measure by the steps around them. A step
            takes the median in the mean, and the 90th percentile at times; each save has one such step.
    """

    productive: float
    stalled: float
    steps: int
    lost_steps: int
    lost: float
    wall: float
    median: float
    attempts: int
    uncertain: float

    def ettr(self, finishing: float = 0.0) -> float:
        """Return the effective training time ratio of a job that took so long from its newest step to its end."""
        return self.productive / (self.wall + finishing)


def reckon(lines: Iterable[Mapping[str, Any]], created: float, until: float = math.inf) -> Reference:
    """Reckon the figures of a job that was never suspended, up to a moment.

    Args:
        lines: of all ranks.
        created: when the job was submitted.
        until: lines that were written later do not count.
    """
    listed = [line for line in lines if line["wall"] <= until]
    attempts = _steps_by_attempt(listed)
    saved = {(line["attempt"], line["step"]) for line in listed if line["event"] == "checkpoint"}
    took = [step.ended - step.began for steps in attempts.values() for step in steps.values()]
    productive, stalled, lost, made, lost_steps, saves = 0.0, 0.0, 0.0, 0, 0, 0
    for attempt, steps in attempts.items():
        # A later attempt goes on from the step before its first one, and takes back all beyond.
        kept = min((min(later) - 1 for number, later in attempts.items() if number > attempt), default=math.inf)
        for number, step in steps.items():
            before = steps.get(number - 1)
            pause = step.began - before.ended if before is not None else 0.0
            has_save = (attempt, number - 1) in saved
            saves += has_save
            if number > kept:
                lost_steps += 1
                lost += pause + step.ended - step.began
                continue
            made += 1
            productive += step.ended - step.began + (0.0 if has_save else pause)
            stalled += pause if has_save else 0.0
    end = until if until < math.inf else max(step.ended for steps in attempts.values() for step in steps.values())
    median = statistics.median(took)
    return Reference(
        productive=productive,
        stalled=stalled,
        steps=made,
        lost_steps=lost_steps,
        lost=lost,
        wall=end - created,
        median=median,
        attempts=len(attempts),
        uncertain=saves * (sorted(took)[math.ceil(0.9 * len(took)) - 1] - median),
    )


def _steps_by_attempt(lines: Iterable[Mapping[str, Any]]) -> dict[int, dict[int, Step]]:
    """Return the steps of each attempt by number."""
    found: defaultdict[int, dict[int, Step]] = defaultdict(dict)
    for line in lines:
        if line["event"] != "step":
            continue
        before = found[line["attempt"]].get(line["step"], Step(line["began"], line["wall"]))
        found[line["attempt"]][line["step"]] = Step(max(before.began, line["began"]), max(before.ended, line["wall"]))
    return dict(found)

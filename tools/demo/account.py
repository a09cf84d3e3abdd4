"""What Muster's own account says of the demo's faults, beside what the demo itself has measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from demo.faults import Measured, rounded
from testbed.bed import Bed


@dataclass(frozen=True)
class Accounted:
    """One fault: seconds from it to the first step after it, and the steps that were made again, told by both.

    Attributes:
        attempt: the one that the fault ended.
        reported_seconds: None where Muster has no incident of that attempt, or does not know when it was over.
    """

    kind: str
    attempt: int
    measured_seconds: float
    reported_seconds: float | None
    measured_steps: int
    reported_steps: int | None

    @property
    def is_reported(self) -> bool:
        """Whether Muster has an incident of it, knows when it was over, and tells of no step that was not lost.

        Steps of the last second before a failure that takes no rank's launcher may not have been told yet: these it
        does not know.
        """
        return (
            self.reported_seconds is not None
            and self.reported_steps is not None
            and self.reported_steps <= self.measured_steps
        )


@dataclass(frozen=True)
class Account:
    """`kubectl muster report` of the demo's job.

    Attributes:
        page: as people read it.
        unaccounted_seconds: the wall clock without the sum of its buckets, each of which is told in whole seconds.
    """

    page: str
    faults: tuple[Accounted, ...]
    wall_seconds: int
    unaccounted_seconds: int
    unknown_seconds: int

    @property
    def agrees(self) -> bool:
        """Whether every fault is in it, and every second once."""
        return self.unaccounted_seconds == 0 and all(fault.is_reported for fault in self.faults)

    def to_json(self) -> dict[str, Any]:
        return {
            "wall_seconds": self.wall_seconds,
            "unaccounted_seconds": self.unaccounted_seconds,
            "unknown_seconds": self.unknown_seconds,
            "faults": [rounded(fault) for fault in self.faults],
        }


def account(bed: Bed, job: str, suffered: Sequence[Measured]) -> Account:
    """Ask `kubectl muster report` of the ended job `job` (NAMESPACE/NAME).

    Raises:
        RuntimeError: it failed; the message has its words.
    """
    told = json.loads(_asked(bed, "report", job, "--output", "json"))
    buckets = {share["bucket"]: share["seconds"] for share in told["buckets"]}
    return Account(
        page=_asked(bed, "report", job),
        faults=compared(told["incidents"], suffered),
        wall_seconds=told["wallSeconds"],
        unaccounted_seconds=told["wallSeconds"] - sum(buckets.values()),
        unknown_seconds=buckets.get("unknown", 0),
    )


def compared(incidents: Sequence[Mapping[str, Any]], suffered: Sequence[Measured]) -> tuple[Accounted, ...]:
    """Each fault beside the incident of the attempt that it ended."""
    found = {incident["attempt"]: incident for incident in incidents}
    return tuple(
        Accounted(
            kind=fault.kind,
            attempt=fault.attempt,
            measured_seconds=fault.first_new_step_seconds,
            reported_seconds=_seconds(found.get(fault.attempt, {})),
            measured_steps=fault.lost_steps,
            reported_steps=found.get(fault.attempt, {}).get("lostSteps"),
        )
        for fault in suffered
    )


def _seconds(incident: Mapping[str, Any]) -> float | None:
    begun, ended = incident.get("faultTime"), incident.get("resumedTime")
    if begun is None or ended is None:
        return None
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(begun)).total_seconds()


def _asked(bed: Bed, *arguments: str) -> str:
    done = bed.muster(*arguments)
    if done.returncode != 0:
        raise RuntimeError(f"kubectl muster {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout

"""What each of the demo's faults cost."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from demo.trainer_log import TrainerLog, last_first, newest_step, resumed_step, stepped_attempt
from testbed.gangwatch import GangWatch
from testbed.harm import Fault, Victim
from testbed.kube import wait_until

RECOVERY_DEADLINE_SECONDS = 240


@dataclass(frozen=True)
class Job(Victim):
    """The job that faults happen to, and what is seen of it."""

    ranks: int
    log: TrainerLog
    watch: GangWatch


@dataclass(frozen=True)
class Measured:
    """One fault; seconds count from the injection, on one monotonic clock.

    Attributes:
        attempt: the one that it ended.
    """

    kind: str
    victim: str
    attempt: int
    level: str
    detected_seconds: float
    ranks_started_seconds: float
    first_new_step_seconds: float
    last_step_before_fault: int
    resumed_from_step: int
    lost_steps: int


def rounded(found: Any) -> dict[str, Any]:
    """The fields of a dataclass, for JSON."""
    return {key: round(value, 2) if isinstance(value, float) else value for key, value in asdict(found).items()}


def suffer(job: Job, kind: str, inject: Fault) -> Measured:
    """Inject a fault and wait until every rank has finished a step again."""
    assert job.watch.latest is not None
    before = job.watch.latest.attempt
    begun, started = time.monotonic(), job.log.now()
    victim = inject(job)
    seen = job.watch.wait_attempt(before, RECOVERY_DEADLINE_SECONDS)
    attempt = wait_until(
        f"a step of every rank after {kind}",
        lambda: stepped_attempt(job.log.lines(), before, job.ranks),
        RECOVERY_DEADLINE_SECONDS,
        job.log.pause_seconds,
    )
    level = next(state.level for state in job.watch.seen if state.attempt == attempt)
    lines = job.log.lines()
    # The ranks go on until the fault has hit, which takes its time where the machine is busy.
    last = newest_step(line for line in lines if line.attempt <= before)
    resumed = resumed_step(lines, attempt)
    return Measured(
        kind=kind,
        victim=victim,
        attempt=before,
        level=level,
        detected_seconds=seen.monotonic_seconds - begun,
        ranks_started_seconds=last_first(lines, attempt, "start") - started,
        first_new_step_seconds=last_first(lines, attempt, "step") - started,
        last_step_before_fault=last,
        resumed_from_step=resumed,
        lost_steps=last - resumed,
    )

"""When a job that holds nodes ends, as far as anything says so. Pure.

Three things may say it: the steps that are left and the time of a step, the time that its user expects, and how long
the earlier jobs of its namespace trained. Users and their programs report all of that. So it is bounded, it is never in
the past, and a job that passes others by it keeps their nodes for a bounded time. Where nothing says it, or what was
said has passed, there is no end.
"""

from bisect import bisect_right
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from statistics import median

from muster.api.goodput import Bucket, Goodput
from muster.api.trainingjob import MAX_DURATION_SECONDS, CompletionResult, TrainingJob
from muster.placement.parts import at_once

# An end that has passed by no more than this is still expected at any moment: the last save takes its time.
GRACE_SECONDS = 300.0
# A job that should make steps, and has made none for so long, says nothing about its end; and ten steps.
STILL_SECONDS, STILL_STEPS = 600.0, 10
# The status follows the steps this late; until then they are taken to go on.
FOLLOWS_SECONDS = 60.0
# So many earlier jobs at least have to have trained for longer than the job has.
LEAST_EARLIER = 3
PART = 256  # jobs, or their nodes, that are looked at in one go
_TRAINS = frozenset({"Running", "Saving"})
_WITHOUT_NODES = frozenset({Bucket.QUEUED, Bucket.REQUEUED, Bucket.SUSPENDED})
_ENDS_NOW = "its pods are about to end"


class EndBasis(StrEnum):
    """EndBasis is what an end follows from."""

    STEPS = "steps"
    EXPECTED = "expectedDuration"
    HISTORY = "history"


BASIS_TEXT = {
    EndBasis.STEPS: "by its step rate",
    EndBasis.EXPECTED: "by its expectedDurationSeconds",
    EndBasis.HISTORY: "by the earlier jobs of its namespace",
}
"""What an end follows from, for messages."""


@dataclass(frozen=True, slots=True)
class RemainingTime:
    """For how long a job goes on to hold nodes.

    Attributes:
        seconds: from now on; below 0: it should have ended before. None: not known.
        basis: what says so; None where nothing does.
        detail: the numbers behind it, or why it is not known, for people.
    """

    seconds: float | None
    basis: EndBasis | None
    detail: str


@dataclass(frozen=True, slots=True)
class JobEnd:
    """When a job that holds nodes ends.

    Attributes:
        time: not before now; None: not known.
        basis: what says so; None where nothing does.
        detail: the numbers behind it, or why it is not known, for people.
        overdue_since: when it should have ended; None: it is not late.
    """

    time: datetime | None
    basis: EndBasis | None
    detail: str
    overdue_since: datetime | None = None


def end_of(job: TrainingJob, earlier: Sequence[float], now: datetime) -> JobEnd:
    """Return when a job that holds nodes ends.

    Args:
        job: the job as the API has it.
        earlier: for how many seconds earlier jobs of its namespace held nodes, in ascending order (`history`).
        now: by the API server's clock.
    """
    if not job.wants_nodes:
        return JobEnd(now, None, _ENDS_NOW)
    remaining = remaining_of(job, earlier, now)
    if remaining.seconds is None:
        return JobEnd(None, remaining.basis, remaining.detail)
    time = now + timedelta(seconds=max(remaining.seconds, -MAX_DURATION_SECONDS))
    if remaining.seconds >= 0:
        return JobEnd(time, remaining.basis, remaining.detail)
    soon = remaining.seconds >= -GRACE_SECONDS
    return JobEnd(now if soon else None, remaining.basis, remaining.detail, overdue_since=time)


def remaining_of(job: TrainingJob, earlier: Sequence[float], now: datetime | None) -> RemainingTime:
    """Return for how long a job goes on to hold nodes, or would once it has them; see `end_of`.

    Args:
        job: the job as the API has it.
        earlier: for how many seconds earlier jobs of its namespace held nodes, in ascending order (`history`).
        now: by the API server's clock; None: it holds no nodes, though its status may still name some.
    """
    held = held_seconds(job, now)
    steps = _by_steps(job, now)
    if steps is not None:
        return steps
    expected = job.spec.queueing.expected_duration_seconds
    if expected is not None:
        expected = min(max(expected, 0), MAX_DURATION_SECONDS)
        return RemainingTime(expected - held, EndBasis.EXPECTED, f"{expected} s in all, {held:.0f} s so far")
    longer = earlier[bisect_right(earlier, held) :]
    if len(longer) >= LEAST_EARLIER:
        usual = min(median(longer), MAX_DURATION_SECONDS)
        text = f"the median of the {len(longer)} of {len(earlier)} earlier jobs that trained for longer than this one"
        return RemainingTime(usual - held, EndBasis.HISTORY, text)
    return RemainingTime(None, None, "neither its steps nor expectedDurationSeconds nor earlier jobs say it")


def history_steps(jobs: Iterable[TrainingJob]) -> Generator[None, None, Mapping[str, Sequence[float]]]:
    """Return for how many seconds the jobs that have succeeded held nodes, in ascending order, by namespace.

    There may be thousands, so there is a pause after some of them. How long a job took that failed says little about
    one that does not.
    """
    trained: dict[str, list[float]] = {}
    for number, job in enumerate(jobs, start=1):
        completion = job.status.completion
        if completion is not None and completion.result is CompletionResult.SUCCEEDED:
            seconds = held_seconds(job, completion.time)
            if seconds > 0:
                trained.setdefault(job.metadata.namespace, []).append(seconds)
        if number % PART == 0:
            yield
    return {namespace: sorted(seconds) for namespace, seconds in trained.items()}


def history(jobs: Iterable[TrainingJob]) -> Mapping[str, Sequence[float]]:
    """Return what `history_steps` does, at once."""
    return at_once(history_steps(jobs))


def held_seconds(job: TrainingJob, now: datetime | None) -> float:
    """Return for how long the job has held nodes, of all attempts together; 0 where nothing is counted yet.

    Args:
        job: the job as the API has it.
        now: by the API server's clock; None: it holds none any more.
    """
    goodput = job.status.goodput
    if goodput is None:
        return 0.0
    counted = sum(seconds for bucket, seconds in goodput.seconds.items() if bucket not in _WITHOUT_NODES)
    phase = goodput.open_phase
    holds = job.status.completion is None and job.status.nodes and (phase is None or phase.bucket not in _WITHOUT_NODES)
    return float(counted) + (_seconds_since(goodput, now) if holds else 0.0)


def _seconds_since(goodput: Goodput, now: datetime | None) -> float:
    """Return the seconds since the moment up to which figures count, which is by the clock of the figures."""
    if now is None:
        return 0.0
    counted_until = goodput.counted_until - timedelta(seconds=goodput.clock_ahead_seconds)
    return max((now - counted_until).total_seconds(), 0.0)


def _by_steps(job: TrainingJob, now: datetime | None) -> RemainingTime | None:
    """Return what the steps that are left take; None where steps say nothing."""
    total, step, goodput = job.spec.progress.total_steps, job.status.step, job.status.goodput
    if total is None or step is None or goodput is None or not goodput.step_milliseconds:
        return None
    if step > total:  # it trains beyond that: totalSteps was lowered, or is no end
        return None
    pace = goodput.step_milliseconds / 1000
    if goodput.checkpoint_steps and goodput.checkpoint_stall_milliseconds:
        pace += goodput.checkpoint_stall_milliseconds / 1000 / goodput.checkpoint_steps
    since = _seconds_since(goodput, now) if job.status.state in _TRAINS else 0.0
    detail = f"step {step} of {total}, {pace:.3g} s each"
    if step == total:
        return RemainingTime(-since, EndBasis.STEPS, detail)
    if since > max(STILL_SECONDS, STILL_STEPS * pace):
        return RemainingTime(None, EndBasis.STEPS, f"no step for {since / 60:.0f} min")
    # What is later than that moves the end.
    seconds = (total - step) * pace - min(since, max(pace, FOLLOWS_SECONDS))
    # Of more than a year of steps, totalSteps is no end either.
    return RemainingTime(seconds, EndBasis.STEPS, detail) if seconds <= MAX_DURATION_SECONDS else None

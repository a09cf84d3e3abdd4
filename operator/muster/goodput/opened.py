"""Closes the phase that is still open at the moment of reading. Pure.

The account is written when a phase is over, so the status publishes what goes on: its bucket, since when, and how many
accelerators are held. Command line, page and Prometheus all close that phase here, so they show the same of a wait that
lasts.
"""

from datetime import datetime, timedelta

from muster.api.goodput import LONGEST_MILLISECONDS, Bucket, Goodput, OpenPhase, added
from muster.api.trainingjob import RESUMED, SUSPENDED, TrainingJob
from muster.goodput.figures import ettr_fields

TRAINS = frozenset({"Running", "Saving"})
"""States in which steps are made."""
STEPS_LATE = 10
LATE = timedelta(minutes=2)
"""While steps are made the figures follow each half minute, or each step. After this time, and ten steps, no step is
being made."""
UNSEEN = timedelta(minutes=10)
"""Ranks whose steps Muster has never seen count as starting for so long."""
# The generation of a job whose spec has been changed once: it was created suspended and resumed, or the other way.
ONE_CHANGE = 2


def shortest_phase(goodput: Goodput) -> timedelta:
    """Return the duration below which an open phase is counted with the next steps."""
    if goodput.open_phase is not None and goodput.open_phase.bucket != Bucket.UNKNOWN:
        return LATE
    step = goodput.step_milliseconds or 0
    return max(LATE, timedelta(milliseconds=min(STEPS_LATE * step, LONGEST_MILLISECONDS)))


def figures_until(goodput: Goodput, now: datetime, state: str) -> Goodput:
    """Return the figures of a job in this state at a moment of their clock: with the open phase, once it is long enough
    to count."""
    passed = now - goodput.counted_until
    if passed <= shortest_phase(goodput):
        return goodput
    phase, starts = goodput.open_phase, (Bucket.STARTING, Bucket.RESTARTING)
    is_unseen = state in TRAINS and goodput.progress is None and not goodput.step_milliseconds
    if phase is not None and phase.bucket in starts and is_unseen and passed >= UNSEEN:
        goodput = goodput.model_copy(update={"open_phase": phase.model_copy(update={"bucket": Bucket.UNKNOWN})})
    return close_phase(goodput, now)


def close_phase(goodput: Goodput, now: datetime) -> Goodput:
    """Return the figures with the open phase counted up to `now`, however short; the phase continues from there."""
    phase, passed = goodput.open_phase, now - goodput.counted_until
    if phase is None or passed <= timedelta(0):
        return goodput
    bucket, seconds = phase.bucket, passed // timedelta(seconds=1)
    spent = added(goodput.seconds, {bucket: seconds})
    time = goodput.counted_until + timedelta(seconds=seconds)
    changes = {
        "counted_until": time,
        "seconds": spent,
        "gpu_seconds": added(goodput.gpu_seconds, {bucket: seconds}, phase.gpus),
        **ettr_fields(spent, is_known=not goodput.progress_unknown),
        "open_phase": phase.model_copy(update={"since": time}),
    }
    return goodput.model_copy(update=changes)


def figures_as_of(job: TrainingJob, now: datetime) -> Goodput | None:
    """Return the figures of a job at a moment of the API server's clock, converted to the clock of the figures."""
    goodput = job.status.goodput or _waiting(job, now)
    return None if goodput is None else figures_until(goodput, now + clock_lead_seconds(goodput), job.status.state)


def _waiting(job: TrainingJob, now: datetime) -> Goodput | None:
    """Return the figures of a job that has never had nodes: it waits since its creation and has kept nothing.

    The condition Suspended dates the last suspension or resumption alone, by the clock of the leader that saw it.
    """
    created, status = job.metadata.creation_timestamp, job.status
    if created is None or status.completion is not None or status.attempt > 0:
        return None
    then, now_in, since = Bucket.SUSPENDED, Bucket.QUEUED, created
    if status.state == SUSPENDED:
        then, now_in = now_in, then
    suspension = next((condition for condition in status.conditions if condition.type == SUSPENDED), None)
    if (
        suspension is not None
        and job.metadata.generation > 1
        and (now_in is Bucket.SUSPENDED or suspension.reason == RESUMED)
    ):
        since = min(suspension.last_transition_time, now)
        if not created <= suspension.last_transition_time <= now + LATE:
            since, then = now, Bucket.UNKNOWN
        elif job.metadata.generation > ONE_CHANGE:
            then = Bucket.UNKNOWN
    waited = Goodput(
        creation_time=created, counted_until=created, open_phase=OpenPhase(bucket=then, since=created, gpus=0)
    )
    return close_phase(waited, since).model_copy(update={"open_phase": OpenPhase(bucket=now_in, since=since, gpus=0)})


def clock_lead_seconds(goodput: Goodput | None) -> timedelta:
    """Return by how much the clock of these figures is ahead of the API server's."""
    return timedelta(seconds=goodput.clock_ahead_seconds if goodput is not None else 0)

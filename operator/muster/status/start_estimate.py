"""When a waiting job starts, as its status shows it, and what the first estimate is compared with."""

from datetime import datetime

from muster.api.trainingjob import StartEstimateStatus, TrainingJob
from muster.world.job import JobWorld
from muster.world.queuedecision import StartEstimate

# An estimate that moves by less than both is not written again.
MOVED_SECONDS, MOVED_SHARE = 120.0, 0.1


def as_status(world: JobWorld, *, waits: bool) -> StartEstimateStatus | None:
    """Return the estimate for the status of a job.

    Args:
        world: the state of the job.
        waits: whether it waits for the nodes of a whole gang.
    """
    old, record = world.job.status.start_estimate, world.gang.spec if world.gang else None
    if waits:
        return _of_waiting(world.job, world.start_estimate, world.server_now)
    if old is None or old.started_time is not None:
        return old
    if record is None or not record.members or first_time_of(world.job) is None:
        return None  # it was suspended or changed, or there is nothing to compare its start with
    return old.model_copy(update={"started_time": world.by_server(record.time)})


def _of_waiting(job: TrainingJob, new: StartEstimate | None, now: datetime) -> StartEstimateStatus | None:
    old = _comparable(job)
    if new is None or not is_news(job, new, now):
        return old
    first_time, first_estimated_time = new.time, None if new.time is None else now
    if old is not None and old.first_time is not None:
        first_time, first_estimated_time = old.first_time, old.first_estimated_time
    return StartEstimateStatus(
        time=new.time,
        reason=new.reason,
        generation=job.metadata.generation,
        first_time=first_time,
        first_estimated_time=first_estimated_time,
    )


def is_news(job: TrainingJob, new: StartEstimate, now: datetime) -> bool:
    """Whether an estimate differs from that in the job's status so much that it is to be written."""
    old = _comparable(job)
    if old is None or old.reason != new.reason or old.time is None or new.time is None:
        return old is None or (old.time, old.reason) != (new.time, new.reason)
    moved = abs((new.time - old.time).total_seconds())
    return moved > max(MOVED_SECONDS, MOVED_SHARE * (old.time - now).total_seconds())


def shows_time(job: TrainingJob) -> bool:
    """Whether the status of a job says when it starts."""
    estimate = _comparable(job)
    return estimate is not None and estimate.time is not None


def first_time_of(job: TrainingJob) -> datetime | None:
    """Return when a job that starts now would start by its first estimate; None where its start does not count."""
    estimate = _comparable(job)
    return None if estimate is None else estimate.first_time


def _comparable(job: TrainingJob) -> StartEstimateStatus | None:
    """Return the published estimate, if it is of the present wait and of the job as it is now."""
    old = job.status.start_estimate
    if old is None or old.started_time is not None or old.generation != job.metadata.generation:
        return None
    return old

"""The time that no account has yet: what a job that waits, starts or is not heard does goes on, and its account is written when that is over.

Whoever tells figures adds it, by the job's state alone and everywhere alike, so that command line, page and Prometheus tell the same of
a wait that lasts. How it was really spent the account says later. Pure.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from muster.api.goodput import LONGEST_MILLISECONDS, PRODUCTIVE, Bucket, Goodput, added
from muster.api.trainingjob import TrainingJob, TrainingJobStatus

TRAINS = frozenset({"Running", "Saving"})
"""In these states steps are made."""
STEPS_LATE = 10
LATE = timedelta(minutes=2)
"""While steps are made their account is told anew each half minute, or with each: who is so much later, and ten steps, makes none."""
UNSEEN = timedelta(minutes=10)
"""Ranks of which nobody has ever seen a step are taken to be starting for so long."""
_HAS_RUN = (*PRODUCTIVE, Bucket.LOST_WORK, Bucket.UNDETECTED, Bucket.RECLAIM, Bucket.REQUEUED, Bucket.RESTARTING)


@dataclass(frozen=True, slots=True)
class Tail:
    """What goes on, as far as the status says.

    Attributes:
        bucket: of it.
        at_first: of it while it is shorter than UNSEEN.
        gpus: that are held meanwhile.
        late: shorter than this it is told with the next steps.
    """

    bucket: Bucket
    at_first: Bucket
    gpus: int
    late: timedelta


def tail(status: TrainingJobStatus, gpus: int) -> Tail | None:
    """What a job does since its figures; None where there are none, or it has ended.

    Args:
        gpus: that it asks for.
    """
    goodput = status.goodput
    if goodput is None or status.completion is not None:
        return None
    has_run = any(goodput.seconds.get(bucket, 0) for bucket in _HAS_RUN)
    start = Bucket.RESTARTING if has_run else Bucket.STARTING
    if status.state in TRAINS:
        step = goodput.step_milliseconds or 0
        late = max(LATE, timedelta(milliseconds=min(STEPS_LATE * step, LONGEST_MILLISECONDS)))
        if goodput.seen is None and step:  # it is one that tells its steps, and there is none yet
            return Tail(start, start, gpus, late)
        return Tail(Bucket.UNKNOWN, Bucket.UNKNOWN if step else start, gpus, late)
    if status.state == "Suspended":
        return Tail(Bucket.SUSPENDED, Bucket.SUSPENDED, 0, LATE)
    placed = sum(bool(node) for node in status.nodes)
    if not placed or placed < len(status.nodes):
        start = Bucket.REQUEUED if has_run else Bucket.QUEUED
    return Tail(start, start, gpus * placed // max(len(status.nodes), 1), LATE)


def up_to(goodput: Goodput, open_tail: Tail | None, now: datetime) -> Goodput:
    """The figures with the time since, where that is long."""
    if open_tail is None or now - goodput.time <= open_tail.late:
        return goodput
    passed = now - goodput.time
    bucket, seconds = open_tail.at_first if passed < UNSEEN else open_tail.bucket, passed // timedelta(seconds=1)
    spent = added(goodput.seconds, {bucket: seconds})
    productive = sum(spent.get(each, 0) for each in PRODUCTIVE)
    wanted = sum(spent.values()) - spent.get(Bucket.SUSPENDED, 0)
    after_queue = wanted - spent.get(Bucket.QUEUED, 0)
    changes = {
        "time": goodput.time + timedelta(seconds=seconds),
        "seconds": spent,
        "gpu_seconds": added(goodput.gpu_seconds, {bucket: seconds}, open_tail.gpus),
        "ettr_permille": productive * 1000 // wanted if wanted > 0 else None,
        "ettr_after_queue_permille": productive * 1000 // after_queue if after_queue > 0 else None,
    }
    return goodput.model_copy(update=changes)


def as_of(job: TrainingJob, now: datetime) -> Goodput | None:
    """The figures of a job at a moment of the API server's clock; they go by their own."""
    goodput = job.status.goodput
    if goodput is None:
        return None
    return up_to(goodput, tail(job.status, job.spec.nodes * job.spec.gpus_per_node), now + ahead(goodput))


def ahead(goodput: Goodput | None) -> timedelta:
    """By how much the clock that these figures go by is ahead of the API server's."""
    return timedelta(seconds=goodput.ahead_seconds if goodput is not None else 0)

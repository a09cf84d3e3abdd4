"""Draw a job's life as a strip of coloured stretches: pure, from its status.

The status has sums of where the time went, and moments of the newest incidents. Time that these moments prove is drawn
where it was; the rest is drawn as the time in which the job trained. The sums beside it are exact.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from pydantic import Field

from muster.answers.explanation import ENDED
from muster.answers.training import seen_time, still_since
from muster.api.base import ApiModel, Time
from muster.api.goodput import Bucket
from muster.api.trainingjob import ConditionStatus, TrainingJob
from muster.goodput.opened import TRAINS, clock_lead_seconds

MAX_SECONDS = 100 * 365 * 86400
_STARTS = frozenset({"Pending", "Starting"})
# The kind of the stretch of a job in a state, from the newest transition of a condition on.
_SINCE_CONDITION = {
    "Suspended": "suspended",
    "Stalled": "stalled",
    "Held": "held",
    "Pending": "queued",
    "Starting": "starting",
}


class Stretch(ApiModel):
    """What the job did between two moments."""

    begin: Time
    end: Time
    kind: str = Field(
        description="queued, starting, training, lostWork, undetected, held, recovering, suspended or stalled."
    )


class Mark(ApiModel):
    """An event at one moment."""

    time: Time
    kind: str = Field(description="checkpoint, failure or planned.")
    text: str


class Life(ApiModel):
    """A job from its creation until its end, or until now."""

    begin: Time
    end: Time
    stretches: list[Stretch] = Field(description="In order; each begins where the one before it ends.")
    marks: list[Mark] = Field(description="In order.")


def life(job: TrainingJob, now: datetime) -> Life | None:
    """Return the life so far; None: it is not known when it began."""
    status = job.status
    begin = status.goodput.creation_time if status.goodput else job.metadata.creation_timestamp
    if begin is None:
        return None
    lead = clock_lead_seconds(status.goodput)
    end = max(status.completion.time if status.completion else now + lead, begin)
    begin = max(begin, end - timedelta(seconds=MAX_SECONDS))
    # The later of two covers the earlier.
    spans = [(max(a, begin), min(b, end), kind) for a, b, kind in _list_spans(job, begin, end)]
    spans = [span for span in spans if span[0] < span[1]]
    edges = sorted({begin, end, *(edge for a, b, _ in spans for edge in (a, b))})
    stretches: list[Stretch] = []
    for left, right in pairwise(edges):
        kind = next(kind for a, b, kind in reversed(spans) if a <= left and right <= b)
        if stretches and stretches[-1].kind == kind:
            stretches[-1] = stretches[-1].model_copy(update={"end": right - lead})
        else:
            stretches.append(Stretch(begin=left - lead, end=right - lead, kind=kind))
    marks = [mark.model_copy(update={"time": mark.time - lead}) for mark in _marks(job) if begin <= mark.time <= end]
    marks.sort(key=lambda mark: mark.time)
    return Life(begin=begin - lead, end=end - lead, stretches=stretches, marks=marks)


def _list_spans(job: TrainingJob, begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime, str]]:
    status, goodput, incidents = job.status, job.status.goodput, job.status.incidents
    yield begin, end, "training"
    queued = timedelta(seconds=min(goodput.amount(Bucket.QUEUED), MAX_SECONDS) if goodput else 0)
    if goodput is None or not goodput.wall_seconds:
        yield begin, end, "queued"
    else:
        # Failures cause new tests of nodes: only without a failure is it certain that all tests were before the first
        # step.
        start_seconds = goodput.amount(Bucket.STARTING) + (0 if incidents else goodput.amount(Bucket.BURN_IN))
        yield begin, begin + queued + timedelta(seconds=min(start_seconds, MAX_SECONDS)), "starting"
        yield begin, begin + queued, "queued"
    for number, incident in enumerate(incidents):
        fault = incident.fault_time or incident.time
        following = incidents[number + 1] if number + 1 < len(incidents) else None
        over = following.fault_time or following.time if following else end
        if incident.lost_seconds and status.incidents:
            yield fault - timedelta(seconds=min(incident.lost_seconds, MAX_SECONDS)), fault, "lostWork"
        yield fault, seen_time(incident), "undetected"
        yield seen_time(incident), incident.time, "held"
        if incident.resumed_time is not None:
            yield incident.time, incident.resumed_time, "recovering"
        elif following is not None or status.state not in TRAINS | ENDED:
            yield incident.time, over, "recovering"
    yield from _resumed(job, end)
    off = clock_lead_seconds(goodput)
    still = still_since(job, end - off)
    if still is not None:
        yield still + off, end, "stalled"
    since = max((condition.last_transition_time for condition in status.conditions), default=None)
    if since is not None and status.state in _SINCE_CONDITION:
        yield (
            since,
            end,
            _SINCE_CONDITION[status.state] if status.state not in _STARTS or not incidents else "recovering",
        )


def _resumed(job: TrainingJob, end: datetime) -> Iterator[tuple[datetime, datetime, str]]:
    """Yield a suspension that is over, and the way back; all time of several is drawn before the end of the last."""
    goodput, conditions = job.status.goodput, {condition.type: condition for condition in job.status.conditions}
    suspended, running = conditions.get("Suspended"), conditions.get("Running")
    spent = goodput.amount(Bucket.SUSPENDED) if goodput else 0
    if suspended is None or suspended.status is not ConditionStatus.FALSE or suspended.last_transition_time is None:
        return
    if not spent:
        return
    resumed = suspended.last_transition_time
    yield resumed - timedelta(seconds=min(spent, MAX_SECONDS)), resumed, "suspended"
    began = running.last_transition_time if running and running.status is ConditionStatus.TRUE else None
    # A failure since then has its own way back.
    if began is not None and not any(
        (incident.fault_time or incident.time) >= resumed for incident in job.status.incidents
    ):
        yield resumed, min(began, end), "starting"


def _marks(job: TrainingJob) -> Iterator[Mark]:
    saved = job.status.checkpoint
    if saved is not None:
        times = {save.step: save.time for save in saved.saves if save.time is not None}
        times.setdefault(saved.step, saved.time)
        for step, time in times.items():
            yield Mark(time=time, kind="checkpoint", text=f"checkpoint of step {step:,}")
    for incident in job.status.incidents:
        kind = "planned" if incident.fault_class == "Planned" else "failure"
        where = f" on {incident.node}" if incident.node else ""
        yield Mark(time=incident.fault_time or incident.time, kind=kind, text=f"{incident.reason}{where}")

"""Tell whether a job makes steps, how fast, and which failure is still open: pure, from its TrainingJob alone."""

from datetime import datetime, timedelta

from pydantic import Field

from muster.answers.explanation import ENDED
from muster.api.base import ApiModel, Time
from muster.api.gang import GangIncident
from muster.api.trainingjob import Incident, TrainingJob
from muster.goodput.opened import STEPS_LATE, TRAINS, clock_lead_seconds

STILL = timedelta(minutes=1)
"""Without a step; while steps are made, the status is written more often than that."""


class OpenIncident(ApiModel):
    """A failure after which the training has not resumed yet."""

    number: int = Field(description="The attempt that it ended: `kubectl muster report JOB --incident NUMBER`.")
    time: Time
    reason: str
    fault_class: str
    level: str = Field(description="How it is repaired: R0 in place, R0b new pod, R2 new node, R4 new gang.")
    node: str = ""
    message: str = ""


def seen_time(incident: Incident | GangIncident) -> datetime:
    """Return when Muster saw an incident; it is recorded later, where it was held in between."""
    return incident.time - timedelta(seconds=incident.held_seconds or 0)


def still_since(job: TrainingJob, now: datetime) -> datetime | None:
    """Return since when a job that should make steps has finished none; None while it does, or without reports of
    steps.

    All moments are by the API server's clock.
    """
    goodput = job.status.goodput
    if job.status.state not in TRAINS or goodput is None or not goodput.step_milliseconds:
        return None
    since = goodput.counted_until - clock_lead_seconds(goodput)
    return since if now - since > max(STILL, STEPS_LATE * timedelta(milliseconds=goodput.step_milliseconds)) else None


def step_rate(job: TrainingJob, now: datetime) -> float | None:
    """Return the steps per second by the median step; None while none are made, or none are reported."""
    goodput = job.status.goodput
    if job.status.state not in TRAINS or goodput is None or not goodput.step_milliseconds:
        return None
    return None if still_since(job, now) else 1000 / goodput.step_milliseconds


def open_incident(job: TrainingJob) -> OpenIncident | None:
    """Return the newest failure, while no step has followed it. Where steps are not reported, running ranks close
    it."""
    status = job.status
    last = status.incidents[-1] if status.incidents else None
    if last is None or last.resumed_time is not None or status.state in ENDED | {"Suspended"}:
        return None
    if status.state in TRAINS:
        steps_reported = status.goodput is not None and status.goodput.step_milliseconds is not None
        if not steps_reported or status.reason != "RanksStarted":
            return None
    return OpenIncident(
        number=last.attempt,
        time=last.time,
        reason=last.reason,
        fault_class=last.fault_class,
        level=last.level,
        node=last.node,
        message=last.message,
    )

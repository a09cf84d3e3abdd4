"""How many restarts a job has left, and how long to wait before the next one. Derived from the record alone.

A complete checkpoint beyond the failing step refills both budgets. On 2,000 nodes some forty fail on an ordinary day: a
job that saves between two failures is fine, however many there are.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import takewhile

from muster.api.gang import FaultClass, GangIncident, GangSpec
from muster.api.trainingjob import Recovery

WINDOW = timedelta(hours=24)
# From this many failures in a row at the same step it is a crash loop.
CRASH_LOOP = 3
BACK_OFF_FIRST_SECONDS = 10.0
BACK_OFF_LIMIT_SECONDS = 300.0

APPLICATION_EXHAUSTED = "ApplicationRestartsExhausted"
HARDWARE_EXHAUSTED = "HardwareRestartsExhausted"

OWN_DOING = (FaultClass.APPLICATION, FaultClass.UNKNOWN)
NOT_OWN_DOING = (FaultClass.HARDWARE, FaultClass.INFRASTRUCTURE)


def application_restarts(gang: GangSpec, now: datetime) -> int:
    """Return the number of the job's own failures that count against the application budget.

    A failure counts for 24 hours, unless a later checkpoint lies beyond the failing step.
    """
    return _counted(gang, now, OWN_DOING)


def hardware_restarts(gang: GangSpec, now: datetime) -> int:
    """Return the number of failures of nodes and infrastructure that count against the hardware budget.

    A failure counts for 24 hours, unless a later checkpoint lies beyond the failing step.
    """
    return _counted(gang, now, NOT_OWN_DOING)


def exhausted(gang: GangSpec, recovery: Recovery, now: datetime) -> str:
    """Return the reason of the restart budget that is exhausted; "" if none is."""
    if application_restarts(gang, now) > recovery.application_restarts_per_day:
        return APPLICATION_EXHAUSTED
    if hardware_restarts(gang, now) > recovery.hardware_restarts_per_day:
        return HARDWARE_EXHAUSTED
    return ""


def back_off_seconds(gang: GangSpec) -> float:
    """Return for how many seconds a crash loop waits before its next start: 10, then doubling up to 300.

    It is 0 below three failures of the job's own in a row with no checkpoint in between. The failing step does not
    matter: it is reported with a delay, and a race in the program moves it.
    """
    row = sum(
        1 for _ in takewhile(lambda i: i.fault_class in OWN_DOING and not _refunded(i, gang), reversed(gang.incidents))
    )
    if row < CRASH_LOOP:
        return 0.0
    return float(min(BACK_OFF_FIRST_SECONDS * 2 ** (row - CRASH_LOOP), BACK_OFF_LIMIT_SECONDS))


def _counted(gang: GangSpec, now: datetime, classes: Collection[FaultClass]) -> int:
    return sum(
        1
        for incident in gang.incidents
        if incident.fault_class in classes and _recent(incident, now) and not _refunded(incident, gang)
    )


def _recent(incident: GangIncident, now: datetime) -> bool:
    return now - incident.time < WINDOW


def _refunded(incident: GangIncident, gang: GangSpec) -> bool:
    """Whether the job has made progress since the incident: a checkpoint exists beyond the failing step that is
    newer."""
    highest_step = max(incident.step or 0, incident.checkpoint_step or 0, incident.resumed_step or 0)
    return gang.checkpoint is not None and gang.checkpoint.step > highest_step

"""How many restarts a job has left, and how long to wait before the next one. Derived from the record alone.

A complete checkpoint beyond the failing step refills both budgets. On 2,000 nodes some forty fail on an ordinary day: a
job that saves between two failures is well, however many there are.
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
    """Failures of the job's own making that count."""
    return _counted(gang, now, OWN_DOING)


def hardware_restarts(gang: GangSpec, now: datetime) -> int:
    """Failures of nodes and infrastructure that count."""
    return _counted(gang, now, NOT_OWN_DOING)


def exhausted(gang: GangSpec, recovery: Recovery, now: datetime) -> str:
    """Which budget is exhausted, as a reason; "" if none is."""
    if application_restarts(gang, now) > recovery.application_restarts_per_day:
        return APPLICATION_EXHAUSTED
    if hardware_restarts(gang, now) > recovery.hardware_restarts_per_day:
        return HARDWARE_EXHAUSTED
    return ""


def back_off_seconds(gang: GangSpec) -> float:
    """How long a crash loop waits before its next start.

    0 below three failures in a row that no checkpoint lies between, then doubling. The failing step itself does not
    count: it is reported with a delay, and a race in the application moves it.
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
    """Whether progress has been won since: a checkpoint beyond the failing step that was not there when it failed."""
    before = max(incident.step or 0, incident.checkpoint_step or 0, incident.resumed_step or 0)
    return gang.checkpoint is not None and gang.checkpoint.step > before

"""Computes the failure rates of this fleet from the records of its jobs. Pure.

Tests: tests/unit/whatif/test_recovery_model.py.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from muster.api.gang import FaultClass, Gang, GangIncident, Level
from muster.api.trainingjob import TrainingJob
from muster.record.size import FEW_INCIDENTS
from muster.recovery.failure import Kind, kinds_with
from muster.whatif.plan import DAY_SECONDS
from muster.whatif.rates import Cause, Rates, RatesError
from muster.whatif.recovery_model import CRASH, HANG, SILENT

_SILENT = kinds_with(lambda traits: traits.lost_node)
_HANG = frozenset({Kind.HANG, Kind.START_HANG})
# Fatal evidence that stands for incidents whose record names no evidence.
_SICK = "GpuLost"


def measured(jobs: Iterable[TrainingJob], gangs: Iterable[Gang], window: timedelta, now: datetime) -> Rates:
    """Estimate rates from the gangs on record: a right-censored exponential fit, failures by node-days.

    A node-day is a day of a job's life on one node, waiting included. Planned evacuations are no failures.

    Raises:
        RatesError: the records hold no failure.
    """
    by_uid = {gang.spec.job_uid: gang.spec for gang in gangs}
    exposure, counts = 0.0, Counter[tuple[str, str]]()
    for job in jobs:
        record, created = by_uid.get(job.metadata.uid), job.metadata.creation_timestamp
        if record is None or created is None:
            continue
        end = job.status.completion.time if job.status.completion else now
        since = max(created, now - window)
        if len(record.incidents) >= FEW_INCIDENTS:  # incidents before the oldest one may have been dropped
            since = max(since, record.incidents[0].time)
        if end <= since:
            continue
        exposure += job.spec.nodes * (end - since).total_seconds() / DAY_SECONDS
        counts.update(
            (incident.reason, _how(incident))
            for incident in record.incidents
            if since < incident.time <= end and incident.fault_class is not FaultClass.PLANNED
        )
    total = sum(counts.values())
    if not total:
        days = f"{exposure:,.0f} node-days" if exposure else "no job"
        raise RatesError(f"the fleet's records have no failure in {days}: give --mttf-days, or --rates llama3")
    return Rates(
        name="fleet",
        source=f"this fleet: {total} failures in {exposure:,.0f} node-days of the jobs that are on record",
        mttf_days=exposure / total,
        causes=[Cause(name=reason, share=count, symptom=symptom) for (reason, symptom), count in counts.most_common()],
    )


def _how(incident: GangIncident) -> str:
    if incident.reason in _SILENT:
        return SILENT
    if incident.reason in _HANG:
        return HANG
    return _SICK if incident.level in (Level.REPLACE, Level.REBUILD) else CRASH

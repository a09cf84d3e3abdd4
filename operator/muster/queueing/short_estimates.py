"""Namespaces whose jobs pass others no more for a while, because their estimates were too short. Pure.

A job that passes a reservation and does not end in time costs the jobs before it a leave. Where that happens often, the
estimates say nothing, and the namespace's jobs pass only where they are preemptible. The records of the jobs keep the
times, so that a new leader knows them.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from muster.api.gang import MAX_SHORT_ESTIMATES

COUNTED_FOR = timedelta(days=1)
"""An estimate that was too short counts for so long."""


class ShortEstimates:
    """The newest times at which a job of each namespace had to leave because its estimate was too short."""

    def __init__(self) -> None:
        self._times: dict[str, dict[tuple[str, datetime], datetime]] = {}

    def note(self, namespace: str, job_uid: str, times: Iterable[datetime], now: datetime) -> None:
        """Note what the record of a job says, once each, however often this is called."""
        old_times = self._times.get(namespace, {})
        # By a clock that was set back, a time would lie ahead, and the namespace be closed for longer.
        noted = {(job_uid, time): min(time, now) for time in times} | old_times
        newest = sorted(noted, key=lambda entry: (noted[entry], entry))[-MAX_SHORT_ESTIMATES:]
        recent = {entry: noted[entry] for entry in newest if noted[entry] + COUNTED_FOR > now}
        if recent != old_times:
            self._times[namespace] = recent

    def closed(self, now: datetime) -> dict[str, datetime]:
        """Return the namespaces whose jobs pass no others now, and until when."""
        ends = {namespace: min(times.values(), default=now) + COUNTED_FOR for namespace, times in self._times.items()}
        return {
            namespace: end
            for namespace, end in ends.items()
            if len(self._times[namespace]) == MAX_SHORT_ESTIMATES and end > now
        }

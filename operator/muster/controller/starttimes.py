"""Estimates when the first jobs of the queue start, beside the plan and more seldom than it.

What it takes to know is done in slices, and no decision waits for it. A job is decided about again, so that its status
shows the estimate, only where that has moved.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime

import structlog

from muster.api.trainingjob import TrainingJob
from muster.controller.bus import Bus
from muster.controller.cluster import Cluster
from muster.controller.queue import Queue
from muster.controller.slices import in_slices
from muster.queueing.ends import JobEnd, RemainingTime, end_of, history_steps, remaining_of
from muster.queueing.preemption import Preemption
from muster.queueing.starts import Ends, jobs_to_estimate, start_times
from muster.queueing.waiting import WaitingJob
from muster.status.start_estimate import is_news, shows_time
from muster.world.queuedecision import NotPlaced, Placed

ESTIMATE_SECONDS = 30.0
# The jobs that have ended are looked through this often at most: there may be thousands.
HISTORY_SECONDS = 300.0
# At most this share of the time goes into estimates.
ESTIMATING_SHARE = 0.02

_NOT_KNOWN = JobEnd(None, None, "")
log = structlog.get_logger()


class StartTimes:
    """Estimates while `run` is running, and gives the estimates to the queue."""

    def __init__(
        self,
        cluster: Cluster,
        queue: Queue,
        bus: Bus,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._estimates = queue.estimates
        self._bus = bus
        self._clock = clock
        self._wall_clock = wall_clock
        self._read_at = float("-inf")

    async def run(self) -> None:
        """Estimate until cancelled."""
        while True:
            began_at = self._clock()
            try:
                await self._estimate()
            except Exception:  # the next time may meet another queue, or another fleet
                log.exception("no start times")
            await asyncio.sleep(max(ESTIMATE_SECONDS, (self._clock() - began_at) / ESTIMATING_SHARE))

    async def _estimate(self) -> None:
        now = self._cluster.server_now(self._wall_clock())
        queue = self._queue.jobs_in_order()
        first = jobs_to_estimate(queue)
        if not first:
            self._estimates.set({}, frozenset())
            return
        if self._clock() - self._read_at >= HISTORY_SECONDS:
            jobs = [job for job in self._cluster.jobs.store.values() if isinstance(job, TrainingJob)]
            self._estimates.earlier = await in_slices(history_steps(jobs), self._clock)
            self._read_at = self._clock()
        preemption = self._queue.candidates.for_plan(self._queue.charges.charged())
        ends = Ends(lambda holder: self._end_of(holder, preemption, now), lambda uid: self._remaining_of(uid, now))
        estimates = await in_slices(start_times(self._cluster.fleet, first, ends, preemption, now), self._clock)
        withdrawn = self._withdrawn(queue, {job.job_uid for job, _ in first})
        self._estimates.set(estimates, preemption.loans, withdrawn)
        for uid in (*estimates, *withdrawn):
            job, estimate = self._cluster.job_by_uid(uid), self._estimates.estimate_of(uid)
            if isinstance(job, TrainingJob) and estimate is not None and is_news(job, estimate, now):
                self._bus.job_changed.publish((job.metadata.namespace, job.metadata.name))

    def _withdrawn(self, queue: Iterable[tuple[WaitingJob, Placed | NotPlaced]], first: Collection[str]) -> set[str]:
        """Return the uids of the jobs behind the first ones whose status still has a time."""
        others = (job.job_uid for job, _ in queue if job.job_uid not in first and not job.replacement)
        jobs = ((uid, self._cluster.job_by_uid(uid)) for uid in others)
        return {uid for uid, job in jobs if isinstance(job, TrainingJob) and shows_time(job)}

    def _end_of(self, holder: str, preemption: Preemption, now: datetime) -> JobEnd:
        job = self._cluster.job_by_uid(holder)
        if isinstance(job, TrainingJob):
            key = job.metadata.namespace, job.metadata.name
            if holder not in preemption.borrowers and self._queue.candidates.is_borrower(key, holder):
                return JobEnd(now, None, "")  # its nodes were lent during the estimate, which must not be too late
            return end_of(job, self._estimates.earlier.get(job.metadata.namespace, ()), now)
        # A job that is gone holds nodes until its pods have ended. Of one that cannot be read, or a pod, nothing says.
        return _NOT_KNOWN if job is not None or holder.startswith("pod/") else JobEnd(now, None, "")

    def _remaining_of(self, uid: str, now: datetime) -> RemainingTime:
        job = self._cluster.job_by_uid(uid)
        if not isinstance(job, TrainingJob):
            return RemainingTime(None, None, "")
        return remaining_of(job, self._estimates.earlier.get(job.metadata.namespace, ()), now)

"""The shipped plan as a policy of the bench, and what its steps take of the processor."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.unit.lifecycle.builders import at

from bench.queueing.cluster import Cluster, Decision, Run
from muster.queueing.queue import plan_steps
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import Placed, QueueDecision

_Step = tuple[str, QueueDecision] | None


class _Over(Enum):
    OVER = auto()


TIMED_EVERY = 64
"""Of so many plans one is worked out to its end, and timed."""
FIRST_JOBS = 32
"""The others are made for so many jobs first; mostly these are given, or reserve, all nodes that are free."""


@dataclass
class Muster:
    """`muster.queueing.queue.plan_steps`, without limits, quotas and priorities.

    No answer depends on the jobs behind. So the plan is that of the first jobs where these leave no free node, apart
    from the plans that are timed.

    Attributes:
        plans: seconds of a core of each plan that was timed.
        longest_steps: the longest time without a pause in each.
    """

    name: str = "Muster"
    plans: list[float] = field(default_factory=list)
    longest_steps: list[float] = field(default_factory=list)
    _made: int = 0

    def decide(self, cluster: Cluster) -> Decision:
        """Plan, as the operator does."""
        if not cluster.free:  # no answer can be a place
            return Decision(())
        self._made += 1
        timed = self._made % TIMED_EVERY == 1
        if not timed and len(cluster.queue) > FIRST_JOBS:
            decision, unassigned = self._decide(cluster, cluster.queue[:FIRST_JOBS], timed)
            if unassigned == 0:
                return decision
        return self._decide(cluster, cluster.queue, timed)[0]

    def _decide(self, cluster: Cluster, queue: Sequence[Run], timed: bool) -> tuple[Decision, int]:
        """The decision, and how many free nodes are neither given away nor reserved then."""
        runs = {run.job.name: run for run in queue}
        reserved: dict[str, str] = {}
        starts: list[tuple[Run, tuple[str, ...]]] = []
        unassigned = len(cluster.free)
        steps = plan_steps(cluster.fleet, [waiting_job(run) for run in queue], {}, {}, reserved)
        for step in self._timed(steps) if timed else steps:
            if step is not None and isinstance(step[1].answer, Placed):
                starts.append((runs[step[0]], step[1].answer.nodes))
                unassigned -= len(starts[-1][1])
            if unassigned == len(reserved) and not timed:
                break
        return Decision(starts, reserved=len(reserved)), unassigned - len(reserved)

    def _timed(self, steps: Iterator[_Step]) -> Iterator[_Step]:
        whole = longest = 0.0
        while True:
            begun = time.thread_time()
            step = next(steps, _Over.OVER)
            took = time.thread_time() - begun
            whole += took
            longest = max(longest, took)
            if step is _Over.OVER:
                break
            yield step
        self.plans.append(whole)
        self.longest_steps.append(longest)


def waiting_job(run: Run) -> WaitingJob:
    """The job as the operator would give it to the queue."""
    return WaitingJob(
        job_uid=run.job.name,
        name=f"{run.job.namespace}/{run.job.name}",
        namespace=run.job.namespace,
        priority=0,
        created=at(run.job.arrival),
        request=run.request(),
        replacement=run.missing > 0,
        held=len(run.nodes),
    )

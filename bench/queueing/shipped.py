"""The shipped plan as a policy of the bench, and what its steps take of the processor."""

import time
from collections.abc import Iterator
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


MEASURED_EVERY = 16
"""Of so many plans one is worked out, and timed, to its end."""


@dataclass
class Muster:
    """`muster.queueing.queue.plan_steps`, without limits, quotas and priorities.

    The answers come in the order of the queue, and none depends on a later one. So a plan is left as soon as each free
    node is given away or reserved, apart from those that are timed.

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
        timed = self._made % MEASURED_EVERY == 1
        runs = {run.job.name: run for run in cluster.queue}
        reserved: dict[str, str] = {}
        starts: list[tuple[Run, tuple[str, ...]]] = []
        unassigned = len(cluster.free)
        steps = plan_steps(cluster.fleet, [waiting_job(run) for run in cluster.queue], {}, {}, reserved)
        for step in self._timed(steps) if timed else steps:
            if step is not None and isinstance(step[1].answer, Placed):
                starts.append((runs[step[0]], step[1].answer.nodes))
                unassigned -= len(starts[-1][1])
            if unassigned == len(reserved) and not timed:
                break
        return Decision(starts, reserved=len(reserved))

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

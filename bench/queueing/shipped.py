"""The shipped plan as a policy of the bench, and what its steps take of the processor."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from tests.unit.lifecycle.builders import at

from bench.queueing.cluster import Cluster, Decision, Run
from bench.queueing.policies import Estimates
from bench.queueing.workload import DAY, SMALL_NODES
from muster.api.fleetpolicy import PriorityPreemption
from muster.placement.parts import at_once
from muster.queueing.ends import JobEnd, RemainingTime
from muster.queueing.lending import LendingOffer, lending_offer
from muster.queueing.preemption import Borrower, Preemption, Victim, exempt_until, place_of
from muster.queueing.queue import order, plan_steps
from muster.queueing.starts import MAX_ESTIMATED, Ends, start_times
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import Placed, QueueDecision

_Step = tuple[str, QueueDecision] | None
PREEMPTION = PriorityPreemption()
"""How long a job keeps its nodes, and how often it is preempted: the defaults."""
ALL_NODES = 2**31
"""As many as no job has."""
TIMED_EVERY = 64
"""Of so many plans one is worked out to its end, and timed."""
FIRST_JOBS = 32
"""The others are made for so many jobs first; mostly these are given, or reserve, all nodes that are free."""


@dataclass
class Muster:
    """`muster.queueing.queue.plan_steps`, without limits and quotas.

    A job that gives way saves at no cost, and loads its checkpoint when it starts again. Where jobs of high priority
    preempt others, these keep their nodes as by the defaults of a FleetPolicy.

    No answer depends on the jobs behind. So where no job passes what is reserved for others, the plan is that of the
    first jobs if these leave no free node, apart from the plans that are timed.

    Attributes:
        preemptible_up_to: jobs of up to so many nodes are preemptible, if their owners let them be.
        by_priority: whether jobs of high priority come first, and preempt others. Only with estimates.
        preempted: when each job was preempted by priority, by its name.
        plans: seconds of a core of each plan that was timed.
        longest_steps: the longest time without a pause in each.
    """

    estimates: Estimates | None = None
    preemptible_up_to: int = 0
    by_priority: bool = False
    preempted: dict[str, list[float]] = field(default_factory=dict)
    plans: list[float] = field(default_factory=list)
    longest_steps: list[float] = field(default_factory=list)
    _made: int = 0
    _lent_until: dict[str, datetime] = field(default_factory=dict)  # by the names of jobs that backfill
    _placed: dict[str, float] = field(default_factory=dict)  # by the names of jobs

    @property
    def name(self) -> str:
        """For people: the estimates, and which jobs give way."""
        estimates = f" x{self.estimates.factor:g}" if self.estimates else ""
        which = "small ones preemptible" if self.preemptible_up_to <= SMALL_NODES else "preemptible"
        preemptible = f", {which}" if self.preemptible_up_to else ""
        return f"Muster{estimates}{preemptible}{', by priority' if self.by_priority else ''}"

    @property
    def _lends_reserved(self) -> bool:
        """Whether jobs may pass what is reserved for others."""
        return self.estimates is not None or self.preemptible_up_to > 0

    def decide(self, cluster: Cluster) -> Decision:
        """Plan, as the operator does."""
        if not cluster.free and not self._may_give_way(cluster):  # no job can start
            return Decision(())
        self._made += 1
        timed = self._made % TIMED_EVERY == 1
        if not timed and not self._lends_reserved and len(cluster.queue) > FIRST_JOBS:
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
        waiting = [self._waiting_job(run, cluster.now) for run in queue]
        may_give_way = self._may_give_way(cluster)
        preemption = self._preemption(may_give_way, cluster.now)
        offers = self._offers(cluster, waiting, preemption)
        steps = plan_steps(cluster.fleet, waiting, preemption=preemption, offers=offers, reserved=reserved)
        for step in self._timed(steps) if timed else steps:
            if step is not None and isinstance(step[1].answer, Placed):
                starts.append((runs[step[0]], step[1].answer.nodes))
                unassigned -= len(starts[-1][1])
                if not runs[step[0]].missing:
                    self._note_placed(step[0], step[1].answer, cluster.now)
            if unassigned == len(reserved) and not timed and not self._lends_reserved:
                break
        leaves = [run for run in may_give_way if run.job.name in preemption.preempted_by]
        for run in leaves:
            self._note_leaving(run, preemption, cluster.now)
        staying = [(run, nodes) for run, nodes in starts if run.job.name not in preemption.preempted_by]
        return Decision(staying, leaves, len(reserved), again=bool(leaves)), unassigned - len(reserved)

    def _note_placed(self, name: str, answer: Placed, now: float) -> None:
        self._placed[name] = now
        self._lent_until.pop(name, None)
        if answer.backfill is not None:
            self._lent_until[name] = answer.backfill.lent_until

    def _note_leaving(self, run: Run, preemption: Preemption, now: float) -> None:
        run.interrupted = True
        self._lent_until.pop(run.job.name, None)
        if run.job.name in preemption.victims:
            self.preempted.setdefault(run.job.name, []).append(now)

    def _preemption(self, may_give_way: Sequence[Run], now: float) -> Preemption:
        borrowers = {run.job.name: self._borrower(run) for run in may_give_way if self._has_lent_nodes(run)}
        victims = {run.job.name: self._victim(run, now) for run in may_give_way if run.job.name not in borrowers}
        return Preemption(borrowers, victims, at(now))

    def _may_give_way(self, cluster: Cluster) -> list[Run]:
        holders = [*cluster.running.values(), *(run for run in cluster.queue if run.nodes)]
        preempts = self.by_priority and any(run.job.high for run in cluster.queue)
        return [run for run in holders if preempts or self._has_lent_nodes(run)]

    def _has_lent_nodes(self, run: Run) -> bool:
        return run.job.name in self._lent_until or self._is_preemptible(run)

    def _is_preemptible(self, run: Run) -> bool:
        return run.job.preemptible and run.job.nodes <= self.preemptible_up_to

    def _borrower(self, run: Run) -> Borrower:
        since = at(run.since or 0.0)
        if self._is_preemptible(run):
            return Borrower(run.job.name, since)
        place, until = place_of(waiting_job(run, self._priority(run))), self._lent_until[run.job.name]
        return Borrower(run.job.name, since, place=place, lent_until=until)

    def _victim(self, run: Run, now: float) -> Victim:
        name, placed = run.job.name, at(self._placed[run.job.name])
        preempted = [at(seconds) for seconds in self.preempted.get(name, ()) if now - seconds < DAY]
        exempt = exempt_until(PREEMPTION, placed, preempted, at(now))
        return Victim(name, self._priority(run), len(run.nodes), placed, exempt)

    def _priority(self, run: Run) -> int:
        return int(self.by_priority and run.job.high)

    def _waiting_job(self, run: Run, now: float) -> WaitingJob:
        seconds = self.estimates.remaining_seconds(run, now) if self.estimates and not run.missing else None
        priority = self._priority(run)
        return replace(
            waiting_job(run, priority),
            expected_seconds=seconds,
            preemptible=self._is_preemptible(run),
            preempts_by="high" if priority else "",
        )

    def _offers(
        self, cluster: Cluster, waiting: Sequence[WaitingJob], preemption: Preemption
    ) -> Mapping[str, LendingOffer]:
        """What the first jobs lend until they start, as the operator estimates it."""
        if not self.estimates:
            return {}
        estimates, now = self.estimates, at(cluster.now)

        def end_of(holder: str) -> JobEnd:
            if holder not in cluster.running:
                return JobEnd(now, None, "")
            seconds = estimates.remaining_seconds(cluster.running[holder], cluster.now)
            return JobEnd(now + timedelta(seconds=seconds), None, "")

        def of_waiting(uid: str) -> RemainingTime:
            return RemainingTime(next(job.expected_seconds for job in waiting if job.job_uid == uid), None, "")

        first = order(waiting)[:MAX_ESTIMATED]
        decisions = dict(
            filter(None, plan_steps(cluster.fleet, first, preemption=replace(preemption, preempted_by={})))
        )
        answers = [(job, decisions[job.job_uid].answer) for job in first]
        found = at_once(start_times(cluster.fleet, answers, Ends(end_of, of_waiting), preemption, now))
        offers = ((uid, lending_offer(estimate, now)) for uid, estimate in found.items())
        return {uid: offer for uid, offer in offers if offer is not None}

    def _timed(self, steps: Iterator[_Step]) -> Iterator[_Step]:
        taken = [0.0]
        begun = time.thread_time()
        for step in steps:
            taken.append(time.thread_time() - begun)
            yield step
            begun = time.thread_time()
        taken.append(time.thread_time() - begun)
        self.plans.append(sum(taken))
        self.longest_steps.append(max(taken))


def waiting_job(run: Run, priority: int) -> WaitingJob:
    """The job as the operator would give it to the queue."""
    return WaitingJob(
        job_uid=run.job.name,
        name=f"{run.job.namespace}/{run.job.name}",
        namespace=run.job.namespace,
        priority=priority,
        created=at(run.job.arrival),
        request=run.request(),
        replacement=run.missing > 0,
        held=len(run.nodes),
    )

"""Random fleets on which jobs take each other's nodes by their priority, while leaders come and go.

Time is in whole ticks. What records say outlives a leader; its plan does not. No job ends, so that whatever goes on for
ever is a cycle.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random

from tests.unit.lifecycle.builders import a_fleet, a_node, at
from tests.unit.queueing.builders import wants

from muster.queueing.preemption import Borrower, Preemption, Victim, place_of
from muster.queueing.queue import order, plan_steps
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import Placed

ARRIVALS = 40
"""Ticks in which jobs come."""
QUIET = 30
"""So many ticks without any change are an end."""
LONGEST = 3000
"""Ticks after which what goes on is a cycle."""


@dataclass
class Holder:
    """A job, and what its record and its pods hold."""

    waiting: WaitingJob
    comes: int
    save_ticks: int
    nodes: tuple[str, ...] = ()
    old_nodes: tuple[str, ...] = ()
    placed: int = 0
    leaves_since: int | None = None
    left: int = 0

    @property
    def uid(self) -> str:
        return self.waiting.job_uid

    def may_give_way(self, min_run_ticks: int) -> Borrower | Victim:
        job, leaves = self.waiting, self.leaves_since is not None or not self.nodes
        old_nodes = frozenset(self.old_nodes)
        if job.preemptible or not self.nodes:
            place = None if job.preemptible else place_of(job)
            return Borrower(job.name, at(self.placed), leaves, place, old_nodes)
        exempt_until = at(self.placed + min_run_ticks)
        return Victim(
            job.name, job.priority, len(self.nodes), at(self.placed), exempt_until, leaves=leaves, old_nodes=old_nodes
        )


class Fleet:
    """A fleet, its jobs, and their leaders."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        chance = self.chance
        nodes = [
            a_node(f"r{rack}-{number}", f"b{rack % 2}", f"r{rack}")
            for rack in range(chance.randint(1, 4))
            for number in range(chance.randint(1, 5))
        ]
        self.fleet = a_fleet(nodes)
        self.jobs = [self._job(number, len(nodes)) for number in range(chance.randint(4, 12))]
        self.min_run_ticks = chance.choice([0, 0, 5, 20])
        self.now = self.changed = self.led = 0
        self.preempted: list[tuple[int, int]] = []  # the priorities of each pair, the one that leaves first

    def _job(self, number: int, nodes: int) -> Holder:
        chance = self.chance
        job = wants(
            f"j{number}",
            chance.randint(1, max(nodes // 2, 1)),
            seconds=number,
            priority=chance.choice([-(2**31), -1, 0, 1, 2**31 - 1]),
            required=chance.choice([None, None, "rack", "block"]),
        )
        job = replace(job, preempts_by=chance.choice(["", "urgent"]), preemptible=chance.random() < 0.15)
        return Holder(job, chance.randrange(ARRIVALS), chance.randint(0, 5))

    @property
    def served(self) -> list[bool]:
        """Of each job, in the order of the queue, whether it has nodes."""
        ranks = {job.job_uid: rank for rank, job in enumerate(order(holder.waiting for holder in self.jobs))}
        return [bool(holder.nodes) for holder in sorted(self.jobs, key=lambda holder: ranks[holder.uid])]

    @property
    def is_settled(self) -> bool:
        """Whether no job is on its way, and a plan has nothing to change."""
        moves = any(holder.leaves_since is not None or holder.old_nodes for holder in self.jobs)
        return not moves and self.changed < self.led

    def tick(self) -> None:
        """Pods end, a plan is made if there is a leader, and some of the jobs write their records."""
        self.now += 1
        for holder in self.jobs:
            if holder.old_nodes and self.chance.random() < 0.4:
                self._hold(holder, holder.nodes, ())
            if holder.leaves_since is not None and self.now - holder.leaves_since > holder.save_ticks:
                self._leave(holder)
        if self.chance.random() < 0.6:
            self._lead()

    def _lead(self) -> None:
        preemption = Preemption(now=self.time)
        may = {holder.uid: holder.may_give_way(self.min_run_ticks) for holder in self.jobs if self._occupied(holder)}
        preemption.borrowers = {uid: job for uid, job in may.items() if isinstance(job, Borrower)}
        preemption.victims = {uid: job for uid, job in may.items() if isinstance(job, Victim)}
        waiting = [holder.waiting for holder in self.jobs if not holder.nodes and holder.comes <= self.now]
        answers = dict(filter(None, plan_steps(self.fleet, waiting, preemption=preemption)))
        dies = self.chance.random() < 0.2
        self.led = self.led if dies else self.now
        for holder in self.chance.sample(self.jobs, len(self.jobs)):
            if dies and self.chance.random() < 0.5:
                continue
            answer = answers[holder.uid].answer if holder.uid in answers else None
            if isinstance(answer, Placed):
                self._hold(holder, answer.nodes, holder.old_nodes)
                holder.placed = self.now
            elif holder.nodes:
                self._follow(holder, preemption)

    def _follow(self, holder: Holder, preemption: Preemption) -> None:
        to = preemption.preempted_by.get(holder.uid, ())
        if to and holder.leaves_since is None:
            holder.leaves_since, self.changed = self.now, self.now
            priorities = {job.waiting.name: job.waiting.priority for job in self.jobs}
            self.preempted += [(holder.waiting.priority, priorities[by.name]) for by in to if by.priority_class]
        elif not to and holder.leaves_since is not None:
            holder.leaves_since, self.changed = None, self.now

    def _leave(self, holder: Holder) -> None:
        holder.leaves_since = None
        holder.left += 1
        self._hold(holder, (), (*holder.nodes, *holder.old_nodes))

    def _hold(self, holder: Holder, nodes: Collection[str], old_nodes: Collection[str]) -> None:
        holder.nodes, holder.old_nodes, self.changed = tuple(nodes), tuple(old_nodes), self.now
        self.fleet.occupy(holder.uid, holder.uid, frozenset({*nodes, *old_nodes}))

    def _occupied(self, holder: Holder) -> bool:
        return bool(holder.nodes or holder.old_nodes)

    @property
    def time(self) -> datetime:
        return at(self.now)


def no_two_jobs_take_turns(seed: int) -> int:
    """Play until nothing changes any more; returns how many jobs were preempted by priority.

    Look at the moments at which nothing moves, after the last job has come. Of the jobs that are served at one of them
    and not at the one before, or the other way round, the first in the order of the queue is served now. So no state
    comes twice.
    """
    life = Fleet(seed)
    before: list[bool] = []
    while life.now < ARRIVALS or life.now - life.changed < QUIET + life.min_run_ticks:
        life.tick()
        assert life.now < LONGEST, f"seed {seed}: {sum(holder.left for holder in life.jobs)} jobs have left, no end"
        if life.is_settled and life.now >= ARRIVALS:
            assert life.served >= before, f"seed {seed}, tick {life.now}: {before} became {life.served}"
            before = life.served
    assert all(left < took for left, took in life.preempted), f"seed {seed}: {life.preempted}"
    return len(life.preempted)

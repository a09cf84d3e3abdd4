"""A fleet on which jobs arrive, wait, train, lose nodes and end, event by event; a policy says which jobs start.

Nodes fail at the rate that Llama 3 published. The job loses its work since the last checkpoint, keeps its other nodes,
and waits for another one before all jobs that have none. If others wait, too, it gives its nodes back after five
minutes, as Muster has it, and is queued at its old place. A policy may also have jobs leave: they save, lose nothing,
and are queued again.

The fleet, its topology and the choice of nodes are the shipped ones for all policies.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Protocol

from tests.unit.lifecycle.builders import BLOCK, RACK, a_fleet, a_node

from bench.queueing.workload import DAY, WARM_UP_DAYS, Job
from muster.placement.eligibility import Requirements
from muster.placement.request import Request
from muster.whatif.rates import LLAMA3
from muster.world.fleet import Fleet
from muster.world.views import NodeView

NEEDS = Requirements(8, {}, {})
REPAIR_SECONDS = 2.2 * 3600
"""As in `make bench-what-if`."""
CHECKPOINT_SECONDS = 1800.0
RESTART_SECONDS = 300.0
"""From the new node to the first step."""
ASSEMBLY_SECONDS = 300.0
"""`assemblyTimeoutSeconds`."""
RACK_NODES = 8
BLOCK_RACKS = 4
_LEVEL_DEPTH = {"block": 1, "rack": 2}


@dataclass(slots=True, eq=False)
class Run:
    """A job as the cluster sees it.

    Attributes:
        remaining: seconds of work that are left, as of `since`.
        nodes: those that it holds.
        missing: how many it has lost and not got back.
        since: when it began to work, or will have restarted; None while it does not work.
        queued: since when it has waited for all of its nodes; None while it holds some.
        waited: seconds that it has waited for all of its nodes.
        interrupted: whether it has to load a checkpoint before it goes on.
        first_start: when it had its nodes for the first time.
        version: grows with each change, so that an event of before is known.
    """

    job: Job
    remaining: float
    nodes: tuple[str, ...] = ()
    missing: int = 0
    since: float | None = None
    queued: float | None = None
    waited: float = 0.0
    interrupted: bool = False
    first_start: float | None = None
    ended: float | None = None
    version: int = 0

    @property
    def needs(self) -> int:
        """How many nodes it wants now."""
        return self.missing or self.job.nodes

    def remaining_seconds(self, now: float) -> float:
        """Seconds of work that are left now."""
        return self.remaining if self.since is None else self.remaining - max(now - self.since, 0.0)

    def request(self) -> Request:
        """What it asks the placement for."""
        return Request(self.needs, NEEDS, self.job.name, required=self.job.level, kept=self.nodes)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy does at one moment.

    Attributes:
        starts: jobs that get these nodes.
        leaves: jobs that save and give their nodes back, before others start.
        reserved: free nodes that are kept for a job.
        again: whether to decide once more, after the jobs have left.
    """

    starts: Sequence[tuple[Run, tuple[str, ...]]]
    leaves: Sequence[Run] = ()
    reserved: int = 0
    again: bool = False


class Policy(Protocol):
    """Decides which of the waiting jobs start."""

    @property
    def name(self) -> str:
        """For people."""

    def decide(self, cluster: "Cluster") -> Decision:
        """Choose among `cluster.queue`, in whatever order, jobs that start on nodes of `cluster.free`."""


@dataclass(slots=True)
class NodeSeconds:
    """Where the time of the nodes went in the days that are measured.

    Attributes:
        working: in gangs that work (what is lost later included).
        stalled: in gangs that wait for another node, or restart.
        free: held by no job.
        down: out of order.
        reserved: of the free, kept for a job by the policy.
        refused: of the free, while a waiting job wanted no more nodes than were free for it.
    """

    working: float = 0.0
    stalled: float = 0.0
    free: float = 0.0
    down: float = 0.0
    reserved: float = 0.0
    refused: float = 0.0


@dataclass(slots=True)
class Cluster:
    """What a policy may look at, and what was counted.

    Attributes:
        queue: jobs without all of their nodes: those that have lost some first, then by age.
        running: jobs that hold all of their nodes.
        free: nodes that work and that no job holds.
        paths: block and rack of each node.
        lost: node seconds of work that was lost.
        done: node seconds of work that was done by the end of the days that are measured, without what was lost.
    """

    fleet: Fleet
    paths: dict[str, tuple[str, ...]]
    free: set[str]
    now: float = 0.0
    queue: list[Run] = field(default_factory=list)
    running: dict[str, Run] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    seconds: NodeSeconds = field(default_factory=NodeSeconds)
    lost: float = 0.0
    done: float = 0.0
    failures: int = 0

    def free_by_domain(self, level: str | None) -> Counter[tuple[str, ...]]:
        """Free nodes of each domain of a level; with None of the fleet."""
        if level is None:
            return Counter({(): len(self.free)})
        return Counter(self.domain(name, level) for name in self.free)

    def domain(self, name: str, level: str | None) -> tuple[str, ...]:
        """The domain of a level in which a node is."""
        return self.paths[name][: _LEVEL_DEPTH[level]] if level else ()

    def has_room(self) -> bool:
        """Whether a waiting job wants no more nodes than are free for it in one domain of its level."""
        least: dict[str | None, int] = {}
        for run in self.queue:
            least[run.job.level] = min(run.needs, least.get(run.job.level, run.needs))
        return any(needs <= max(self.free_by_domain(level).values(), default=0) for level, needs in least.items())


def an_empty_cluster(nodes: int) -> Cluster:
    """So many nodes in racks of eight, four of which are a block."""
    views: list[NodeView] = []
    for number in range(nodes):
        rack = number // RACK_NODES
        views.append(a_node(f"n{number:04}", f"b{rack // BLOCK_RACKS}", f"r{rack % BLOCK_RACKS}"))
    paths: dict[str, tuple[str, ...]] = {view.name: (view.labels[BLOCK], view.labels[RACK]) for view in views}
    return Cluster(a_fleet(views), paths, set(paths))


def failures_of(names: Sequence[str], seed: int, days: float) -> Iterator[tuple[float, str]]:
    """When nodes fail, in no order."""
    random = Random(f"failures {seed}")
    for name in names:
        moment = random.expovariate(1 / LLAMA3.mttf_days)
        while moment < days:
            yield moment * DAY, name
            moment += random.expovariate(1 / LLAMA3.mttf_days)


_ARRIVE, _END, _FAIL, _REPAIRED, _GIVE_BACK, _RESTARTED = range(6)
_Event = tuple[float, int, int, object]


class Simulation:
    """One run of a policy over a list of jobs."""

    def __init__(
        self, cluster: Cluster, policy: Policy, jobs: Sequence[Job], days: float, failures: int | None
    ) -> None:
        self.cluster = cluster
        self.runs = [Run(job, job.seconds) for job in jobs]
        self._policy = policy
        self._measured = WARM_UP_DAYS * DAY, (WARM_UP_DAYS + days) * DAY
        self._events: list[_Event] = []
        self._number = 0
        self._reserved = 0
        for run in self.runs:
            self._at(run.job.arrival, _ARRIVE, run)
        if failures is not None:
            # Jobs that came late work on after the last day.
            for moment, name in failures_of(sorted(cluster.paths), failures, 2 * (WARM_UP_DAYS + days)):
                self._at(moment, _FAIL, name)

    def _at(self, moment: float, kind: int, subject: object) -> None:
        self._number += 1
        heapq.heappush(self._events, (moment, self._number, kind, subject))

    def run(self) -> None:
        """Go on until each job has ended."""
        unended = len(self.runs)
        while unended:
            moment = self._events[0][0]
            self._count_until(moment)
            self.cluster.now = moment
            changed = False
            while self._events and self._events[0][0] == moment:
                _, _, kind, subject = heapq.heappop(self._events)
                ended = self._happen(kind, subject)
                changed |= ended is not None
                unended -= ended is True
            if changed:
                self._decide()
        self._count_until(math.inf)

    def _count_until(self, moment: float) -> None:
        cluster, seconds = self.cluster, self.cluster.seconds
        begin, end = self._measured
        if cluster.now < end <= moment:
            cluster.done = sum((run.job.seconds - run.remaining_seconds(end)) * run.job.nodes for run in self.runs)
        span = min(moment, end) - max(cluster.now, begin)
        if span <= 0:
            return
        working = sum(run.job.nodes for run in cluster.running.values() if run.since is not None)
        held = len(cluster.paths) - len(cluster.free) - len(cluster.down)
        seconds.working += span * working
        seconds.stalled += span * (held - working)
        seconds.free += span * len(cluster.free)
        seconds.down += span * len(cluster.down)
        seconds.reserved += span * self._reserved
        if cluster.has_room():
            seconds.refused += span * len(cluster.free)

    def _happen(self, kind: int, subject: object) -> bool | None:
        """Let an event happen; None: nothing changed, True: a job ended."""
        if kind == _FAIL:
            return self._fail(str(subject))
        if kind == _REPAIRED:
            return self._repaired(str(subject))
        if kind == _ARRIVE:
            assert isinstance(subject, Run)
            self._enqueue(subject)
            return False
        assert isinstance(subject, tuple)
        run, version = subject
        if run.version != version:
            return None
        if kind == _END:
            self._end(run)
            return True
        if kind == _RESTARTED:
            self._work(run)
            return None
        others = any(other.missing == 0 for other in self.cluster.queue)
        if not others:
            self._at(self.cluster.now + ASSEMBLY_SECONDS, _GIVE_BACK, (run, version))
            return None
        self._release(run)
        run.missing = 0
        self.cluster.queue.remove(run)
        self._enqueue(run)
        return False

    def _enqueue(self, run: Run) -> None:
        run.queued = self.cluster.now if not run.missing else None
        run.version += 1
        self.cluster.queue.append(run)
        self.cluster.queue.sort(key=lambda each: (not each.missing, each.job.arrival))

    def _hold(self, run: Run, nodes: tuple[str, ...]) -> None:
        run.nodes = nodes
        self.cluster.fleet.occupy(run.job.name, run.job.name, frozenset(nodes))

    def _release(self, run: Run) -> None:
        self.cluster.free.update(run.nodes)
        self._hold(run, ())

    def _end(self, run: Run) -> None:
        del self.cluster.running[run.job.name]
        self._release(run)
        run.since, run.ended, run.remaining = None, self.cluster.now, 0.0
        run.version += 1

    def _fail(self, name: str) -> bool | None:
        cluster = self.cluster
        if name in cluster.down:
            return None
        cluster.failures += 1
        cluster.down.add(name)
        cluster.free.discard(name)
        cluster.fleet.put_node(replace(cluster.fleet.nodes[name], ready=False))
        self._at(cluster.now + REPAIR_SECONDS, _REPAIRED, name)
        holder = next(iter(cluster.fleet.holders(name)), None)
        run = cluster.running.get(holder) if holder else None
        run = run or next((each for each in cluster.queue if name in each.nodes), None)
        if run is None:
            return False
        self._interrupt(run)
        run.missing += 1
        self._hold(run, tuple(node for node in run.nodes if node != name))
        if run in cluster.queue:
            cluster.queue.remove(run)
        if not run.nodes:
            run.missing = 0
        self._enqueue(run)
        if run.missing:
            self._at(cluster.now + ASSEMBLY_SECONDS, _GIVE_BACK, (run, run.version))
        return False

    def _interrupt(self, run: Run) -> None:
        """Stop a gang that works; what it has not saved is lost."""
        self.cluster.running.pop(run.job.name, None)
        if run.since is None:
            return
        unsaved = max(self.cluster.now - run.since, 0.0) % CHECKPOINT_SECONDS
        run.remaining = run.remaining_seconds(self.cluster.now) + unsaved
        run.since = None
        run.interrupted = True
        self.cluster.lost += unsaved * run.job.nodes

    def _repaired(self, name: str) -> bool:
        cluster = self.cluster
        cluster.down.discard(name)
        cluster.free.add(name)
        cluster.fleet.put_node(replace(cluster.fleet.nodes[name], ready=True))
        return False

    def _decide(self) -> None:
        cluster = self.cluster
        if not cluster.queue:
            self._reserved = 0
            return
        decision = self._policy.decide(cluster)
        self._reserved = decision.reserved
        for run in decision.leaves:
            cluster.running.pop(run.job.name, None)
            run.remaining, run.since, run.missing = run.remaining_seconds(cluster.now), None, 0
            self._release(run)
            if run in cluster.queue:
                cluster.queue.remove(run)
            self._enqueue(run)
        for run, nodes in decision.starts:
            self._start(run, nodes)
        if decision.again:
            self._decide()

    def _start(self, run: Run, nodes: tuple[str, ...]) -> None:
        cluster = self.cluster
        if not cluster.free.issuperset(nodes) or len(set(nodes)) != run.needs:
            raise ValueError(f"{self._policy.name} gave {run.job.name} nodes that are not free, or too few or many")
        cluster.queue.remove(run)
        cluster.free.difference_update(nodes)
        self._hold(run, (*run.nodes, *nodes))
        run.missing = 0
        run.version += 1
        cluster.running[run.job.name] = run
        if run.queued is not None:
            run.waited += cluster.now - run.queued
            run.queued = None
        if run.first_start is None:
            run.first_start = cluster.now
        if run.interrupted:
            self._at(cluster.now + RESTART_SECONDS, _RESTARTED, (run, run.version))
        else:
            self._work(run)

    def _work(self, run: Run) -> None:
        run.since, run.interrupted = self.cluster.now, False
        self._at(self.cluster.now + run.remaining, _END, (run, run.version))


def simulate(policy: Policy, jobs: Sequence[Job], nodes: int, days: float, failures: int | None) -> Simulation:
    """Run all jobs to their end; `failures` is the seed of the nodes' failures, None: no node fails."""
    simulation = Simulation(an_empty_cluster(nodes), policy, jobs, days, failures)
    simulation.run()
    return simulation

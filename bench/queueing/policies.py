"""What Muster's queue is measured beside. Each decides with the shipped placement, and knows what its docstring says.

The order is the same for all but the oracle and those by priority: jobs that have lost a node, then the older ones.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bench.queueing.cluster import Cluster, Decision, Run
from muster.placement.names import promised_refusal
from muster.placement.parts import at_once
from muster.placement.space import Space
from muster.world.queuedecision import Placed

PLANNED_AHEAD = 100
"""Waiting jobs for which a reservation is made or a gap is sought; Slurm's `bf_max_job_test` is 500."""
_SOON = 60.0
"""A job that is there longer than estimated is taken to end so soon."""


class _Allocation:
    """The starts of one decision."""

    def __init__(self, cluster: Cluster) -> None:
        self.starts: list[tuple[Run, tuple[str, ...]]] = []
        self.free = set(cluster.free)
        self._cluster = cluster
        self._space: Space | None = None

    def start(self, run: Run, without: Sequence[str] = ()) -> tuple[str, ...]:
        """Give a job its nodes, none of them among `without`; empty if there is no place for it."""
        if run.needs > len(self.free) - len(without):
            return ()
        space = self._space = self._space or Space(self._cluster.fleet)
        if without:
            space = Space(self._cluster.fleet)
            for other, taken in self.starts:
                space.reserve_nodes(taken, promised_refusal(other.job.name))
            space.reserve_nodes(without, promised_refusal("another"))
        answer = at_once(space.solve(run.request()))
        if not isinstance(answer, Placed):
            return ()
        self._space.reserve_nodes(answer.nodes, promised_refusal(run.job.name))
        self.free.difference_update(answer.nodes)
        self.starts.append((run, answer.nodes))
        return answer.nodes

    def start_in_order(self, queue: Sequence[Run]) -> Sequence[Run]:
        """Start the first jobs of the queue until one has no place; returns that one and those behind it."""
        for position, run in enumerate(queue):
            if not self.start(run):
                return queue[position:]
        return []


def by_priority(queue: Sequence[Run]) -> list[Run]:
    """The queue with jobs of high priority before the others, but behind those that have lost a node."""
    return sorted(queue, key=lambda run: (not run.missing, not run.job.high))


class Fifo:
    """No job starts before one that came before it."""

    name = "FIFO"

    def decide(self, cluster: Cluster) -> Decision:
        """Start the first ones."""
        allocation = _Allocation(cluster)
        allocation.start_in_order(cluster.queue)
        return Decision(allocation.starts)


class NoReservations:
    """Every job that finds a place starts: what the shipped plan would do if it reserved nothing."""

    name = "no reservations"

    def decide(self, cluster: Cluster) -> Decision:
        """Start all that fit."""
        allocation = _Allocation(cluster)
        for run in cluster.queue:
            allocation.start(run)
        return Decision(allocation.starts)


@dataclass(frozen=True, slots=True)
class Estimates:
    """What the owners of jobs say: so many times as long as they run."""

    factor: float

    def remaining_seconds(self, run: Run, now: float) -> float:
        """How long a job will run from now on."""
        share = run.remaining_seconds(now) / run.job.seconds
        said = self.factor * run.job.estimate_seconds
        return max(said - (1.0 - share) * run.job.seconds, _SOON)


@dataclass(frozen=True, slots=True)
class _Shadow:
    """When the first job in the queue can start, where, and how many nodes of that place it leaves to others."""

    at: float
    level: str | None
    domain: tuple[str, ...]
    extra: int


class Easy:
    """The first job that has no place has a reservation; others pass if they do not delay it, by the estimates."""

    def __init__(self, factor: float, by_priority: bool = False) -> None:
        self.name = f"EASY x{factor:g}{', by priority' if by_priority else ''}"
        self._estimates = Estimates(factor)
        self._by_priority = by_priority

    def decide(self, cluster: Cluster) -> Decision:
        """Start the first ones, then those that end before the first of the rest could start, or do not disturb it."""
        allocation = _Allocation(cluster)
        rest = allocation.start_in_order(by_priority(cluster.queue) if self._by_priority else cluster.queue)
        if not rest or not allocation.free:
            return Decision(allocation.starts)
        first, *behind = rest
        shadow = self._shadow(cluster, allocation, first)
        for run in behind:
            if run.needs > len(allocation.free):
                continue
            if shadow is None or cluster.now + self._estimates.remaining_seconds(run, cluster.now) <= shadow.at:
                allocation.start(run)
            else:
                shadow = self._start_beside(cluster, allocation, run, shadow)
        return Decision(allocation.starts)

    def _start_beside(self, cluster: Cluster, allocation: _Allocation, run: Run, shadow: _Shadow) -> _Shadow:
        """Start a job that will be there too long, if it leaves enough nodes; returns what the next one must leave."""
        if not shadow.level:  # any nodes will do, and the count alone decides
            if run.needs <= shadow.extra and allocation.start(run):
                return replace(shadow, extra=shadow.extra - run.needs)
            return shadow
        inside = sorted(name for name in allocation.free if cluster.domain(name, shadow.level) == shadow.domain)
        taken = allocation.start(run, without=inside[shadow.extra :])
        used = sum(cluster.domain(node, shadow.level) == shadow.domain for node in taken)
        return replace(shadow, extra=shadow.extra - used)

    def _shadow(self, cluster: Cluster, allocation: _Allocation, first: Run) -> _Shadow | None:
        """None where the nodes that work do not suffice, whichever jobs end."""
        level, now = first.job.level, cluster.now
        counts = Counter(cluster.domain(name, level) for name in allocation.free)
        holders = [*cluster.running.values(), *(run for run, _ in allocation.starts)]
        started = dict(allocation.starts)
        ends = sorted((now + self._estimates.remaining_seconds(run, now), run.job.name, run) for run in holders)
        only = cluster.domain(first.nodes[0], level) if first.missing else None
        for at, _, run in ends:
            for node in (*run.nodes, *started.get(run, ())):
                counts[cluster.domain(node, level)] += 1
            able = [(count, domain) for domain, count in counts.items() if only is None or domain == only]
            count, domain = max(able, default=(0, ()))
            if count >= first.needs:
                return _Shadow(at, level, domain, count - first.needs)
        return None


class Conservative:
    """Each waiting job has a reservation, by the estimates; a job starts if none before it is delayed.

    Reservations are counts of nodes of the whole fleet: a job that must lie in one domain may be held up by its
    topology, and then has its reservation at the next moment at which a job ends.
    """

    def __init__(self, factor: float) -> None:
        self.name = f"conservative x{factor:g}"
        self._estimates = Estimates(factor)

    def decide(self, cluster: Cluster) -> Decision:
        """Go through the queue with a profile of the nodes that are free from each moment on."""
        allocation = _Allocation(cluster)
        now = cluster.now
        ends = [(now + self._estimates.remaining_seconds(run, now), run.job.nodes) for run in cluster.running.values()]
        profile = Profile(now, len(allocation.free), ends)
        for run in cluster.queue[:PLANNED_AHEAD]:
            if not allocation.free:
                break
            seconds = self._estimates.remaining_seconds(run, now)
            at = profile.earliest(run.needs, seconds, now)
            if at == now and not allocation.start(run):
                at = profile.earliest(run.needs, seconds, profile.next_change(now))
            profile.reserve(run.needs, at, seconds)
        return Decision(allocation.starts)


class Profile:
    """How many nodes are free from each moment on."""

    def __init__(self, now: float, free: int, ends: Sequence[tuple[float, int]]) -> None:
        self._times, self._free = [now], [free]
        for at, nodes in sorted(ends):
            if at == self._times[-1]:
                self._free[-1] += nodes
            else:
                self._times.append(at)
                self._free.append(self._free[-1] + nodes)

    def earliest(self, nodes: int, seconds: float, after: float) -> float:
        """The first moment from which on so many nodes are free for so long; infinity if there is none."""
        start: float | None = None
        for place, at in enumerate(self._times):
            end = self._times[place + 1] if place + 1 < len(self._times) else float("inf")
            if end <= after:
                continue
            if self._free[place] < nodes:
                start = None
                continue
            start = max(at, after) if start is None else start
            if end - start >= seconds:
                return start
        return float("inf")

    def next_change(self, after: float) -> float:
        """The first moment after this one at which another number of nodes is free."""
        return next((at for at in self._times if at > after), float("inf"))

    def reserve(self, nodes: int, at: float, seconds: float) -> None:
        """Reserve so many nodes from a moment on."""
        if at == float("inf"):
            return
        first, last = self._split(at), self._split(at + seconds)
        for place in range(first, last):
            self._free[place] -= nodes

    def _split(self, at: float) -> int:
        """The place of a moment, which is made a moment of the profile."""
        place = next((number for number, time in enumerate(self._times) if time >= at), len(self._times))
        if place == len(self._times) or self._times[place] != at:
            self._times.insert(place, at)
            self._free.insert(place, self._free[place - 1])
        return place


class Oracle:
    """What no scheduler can do: it knows how long each job will run, and stops and moves jobs at no cost.

    The jobs with the least node time left run. Topology is of no account. It is no bound for each class: large jobs go
    last.
    """

    name = "oracle"

    def decide(self, cluster: Cluster) -> Decision:
        """Let the smallest ones run."""
        stalled = [run for run in cluster.queue if run.missing]
        active = [*cluster.running.values(), *cluster.queue]
        active.sort(key=lambda run: (run.remaining_seconds(cluster.now) * run.job.nodes, run.job.name))
        room = len(cluster.free) + sum(len(run.nodes) for run in active)
        chosen = []
        for run in active:
            if run.job.nodes <= room:
                room -= run.job.nodes
                chosen.append(run)
        kept = {run.job.name for run in chosen}
        leaves = [run for run in cluster.running.values() if run.job.name not in kept] + stalled
        free = sorted(cluster.free.union(*(run.nodes for run in leaves)))
        starts = []
        for run in chosen:
            if run.job.name not in cluster.running:
                starts.append((run, tuple(free[: run.job.nodes])))
                del free[: run.job.nodes]
        return Decision(starts, leaves)

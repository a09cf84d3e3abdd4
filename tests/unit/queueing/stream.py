"""A stream of jobs over a random fleet, played with the shipped plan: who waits how long, and how busy the nodes are.

Time is in whole ticks. At each tick jobs end, others arrive, and a plan says who starts; nothing else happens.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from tests.unit.lifecycle.builders import GPU, a_fleet, a_node, at
from tests.unit.queueing.planned import plan

from muster.placement.eligibility import Requirements
from muster.placement.request import Request
from muster.queueing.queue import order
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import Placed

LONGEST = 40
"""Ticks that the longest job runs."""
WHOLE, HALF = Requirements(8, {}, {}), Requirements(4, {}, {})


@dataclass
class Job:
    waiting: WaitingJob
    arrival: int
    duration: int
    ahead: list[str] = field(default_factory=list)  # names of those before it when it came
    first_since: int | None = None  # when it became the first of the queue
    started: int | None = None
    passed: int = 0  # jobs from behind that started while it was the first

    @property
    def nodes(self) -> int:
        return self.waiting.needs


@dataclass
class Outcome:
    jobs: dict[str, Job]
    able: dict[str, list[int]]  # name -> see `able_domains`
    utilisation: float  # share of node time in use, from the first arrival to the last
    end: int

    def starved(self) -> list[str]:
        """Jobs that could start on this fleet and did not."""
        return [name for name, job in self.jobs.items() if self.able[name] and job.started is None]

    def bound(self, name: str) -> int:
        """Ticks from being the first to the start, at most.

        Where one domain can hold the job, the choice is made: the domain is empty after LONGEST ticks. Otherwise the
        number of reserved nodes never falls, and it rises within LONGEST ticks after the choice was made. At one number
        the choice goes to domains of earlier names only, so to each domain once (`muster.queueing.queue`).
        """
        choices = sum(self.able[name])
        return LONGEST * (1 if choices == 1 else choices * self.jobs[name].nodes)

    def too_late(self) -> list[str]:
        """Jobs for which that does not hold, or that wait for longer than all before them and they themselves may."""
        return [name for name, job in self.jobs.items() if self.able[name] and self._late(name, job)]

    def _late(self, name: str, job: Job) -> bool:
        until = self.end if job.started is None else job.started
        in_all = sum(self.bound(other) for other in (*job.ahead, name) if self.able[other])
        first = job.first_since is not None and until - job.first_since > self.bound(name)
        return first or until - job.arrival > in_all

    def large(self) -> list[Job]:
        """The large jobs that can start on this fleet."""
        return [job for name, job in self.jobs.items() if name.startswith("large") and self.able[name]]

    def waits(self, prefix: str) -> list[int]:
        """Ticks from arrival to start; to the end of the play for one that has not started."""
        jobs = [job for name, job in self.jobs.items() if name.startswith(prefix) and self.able[name]]
        return [(self.end if job.started is None else job.started) - job.arrival for job in jobs]


def a_random_fleet(random: Random) -> Fleet:
    """Blocks of racks of nodes, a few of which have half the accelerators."""
    nodes = []
    for block in range(random.randint(2, 3)):
        for rack in range(random.randint(2, 3)):
            for number in range(random.randint(2, 5)):
                node = a_node(f"b{block}-r{rack}-n{number}", f"b{block}", f"r{rack}")
                nodes.append(replace(node, allocatable={GPU: 8 if random.random() < 0.85 else 4}))
    return a_fleet(nodes)


def able_domains(fleet: Fleet, request: Request) -> list[int]:
    """For each domain of the required level that can hold the request when nothing else runs, how many choices it has:
    itself, and with segments each rack for the one that comes next.
    """
    levels = fleet.policy.topology.levels
    depth = [level.name for level in levels].index(request.required) + 1 if request.required else 0
    racks: dict[tuple[str, ...], Counter[tuple[str, ...]]] = defaultdict(Counter)
    for node in fleet.nodes.values():
        if node.allocatable[GPU] >= request.needs.accelerators:
            path = tuple(node.labels[level.label] for level in levels)
            racks[path[:depth]][path] += 1
    size = request.segment_size
    return [
        1 + (sum(count >= size for count in inside.values()) if size > 1 else 0)
        for inside in racks.values()
        if inside.total() >= request.count + request.spares
        and sum(count // size for count in inside.values()) >= request.count // size
    ]


def a_stream(random: Random, fleet: Fleet, count: int, load: float) -> list[Job]:
    """Jobs that ask for `load` times what the fleet has, nine small ones for each large one."""
    jobs: list[Job] = []
    clock, size = 0.0, len(fleet.nodes)
    for number in range(count):
        large = random.random() < 0.1
        level = random.choice([None, "block", "rack"]) if large else random.choice([None, None, None, "rack"])
        nodes = (
            random.randint(2, 2 + size // {None: 1, "block": 2, "rack": 5}[level]) if large else random.randint(1, 2)
        )
        needs = WHOLE if large or random.random() < 0.5 else HALF
        name, duration = f"{'large' if large else 'small'}-{number}", random.randint(1, LONGEST)
        spares, segment = (random.choice([0, 0, 0, 1]), random.choice([1, 1, 1, 2])) if large else (0, 1)
        request = Request(nodes - nodes % segment, needs, name, required=level, segment_size=segment, spares=spares)
        jobs.append(Job(WaitingJob(name, name, "default", 0, at(clock), request), int(clock), duration))
        work = (request.count + spares) * duration if able_domains(fleet, request) else 0
        clock += work / size / load
    return jobs


def play(fleet: Fleet, jobs: Iterable[Job], patience: int) -> Outcome:
    """Let the stream run to its end, or until nobody has started or ended for so many ticks."""
    coming = sorted(jobs, key=lambda job: job.waiting.created)
    found = {job.waiting.name: job for job in coming}
    queue: list[WaitingJob] = []
    ends: dict[int, list[str]] = defaultdict(list)
    able = {name: able_domains(fleet, job.waiting.request) for name, job in found.items()}
    last, busy, used, now, quiet_since = coming[-1].arrival, 0, 0, 0, 0
    while (queue or now <= last) and now - quiet_since <= patience:
        used += busy if now <= last else 0
        changed = False
        for name in ends.pop(now, ()):
            fleet.occupy(name, name, frozenset())
            busy -= found[name].nodes
            changed = True
        while coming and coming[0].arrival <= now:
            job = coming.pop(0)
            job.ahead = [other.name for other in queue]
            queue.append(job.waiting)
            changed = True
        if changed:
            quiet_since = now
            for name, answer in _started(fleet, queue, found, able, now):
                fleet.occupy(name, name, frozenset((*answer.nodes, *answer.spares)))
                busy += found[name].nodes
                ends[now + found[name].duration].append(name)
            queue = [job for job in queue if found[job.name].started is None]
        now += 1
    return Outcome(found, able, used / (len(fleet.nodes) * (last + 1)), now)


def _started(
    fleet: Fleet, queue: list[WaitingJob], jobs: dict[str, Job], able: dict[str, list[int]], now: int
) -> Iterator[tuple[str, Placed]]:
    """The jobs that start now; who is the first (of those that can start at all) and who passes it is noted."""
    turns = plan(fleet, queue)
    first: Job | None = None
    for waiting in order(queue):
        answer, job = turns[waiting.job_uid].answer, jobs[waiting.name]
        if first is None and able[waiting.name]:
            job.first_since = now if job.first_since is None else job.first_since
            first = None if isinstance(answer, Placed) else job
        elif first is not None and isinstance(answer, Placed):
            first.passed += 1
        if isinstance(answer, Placed):
            job.started = now
            yield waiting.name, answer


# When nothing has started or ended for so long, nothing ever will again.
PATIENCE = LONGEST + 1


def played(seed: int, count: int, load: float) -> Outcome:
    random = Random(seed)
    fleet = a_random_fleet(random)
    return play(fleet, a_stream(random, fleet, count, load), PATIENCE)


def check(outcome: Outcome) -> None:
    assert outcome.large()
    assert outcome.starved() == []
    assert outcome.too_late() == []

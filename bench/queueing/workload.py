"""Jobs for the bench of the queue, drawn by what clusters published (`published`). Pure.

What is published: the shares of jobs and of GPU time by size, and how long jobs ran. What follows from it: the mean
time that jobs of one size ran. What is assumed:

- Jobs with fewer than eight GPUs share nodes there. Muster gives whole nodes, so that only jobs of more than four GPUs
  are drawn, as nodes of eight. A job has the upper end of its class of sizes.
- Jobs of one size are spread around their mean as all jobs of the cluster are, between the published points evenly in
  the logarithm. None runs longer than the longest of its cluster, nor than 14 days.
- Jobs of less than ten minutes are left out: they are many, take hardly any node time, and each costs the bench two
  plans.
- Jobs come by chance, three times as often in the middle of the day as in that of the night. The size of all jobs
  together is exactly what the load says.
- A fleet that was empty a week ago has few of the long jobs. So jobs come for a week before the time that is measured.
- Sixteen namespaces: jobs of 32 nodes and more come from two, the others by Zipf's law from all.
- One job in ten has a high priority, whatever its size.
"""

import bisect
import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from bench.queueing.published import GPUS, HELIOS, KALOS, PAI, PHILLY, SEREN, Cluster

DAY = 86_400.0
GPUS_PER_NODE = 8
WARM_UP_DAYS = 7.0
SHORTEST_SECONDS = 600.0
LONGEST_SECONDS = 14 * DAY
SMALL_NODES = 2
LARGE_NODES = 32
NAMESPACES = 16
CLUSTERS = {"philly": PHILLY, "helios": HELIOS, "pai": PAI, "seren": SEREN, "kalos": KALOS}
LOGNORMAL = "lognormal"
WORKLOADS = (*CLUSTERS, LOGNORMAL)
"""The last one is of no cluster: few jobs, and long ones, with which the waits of small jobs were found first."""
_QUANTILES = 500
_HIGH_SHARE = 0.1
_LEVELS = (("rack", 8), ("block", 32))


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the bench.

    Attributes:
        arrival: seconds since the start of the warm-up.
        nodes: whole nodes, all at once.
        seconds: how long it works if nothing fails.
        estimate_seconds: what its owner says about that.
        level: the topology level of which one domain must hold it; None: any nodes will do.
        preemptible: whether its owner lets it leave for others after a save.
        high: whether it has the higher of two priorities.
    """

    name: str
    namespace: str
    arrival: float
    nodes: int
    seconds: float
    estimate_seconds: float
    level: str | None = None
    preemptible: bool = False
    high: bool = False


@dataclass(frozen=True, slots=True)
class SizeClass:
    """Jobs of one size: how often they come, and the quantiles of the seconds that they run."""

    nodes: int
    weight: float
    seconds: tuple[float, ...]


def quantile(shorter: tuple[float, ...], share: float) -> float:
    """The seconds that this share of the jobs does not exceed, from percents at 1, 2, 4, ... seconds."""
    percent = 100.0 * share
    above = bisect.bisect_left(shorter, percent)
    if above == 0:
        return 1.0
    if above == len(shorter):
        return 2.0 ** (len(shorter) - 1)
    low, high = shorter[above - 1], shorter[above]
    return math.exp2(above - 1 + (percent - low) / (high - low))


def _spread(shorter: tuple[float, ...], mean: float, longest: float) -> tuple[float, ...]:
    """Quantiles of seconds with that mean, none above the longest."""
    shape = [quantile(shorter, (number + 0.5) / _QUANTILES) for number in range(_QUANTILES)]
    low, high = 0.0, 1e6
    for _ in range(40):
        scale = math.sqrt(max(low, 1e-6) * high)
        average = sum(min(scale * value, longest) for value in shape) / _QUANTILES
        low, high = (scale, high) if average < mean else (low, scale)
    return tuple(min(high * value, longest) for value in shape)


def size_classes(cluster: Cluster) -> list[SizeClass]:
    """The classes of whole nodes, without the jobs that are too short; means as they follow from what is published."""
    found = []
    for place in range(GPUS.index(GPUS_PER_NODE), len(GPUS)):
        jobs = cluster.smaller[place] - cluster.smaller[place - 1]
        time = cluster.time[place] - cluster.time[place - 1]
        if jobs <= 0 or time <= 0:
            continue
        mean = cluster.gpu_seconds * time / (cluster.jobs * jobs * GPUS[place])
        seconds = [
            value
            for value in _spread(cluster.shorter, mean, min(cluster.longest, LONGEST_SECONDS))
            if value >= SHORTEST_SECONDS
        ]
        if seconds:
            weight = jobs * len(seconds) / _QUANTILES
            found.append(SizeClass(GPUS[place] // GPUS_PER_NODE, weight, tuple(seconds)))
    return found


@functools.cache
def published_classes(name: str) -> tuple[SizeClass, ...]:
    """The classes of a cluster by its name."""
    return tuple(size_classes(CLUSTERS[name]))


def draw(workload: str, seed: int, nodes: int, days: float, load: float, required: float = 0.0) -> list[Job]:
    """Jobs of so many days, and of the warm-up before, for a fleet of so many nodes, by arrival.

    Args:
        workload: a name of `WORKLOADS`.
        seed: the same seed draws the same jobs.
        nodes: of the fleet; no job wants more than half of them.
        days: that are measured.
        load: node time of all jobs, as a share of that of the fleet in these days.
        required: share of the jobs of 2 to 32 nodes that must lie in one domain of the innermost level that holds
            them.
    """
    random = Random(f"{workload} {seed}")
    days += WARM_UP_DAYS
    wanted, taken = load * nodes * days * DAY, 0.0
    sizes: list[tuple[int, float]] = []
    drawn = _lognormal(random) if workload == LOGNORMAL else _published(random, workload)
    while taken < wanted:
        size, seconds = next(drawn)
        size = min(size, nodes // 2)
        seconds = min(seconds, max((wanted - taken) / size, SHORTEST_SECONDS))
        sizes.append((size, seconds))
        taken += size * seconds
    arrivals = _arrivals(random, days)
    times = sorted(next(arrivals) for _ in sizes)
    priorities = Random(f"{workload} {seed} priorities")
    return [
        _a_job(random, f"job-{number}", arrival, size, required, high=priorities.random() < _HIGH_SHARE)
        for number, (arrival, size) in enumerate(zip(times, sizes, strict=True))
    ]


def most_work(jobs: Sequence[Job], nodes: int, until: float) -> float:
    """Node seconds of work that no queue exceeds by a moment, whatever its order.

    No job has done more by then than if it had worked from its arrival on, and no fleet more from some moment on than
    all of its nodes can do. This is the least sum of both, over all moments: what a fleet does on which each job works
    from its arrival on, and on which work of all jobs for which there are too few nodes is done later, on any nodes.
    """
    begins = [(job.arrival, job.nodes) for job in jobs]
    ends = [(job.arrival + job.seconds, -job.nodes) for job in jobs]
    changes = sorted(change for change in (*begins, *ends) if change[0] < until)
    now = done = waiting = 0.0
    wanted = 0
    for moment, change in (*changes, (until, 0)):
        waiting += wanted * (moment - now)
        worked = min(waiting, nodes * (moment - now))
        done, waiting, wanted, now = done + worked, waiting - worked, wanted + change, moment
    return done


def _published(random: Random, cluster: str) -> Iterator[tuple[int, float]]:
    """Nodes and seconds of jobs of a cluster."""
    classes = published_classes(cluster)
    weights = [each.weight for each in classes]
    while True:
        found = random.choices(classes, weights)[0]
        yield found.nodes, random.choice(found.seconds)


def _lognormal(random: Random) -> Iterator[tuple[int, float]]:
    """Nodes and seconds of jobs of which seven in ten have one or two nodes; half of them run for six hours or more."""
    while True:
        part = random.random()
        nodes = random.choice((1, 2) if part < 0.7 else (4, 8, 16, 32) if part < 0.99 else (64, 128))
        seconds = random.lognormvariate(math.log(6 * 3600.0), 1.5)
        yield nodes, min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)


def _arrivals(random: Random, days: float) -> Iterator[float]:
    """Moments of these days by chance, most often at noon."""
    while True:
        moment = random.random() * days * DAY
        if random.random() * 1.5 < 1.0 - 0.5 * math.cos(2 * math.pi * moment / DAY):
            yield moment


def _a_job(random: Random, name: str, arrival: float, size: tuple[int, float], required: float, high: bool) -> Job:
    nodes, seconds = size
    ranks = range(2 if nodes >= LARGE_NODES else NAMESPACES)
    rank = random.choices(ranks, [1 / (1 + rank) for rank in ranks])[0]
    level = next((level for level, most in _LEVELS if nodes <= most), None)
    bound = nodes > 1 and level is not None and random.random() < required
    return Job(
        name,
        f"team-{rank}",
        arrival,
        nodes,
        seconds,
        estimate_seconds=seconds,
        level=level if bound else None,
        preemptible=random.random() < 0.5,
        high=high,
    )

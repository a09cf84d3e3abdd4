"""Streams of jobs on random fleets: Muster's solver beside Kueue's documented rules."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.unit.lifecycle.builders import a_fleet, a_node
from tests.unit.placement import oracles
from tests.unit.placement.cases import LEVELS, NEEDS

from muster.placement.request import Request
from muster.placement.space import solve
from muster.placement.where import domain_counts, domain_path
from muster.world.fleet import Fleet
from muster.world.queuedecision import Placed
from muster.world.views import NodeView

MUSTER = "Muster"
RULES: dict[str, Callable[[oracles.Free, int, int, int], list[str] | None]] = {
    "BestFit": oracles.best_fit,
    "LeastFreeCapacity": oracles.least_free_capacity,
}
SYSTEMS = (MUSTER, *RULES)


@dataclass(frozen=True)
class Job:
    """A job of a stream: nodes, steps that it runs for, depth of the level that it requires (0: none)."""

    name: str
    count: int
    steps: int
    required: int


@dataclass
class Tally:
    """What came out for one system, over jobs that all systems placed.

    Attributes:
        jobs: how many those are.
        domains: by depth from 1 on, summed over them.
        at: by depth, how many of them were on a fleet that has it.
        placed: jobs placed, those the others did not place included.
        probes: times it was looked how many large gangs would fit, each as large as an outermost domain.
        whole: how many did, summed up: outermost domains that were free as a whole.
        largest: times a gang as large as the largest outermost domain would have fitted.
        most: times one of three quarters of that would have.
    """

    jobs: int = 0
    domains: Counter[int] = field(default_factory=Counter)
    at: Counter[int] = field(default_factory=Counter)
    placed: int = 0
    probes: int = 0
    whole: int = 0
    largest: int = 0
    most: int = 0


@dataclass
class Comparison:
    """Muster beside one rule from the same state: decisions, those with fewer domains, and those with more."""

    decisions: int = 0
    fewer: int = 0
    more: int = 0
    only_muster: int = 0
    only_rule: int = 0


def a_fleet_of(random: Random) -> tuple[Fleet, Counter[str]]:
    """A fleet of two or three levels with domains of uneven size, and the sizes of its outermost domains."""
    depth = random.choice([2, 3])
    shape = [random.randint(2, 4) for _ in range(depth)]
    nodes: list[NodeView] = []

    def fill(path: tuple[str, ...]) -> None:
        if len(path) < depth:
            for number in range(shape[len(path)]):
                fill((*path, f"{'zbr'[len(path)]}{number}"))
            return
        labels = {label: name for (_, label), name in zip(LEVELS, path, strict=False)}
        for _ in range(random.randint(2, 6)):
            nodes.append(a_node(f"n{len(nodes)}", labels=labels))

    fill(())
    fleet = a_fleet(nodes, LEVELS[:depth])
    labels = fleet.policy.topology.labels
    return fleet, Counter(domain_path(node, labels)[0] for node in nodes)


def a_stream(random: Random, fleet: Fleet, steps: int) -> list[Job]:
    """One job at each step; most are small, some take up to a third of the fleet."""
    jobs, size, depth = [], len(fleet.nodes), len(fleet.policy.topology.levels)
    for number in range(steps):
        large = random.random() < 0.25
        count = random.randint(max(2, size // 8), max(3, size // 3)) if large else random.randint(1, 5)
        required = random.choice([0, 0, 0, 1, depth]) if not large else random.choice([0, 0, 1])
        jobs.append(Job(f"job-{number}", count, random.randint(2, 12), required))
    return jobs


def free_of(fleet: Fleet) -> dict[tuple[str, ...], list[str]]:
    """Free nodes by innermost domain, as the rules want them."""
    free: dict[tuple[str, ...], list[str]] = defaultdict(list)
    labels = fleet.policy.topology.labels
    for name, node in fleet.nodes.items():
        if not fleet.holders(name):
            free[domain_path(node, labels)].append(name)
    return free


def choose(system: str, fleet: Fleet, count: int, required: int) -> Sequence[str] | None:
    """The nodes that a system takes for a job, None if it finds none."""
    levels = [level.name for level in fleet.policy.topology.levels]
    if system == MUSTER:
        answer = solve(fleet, Request(count, NEEDS, "new", required=levels[required - 1] if required else None))
        return answer.nodes if isinstance(answer, Placed) else None
    return RULES[system](free_of(fleet), count, len(levels), required)


def domains(fleet: Fleet, nodes: Sequence[str]) -> tuple[int, ...]:
    """How many domains the nodes are in, by level from the outside in."""
    return tuple(domain_counts(fleet, nodes).values())


def per_decision(seed: int, steps: int) -> Iterator[tuple[str, Sequence[str] | None, Sequence[str] | None, Fleet]]:
    """A stream on one state, that Muster goes on with: at each job the rule's choice beside Muster's."""
    random = Random(seed)
    fleet, _ = a_fleet_of(random)
    ends: dict[int, list[str]] = defaultdict(list)
    for step, job in enumerate(a_stream(random, fleet, steps)):
        for name in ends[step]:
            fleet.occupy(name, name, frozenset())
        ours = choose(MUSTER, fleet, job.count, job.required)
        for rule in RULES:
            yield rule, ours, choose(rule, fleet, job.count, job.required), fleet
        if ours:
            fleet.occupy(job.name, job.name, frozenset(ours))
            ends[step + job.steps].append(job.name)


def whole_stream(seed: int, steps: int) -> dict[str, Tally]:
    """The same stream on a state of each system's own. After each step: what room is there for large gangs?"""
    tallies, chosen = {system: Tally() for system in SYSTEMS}, {}
    for system in SYSTEMS:
        random = Random(seed)
        fleet, sizes = a_fleet_of(random)
        ends: dict[int, list[str]] = defaultdict(list)
        found: list[tuple[int, ...] | None] = []
        for step, job in enumerate(a_stream(random, fleet, steps)):
            for name in ends[step]:
                fleet.occupy(name, name, frozenset())
            nodes = choose(system, fleet, job.count, job.required)
            found.append(domains(fleet, nodes) if nodes else None)
            if nodes:
                fleet.occupy(job.name, job.name, frozenset(nodes))
                ends[step + job.steps].append(job.name)
            tallies[system].probes += 1
            room = Counter[str]()
            for path, names in free_of(fleet).items():
                room[path[0]] += len(names)
            best = max(room.values(), default=0)
            tallies[system].whole += sum(room[name] == size for name, size in sizes.items())
            tallies[system].largest += best == max(sizes.values())
            tallies[system].most += best >= max(sizes.values()) * 3 / 4
        tallies[system].placed = sum(each is not None for each in found)
        chosen[system] = found
    for together in zip(*(chosen[system] for system in SYSTEMS), strict=True):
        if all(each is not None for each in together):
            for system, counts in zip(SYSTEMS, together, strict=True):
                tallies[system].jobs += 1
                tallies[system].domains.update(dict(enumerate(counts or (), start=1)))
                tallies[system].at.update(range(1, len(counts or ()) + 1))
    return tallies


def compared(seeds: Sequence[int], steps: int) -> dict[str, Comparison]:
    """All decisions of these streams; counts of domains are compared from the outside in."""
    found = {rule: Comparison() for rule in RULES}
    for seed in seeds:
        for rule, ours, theirs, fleet in per_decision(seed, steps):
            comparison = found[rule]
            comparison.only_muster += ours is not None and theirs is None
            comparison.only_rule += ours is None and theirs is not None
            if ours is None or theirs is None:
                continue
            comparison.decisions += 1
            mine, other = domains(fleet, ours), domains(fleet, theirs)
            comparison.fewer += mine < other
            comparison.more += mine > other
    return found


def tallied(seeds: Sequence[int], steps: int) -> dict[str, Tally]:
    """The sums of all these streams."""
    sums = {system: Tally() for system in SYSTEMS}
    for seed in seeds:
        for system, tally in whole_stream(seed, steps).items():
            total = sums[system]
            total.jobs += tally.jobs
            total.domains += tally.domains
            total.at += tally.at
            total.placed += tally.placed
            total.probes += tally.probes
            total.whole += tally.whole
            total.largest += tally.largest
            total.most += tally.most
    return sums

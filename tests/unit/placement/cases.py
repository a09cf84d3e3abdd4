"""Small fleets and requests of every kind, drawn from a source of randomness."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.unit.lifecycle.builders import GPU, a_fleet, a_node

from muster.placement.eligibility import Requirements
from muster.placement.request import Broken, Request
from muster.world.fleet import Fleet
from muster.world.queuedecision import Refusal, RefusalKind
from muster.world.views import NodeView, Taint

LEVELS = [("zone", "z"), ("block", "b"), ("rack", "r")]
NEEDS = Requirements(8, {}, {})


@dataclass(frozen=True)
class Case:
    """A fleet's parts, so that it can be built in any order, and what is asked of it."""

    nodes: Mapping[str, NodeView]
    holders: Mapping[str, frozenset[str]]
    ages: Mapping[str, float]
    levels: list[tuple[str, str]]
    request: Request
    taken: tuple[str, ...]

    @property
    def fleet(self) -> Fleet:
        return a_fleet(self.nodes.values(), self.levels, holders=self.holders, lease_age_seconds=self.ages)


def a_case(random: Random, most_nodes: int = 10) -> Case:
    """A fleet of up to three levels, some nodes without labels, not ready, held or silent; any kind of request."""
    levels = LEVELS[: random.choice([0, 1, 1, 2, 2, 2, 3, 3, 3])]
    size = random.randint(1, most_nodes)
    nodes, holders, ages = {}, {}, {}
    for name in [f"n{number}" for number in range(size)]:
        labels = {label: random.choice("xyz"[: random.randint(1, 3)]) for _, label in levels if random.random() < 0.93}
        chance = random.random()
        nodes[name] = a_node(
            name,
            labels=labels,
            ready=chance >= 0.04,
            taints=(Taint("soft", "", "PreferNoSchedule"),) if random.random() < 0.1 else (),
            allocatable={GPU: random.choice([8, 8, 8, 8, 16])},
        )
        if 0.04 <= chance < 0.16:
            holders[name] = frozenset({"other"})
        elif 0.16 <= chance < 0.22:
            holders[name] = frozenset({"me"})
        elif 0.22 <= chance < 0.25:
            ages[name] = 60.0
    names = sorted(nodes)
    request = _a_request(random, names, [name for name, _ in levels])
    taken = tuple(name for name in names if random.random() < 0.05)
    return Case(nodes, holders, ages, levels, request, taken)


def _a_request(random: Random, names: list[str], levels: list[str]) -> Request:
    segment_size = random.choice([1, 1, 1, 2, 2, 3])
    kept: tuple[str, ...] = ()
    broken: list[Broken] = []
    if random.random() < 0.4:
        kept = tuple(random.sample(names, random.randint(1, min(4, len(names)))))
        rest = list(kept)
        for _ in range(random.randint(1, 2) if segment_size > 1 and random.random() < 0.7 else 0):
            stay = random.randint(0, min(segment_size - 1, len(rest)))
            broken.append(Broken(segment_size - stay, tuple(rest[:stay])))
            del rest[:stay]
    count = sum(each.missing for each in broken) or random.randint(1, max(1, 6 // segment_size)) * segment_size
    avoid = {
        name: Refusal(RefusalKind.AVOIDED_BY_SPEC, "in spec.placement.avoidNodes")
        for name in names
        if random.random() < 0.03
    }
    return Request(
        count=count,
        needs=Requirements(8, {}, avoid),
        job_uid="me",
        required=random.choice([None, None, *levels]),
        segment_size=segment_size,
        spares=random.choice([0, 0, 0, 1, 2, 3]),
        kept=kept,
        broken=tuple(broken),
    )

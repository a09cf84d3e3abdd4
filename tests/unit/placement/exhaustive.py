"""A solver that tries everything, for fleets of a dozen nodes. It shares the rules of eligibility and no more."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from muster.placement.eligibility import refusal, reluctance
from muster.placement.request import Request
from muster.world.fleet import Fleet

Place = tuple[str, ...]  # as deep as there are levels; a node without a label is its own place from there on


@dataclass(frozen=True)
class Best:
    """The values of an answer, or the best: domains of the workers, then of all; what is left behind; reluctance."""

    counts: tuple[int, ...]
    with_spares: tuple[int, ...]
    left: tuple[int, ...]
    reluctance: int


def labelled(fleet: Fleet, name: str) -> tuple[str, ...]:
    labels = fleet.nodes[name].labels
    path: list[str] = []
    for level in fleet.policy.topology.levels:
        if not labels.get(level.label):
            break
        path.append(labels[level.label])
    return tuple(path)


def place(fleet: Fleet, name: str) -> Place:
    path, levels = labelled(fleet, name), len(fleet.policy.topology.levels)
    return path + (f"alone: {name}",) * (levels - len(path))


def usable(fleet: Fleet, request: Request, taken: Sequence[str] = ()) -> list[str]:
    barred = {*request.kept, *taken}
    nodes = fleet.nodes.items()
    return sorted(
        n for n, node in nodes if n not in barred and not refusal(node, request.needs, fleet, request.job_uid)
    )


def home(fleet: Fleet, names: Sequence[str], depth: int) -> Place | None:
    """The domain at a depth that most of the nodes are in, the first by name among equals."""
    paths = [labelled(fleet, name) for name in names if name in fleet.nodes]
    counts = Counter(path[:depth] for path in paths if len(path) >= depth)
    return min(counts, key=lambda path: (-counts[path], path), default=None)


def depth_of(fleet: Fleet, level: str | None) -> int:
    return [None, *(each.name for each in fleet.policy.topology.levels)].index(level)


def vectors(
    fleet: Fleet, request: Request, free: Mapping[Place, int], workers: set[Place], others: set[Place]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Domains of the workers, and of all, and what is free in those of all, by level; kept ones included."""
    kept = {place(fleet, name) for name in request.kept if name in fleet.nodes}
    levels = range(1, len(fleet.policy.topology.levels) + 1)
    inside = [{p[:depth] for p in workers | kept} for depth in levels]
    around = [{p[:depth] for p in workers | others | kept} for depth in levels]
    left = tuple(
        sum(count for p, count in free.items() if p[:depth] in domains)
        for depth, domains in zip(levels, around, strict=True)
    )
    return tuple(map(len, inside)), tuple(map(len, around)), left


def best(fleet: Fleet, request: Request, taken: Sequence[str] = ()) -> Best | None:
    """The best of all choices; None if there is none."""
    names = usable(fleet, request, taken)
    members: dict[Place, list[str]] = defaultdict(list)
    for name in names:
        members[place(fleet, name)].append(name)
    free = {p: len(several) for p, several in members.items()}
    weights = {
        p: sorted(reluctance(fleet.nodes[n], request.needs, fleet) for n in several) for p, several in members.items()
    }
    found = []
    for workers, spares in _choices(fleet, request, free):
        mine = {p for p, count in workers.items() if count}
        others = {p for p, count in spares.items() if count}
        total = sum(sum(weights[p][: workers[p] + spares[p]]) for p in free)
        found.append((*vectors(fleet, request, free, mine, others), total))
    return Best(*min(found)) if found else None


def _choices(
    fleet: Fleet, request: Request, free: Mapping[Place, int]
) -> Iterator[tuple[dict[Place, int], dict[Place, int]]]:
    """Every allowed number of workers and of spares in each place."""
    depth, size = depth_of(fleet, request.required), request.segment_size
    starts: set[Place] = {p[:depth] for p in free if not any("alone" in name for name in p[:depth])}
    kept = [name for name in request.kept if name in fleet.nodes]
    if depth and kept:
        bound = home(fleet, kept, depth)
        starts = {bound} if bound is not None else set()
    joined: Counter[Place] = Counter()
    for broken in request.broken:
        if broken.beside:
            at = home(fleet, broken.beside, len(fleet.policy.topology.levels))
            if at is None:
                return
            joined[at] += broken.missing
    if any(count > free.get(p, 0) for p, count in joined.items()):
        return
    for start in starts or (set() if depth else {()}):
        if any(p[:depth] != start for p in joined):
            continue
        places = [p for p in free if p[:depth] == start]
        ranges = [
            range(joined[p], free[p] + 1, size)
            if size == 1 or not any("alone" in name for name in p)
            else range(joined[p], joined[p] + 1)
            for p in places
        ]
        for counts in product(*ranges):
            if sum(counts) != request.count:
                continue
            rest = [range(min(request.spares, free[p] - count) + 1) for p, count in zip(places, counts, strict=True)]
            for spares in product(*rest):
                if sum(spares) == request.spares:
                    nothing = dict.fromkeys(free, 0)
                    yield (
                        nothing | dict(zip(places, counts, strict=True)),
                        nothing | dict(zip(places, spares, strict=True)),
                    )

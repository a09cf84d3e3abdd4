"""Chooses nodes for one request among its candidate nodes, or finds that there are none.

Tests: tests/unit/placement/test_space.py.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from muster.placement.allot import Site, allot
from muster.placement.candidates import CandidateNodes
from muster.placement.domain import Change, Domain
from muster.placement.knapsack import NOTHING, Choice, Knapsack
from muster.placement.points import Room, point_holds
from muster.placement.request import Request


@dataclass(frozen=True, slots=True)
class Found:
    """The chosen nodes for the workers, in the order of the request, and for the spares."""

    nodes: tuple[str, ...]
    spares: tuple[str, ...]


def wanted_room(request: Request) -> Room:
    """The room to find: the segments that may lie anywhere, and their nodes together with the spares."""
    beside = sum(broken.missing for broken in request.broken if broken.beside)
    free = request.count - beside
    return Room(free // request.segment_size, free + request.spares)


def _can_hold(start: Domain, room: Room, knapsack: Knapsack) -> bool:
    """Whether a domain has as many free nodes, and room for as many segments, as are to be found."""
    return start.free >= room.nodes and start.room(knapsack.shape.segment_size, knapsack.levels)[0] >= room.segments


def find_nodes(request: Request, candidates: CandidateNodes, knapsack: Knapsack) -> Generator[None, None, Found | None]:
    """Return the nodes for a request; None if there are none that will do. It yields between its parts."""
    completed = _complete_broken_segments(request, candidates)
    if completed is None:
        return None
    candidates, beside = completed
    room = wanted_room(request)
    starts = yield from _best_starts(candidates, knapsack, room)
    choices: list[tuple[int, int, Domain, Choice]] = []
    seen = set()
    for number, (start, cost) in enumerate(starts):
        if start.signature in seen:
            continue
        seen.add(start.signature)
        left, choice = yield from _choice(start, cost, room, knapsack)
        choices.append((left, number, start, choice))
    knapsack.forget_refined()
    if not choices:
        return None
    _, _, start, choice = min(choices, key=lambda entry: entry[:2])
    yield
    sites: list[Site] = list(knapsack.sites(start, choice))
    workers, spares = allot(sites, room.segments, request.segment_size, request.spares)
    return Found(_in_order(request, workers, beside), tuple(spares))


def _complete_broken_segments(
    request: Request, candidates: CandidateNodes
) -> tuple[CandidateNodes, dict[int, list[str]]] | None:
    """The nodes that join what is left of broken segments, by place in `broken`, and the other candidate nodes.

    Returns None where a broken segment cannot be completed beside the nodes that it keeps.
    """
    beside: dict[int, list[str]] = {}
    root = candidates.root
    for index, broken in enumerate(request.broken):
        if not broken.beside:
            continue
        path = candidates.home(broken.beside, candidates.levels)
        home = root.at(path) if path is not None else None
        inside = path is not None and any(path[: start.depth] == start.path for start in candidates.starts)
        if home is None or not inside or len(home.nodes) < broken.missing:
            return None
        entries = home.nodes[: broken.missing]
        beside[index] = [entry.name for entry in sorted(entries, key=lambda entry: (entry.key, entry.name))]
        root = root.changed([Change(home.path, gone=entry) for entry in entries])
    if not beside:
        return candidates, beside
    starts = tuple(root.at(start.path) or Domain(start.path, {}, (), 0) for start in candidates.starts)
    return replace(candidates, root=root, starts=starts), beside


def _best_starts(
    candidates: CandidateNodes, knapsack: Knapsack, room: Room
) -> Generator[None, None, list[tuple[Domain, int]]]:
    """Return the domains that hold the room at the least cost and leave least behind around them, with that cost."""
    costs = []
    for start in candidates.starts:
        cost = (yield from knapsack.best(start, room)) if _can_hold(start, room, knapsack) else None
        if cost is not None:
            costs.append((cost, start))
    least = min((cost for cost, _ in costs), default=0)
    equal = [(_leftover_around(start, candidates.root, knapsack), start) for cost, start in costs if cost == least]
    lowest = min((left for left, _ in equal), default=0)
    return [(start, least) for left, start in equal if left == lowest]


def _leftover_around(start: Domain, root: Domain, knapsack: Knapsack) -> int:
    """What stays free in the domain `start` and in those around it, as one number."""
    left, domain = 0, root
    for name in start.path:
        domain = domain.kids[name]
        left += knapsack.unit_leftover(domain)
    return left


def _choice(start: Domain, cost: int, room: Room, knapsack: Knapsack) -> Generator[None, None, tuple[int, Choice]]:
    if start.depth == knapsack.levels:
        return sum(entry.reluctance for entry in start.nodes), NOTHING
    choices = [
        (left, choice)
        for left, choice in (yield from knapsack.refined(start, cost, room, room.segments))
        if point_holds(left, knapsack.shape, room)
    ]
    left, choice = choices[0]
    return knapsack.leftover_of(left), choice


def _in_order(request: Request, workers: Sequence[str], beside: dict[int, list[str]]) -> tuple[str, ...]:
    if not beside:
        return tuple(workers)
    rest, ordered = list(workers), list[str]()
    for index, broken in enumerate(request.broken):
        if index in beside:
            ordered += beside[index]
        else:
            ordered += rest[: broken.missing]
            del rest[: broken.missing]
    return tuple(ordered)

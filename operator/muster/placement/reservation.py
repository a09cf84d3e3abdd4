"""Which free nodes are held back for a request that has no place.

Without segments these are all that it can use in its best domain: as long as it waits they are too few. With segments
they are never more than it asks for: what is free for whole segments, and of those that are missing as much as is free
in the innermost domains that come nearest to holding one. `muster.queueing.queue` says why that cannot last for ever.

Tests: tests/unit/placement/test_reservation.py.
"""

import heapq
from collections import Counter

from muster.placement.candidates import CandidateNodes
from muster.placement.domain import Change, Domain, Entry
from muster.placement.explain import could_hold
from muster.placement.natural import NaturalKey, natural
from muster.placement.request import Request
from muster.placement.search import wanted_room


def nodes_to_reserve(request: Request, candidates: CandidateNodes) -> tuple[str, ...]:
    """The free nodes to hold back: those that the request needs in its best domain, in the order of their names.

    The best domain could ever hold the request and has most such nodes. Empty when no domain could hold it even if
    nothing else ran.
    """
    candidates = candidates.emptied
    able = filter(could_hold(request, candidates.levels), candidates.starts)
    if request.segment_size == 1:
        most = min(able, key=lambda start: (-start.free, _place(start)), default=None)
        return tuple(sorted(entry.name for entry in most.entries())) if most is not None else ()
    needed = [(_needed_nodes(start, request, candidates), start) for start in able]
    best = min(needed, key=lambda candidate: (-len(candidate[0]), _place(candidate[1])), default=((), None))
    return tuple(sorted(entry.name for entry in best[0]))


def _place(domain: Domain) -> list[NaturalKey]:
    return [natural(name) for name in domain.path]


def _needed_nodes(start: Domain, request: Request, candidates: CandidateNodes) -> list[Entry]:
    """The free nodes of a domain that the request needs, which asks for segments."""
    nodes: list[Entry] = []
    for broken in request.broken:
        path = candidates.home(broken.beside, candidates.levels)
        home = start.at(path) if path is not None and path[: start.depth] == start.path else None
        if home is not None:
            beside = home.nodes[: broken.missing]
            nodes += beside
            removals = [Change(home.path, gone=entry) for entry in beside]
            start = start.changed([*removals, Change(home.path, suitable=-broken.missing)])
    nodes += _for_segments(start, wanted_room(request).segments, request.segment_size, candidates.levels)
    return nodes + heapq.nsmallest(request.spares, set(start.entries()).difference(nodes))


def _for_segments(start: Domain, segments: int, size: int, levels: int) -> list[Entry]:
    """The free nodes for so many segments, with as few missing as possible; of equal domains those first by name."""
    domains = sorted(start.innermost(levels), key=lambda inner: ([natural(name) for name in inner.path], inner.path))
    offers: list[tuple[int, int]] = []  # nodes for one segment, as a negative number, and the place of their domain
    for place, domain in enumerate(domains):
        whole, rest = divmod(len(domain.nodes), size)
        offers += [(-size, place)] * whole
        if whole < domain.here // size:
            offers.append((-rest, place))
    counts = Counter[int]()
    for missing, place in heapq.nsmallest(segments, offers):
        counts[place] -= missing
    return [entry for place, domain in enumerate(domains) for entry in domain.nodes[: counts[place]]]

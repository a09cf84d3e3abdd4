"""Why a request has no place: the reason, one sentence with numbers for people, and the numbers.

Tests: tests/unit/placement/test_messages.py.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar

from muster.placement.candidates import CandidateNodes
from muster.placement.domain import Domain
from muster.placement.eligibility import IN_USE
from muster.placement.fleet_index import FleetIndex
from muster.placement.names import visible_counts, visible_name, visible_refusal
from muster.placement.natural import natural
from muster.placement.reasons import INSUFFICIENT_NODES, NEVER_FITS, TOPOLOGY_UNSATISFIED
from muster.placement.request import Request
from muster.placement.search import wanted_room
from muster.placement.tree import Tree
from muster.world.fleet import Fleet
from muster.world.names import nodes_text, verb_for
from muster.world.queuedecision import DomainCount, Nearest, NotPlaced, Refusal, RefusalKind, RefusedNodes, Shortfall

MAX_DOMAINS = 8
MAX_HOLDERS = 8
MAX_REASONS = 6
MAX_NAMED = 3
_AGAIN = "delete the job and create it"
# Refusals that are so only because of what others use or are to get.
PASSING = {RefusalKind.IN_USE, RefusalKind.TOO_FULL, RefusalKind.RESERVED, RefusalKind.PROMISED}
T = TypeVar("T")


def not_placed(request: Request, candidates: CandidateNodes, tree: Tree, fleet: Fleet) -> NotPlaced:
    """The answer to a request that has no place.

    Args:
        request: the request.
        candidates: the nodes that it could choose from.
        tree: the fleet as nodes for its kind of worker.
        fleet: the fleet.
    """
    candidates = candidates.emptied
    short = _shortfall(request, candidates, tree, fleet)
    if not short.ever and not request.kept:
        return NotPlaced(NEVER_FITS, _never(request, short), short)
    if short.free < short.needs:
        return NotPlaced(
            INSUFFICIENT_NODES, f"needs {_needs_text(request, '')}: {_fleet(short)}{_refused_text(short)}", short
        )
    return NotPlaced(TOPOLOGY_UNSATISFIED, _apart_message(request, candidates, short), short)


def indivisible(request: Request) -> bool:
    """Whether the requested nodes do not make up whole segments. Those of a replacement join what is left of some."""
    return bool(request.count % request.segment_size) and not request.broken


def could_hold(request: Request, levels: int) -> Callable[[Domain], bool]:
    """Tells of a domain whether it could hold the request if nothing else ran."""
    segments, nodes, size = wanted_room(request).segments, request.count + request.spares, request.segment_size
    return lambda domain: domain.suitable >= nodes and domain.room(size, levels)[1] >= segments


def _shortfall(request: Request, candidates: CandidateNodes, tree: Tree, fleet: Fleet) -> Shortfall:
    domains = _nearest_domains(request, candidates)
    able = bool(domains) and could_hold(request, candidates.levels)(domains[0])
    ever = able and not indivisible(request)
    domain = domains[0] if able else _largest(candidates)
    unhealthy = _unhealthy_nodes(candidates, tree, fleet)
    refused = _refused_nodes(_visible_refusals(_refused(candidates, tree), request), unhealthy)
    holders = _most(_visible_holders(_others(request, candidates, tree), request, fleet))
    refused_there, holders_there = refused, holders
    if domain is not None and domain.depth:
        counts, held = _counts_inside(domain, request, candidates, tree, fleet)
        names_there = {
            why: [name for name in names if tree.eligibility[name].path[: domain.depth] == domain.path]
            for why, names in unhealthy.items()
        }
        refused_there = _refused_nodes(_visible_refusals(counts, request), names_there)
        holders_there = _most(_visible_holders(held, request, fleet))
    return Shortfall(
        needs=request.count + request.spares,
        inside=request.required,
        segment_size=request.segment_size,
        fleet=len(fleet.nodes),
        suitable=candidates.root.suitable,
        free=candidates.root.free,
        refused=refused,
        holders=dict(holders[:MAX_HOLDERS]),
        domains=tuple(_count_of(domain) for domain in sorted(domains, key=_rank)),
        nearest=Nearest(
            domain=_count_of(domain) if domain is not None else None,
            refused=refused_there,
            holders=dict(holders_there[:MAX_HOLDERS]),
            more_holders=len(holders_there[MAX_HOLDERS:]),
            held_by_more=sum(count for _, count in holders_there[MAX_HOLDERS:]),
        ),
        ever=ever,
        fewer=_fewer(request, candidates, ever),
        lent=_count_lent(request, candidates),
    )


def _count_lent(request: Request, candidates: CandidateNodes) -> int:
    """The number of nodes that other jobs hold and would give back for the request."""
    usable = (candidates.eligibility[name] for name, why in candidates.own.items() if why is None)
    return sum(request.job_uid not in node.holders for node in usable)


def _count_of(domain: Domain) -> DomainCount:
    return DomainCount("/".join(domain.path), domain.free, domain.suitable)


def _refused_nodes(refused: Mapping[Refusal, int], names: Mapping[Refusal, Sequence[str]]) -> tuple[RefusedNodes, ...]:
    return tuple(RefusedNodes(why, count, tuple(names.get(why, ())[:MAX_NAMED])) for why, count in _most(refused))


def _visible_refusals(refused: Mapping[Refusal, int], request: Request) -> Counter[Refusal]:
    """The number of nodes by the reason as the readers of the answer may see it."""
    return visible_counts(refused, lambda why: visible_refusal(why, request.viewer))


def _visible_holders(held: Mapping[str, int], request: Request, fleet: Fleet) -> Counter[str]:
    """The number of nodes by the holder's name as the readers of the answer may see it."""
    return visible_counts(held, lambda holder: visible_name(fleet.name_of(holder), request.viewer))


def _fewer(request: Request, candidates: CandidateNodes, ever: bool) -> int:
    """How many workers have a place: on free nodes, or on suitable ones if all could not even have a place there."""
    size, segments = request.segment_size, 0
    for start in candidates.starts:
        free_room, suitable_room = start.room(size, candidates.levels)
        room, nodes = (free_room, start.free) if ever else (suitable_room, start.suitable)
        segments = max(segments, min(room, (nodes - request.spares) // size, request.count // size))
    return segments * size


def _unhealthy_nodes(candidates: CandidateNodes, tree: Tree, fleet: Fleet) -> dict[Refusal, list[str]]:
    """The unhealthy nodes by reason: their names are shown because a person has to repair these very machines."""
    by_reason: defaultdict[Refusal, list[str]] = defaultdict(list)
    for name in sorted(fleet.excluded, key=natural):
        state = tree.eligibility.get(name)
        why = state.why if state else None
        if why and why.kind is RefusalKind.UNHEALTHY and name not in candidates.barred:
            by_reason[why].append(name)
    return by_reason


def _counts_inside(
    domain: Domain, request: Request, candidates: CandidateNodes, tree: Tree, fleet: Fleet
) -> tuple[Counter[Refusal], Counter[str]]:
    """The number of a domain's nodes that cannot be used now, by reason, and of those otherwise usable, by holder."""
    refusals: list[Refusal | None] = []
    holders: list[str] = []
    barred, own, given = candidates.barred, candidates.own, candidates.given
    for name in FleetIndex.up_to_date(fleet).names_in(domain.path):
        state = tree.eligibility.get(name)
        if state is None:
            continue
        if name in barred:
            refusals.append(barred[name])
            continue
        if name in given.reasons and state.suitable:
            refusals.append(given.reasons[name])
            continue
        refusals.append(own.get(name, state.why))
        if state.suitable:
            holders += state.holders
    return Counter(why for why in refusals if why is not None), _without_own(Counter(holders), request)


def _rank(domain: Domain) -> tuple[object, ...]:
    return -domain.free, -domain.suitable, [natural(name) for name in domain.path], domain.path


def _largest(candidates: CandidateNodes) -> Domain | None:
    """The domain in which most nodes could be used if nothing else ran; None where none has any."""
    starts = (start for start in candidates.starts if start.suitable)
    return max(starts, key=lambda start: (start.suitable, start.free), default=None)


def _nearest_domains(request: Request, candidates: CandidateNodes) -> list[Domain]:
    """The domains that are nearest to holding the request, nearest first: before all others those that ever could."""
    could = could_hold(request, candidates.levels)
    starts = [start for start in candidates.starts if start.suitable]
    return heapq.nsmallest(MAX_DOMAINS, starts, key=lambda domain: (not could(domain), *_rank(domain)))


def _refused(candidates: CandidateNodes, tree: Tree) -> Counter[Refusal]:
    """The number of nodes that cannot be used now, by reason. Nodes that are barred for this request, or that the plan
    has given away, count under that reason, also those that others hold, which give way."""
    refused, given, eligibility = Counter(tree.refused), candidates.given, tree.eligibility
    refused.update(given.usable)
    refused.subtract(given.refused)
    for name, why in candidates.barred.items():
        state = eligibility.get(name)
        if state is not None:
            refused[why] += 1
            if counted := given.reasons.get(name) if state.suitable else None:
                refused[counted] -= 1
            elif state.why:
                refused[state.why] -= 1
    refused[IN_USE] -= len(candidates.own)
    refused.update(why for why in candidates.own.values() if why)
    return refused


def _others(request: Request, candidates: CandidateNodes, tree: Tree) -> Counter[str]:
    """The number of otherwise usable nodes that each other job or pod holds and would not give back."""
    held = _without_own(Counter(tree.held), request)
    given, states = candidates.given, map(tree.eligibility.get, candidates.barred)
    barred = [state for state in states if state is not None and state.suitable and not given.has_held(state)]
    counts = Counter(chain.from_iterable(state.holders for state in barred)) + given.held
    held.subtract({holder: count for holder, count in counts.items() if holder in held})
    return held


def _without_own(held: Counter[str], request: Request) -> Counter[str]:
    """Take the job itself, and those that would give their nodes back for it, out of the counts by holder."""
    for holder in (request.job_uid, *request.given_back):
        del held[holder]
    return held


def _most(counts: Mapping[T, int]) -> list[tuple[T, int]]:
    return sorted(((key, n) for key, n in counts.items() if n > 0), key=lambda item: (-item[1], str(item[0])))


def _needs_text(request: Request, kind: str) -> str:
    """What the request needs and inside which domain, in words, such as `4 free nodes in one rack`."""
    kind = f"more {kind}".rstrip() if request.kept else kind
    parts = [nodes_text(request.count, kind)] if request.count else []
    if request.spares:
        parts.append(f"{request.spares} spare{'s' * (request.spares != 1)}")
    inside = f" in one {request.required}" if request.required else ""
    size = request.segment_size
    segments = f", {size} at a time in one domain of the innermost level" if size > 1 else ""
    return " and ".join(parts) + inside + segments


def _fleet(short: Shortfall) -> str:
    free = short.free - short.lent
    lent = f", {short.lent} {verb_for(short.lent)} held by jobs that give way to it" if short.lent else ""
    return f"{free} of the fleet's {short.fleet} {verb_for(free)} free and suitable{lent}"


def _refused_text(short: Shortfall) -> str:
    """Why the other nodes cannot be used, in brackets, such as ` (3 in use, 1 not ready)`; "" where there are none."""
    named = sum(short.holders.values())
    used = sum(group.count for group in short.refused if group.why.kind is RefusalKind.IN_USE)
    parts = [(n.count, f"{n.count} {n.why}") for n in short.refused if n.why.kind is not RefusalKind.IN_USE]
    if 0 < named <= used:
        parts += [(count, f"{count} {IN_USE} by {holder}") for holder, count in short.holders.items()]
        parts += [(used - named, f"{used - named} {IN_USE} by others")] if used > named else []
    elif used:
        parts.append((used, f"{used} {IN_USE}"))
    parts.sort(key=lambda part: (-part[0], part[1]))
    texts = [text for _, text in parts[:MAX_REASONS]]
    if len(parts) > MAX_REASONS:
        rest = sum(count for count, _ in parts[MAX_REASONS:])
        texts.append(f"{rest} for {_more_reasons(len(parts) - MAX_REASONS)}")
    return f" ({', '.join(texts)})" if texts else ""


def _more_reasons(count: int) -> str:
    return f"{count} more reason{'s' * (count != 1)}"


def _apart_message(request: Request, candidates: CandidateNodes, short: Shortfall) -> str:
    """The message for a fleet with enough free nodes that do not lie where the request needs them."""
    where = _where(request, candidates)
    message = f"needs {_needs_text(request, 'free')}: {where}; {_fleet(short)}{_refused_text(short)}"
    ways = ["without spec.placement.required"] if request.required else []
    ways += ["without spec.placement.segmentSize"] if request.segment_size > 1 else []
    if request.kept or not ways:
        return message
    fewer = f", or with {nodes_text(short.fewer)}" if short.fewer else ""
    return f"{message}. To start now, {_AGAIN} {' and '.join(ways)}{fewer}."


def _where(request: Request, candidates: CandidateNodes) -> str:
    if request.kept and not candidates.starts:
        return f"the nodes that it keeps are in no {request.required}"
    best = next(iter(_nearest_domains(request, candidates)), None)
    if best is None and request.kept:
        return f"there is none in the {request.required} of its other nodes"
    if best is None:
        return f"no suitable node is in a {request.required}"
    if any(broken.beside for broken in request.broken):
        where = "a broken segment cannot be completed beside the nodes that it keeps"
        return f"{where}, or the others find no room" if wanted_room(request).nodes else where
    room = best.room(request.segment_size, candidates.levels)[0]
    name = "/".join(best.path)
    if request.segment_size > 1 and best.free >= request.count + request.spares:
        subject = f"{name} has" if name else "there is"
        return f"{subject} room for {room} of {wanted_room(request).segments} such segments"
    bound = "the one of its other nodes is" if request.kept else "best is"
    return f"{bound} {name} with {best.free} of {best.suitable}"


def _never(request: Request, short: Shortfall) -> str:
    if indivisible(request):
        return f"needs {nodes_text(request.count)}, which cannot be divided into segments of {request.segment_size}"
    most = short.nearest.domain
    if request.required:
        limit_text = f"even {most.domain} has only {most.suitable} suitable" if most else "no suitable node is in one"
        if most and most.suitable >= short.needs:
            limit_text = f"{most.domain} has {most.suitable} suitable, too few of them side by side"
        rest = f"; {short.suitable} of the fleet's {short.fleet} nodes are suitable"
    else:
        limit_text = f"only {short.suitable} of the fleet's {short.fleet} nodes {verb_for(short.suitable)} suitable"
        if short.suitable >= short.needs:
            limit_text = f"too few of the fleet's {short.suitable} suitable nodes are side by side"
        rest = ""
    return f"needs {_needs_text(request, '')}: {limit_text}, whatever else runs{rest}{_refused_text(_lasting(short))}"


def _lasting(short: Shortfall) -> Shortfall:
    """The numbers without the nodes that other jobs use or are to get."""
    refused = tuple(group for group in short.refused if group.why.kind not in PASSING)
    return replace(short, refused=refused, holders={})

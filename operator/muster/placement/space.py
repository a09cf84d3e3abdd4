"""The gang solver: all or nothing, as few domains as possible from the outside in, least fragmentation left behind.

`Space` answers requests one after the other. What it reads of the fleet is shared and kept up to date elsewhere
(`tree`). What is special to a request is an overlay of that (`candidates`). The choice of domains is a knapsack
(`knapsack`), that of nodes in them is a matter of order (`allot`). What may take long on a large fleet is a generator
that yields between its parts (`parts`). docs/placement.md has the rules, docs/decisions/0007 why they are these.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from muster.placement.candidates import CandidateNodes, GivenNodes, candidate_nodes
from muster.placement.domain import Change, Domain
from muster.placement.eligibility import Requirements
from muster.placement.explain import indivisible, not_placed
from muster.placement.fleet_index import PART
from muster.placement.knapsack import Knapsack
from muster.placement.parts import at_once
from muster.placement.points import Shape
from muster.placement.reasons import UNKNOWN_TOPOLOGY_LEVEL
from muster.placement.request import Request
from muster.placement.reservation import nodes_to_reserve
from muster.placement.search import find_nodes
from muster.placement.tree import Tree
from muster.world.fleet import STALE_HEARTBEAT_SECONDS, Fleet
from muster.world.queuedecision import NotPlaced, Placed, Refusal


def unknown_level(fleet: Fleet, *names: str | None) -> str | None:
    """The first of these level names that the fleet's policy does not have."""
    levels = {level.name for level in fleet.policy.topology.levels}
    return next((name for name in names if name and name not in levels), None)


class _Reduced(NamedTuple):
    """The fleet as nodes for some kinds of workers, less the nodes that the plan has given away.

    Attributes:
        base: the root of a tree.
        root: `base` less the nodes given away.
        applied: how many of the nodes given away that includes.
        given: the nodes given away, of which that many are counted.
    """

    base: Domain
    root: Domain
    applied: int
    given: GivenNodes


@dataclass(slots=True)
class _Memory:
    """The answers of a space to equal requests of several jobs, for one state of the fleet.

    Attributes:
        fleet: the state.
        given: how many nodes were given away: what the space answers holds for that number alone.
        answers: by request.
        reservations: by request.
        failed: by request apart from the jobs that give way for it: those with whose nodes it had no place. It has none
            with the nodes of fewer, either, and none when more nodes are given away.
    """

    fleet: Hashable
    given: int = 0
    answers: dict[Hashable, Placed | NotPlaced] = field(default_factory=dict)
    reservations: dict[Hashable, tuple[str, ...]] = field(default_factory=dict)
    failed: dict[Hashable, frozenset[str]] = field(default_factory=dict)


# So many failed requests are remembered: each may name as many jobs as there are nodes.
MAX_FAILED = 64
# What a request asks for, but for the nodes' properties, and apart from who asks.
_asked = attrgetter(*(part.name for part in fields(Request) if part.name not in ("needs", "job_uid")))
# Trees share roots, and so what they are less the nodes given away; of a fleet that changes the old ones are of no use.
MAX_REDUCED_ROOTS = 256
# So often candidates are made in parts while the fleet changes all the time.
MAX_TRIES = 3


class Space:
    """The free nodes for one plan: those of the fleet, less what the plan has already given away."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._given: dict[str, Refusal] = {}  # by node, in this order
        self._order: list[str] = []
        self._policy = fleet.policy
        self._trees: dict[object, Tree] = {}  # by profile, for this policy
        self._reduced: dict[int, _Reduced] = {}  # by id of the base
        self._memory = _Memory(None)

    def reserve_nodes(self, nodes: Iterable[str], why: Refusal) -> None:
        """Count these nodes as not free from now on, for example since they are reserved for a job.

        Of a node that is taken twice the first reason stays.
        """
        for node in nodes:
            if node not in self._given:
                self._given[node] = why
                self._order.append(node)

    def copied(self) -> "Space":
        """The same nodes, of which others may then be reserved; it remembers no answer."""
        space = Space(self._fleet)
        space._given, space._order = dict(self._given), list(self._order)
        space._policy, space._trees = self._policy, dict(self._trees)
        for base, reduced in self._reduced.items():
            space._reduced[base] = reduced._replace(given=reduced.given.copied(space._given))
        return space

    def all_reserved(self, nodes: Iterable[str]) -> bool:
        """Whether none of these nodes is left."""
        return all(map(self._given.__contains__, nodes))

    def solve(self, request: Request) -> Generator[None, None, Placed | NotPlaced]:
        """Choose nodes for a request, deterministically.

        Nodes that are the last choice for their health are chosen only where the request has no place without them. If
        the fleet changes between two parts, the answer is for the fleet as it was at one of them.
        """
        answers, key = self._remembered().answers, self._key(request)
        if key not in answers:
            answer = yield from self._solve(request)
            answers[key] = answer if isinstance(answer, Placed) else answer()
        return answers[key]

    def find(self, request: Request) -> Generator[None, None, Placed | None]:
        """Choose nodes as `solve` does, but explain nothing, which may cost more; None: there is no place."""
        failed = self._remembered().failed
        key = self._key(replace(request, given_back=frozenset(), viewer=None))
        if key in failed and request.given_back <= failed[key]:
            return None
        answer = yield from self._solve(request)
        if isinstance(answer, Placed):
            return answer
        if len(failed) >= MAX_FAILED:
            failed.clear()
        failed[key] = max(failed.get(key, request.given_back), request.given_back, key=len)
        return None

    def _remembered(self) -> _Memory:
        fleet, given = self._fleet, len(self._order)
        state = fleet.version, fleet.names_version, frozenset(fleet.heartbeats.older_than(STALE_HEARTBEAT_SECONDS))
        if self._memory.fleet != state:
            self._memory = _Memory(state, given)
        elif self._memory.given != given:
            self._memory = _Memory(state, given, failed=self._memory.failed)
        return self._memory

    def _key(self, request: Request) -> Hashable:
        """A key that is equal for requests with equal answers; who asks matters only where it holds nodes."""
        asks = request.job_uid if self._fleet.nodes_of(request.job_uid) else ""
        return asks, request.needs.profile, tuple(request.needs.avoid.items()), _asked(request)

    def _solve(self, request: Request) -> Generator[None, None, Placed | Callable[[], NotPlaced]]:
        answer = yield from self._choose(request)
        if not isinstance(answer, Placed) and _may_use_last(self._fleet, request):
            return (yield from self._choose(request.with_last()))
        return answer

    def _choose(self, request: Request) -> Generator[None, None, Placed | Callable[[], NotPlaced]]:
        """Return the nodes for a request, or what explains why there are none."""
        fleet = self._fleet
        tree, candidates = yield from self._candidates(request)
        unknown = unknown_level(fleet, request.required, request.preferred)
        if unknown:
            text = f"{unknown!r} is no longer a level of this fleet's FleetPolicy"
            return partial(NotPlaced, UNKNOWN_TOPOLOGY_LEVEL, text)
        if not indivisible(request):
            # It pauses only where it finds nodes, so what explains that there are none is of one moment.
            chosen = yield from find_nodes(request, candidates, self._knapsack(request))
            if chosen is not None:
                return Placed(chosen.nodes, chosen.spares)
        return partial(not_placed, request, candidates, tree, fleet)

    def _knapsack(self, request: Request) -> Knapsack:
        shape, levels = Shape(request.segment_size, request.spares), len(self._fleet.policy.topology.levels)
        return self._fleet.derived((Knapsack, shape), lambda _: Knapsack(levels, shape))

    def reservation(self, request: Request) -> Generator[None, None, tuple[str, ...]]:
        """Return the free nodes to hold back for a request that has no place; see `muster.placement.reservation`."""
        reservations, key = self._remembered().reservations, self._key(request)
        if key not in reservations:
            reservations[key] = yield from self._reservation(request)
        return reservations[key]

    def _reservation(self, request: Request) -> Generator[None, None, tuple[str, ...]]:
        if indivisible(request):
            return ()
        if _may_use_last(self._fleet, request):
            request = request.with_last()
        _, candidates = yield from self._candidates(request)
        return () if unknown_level(self._fleet, request.required) else nodes_to_reserve(request, candidates)

    def _candidates(self, request: Request) -> Generator[None, None, tuple[Tree, CandidateNodes]]:
        """Return the nodes that a request can choose from, all as they are at one moment.

        If the fleet changes between two parts they are made again, the last time without a pause.
        """
        for _ in range(MAX_TRIES):
            version, parts = self._fleet.version, self._candidates_in_parts(request)
            while self._fleet.version == version:
                try:
                    next(parts)
                except StopIteration as made:
                    candidates: tuple[Tree, CandidateNodes] = made.value
                    return candidates
                yield
        return at_once(self._candidates_in_parts(request))

    def _candidates_in_parts(self, request: Request) -> Generator[None, None, tuple[Tree, CandidateNodes]]:
        tree = self._tree(request.needs)
        reduced, depth = (yield from self._less_given(tree)), _depth(self._fleet, request.required)
        return tree, (yield from candidate_nodes(self._fleet, tree, reduced.root, reduced.given, request, depth))

    def _tree(self, needs: Requirements) -> Tree:
        if self._policy is not self._fleet.policy:
            self._policy = self._fleet.policy
            self._trees.clear()
        tree = self._trees.get(needs.profile)
        if tree is None:
            tree = self._trees[needs.profile] = Tree.up_to_date(self._fleet, needs)
        tree.follow()
        return tree

    def _less_given(self, tree: Tree) -> Generator[None, None, _Reduced]:
        reduced = self._reduced.get(id(tree.root)) or _Reduced(tree.root, tree.root, 0, GivenNodes(self._given))
        while reduced.applied < len(self._order):
            names = self._order[reduced.applied : reduced.applied + PART]
            usable = [state for state in map(tree.eligibility.get, names) if state is not None and state.suitable]
            root = reduced.root.changed([Change(state.path, gone=state.entry) for state in usable if not state.why])
            reduced.given.count(usable)
            if len(self._reduced) >= MAX_REDUCED_ROOTS:
                self._reduced.clear()
            reduced = reduced._replace(root=root, applied=reduced.applied + len(names))
            self._reduced[id(tree.root)] = reduced
            if len(names) == PART:
                yield
        return reduced


def solve(fleet: Fleet, request: Request) -> Placed | NotPlaced:
    """Choose nodes for one request alone, deterministically."""
    return at_once(Space(fleet).solve(request))


def prepare_trees(fleet: Fleet, request: Request) -> Iterator[None]:
    """Make the trees of free nodes that an answer to this request needs, or update them, in parts."""
    yield from Tree.prepare(fleet, request.needs)
    if _may_use_last(fleet, request):
        yield from Tree.prepare(fleet, request.with_last().needs)


def _may_use_last(fleet: Fleet, request: Request) -> bool:
    return request.may_use_last_choices and fleet.has_last_choices


def _depth(fleet: Fleet, level: str | None) -> int:
    names = [level.name for level in fleet.policy.topology.levels]
    return names.index(level) + 1 if level in names else 0

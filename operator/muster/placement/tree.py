"""The tree of free nodes for one kind of worker, kept up to date one changed node at a time.

The cost of an update grows with the nodes that have changed since, not with the fleet or with the jobs that run. A new
tree is made in parts, between which other work can run. It shares what an earlier tree has where the states of all
nodes are equal.
"""

from collections import Counter, OrderedDict
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from muster.placement.domain import Change, Domain
from muster.placement.eligibility import Requirements
from muster.placement.fleet_index import PART, FleetIndex, NodeEligibility, NodeEvaluator, pop_due
from muster.world.fleet import Fleet
from muster.world.queuedecision import Refusal

MAX_SHAPES = 32
# Beyond so many kinds of nodes an eye begins anew: nodes change, and what they were is of no use.
MAX_FOLLOWED = 4096


class UnpreparedError(Exception):
    """A decision about a large fleet needs a tree that is not made yet, or is out of date: make it, and decide again.

    Attributes:
        needs: the requirements of the workers whose tree it is.
    """

    def __init__(self, needs: Requirements) -> None:
        super().__init__("the tree of free nodes for this kind of worker is not built yet")
        self.needs = needs


class _Shape(NamedTuple):
    """The tree of all nodes' states, kept with these, by whose identity it is found again."""

    eligibilities: tuple[NodeEligibility, ...]
    root: Domain
    refused: Counter[Refusal]
    held: Counter[str]


class _Shapes:
    """A cache of the newest shapes."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, ...], _Shape] = OrderedDict()

    def get(self, eligibilities: Iterable[NodeEligibility]) -> _Shape | None:
        """The shape with exactly these node states; None where none is cached."""
        key = tuple(map(id, eligibilities))
        shape = self._known.get(key)
        if shape is not None:
            self._known.move_to_end(key)
        return shape

    def add(self, shape: _Shape) -> None:
        """Add a shape to the cache."""
        self._known[tuple(map(id, shape.eligibilities))] = shape
        if len(self._known) > MAX_SHAPES:
            self._known.popitem(last=False)


class Tree:
    """The fleet as nodes for workers of one profile (`Requirements.profile`).

    Attributes:
        root: the fleet as a domain.
        eligibility: the state of each node, by name.
        refused: the number of nodes that cannot be used now, by reason.
        held: the number of otherwise usable nodes that each job or pod holds.
    """

    def __init__(self, fleet: Fleet, needs: Requirements) -> None:
        self._fleet = fleet
        bare = Requirements(
            needs.accelerators,
            needs.template_spec,
            {},
            needs.requests,
            needs.scheduler_for,
            takes_last=needs.takes_last,
        )
        self._evaluator = NodeEvaluator(fleet, bare)
        self.root = Domain((), {}, (), 0)
        self.eligibility: dict[str, NodeEligibility] = {}
        self.refused: Counter[Refusal] = Counter()
        self.held: Counter[str] = Counter()
        self._version = fleet.version
        self._due: set[str] = set()  # nodes that have changed and were not looked at since
        self._followed = 0

    @classmethod
    def up_to_date(cls, fleet: Fleet, needs: Requirements) -> "Tree":
        """The fleet's tree for workers with these needs, brought up to date.

        Raises:
            UnpreparedError: the fleet is a snapshot (a decision must not take long), and there is much to do first.
        """
        source = fleet.source
        tree = source.known((cls, needs.profile), cls)
        work = tree.behind if tree is not None else len(fleet.nodes)
        if fleet.is_snapshot and work > PART:
            raise UnpreparedError(needs)
        if tree is None:
            for _ in cls.prepare(source, needs):
                pass
            tree = source.known((cls, needs.profile), cls)
            assert tree is not None
        tree.follow()
        return tree

    @classmethod
    def prepare(cls, fleet: Fleet, needs: Requirements) -> Generator[None, None, None]:
        """Build the tree of the nodes that suit these needs, or update it, in parts between which others run.

        The next call of `up_to_date` then has little to do.
        """
        fleet = fleet.source
        existing = fleet.known((cls, needs.profile), cls)
        if existing is not None:
            yield from existing.following()
            return
        policy, tree = fleet.policy, cls(fleet, needs)
        yield from tree._build()
        if fleet.policy is policy:
            fleet.derived((cls, needs.profile), lambda _: tree)
            tree.follow()
        else:  # it was made for another one
            yield from cls.prepare(fleet, needs)

    @property
    def behind(self) -> int:
        """The number of nodes that have changed since the tree was last brought up to date."""
        if self._version != self._fleet.version:
            changed = self._fleet.changed_since(self._version)
            self._version = self._fleet.version
            self._due.update(changed if changed is not None else {*self._fleet.nodes, *self.eligibility})
        return len(self._due)

    def follow(self) -> None:
        """Take in all changes of the fleet."""
        if self.behind:
            for _ in self.following():
                pass

    def following(self) -> Iterator[None]:
        """Take in the changes of the fleet, in parts."""
        yield from FleetIndex.prepare(self._fleet)
        while self.behind:
            names = pop_due(self._due)
            self._followed += len(names)
            if self._followed > MAX_FOLLOWED:
                self._followed = 0
                self._evaluator.forget()
            self._update(names)
            yield

    def _build(self) -> Iterator[None]:
        yield from FleetIndex.prepare(self._fleet)
        spots = dict(FleetIndex.up_to_date(self._fleet).spots)
        self._version = self._fleet.version
        look, waiting = self._evaluator.evaluate, iter(spots.items())
        while part := {name: look(spot) for name, spot in islice(waiting, PART)}:
            self.eligibility |= part
            yield
        shapes = self._fleet.derived(_Shapes, lambda _: _Shapes())
        shape = shapes.get(self.eligibility.values())
        if shape is None:
            yield from self._rebuild()
            shape = _Shape(tuple(self.eligibility.values()), self.root, Counter(self.refused), Counter(self.held))
            shapes.add(shape)
        self.root, self.refused, self.held = shape.root, Counter(shape.refused), Counter(shape.held)

    def _rebuild(self) -> Iterator[None]:
        waiting = iter(list(self.eligibility.values()))
        while part := list(islice(waiting, PART)):
            for state in part:
                self._count(state, 1)
            changes = [Change(s.path, come=None if s.why else s.entry, suitable=1) for s in part if s.suitable]
            self.root = self.root.changed(changes)
            yield

    def _update(self, names: Iterable[str]) -> None:
        changes: list[Change] = []
        spots = FleetIndex.up_to_date(self._fleet).spots
        for name in names:
            spot, old = spots.get(name), self.eligibility.get(name)
            new = self._evaluator.evaluate(spot) if spot is not None else None
            if new == old:
                continue
            if old is not None:
                self._count(old, -1)
                del self.eligibility[name]
                if old.suitable:
                    changes.append(Change(old.path, gone=None if old.why else old.entry, suitable=-1))
            if new is not None:
                self._count(new, 1)
                self.eligibility[name] = new
                if new.suitable:
                    changes.append(Change(new.path, come=None if new.why else new.entry, suitable=1))
        if changes:
            self.root = self.root.changed(changes)

    def _count(self, state: NodeEligibility, step: int) -> None:
        if state.why:
            self.refused[state.why] += step
        if state.suitable and state.holders:
            for holder in state.holders:
                self.held[holder] += step

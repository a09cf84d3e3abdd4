"""The facts about each node that are the same for every kind of worker, kept up to date one changed node at a time.

Nodes of a fleet are mostly alike: what a worker makes of a node's state, taints and resources is asked once for each
kind of node, not for each node. The result for a node is shared between the trees of all kinds of workers for which it
is equal.

Tests: tests/unit/placement/test_tree.py.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import count, islice
from typing import NamedTuple

from muster.placement.domain import Entry, Path
from muster.placement.eligibility import (
    IN_USE,
    UNSELECTED,
    Requirements,
    binding_of,
    closed,
    lacking,
    reluctance,
    unfit,
    unhealthy,
)
from muster.placement.natural import NaturalKey, natural
from muster.placement.where import domain_path
from muster.world.fleet import Fleet
from muster.world.queuedecision import Refusal
from muster.world.views import NodeView

# So many states of one node are kept: kinds of workers share most of them, and some have their own.
MAX_ELIGIBILITIES = 16
# Nodes that are looked at in one go: a few milliseconds.
PART = 1024
_KEY = "index"


def pop_due(due: set[str]) -> list[str]:
    """Remove and return a part of the due names."""
    return [due.pop() for _ in range(min(PART, len(due)))]


class NodeEligibility(NamedTuple):
    """The state of one node for one kind of worker.

    Attributes:
        path: the innermost domain that the node is known to be in.
        entry: its entry among the free nodes there.
        suitable: whether it could be used if nothing else ran there.
        why: why it cannot be used now; None if it can.
        holders: the uids of the jobs, or the names of the pods, that hold it.
    """

    path: Path
    entry: Entry
    suitable: bool
    why: Refusal | None
    holders: frozenset[str]


class IndexedNode:
    """The facts about one node that are the same for every kind of worker.

    Attributes:
        kind: a number that is equal for nodes that differ only in name, labels and what runs there.
        left: a number for what other pods leave of it, equal where that is the same; None where there are none.
    """

    __slots__ = ("_eligibilities", "holders", "key", "kind", "left", "node", "path")

    def __init__(self, node: NodeView, path: Path, holders: frozenset[str], kind: int, left: int | None) -> None:
        self.node = node
        self.path = path
        self.key: NaturalKey = natural(node.name)
        self.holders = holders
        self.kind = kind
        self.left = left
        self._eligibilities: dict[tuple[Refusal | None, bool, int], NodeEligibility] = {}

    def eligibility(self, why: Refusal | None, suitable: bool, reluctance: int) -> NodeEligibility:
        """The node's state for these values; equal values give the same object."""
        eligibility = self._eligibilities.get((why, suitable, reluctance))
        if eligibility is None:
            if len(self._eligibilities) >= MAX_ELIGIBILITIES:
                self._eligibilities.clear()
            entry = Entry(reluctance, self.key, self.node.name)
            eligibility = NodeEligibility(self.path, entry, suitable, why, self.holders)
            self._eligibilities[why, suitable, reluctance] = eligibility
        return eligibility


class FleetIndex:
    """The facts about all nodes of a fleet (`IndexedNode`), by name of the node."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._version = fleet.version
        self._due: set[str] = set()  # nodes that have changed and were not looked at since
        self._numbers: dict[Hashable, int] = {}
        self._next = count()
        self.spots: dict[str, IndexedNode] = {}
        self._names: defaultdict[Path, set[str]] = defaultdict(set)

    @classmethod
    def up_to_date(cls, fleet: Fleet) -> "FleetIndex":
        """The fleet's index, brought up to date."""
        fleet = fleet.source
        for _ in cls.prepare(fleet):
            pass
        index = fleet.known(_KEY, cls)
        assert index is not None
        index.follow()
        return index

    @classmethod
    def prepare(cls, fleet: Fleet) -> Iterator[None]:
        """Make the index in parts, or take in what has changed, so that `up_to_date` has little to do."""
        fleet = fleet.source
        existing = fleet.known(_KEY, cls)
        if existing is not None:
            yield from existing.following()
            return
        policy, index, names = fleet.policy, cls(fleet), iter(list(fleet.nodes))
        while part := list(islice(names, PART)):
            index._evaluate(part)
            yield
        if fleet.policy is policy:
            fleet.derived(_KEY, lambda _: index)
        else:  # it was made for another one
            yield from cls.prepare(fleet)

    def follow(self) -> None:
        """Take in all changes of the fleet."""
        for _ in self.following():
            pass

    def following(self) -> Iterator[None]:
        """Take in the changes of the fleet, in parts."""
        if self._version != self._fleet.version:
            changed = self._fleet.changed_since(self._version)
            self._version = self._fleet.version
            self._due.update(changed if changed is not None else {*self._fleet.nodes, *self.spots})
        while self._due:
            self._evaluate(pop_due(self._due))
            yield

    def names_in(self, path: Path) -> AbstractSet[str]:
        """The names of all nodes in a domain other than the fleet."""
        return self._names.get(path, frozenset())

    def _set_spot(self, name: str, spot: IndexedNode | None) -> None:
        replaced = self.spots.get(name)
        if spot is None:
            self.spots.pop(name, None)
        else:
            self.spots[name] = spot
        old, new = replaced.path if replaced else (), spot.path if spot else ()
        if old == new:
            return
        for depth in range(1, len(old) + 1):
            self._names[old[:depth]].discard(name)
            if not self._names[old[:depth]]:
                del self._names[old[:depth]]
        for depth in range(1, len(new) + 1):
            self._names[new[:depth]].add(name)

    def _number(self, facts: Hashable) -> int:
        """A number for these facts: equal facts have the same as a rule. It is hashed and compared faster than they
        are."""
        number = self._numbers.get(facts)
        if number is None:
            if len(self._numbers) > 2 * len(self._fleet.nodes) + 1024:
                self._numbers.clear()  # nodes change, and what they were is of no use
            number = self._numbers[facts] = next(self._next)
        return number

    def _evaluate(self, names: Iterable[str]) -> None:
        fleet, labels = self._fleet, self._fleet.policy.topology.labels
        pools = bool(fleet.policy.pools)
        for name in names:
            node = fleet.nodes.get(name)
            if node is None:
                self._set_spot(name, None)
                continue
            path = domain_path(node, labels)
            if "" in path:  # it is known to be in what lies further out, and in no more
                path = path[: path.index("")]
            exclusion, used = fleet.exclusion(name), fleet.used(name)
            facts = (
                name in fleet.outside,
                node.ready,
                node.unschedulable,
                (unhealthy(exclusion), exclusion.last_choice) if exclusion else None,
                node.taints,
                tuple(node.allocatable.items()),
                node.capacity.get(fleet.policy.accelerator_resource, 0),
                binding_of(node, fleet) if pools else None,
                fleet.suspicion_of(name) is not None,
            )
            left = self._number((facts[5], tuple(sorted(used.items())))) if used else None
            self._set_spot(name, IndexedNode(node, path, fleet.holders(name), self._number(facts), left))


class _KindAnswers(NamedTuple):
    """The answers about one kind of node: the refusals before and after a look at its labels, and its reluctance."""

    before: Refusal | None
    after: Refusal | None
    reluctance: int


class NodeEvaluator:
    """Evaluates nodes for one kind of worker, with a cache by kind of node."""

    def __init__(self, fleet: Fleet, needs: Requirements) -> None:
        self._fleet = fleet
        self._needs = needs
        self._kinds: dict[int, _KindAnswers] = {}
        self._left: dict[int, Refusal | None] = {}
        constraints = needs.constraints
        self._chooses = bool(constraints.selector) or constraints.terms is not None
        self._keys = constraints.label_keys
        self._selected: dict[tuple[str | None, ...], bool] = {}

    def forget(self) -> None:
        """Drop the cached answers about kinds of nodes, which may be gone."""
        self._kinds.clear()
        self._left.clear()
        self._selected.clear()

    def evaluate(self, spot: IndexedNode) -> NodeEligibility:
        """The state of a node for this kind of worker."""
        answers = self._kinds.get(spot.kind)
        if answers is None:
            asked = spot.node, self._needs, self._fleet
            answers = self._kinds[spot.kind] = _KindAnswers(closed(*asked), unfit(*asked), reluctance(*asked))
        why = answers.before
        if not why and self._chooses and not self._selects(spot.node):
            why = UNSELECTED
        why = why or answers.after
        if why:
            return spot.eligibility(why, False, answers.reluctance)
        return spot.eligibility(IN_USE if spot.holders else self._lacks(spot), True, answers.reluctance)

    def _lacks(self, spot: IndexedNode) -> Refusal | None:
        if spot.left is None:
            return None
        if spot.left not in self._left:
            self._left[spot.left] = lacking(spot.node, self._needs, self._fleet)
        return self._left[spot.left]

    def _selects(self, node: NodeView) -> bool:
        if self._keys is None:
            return self._needs.constraints.select(node)
        labels: Mapping[str, str] = node.labels
        values = tuple([labels.get(key) for key in self._keys])
        selected = self._selected.get(values)
        if selected is None:
            selected = self._selected[values] = self._needs.constraints.select(node)
        return selected

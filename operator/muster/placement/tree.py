"""The tree of free nodes for one kind of worker, kept up to date one changed node at a time.

What it costs grows with what has changed since it was last looked at, not with the fleet or with the jobs that run.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from muster.placement.domain import Change, Domain, Entry, Path
from muster.placement.eligibility import IN_USE, Requirements, lacking, reluctance, unsuitable
from muster.placement.natural import natural
from muster.placement.where import domain_path
from muster.world.fleet import Fleet
from muster.world.views import NodeView


class Standing(NamedTuple):
    """One node, for this kind of worker.

    Attributes:
        path: the innermost domain that it is known to be in.
        entry: as which it is listed there.
        suitable: whether it could be used if nothing else ran there.
        why: why not now, "" if it can be used.
        holders: who holds it.
    """

    path: Path
    entry: Entry
    suitable: bool
    why: str
    holders: frozenset[str]


class Tree:
    """The fleet in the eyes of workers of one profile (`Requirements.profile`).

    Attributes:
        root: the fleet as a domain.
        standing: by node.
        refused: why nodes cannot be used now -> how many.
        held: who holds nodes that could be used otherwise -> how many.
    """

    def __init__(self, fleet: Fleet, needs: Requirements) -> None:
        self._fleet = fleet
        self._needs = Requirements(needs.accelerators, needs.template_spec, {}, needs.requests, needs.scheduler_for)
        self._labels = fleet.policy.topology.labels
        self.root = Domain((), {}, (), 0)
        self.standing: dict[str, Standing] = {}
        self.refused: Counter[str] = Counter()
        self.held: Counter[str] = Counter()
        self._version = fleet.version
        self._update(fleet.nodes)

    @classmethod
    def of(cls, fleet: Fleet, needs: Requirements) -> "Tree":
        """The fleet's tree for workers like this, as of now."""
        tree = fleet.derived((cls, needs.profile), lambda fleet: cls(fleet, needs))
        tree.follow()
        return tree

    def follow(self) -> None:
        """Take in what has changed in the fleet."""
        if self._version == self._fleet.version:
            return
        changed = self._fleet.changed_since(self._version)
        self._version = self._fleet.version
        self._update(changed if changed is not None else {*self._fleet.nodes, *self.standing})

    def _update(self, names: Iterable[str]) -> None:
        changes: list[Change] = []
        for name in names:
            node, old = self._fleet.nodes.get(name), self.standing.get(name)
            new = self._look(node) if node is not None else None
            if new == old:
                continue
            if old is not None:
                self._count(old, -1)
                del self.standing[name]
                if old.suitable:
                    changes.append(Change(old.path, gone=None if old.why else old.entry, suitable=-1))
            if new is not None:
                self._count(new, 1)
                self.standing[name] = new
                if new.suitable:
                    changes.append(Change(new.path, come=None if new.why else new.entry, suitable=1))
        if changes:
            self.root = self.root.changed(changes)

    def _count(self, standing: Standing, step: int) -> None:
        if standing.why:
            self.refused[standing.why] += step
        if standing.suitable and standing.holders:
            for holder in standing.holders:
                self.held[holder] += step

    def _look(self, node: NodeView) -> Standing:
        fleet = self._fleet
        why = unsuitable(node, self._needs, fleet)
        suitable, holders = not why, fleet.holders(node.name)
        if suitable:
            why = IN_USE if holders else lacking(node, self._needs, fleet)
        entry = Entry(reluctance(node, self._needs, fleet), natural(node.name), node.name)
        path = domain_path(node, self._labels)
        if "" in path:  # it is known to be in what lies further out, and in no more
            path = path[: path.index("")]
        return Standing(path, entry, suitable, why, holders)

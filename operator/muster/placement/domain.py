"""The fleet as a tree of domains, for one kind of worker. Immutable: a change copies the path from the root to it.

So a plan, or one request, can look at a fleet less some nodes without copying the fleet, and what has been worked out
for a domain holds for as long as the domain does. A node that lacks a level's label hangs, as a domain of its own, on
the innermost domain that it is known to be in.

Tests: tests/unit/placement/test_space.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from muster.placement.natural import NaturalKey, natural

Path = tuple[str, ...]  # names from the outside in; shorter than there are levels for a node that lacks a label


class Entry(NamedTuple):
    """A free node. Entries sort in the order in which nodes are taken: least reluctance, then name."""

    reluctance: int
    key: NaturalKey
    name: str


class Change(NamedTuple):
    """A node that comes to a domain or leaves it: as a free one, as a suitable one, or both."""

    path: Path
    come: Entry | None = None
    gone: Entry | None = None
    suitable: int = 0


class Domain:
    """A domain with its free nodes.

    Attributes:
        depth: 0 is the fleet; a domain of the innermost level has as many as there are levels.
        path: the names of the domains from the outside in.
        kids: the domains inside, by name.
        nodes: the free nodes of an innermost domain; of another one, those without the next level's label.
        free: the number of free nodes inside, all in all.
        suitable: the number of nodes inside that could be used if nothing else ran.
        here: the number of suitable nodes directly in this domain, of which `nodes` are the free ones.
        kept: whether the job that asks keeps nodes here.
    """

    __slots__ = ("_rooms", "_signature", "depth", "free", "here", "kept", "kids", "nodes", "path", "suitable")

    def __init__(
        self, path: Path, kids: Mapping[str, "Domain"], nodes: Sequence[Entry], suitable_here: int, kept: bool = False
    ) -> None:
        self.depth = len(path)
        self.path = path
        self.kids = kids
        self.nodes = nodes
        self.here = suitable_here
        self.kept = kept
        self.free: int = len(nodes) + sum([kid.free for kid in kids.values()])
        self.suitable: int = suitable_here + sum([kid.suitable for kid in kids.values()])
        self._signature: int | None = None
        self._rooms: dict[tuple[int, int], tuple[int, int]] = {}

    @property
    def signature(self) -> int:
        """A hash that is equal for domains that differ in names only. Two others collide once in 2**61 pairs."""
        if self._signature is None:
            kids = sorted([kid.signature for kid in self.kids.values() if kid.free or kid.kept])
            own = (self.depth, self.kept, len(self.nodes), *[entry.reluctance for entry in self.nodes])
            self._signature = hash((own, tuple(kids)))
        return self._signature

    def room(self, segment_size: int, levels: int) -> tuple[int, int]:
        """The number of segments for which there are free nodes, and that for which there are suitable nodes.

        Args:
            segment_size: nodes in a segment.
            levels: number of levels of the topology.
        """
        if segment_size == 1:
            return self.free, self.suitable
        if self.depth == levels:
            return len(self.nodes) // segment_size, self.here // segment_size
        room = self._rooms.get((segment_size, levels))
        if room is None:
            rooms = [kid.room(segment_size, levels) for kid in self.kids.values()]
            room = sum([free for free, _ in rooms]), sum([suitable for _, suitable in rooms])
            self._rooms[segment_size, levels] = room
        return room

    def at(self, path: Path) -> "Domain | None":
        """The domain of this path, which begins at the fleet; None where no such domain is inside this one."""
        domain: Domain | None = self
        for name in path[self.depth :]:
            domain = domain.kids.get(name) if domain else None
        return domain

    def level(self, depth: int) -> Iterator["Domain"]:
        """The domains inside at a depth, in the natural order of their names."""
        if self.depth == depth:
            yield self
            return
        for name in sorted(self.kids, key=lambda name: (natural(name), name)):
            yield from self.kids[name].level(depth)

    def innermost(self, levels: int) -> Iterator["Domain"]:
        """The innermost domains inside."""
        if self.depth == levels:
            yield self
        for kid in self.kids.values():
            yield from kid.innermost(levels)

    def entries(self) -> list[Entry]:
        """All free nodes inside."""
        entries: list[Entry] = []
        domains = [self]
        while domains:
            domain = domains.pop()
            entries += domain.nodes
            domains += [kid for kid in domain.kids.values() if kid.free]
        return entries

    def changed(self, changes: Iterable[Change]) -> "Domain":
        """A copy of this domain with some changes made inside."""
        below: dict[str, list[Change]] = defaultdict(list)
        come, removed_entries, suitable_here = [], set(), self.here
        for change in changes:
            if len(change.path) > self.depth:
                below[change.path[self.depth]].append(change)
                continue
            suitable_here += change.suitable
            if change.come:
                come.append(change.come)
            if change.gone:
                removed_entries.add(change.gone)
        nodes = self.nodes
        if come or removed_entries:
            nodes = sorted([*(entry for entry in nodes if entry not in removed_entries), *come])
        kids = self.kids
        if below:
            kids = dict(kids)
            for name, inside in below.items():
                kid = kids.get(name) or Domain((*self.path, name), {}, (), 0)
                kid = kid.changed(inside)
                if kid.suitable:
                    kids[name] = kid
                else:
                    kids.pop(name, None)
        return Domain(self.path, kids, nodes, suitable_here, self.kept)

    def keeping(self, paths: Iterable[Path]) -> "Domain":
        """A copy of this domain in which the domains on the way to these paths are marked as kept.

        Domains on the way that do not exist are made, without nodes.
        """
        below: dict[str, list[Path]] = defaultdict(list)
        for path in paths:
            if len(path) > self.depth:
                below[path[self.depth]].append(path)
        kids = dict(self.kids) if below else self.kids
        for name, inside in below.items():
            kid = self.kids.get(name) or Domain((*self.path, name), {}, (), 0)
            kids[name] = kid.keeping(inside)  # type: ignore[index]
        return Domain(self.path, kids, self.nodes, self.here, kept=True)

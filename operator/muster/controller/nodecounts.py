"""How many nodes the jobs of each namespace hold: a running sum, so that asking costs what has changed since it was
asked."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from muster.placement.eligibility import is_out_of_service
from muster.world.fleet import Fleet


@dataclass(frozen=True, slots=True)
class _Count:
    """What one job holds.

    Attributes:
        nodes: all of them.
        left: those of them that its record does not name: only pods of it are there.
    """

    namespace: str
    nodes: int
    left: tuple[str, ...]


class NodeCounts:
    """Counts by namespace.

    A node that a gang has left and that is out of service does not count: nobody can use it, and a pod may stay there
    until a person sees to it.

    Args:
        fleet: who holds which node.
        named: node -> uids of the jobs whose records name it.
    """

    def __init__(self, fleet: Fleet, named: Mapping[str, Collection[str]]) -> None:
        self._fleet = fleet
        self._named = named
        self._namespaces: dict[str, str] = {}  # uid of a job -> its namespace
        self._changed: set[str] = set()  # uids of jobs to be counted again
        self._counts: dict[str, _Count] = {}
        self._sums: Counter[str] = Counter()
        self._leaving: dict[str, set[str]] = {}  # namespace -> uids of jobs that have left nodes
        fleet.holder_changed = self.note

    def note(self, uid: str) -> None:
        """The nodes of this holder have changed, or whether its record names them."""
        if uid in self._namespaces:
            self._changed.add(uid)

    def add(self, namespace: str, uid: str) -> None:
        """There is such a job."""
        if uid not in self._namespaces:
            self._namespaces[uid] = namespace
            self._changed.add(uid)

    def drop(self, uid: str) -> None:
        """The job is gone."""
        self._namespaces.pop(uid, None)
        self._changed.discard(uid)
        self._put(uid, None)

    def held(self, namespace: str, besides: str = "") -> int:
        """How many nodes the jobs of a namespace hold, all but the one of this uid."""
        for uid in self._changed:
            self._put(uid, self._count(uid))
        self._changed.clear()
        mine = self._counts.get(besides)
        own = mine.nodes if mine is not None and mine.namespace == namespace else 0
        leaving = (self._counts[uid].left for uid in self._leaving.get(namespace, ()) if uid != besides)
        lost = sum(is_out_of_service(node, self._fleet) for left in leaving for node in left)
        return self._sums[namespace] - own - lost

    def _count(self, uid: str) -> _Count | None:
        nodes = self._fleet.nodes_of(uid)
        if not nodes:
            return None
        left = tuple(node for node in nodes if uid not in self._named.get(node, ()))
        return _Count(self._namespaces[uid], len(nodes), left)

    def _put(self, uid: str, count: _Count | None) -> None:
        before = self._counts.pop(uid, None)
        if before is not None:
            self._sums[before.namespace] -= before.nodes
            self._leaving[before.namespace].discard(uid)
            if not self._sums[before.namespace]:
                del self._sums[before.namespace], self._leaving[before.namespace]
        if count is not None:
            self._counts[uid] = count
            self._sums[count.namespace] += count.nodes
            leaving = self._leaving.setdefault(count.namespace, set())
            if count.left:
                leaving.add(uid)

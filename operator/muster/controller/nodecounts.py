"""The number of nodes that the jobs of each namespace hold: a running sum, so that a call costs only what has
changed."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from muster.placement.eligibility import is_out_of_service
from muster.world.fleet import Fleet


@dataclass(frozen=True, slots=True)
class _Count:
    """The nodes of one job, as numbers.

    Attributes:
        nodes: all that it holds.
        size: the size of its gang, while that has nodes or waits for some.
        unrecorded: those of its nodes that its record does not name: only pods of it are there.
    """

    namespace: str
    nodes: int
    size: int
    unrecorded: tuple[str, ...]

    @property
    def counted(self) -> int:
        """The number of nodes that count for it, as if all of its nodes were in service."""
        return max(self.nodes, self.size)

    def out_of_service(self, fleet: Fleet) -> int:
        """By how many nodes less it counts, because nodes that it has left are out of service."""
        lost = sum(is_out_of_service(node, fleet) for node in self.unrecorded)
        return self.counted - max(self.nodes - lost, self.size)


class NodeCounts:
    """The number of nodes that jobs hold, by namespace.

    A gang counts with its size, also while some of its workers have no node: no other job gets what it needs to be
    repaired. A node that a gang has left and that is out of service does not count: no job can use it, and a pod may
    stay there until a person repairs the node.

    Args:
        fleet: says which jobs hold which node.
        named: uids of the jobs whose records name a node, by node.
        sizes: how many members their records have, by uid of the jobs.
    """

    def __init__(self, fleet: Fleet, named: Mapping[str, Collection[str]], sizes: Mapping[str, int]) -> None:
        self._fleet = fleet
        self._named = named
        self._sizes = sizes
        self._namespaces: dict[str, str] = {}  # uid of a job -> its namespace
        self._changed: set[str] = set()  # uids of jobs to be counted again
        self._counts: dict[str, _Count] = {}
        self._sums: Counter[str] = Counter()
        self._leaving: dict[str, set[str]] = {}  # namespace -> uids of jobs that have left nodes
        fleet.holder_changed = self.note

    def note(self, uid: str) -> None:
        """Take in that the nodes of this job have changed, or whether its record names them."""
        if uid in self._namespaces:
            self._changed.add(uid)

    def add(self, namespace: str, uid: str) -> None:
        """Add a job to those of its namespace."""
        if uid not in self._namespaces:
            self._namespaces[uid] = namespace
            self._changed.add(uid)

    def drop(self, uid: str) -> None:
        """Remove a job that is gone."""
        self._namespaces.pop(uid, None)
        self._changed.discard(uid)
        self._set_count(uid, None)

    def held(self, namespace: str, besides: str = "") -> int:
        """The number of nodes that count for the jobs of a namespace, without the job of uid `besides`."""
        for uid in self._changed:
            self._set_count(uid, self._count(uid))
        self._changed.clear()
        job_count = self._counts.get(besides)
        own = job_count.counted if job_count is not None and job_count.namespace == namespace else 0
        leaving = (self._counts[uid] for uid in self._leaving.get(namespace, ()) if uid != besides)
        return self._sums[namespace] - own - sum(count.out_of_service(self._fleet) for count in leaving)

    def _count(self, uid: str) -> _Count | None:
        nodes, size = self._fleet.nodes_of(uid), self._sizes.get(uid, 0)
        if not nodes and not size:
            return None
        left = tuple(node for node in nodes if uid not in self._named.get(node, ()))
        return _Count(self._namespaces[uid], len(nodes), size, left)

    def _set_count(self, uid: str, count: _Count | None) -> None:
        old_count = self._counts.pop(uid, None)
        if old_count is not None:
            self._sums[old_count.namespace] -= old_count.counted
            self._leaving[old_count.namespace].discard(uid)
            if not self._sums[old_count.namespace]:
                del self._sums[old_count.namespace], self._leaving[old_count.namespace]
        if count is not None:
            self._counts[uid] = count
            self._sums[count.namespace] += count.counted
            leaving = self._leaving.setdefault(count.namespace, set())
            if count.unrecorded:
                leaving.add(uid)

"""The age of each node's heartbeat, from reads of its lease that lie seconds apart.

Clocks of different machines are never compared. A lease whose resourceVersion is not above one that was seen at some
moment had been written by then. This process sees the API server's one counter go on every two seconds. It is raised by
the leader's own lease, which lies beside the nodes' leases in the same store. So one read of a stale lease shows the
least time for which it was not renewed, whenever the read before was.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import NamedTuple

from muster.fencing.ages import Beats
from muster.kube.decode import NodeLease
from muster.world.fleet import KnownAges

KEPT_SECONDS = 7200.0
"""Longer than the longest time after which silence is judged. What was written before counts as written then."""
_MOST_KEPT = 8192


class Versions:
    """The values of the API server's version counter that this process has seen, and when.

    Args:
        clock: seconds that stand still while the API server is away.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._versions: list[int] = []
        self._moments: list[float] = []

    def __len__(self) -> int:
        return len(self._versions)

    def seen(self, version: int) -> None:
        """Note that an object with this resourceVersion was seen just now."""
        now = self._clock()
        if self._versions and version <= self._versions[-1]:
            return
        if self._moments:
            now = max(now, self._moments[-1])
        self._versions.append(version)
        self._moments.append(now)
        if len(self._versions) > _MOST_KEPT or now - self._moments[0] > 2 * KEPT_SECONDS:
            kept = min(bisect_left(self._moments, now - KEPT_SECONDS), len(self._versions) - 1)
            kept = max(kept, len(self._versions) - _MOST_KEPT // 2)
            del self._versions[:kept], self._moments[:kept]

    def restart(self) -> None:
        """Discard all values, because the server's history has gone back (etcd restored)."""
        self._versions.clear()
        self._moments.clear()

    def written_by(self, version: int) -> float:
        """The earliest known time by the clock at which an object with this resourceVersion had been written."""
        at = bisect_left(self._versions, version)
        return self._moments[at] if at < len(self._moments) else self._clock()


class _ReadLease(NamedTuple):
    """A node's lease as it was last read.

    Attributes:
        written: a time by the clock at which the lease had been renewed last.
        renewed: whether this process has seen it change.
    """

    lease: NodeLease
    written: float
    renewed: bool


class LeaseAges:
    """The age of each node's heartbeat when the leases were last read. A time in which they could not be read does not
    count.

    Args:
        clock: seconds that stand still while the API server is away.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.versions = Versions(clock)
        self.beats = Beats()
        self._clock = clock
        self._seen: dict[str, _ReadLease] = {}
        self._looked_at = clock()
        self._version = 0
        self._oldest: list[tuple[float, str]] | None = None  # when written, the earliest first; None: not sorted yet

    def note_leases(self, leases: Iterable[NodeLease], version: int, under_way_seconds: float = 0.0) -> None:
        """Take in all leases of a list, its resourceVersion, and for how many seconds it was under way."""
        if version < self._version:
            self.versions.restart()
        self._version = version
        self.versions.seen(version)
        last_reads, looked_before = self._seen, self._looked_at
        now = self._clock()
        self._looked_at = max(now - under_way_seconds, looked_before)
        self._seen = {}
        for lease in leases:
            last_read = last_reads.get(lease.node)
            if last_read is not None and last_read.lease == lease:
                self._seen[lease.node] = last_read
                continue
            written = self.versions.written_by(lease.resource_version)
            renewed = last_read is not None and last_read.lease.renew_time != lease.renew_time
            if last_read is not None and not renewed:  # something else in it has changed
                self._seen[lease.node] = _ReadLease(lease, last_read.written, last_read.renewed)
                continue
            self._seen[lease.node] = _ReadLease(
                lease, written, renewed or (last_read is not None and last_read.renewed)
            )
            self.beats.renewed(lease.node, written, min(looked_before, written) if last_read is not None else written)
        for node in last_reads.keys() - self._seen.keys():
            self.beats.forget(node)
        self._oldest = None

    def lease(self, node: str) -> NodeLease | None:
        """A node's lease as it was last read; None where it has none."""
        last_read = self._seen.get(node)
        return last_read.lease if last_read is not None else None

    def has_renewed(self, node: str) -> bool:
        """Whether this process has seen the node's lease change: the first sight of one is no sign of life."""
        last_read = self._seen.get(node)
        return last_read is not None and last_read.renewed

    def age_seconds(self, node: str) -> float:
        """The least age in seconds of the node's heartbeat when the leases were read; 0 for a node that has none."""
        last_read = self._seen.get(node)
        return 0.0 if last_read is None else max(self._looked_at - last_read.written, 0.0)

    def older_than(self, seconds: float) -> list[str]:
        """The names of the nodes whose heartbeat is at least that old."""
        return list(self.known(seconds).ages)

    def known(self, seconds: float) -> KnownAges:
        """The present ages of heartbeats that are at least `seconds` old; the others count as fresh."""
        if self._oldest is None:
            self._oldest = sorted((seen.written, node) for node, seen in self._seen.items())
        ages = {}
        for written, node in self._oldest:
            if self._looked_at - written < seconds:
                break
            ages[node] = max(self._looked_at - written, 0.0)
        return KnownAges(ages)

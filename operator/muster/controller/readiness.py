"""What one operator process answers to those that ask whether it serves launchers, could lead, and is well.

Tests: tests/unit/controller/test_operator.py.
"""

from collections.abc import Sequence
from typing import Protocol

from muster.controller.cluster import Cluster
from muster.controller.loops import Loops
from muster.kube.lease import LeaderLease

# A sound watch hears a bookmark each minute and lists anew when it does not; this is far beyond both.
STALE_SECONDS = 300.0


class Hindrance(Protocol):
    """What may keep a replica from leading; `problem` says why, "" where it does not."""

    problem: str


class Readiness:
    """Whether one process serves, leads, is ready and is healthy. Of `hindrances` None stands for those that are not
    looked for.

    Attributes:
        is_leading: whether this process leads and has caught up with what the last leader wrote.
    """

    def __init__(
        self, cluster: Cluster, lease: LeaderLease, loops: Loops, hindrances: Sequence[Hindrance | None] = ()
    ) -> None:
        self.is_leading = False
        self._cluster = cluster
        self._lease = lease
        self._loops = loops
        self._hindrances = [hindrance for hindrance in hindrances if hindrance is not None]

    def not_serving(self) -> str:
        """Why launchers cannot be answered now; "" when they can."""
        ready = self.is_leading and self._cluster.synced
        return "" if ready else "the operator is still reading the cluster's state: ask again"

    def leader_elsewhere(self) -> str | None:
        """The address at which the leading replica answers launchers, "" when it is not known; None when this replica
        leads."""
        return None if self._lease.leading else self._lease.leader_address

    def not_ready(self) -> str:
        """Why this replica could not lead now; "" when it could (a standby is ready, too)."""
        if self._loops.stopping:
            return "stopping"
        if not self._cluster.synced:
            return "informers have not synced yet"
        return next((hindrance.problem for hindrance in self._hindrances if hindrance.problem), "")

    def not_healthy(self) -> str:
        """Why this replica should be restarted; "" when all is well."""
        ended = self._loops.ended()
        if ended and not self._loops.stopping:
            return f"task ended: {', '.join(ended)}"
        name, age = self._cluster.stalest_seconds()
        if age <= STALE_SECONDS:
            return ""
        return f"informer {name} has heard nothing for {age:.0f} s in which the API server has answered others"

"""What one operator process answers to those that ask whether it serves launchers, could lead, and is well.

Tests: tests/unit/controller/test_operator.py.
"""

from muster.controller.cluster import Cluster
from muster.controller.holdingjobs import HoldingJobs
from muster.controller.loops import Loops
from muster.kube.lease import LeaderLease

# A sound watch hears a bookmark each minute and lists anew when it does not; this is far beyond both.
STALE_SECONDS = 300.0


class Readiness:
    """Whether one process serves, leads, is ready and is healthy. `holding_jobs` is None in a profile with jobs.

    Attributes:
        is_leading: whether this process leads and has caught up with what the last leader wrote.
    """

    def __init__(
        self, cluster: Cluster, lease: LeaderLease, loops: Loops, holding_jobs: HoldingJobs | None = None
    ) -> None:
        self.is_leading = False
        self._cluster = cluster
        self._lease = lease
        self._loops = loops
        self._holding_jobs = holding_jobs

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
        return self._holding_jobs.problem if self._holding_jobs is not None else ""

    def not_healthy(self) -> str:
        """Why this replica should be restarted; "" when all is well."""
        ended = self._loops.ended()
        if ended and not self._loops.stopping:
            return f"task ended: {', '.join(ended)}"
        name, age = self._cluster.stalest_seconds()
        if age <= STALE_SECONDS:
            return ""
        return f"informer {name} has heard nothing for {age:.0f} s in which the API server has answered others"

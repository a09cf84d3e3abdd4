"""Passes checkers' reports on to jobs and nodes, and new orders on to checkers.

Tests: tests/unit/controller/test_operator.py.
"""

from collections.abc import Iterable, Mapping

from muster.controller.cluster import Cluster
from muster.controller.dirty import DirtyKeys
from muster.controller.nodereconciler import NodeReconciler
from muster.coordinator.checkers import CheckerHub
from muster.coordinator.server import CoordinatorServer
from muster.world.checks import NodeChecks

# Answers of checkers come together: for each that is still missing a decision waits so long, about as long as one
# takes.
GATHER_SECONDS = 0.0005


class Checks:
    """The checkers' news and orders.

    Args:
        cluster: says which jobs test a node.
        checkers: the hub of their reports.
        dirty: the jobs to decide about.
        nodes: has nodes judged again that have been tested.
        server: answers checkers.
    """

    def __init__(
        self,
        cluster: Cluster,
        checkers: CheckerHub,
        dirty: DirtyKeys,
        nodes: NodeReconciler,
        server: CoordinatorServer,
    ) -> None:
        self._cluster = cluster
        self._checkers = checkers
        self._dirty = dirty
        self._nodes = nodes
        self._server = server
        checkers.subscribe(self._heard)
        checkers.subscribe_done(self._done)
        checkers.subscribe_meetings(self.orders_changed)

    def set_orders(self, job_uid: str, checks: Mapping[str, NodeChecks] | None) -> None:
        """Set all that a job wants of checkers from now on; None: nothing."""
        self.orders_changed(self._checkers.set_orders(job_uid, checks))

    def orders_changed(self, nodes: Iterable[str]) -> None:
        """Answer the checkers on these nodes, whose directives have changed."""
        large, small = list[str](), list[str]()
        for node in nodes:
            (large if self._checkers.meeting_of(node) else small).append(node)
        self._server.notify(self._checkers.pods_on(small))
        self._server.notify_one_by_one(self._checkers.pods_on(large))

    def _heard(self, node: str) -> None:
        self._nodes.checker_heard(node)
        pause = GATHER_SECONDS * self._checkers.awaited(node)
        for uid in self._cluster.tested_on(node):
            for key in self._cluster.keys_of(uid):
                self._dirty.add(key, pause)
        self.orders_changed([node])  # another one may speak for the node now

    def _done(self, owner: str) -> None:
        """Have a job decided about at once when the last answer of its burn-in is there."""
        for key in self._cluster.keys_of(owner):
            self._dirty.hurry(key)

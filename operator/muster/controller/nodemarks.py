"""Writes the condition MusterHealthy on Nodes, where the FleetPolicy wants it: behind everything that matters, and
slowly.

What excludes a node never waits for it: there is one queue, in which a node has one place whatever becomes of it
meanwhile. Nothing is written but changes, at most ten a second, and of one node ten an hour: others who rewrite the
condition cannot keep Muster busy.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from muster.api.installation import name_component
from muster.controller.cluster import Cluster
from muster.controller.pace import Pace
from muster.controller.policyevents import record_policy_event
from muster.health.condition import Mark, mark_of, patch
from muster.health.verdict import Verdict
from muster.kube import decode, paths
from muster.kube.client import Client
from muster.kube.errors import ApiError, Denied, Forbidden, LeadershipLost, NotFound
from muster.kube.events import WARNING, EventRecorder

STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
WRITE_SECONDS = 0.1
RETRY_SECONDS = 10.0
REFUSED_SECONDS = 300.0
"""Of one node."""

log = structlog.get_logger()


class NodeMarks:
    """Keeps the condition MusterHealthy of nodes, with a queue of the nodes to check."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        events: EventRecorder,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._events = events
        self._wall_clock = wall_clock
        self._wanted: dict[str, Mark | None] = {}  # None: there is to be no condition
        self._queue: dict[str, None] = {}  # in order
        self._stirred = asyncio.Event()
        self._pace = Pace(clock)
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._is_refused = False

    def want(self, name: str, verdict: Verdict) -> None:
        """Set the verdict that the node's condition has to show from now on, where there has to be a condition."""
        self._wanted[name] = mark_of(name, verdict)
        self._enqueue(name)

    def clear(self, name: str) -> None:
        """Have the condition removed from a node outside the FleetPolicy's scope."""
        self._wanted[name] = None
        self._enqueue(name)

    def forget(self, name: str) -> None:
        """Drop a node that is gone."""
        self._wanted.pop(name, None)
        self._queue.pop(name, None)
        self._pace.forget(name)
        if name in self._waiting:
            self._waiting.pop(name).cancel()

    async def run(self) -> None:
        """Write conditions until cancelled.

        Raises:
            LeadershipLost: this process may not write any more.
        """
        try:
            while True:
                await self._stirred.wait()
                if not self._queue:
                    self._stirred.clear()
                    continue
                name = next(iter(self._queue))
                del self._queue[name]
                try:
                    wrote = await self.write_condition(name)
                except LeadershipLost:
                    raise
                except ApiError as error:
                    if isinstance(error, Forbidden) and not isinstance(error, Denied):
                        self._report_refusal(error)
                        self._enqueue(name)
                        await asyncio.sleep(REFUSED_SECONDS)
                        continue
                    # Of one node, as a denial by the policy muster-scope: the others' follow.
                    log.warning("condition not written", node=name, error=str(error))
                    self._later(name, RETRY_SECONDS)
                    await asyncio.sleep(WRITE_SECONDS)
                except Exception:
                    log.exception("condition not written", node=name)
                    self._later(name, RETRY_SECONDS)
                    await asyncio.sleep(WRITE_SECONDS)
                else:
                    await asyncio.sleep(WRITE_SECONDS if wrote else 0)
        finally:
            for handle in self._waiting.values():
                handle.cancel()
            self._waiting.clear()

    async def write_condition(self, name: str) -> bool:
        """Bring one node's condition up to date; returns whether something was written.

        Raises:
            ApiError: the condition was not written.
        """
        node = self._cluster.fleet.nodes.get(name)
        if node is None or name not in self._wanted or self._cluster.policy_unknown:
            return False
        if node.ready_reason == decode.UNREADABLE:  # its conditions are not known
            return False
        wanted = self._wanted[name] if self._cluster.policy().health.node_condition else None
        body = patch(node.conditions, wanted, self._wall_clock())
        if body is None:
            return False
        wait = self._pace.wait_seconds(name)
        if wait > 0:
            self._later(name, wait)
            return False
        # A Node that was made anew under the name is judged first.
        body["metadata"] = {"uid": node.uid}
        self._pace.wrote(name)
        try:
            answer = await self._client.patch(
                paths.core("nodes", name=name, subresource="status"), body, STRATEGIC_MERGE_PATCH
            )
        except NotFound:
            return True
        self._is_refused = False
        self._cluster.nodes.assume(answer)
        return True

    def _enqueue(self, name: str) -> None:
        self._queue[name] = None
        self._stirred.set()

    def _later(self, name: str, seconds: float) -> None:
        if name not in self._waiting:
            self._waiting[name] = asyncio.get_running_loop().call_later(seconds, self._due, name)

    def _due(self, name: str) -> None:
        self._waiting.pop(name, None)
        if name in self._wanted:
            self._enqueue(name)

    def _report_refusal(self, error: Forbidden) -> None:
        """Report once that the right to write conditions, or to remove them, is missing, and what to do."""
        if self._is_refused:
            return
        self._is_refused = True
        reason, text = (
            "NodeConditionRefused",
            "Muster may not write the condition MusterHealthy on Nodes (403). Everything else works without it. Add "
            f"{name_component('node-condition')}, or set spec.health.nodeCondition to false.",
        )
        if not self._cluster.policy().health.node_condition:
            reason, text = (
                "NodeConditionLeft",
                "Nodes still have the condition MusterHealthy, which Muster does not update any more and may not "
                f"remove (403). Add {name_component('node-condition')} until it is gone.",
            )
        log.error("condition refused", error=str(error), message=text)
        record_policy_event(self._cluster, self._events, WARNING, reason, text)

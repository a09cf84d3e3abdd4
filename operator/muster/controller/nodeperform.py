"""Puts into force what was decided about a node: its record, Events, the taint; in this order.

The record comes first, with the incident marked as acted on, so that the budget is charged before anything is done. A
crash in between is repaired by the next pass, which starts from what is stored.

Tests: tests/unit/controller/test_nodereconciler.py.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
import structlog
from prometheus_client import Histogram

from muster.api.base import API_VERSION
from muster.api.installation import name_component
from muster.api.nodehealth import NodeHealth, NodeHealthStatus
from muster.controller.cluster import Cluster
from muster.controller.nodereports import NodeReports
from muster.controller.pace import Pace
from muster.controller.policyevents import record_policy_event
from muster.health.node_plan import ChangeTaint, EmitEvent, Present, WriteRecord, operator_part, plan_node
from muster.health.orders import InForce, Order
from muster.health.sources import UNHEALTHY_TAINT, Rules
from muster.health.verdict import Verdict
from muster.health.verdict_index import is_tainted
from muster.kube import decode, paths
from muster.kube.client import APPLY_PATCH, Client
from muster.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Denied,
    Forbidden,
    Invalid,
    LeadershipLost,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from muster.kube.events import NORMAL, WARNING, EventRecorder, Regarding
from muster.world.views import NodeView

NODES_AT_ONCE = 32
TAINT_KEY = UNHEALTHY_TAINT
FIELD_MANAGER = "muster"
JSON_PATCH = "application/json-patch+json"
READ_AGAIN_SECONDS = 2.0
REST_SECONDS = 2.0
"""Pause after an order that has failed, of one node."""
REFUSED_SECONDS = 300.0
"""Pause after the API server refused a taint, of one node."""

log = structlog.get_logger()
_latency = Histogram(
    "muster_detection_seconds",
    "Time from the first sign of a node's fault until jobs avoid the node.",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)


@dataclass(slots=True)
class _TaintRefusals:
    """What the API server has refused of Muster's taint.

    Attributes:
        is_reported: whether the last one was refused for want of a right, and that was said.
        by_node: what refused it, by node whose last taint was refused.
        remaining: nodes whose taint could not be removed, and that was said.
    """

    is_reported: bool = False
    by_node: dict[str, str] = field(default_factory=dict)
    remaining: set[str] = field(default_factory=set)


class NodePerformer:
    """Puts orders about nodes into force, and has a node judged again by `mark_node`.

    Attributes:
        in_force: what was last put into force, by node.
        refused: names of the nodes whose last record the API server has refused, or Muster could not make.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        events: EventRecorder,
        mark_node: Callable[[str], None],
        reports: NodeReports,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._events = events
        self._mark_node = mark_node
        self._reports = reports
        self._clock = clock
        self._room = asyncio.Semaphore(NODES_AT_ONCE)
        self._rests_until: dict[str, float] = {}
        self.in_force: dict[str, InForce] = {}
        self.refused: set[str] = set()
        self._written: dict[str, Mapping[str, Any]] = {}  # what we are writing into a record
        self._pace = Pace(clock)
        self._postponed: dict[str, asyncio.TimerHandle] = {}  # nodes that are looked at again later
        self._refusals = _TaintRefusals()

    def is_echo(self, name: str, status: NodeHealthStatus | None) -> bool:
        """Whether a changed record says what this process has just written into it; to be asked once for each
        change."""
        written = self._written.pop(name, None)
        return status is not None and written is not None and operator_part(status) == written

    def rest_seconds(self, name: str) -> float:
        """The seconds for which nothing is done about a node, because an order has failed."""
        return max(0.0, self._rests_until.get(name, 0.0) - self._clock())

    async def perform(self, order: Order, rules: Rules, now: datetime, is_outdated: Callable[[], bool]) -> bool:
        """Put an order into force; returns False if that has failed. One that had to wait for room is left out if it is
        outdated by then: its node is judged anew.

        Raises:
            LeadershipLost: this process may not write any more.
        """
        waits = self._room.locked()
        async with self._room:
            is_done = (waits and is_outdated()) or await self._try(order, rules, now)
        if is_done is None:
            await self._read_record(order.name)  # what was decided counts until then
        if is_done:
            self._rests_until.pop(order.name, None)
        else:
            self._rests_until[order.name] = self._clock() + REST_SECONDS
        return bool(is_done)

    async def _try(self, order: Order, rules: Rules, now: datetime) -> bool | None:
        """Put an order into force; returns whether that has succeeded, None where it is not known."""
        try:
            await self._put_into_force(order, rules, now)
        except (ServerError, Unreachable) as error:
            log.warning("whether a node was dealt with is not known", node=order.name, error=str(error))
            return None
        except ApiError as error:
            log.warning("node not dealt with", node=order.name, error=str(error))
        except LeadershipLost:
            raise
        except Exception as error:
            log.exception("node not dealt with", node=order.name)
            self.refused.add(order.name)
            self._reports.defect(order.name, error)
        else:
            return True
        return False

    async def _put_into_force(self, order: Order, rules: Rules, now: datetime) -> None:
        """Write the record, which is what jobs see, emit Events and set the taint, as ordered.

        Raises:
            ApiError: a part failed; those after it were not begun.
        """
        name = order.name
        record, node = self._cluster.node_record(name), self._cluster.fleet.nodes.get(name)
        if record is None:  # it has become unreadable just now
            return
        if node is not None and node.ready_reason == decode.UNREADABLE:
            node = None
        plan = plan_node(order, self._present(record, node), rules)
        if plan.record is not None:
            if plan.record.may_wait and (seconds := self._pace.wait_seconds(name)) > 0:
                self._later(name, seconds)
                return
            await self._record(name, plan.record)
            if plan.record.excludes:
                _measure(order.verdict, now)
        self.refused.discard(name)
        self.in_force[name] = order.outcome
        for event in plan.events:  # a taint that fails is tried again, and announces nothing
            self._announce(order, event)
        if plan.taint is not None and node is not None:
            refused_by = self._refusals.by_node.get(name)
            await self._taint(node, plan.taint)
            if self._refusals.by_node.get(name) != refused_by:
                await self._correct_record(order, rules)

    def _present(self, record: NodeHealth, node: NodeView | None) -> Present:
        name = record.metadata.name
        refused_by = "" if node is None or is_tainted(node) else self._refusals.by_node.get(name, "")
        return Present(record, node, self.in_force.get(name), refused_by)

    async def _correct_record(self, order: Order, rules: Rules) -> None:
        """Write the record once more after the taint that it speaks of was refused, or was let through at last."""
        record, node = self._cluster.node_record(order.name), self._cluster.fleet.nodes.get(order.name)
        if record is not None:
            correction = plan_node(order, self._present(record, node), rules).record
            if correction is not None:
                await self._record(order.name, correction)

    async def clear(self, name: str) -> bool:
        """Remove Muster's taint from a node outside the FleetPolicy's scope; returns False if that has failed.

        Raises:
            LeadershipLost: this process may not write any more.
        """
        node = self._cluster.fleet.nodes.get(name)
        try:
            if node is not None:
                await self._taint(node, ChangeTaint(False))
        except ApiError as error:
            log.warning("taint not removed", node=name, error=str(error))
            self._rests_until[name] = self._clock() + REST_SECONDS
            return False
        return True

    def forget(self, name: str) -> None:
        """Drop what is known of a node that is gone."""
        self.in_force.pop(name, None)
        self.refused.discard(name)
        self._rests_until.pop(name, None)
        self._refusals.by_node.pop(name, None)
        self._pace.forget(name)

    async def _record(self, name: str, action: WriteRecord) -> None:
        """Write the operator's part of a NodeHealth."""
        # What changes a decision neither waits nor keeps others waiting.
        if action.may_wait:
            self._pace.wrote(name)
        try:
            try:
                await self._apply(name, action.status, is_new=action.is_new)
            except NotFound:  # it has just been deleted
                if action.is_new:
                    raise
                await self._apply(name, action.status, is_new=True)
        except (ServerError, Unreachable, TooManyRequests, NotFound, Conflict):  # not for a reason of its own
            raise
        except ApiError:
            self.refused.add(name)
            raise

    async def _apply(self, name: str, status: Mapping[str, Any], *, is_new: bool) -> None:
        """Apply a status to a NodeHealth, which is created first if it is new."""
        if is_new:
            await self._create(name)
        self._written[name] = status
        path = paths.muster("nodehealths", name=name, subresource="status")
        body = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}, "status": status}
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        self._cluster.healths.assume(await self._client.patch(path, body, APPLY_PATCH, query, one_of_many=True))

    async def _read_record(self, name: str) -> None:
        """Read a node's record after a write whose outcome is not known, however long the API server does not answer.

        The watch may be behind: without this, the next decision could count the node's place as free.
        """
        path = paths.muster("nodehealths", name=name)
        while True:
            try:
                self._cluster.healths.assume(await self._client.get(path))
                return
            except (ServerError, Unreachable, TooManyRequests) as error:
                log.warning("waits for the API server, to read the record of a node", node=name, error=str(error))
                await asyncio.sleep(READ_AGAIN_SECONDS)
            except ApiError as error:  # there is none, or it may not be read
                log.warning("the record of a node is not read", node=name, error=str(error))
                return

    def _later(self, name: str, seconds: float) -> None:
        loop, timer = asyncio.get_running_loop(), self._postponed.get(name)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._postponed[name] = loop.call_later(seconds, self._due, name)

    def _due(self, name: str) -> None:
        self._postponed.pop(name, None)
        self._mark_node(name)

    async def _create(self, name: str) -> None:
        body = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await self._client.post(paths.muster("nodehealths"), body, one_of_many=True)

    async def _taint(self, node: NodeView, action: ChangeTaint) -> None:
        """Put Muster's taint on a node, or remove it. All else is done without the right to do so."""
        try:
            if action.is_wanted:
                await self._add_taint(node, action.reason)
            else:
                await self._change_taint(node.name, False, "")
        except Forbidden as error:
            if action.is_wanted:
                self._taint_refused(node.name, error, action.asked_by)
            else:
                self._removal_refused(node.name, error)
            return
        self._refusals.is_reported = False
        self._refusals.by_node.pop(node.name, None)
        self._refusals.remaining.discard(node.name)

    async def _add_taint(self, node: NodeView, reason: str) -> None:
        """Put Muster's taint on the node beside all others, in one request that touches none of them."""
        path = paths.core("nodes", name=node.name)
        try:
            answer = await self._client.patch(path, taint_patch(node, reason), JSON_PATCH, one_of_many=True)
        except NotFound:
            return
        except Invalid:  # it has other taints by now than we know of, or ours
            await self._change_taint(node.name, True, reason)
            return
        self._cluster.nodes.assume(answer)
        log.info("tainted", node=node.name, reason=reason)

    async def _change_taint(self, name: str, wanted: bool, reason: str) -> None:
        """Read the node, then put Muster's taint on it or remove it; all other taints stay as they are."""
        path = paths.core("nodes", name=name)
        try:
            data = await self._client.get(path)
            decode.node(data)  # the taints of a node that cannot be read are unknown
            current = msgspec.json.decode(data)
            others = [taint for taint in current["spec"].get("taints") or () if taint.get("key") != TAINT_KEY]
            ours = [_taint(reason)] if wanted else []
            patch = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": current["metadata"]["resourceVersion"]},
                {"op": "add", "path": "/spec/taints", "value": [*others, *ours]},
            ]
            answer = await self._client.patch(path, patch, JSON_PATCH)
        except (NotFound, ValueError):
            return
        self._cluster.nodes.assume(answer)
        log.info("tainted" if wanted else "taint removed", node=name, reason=reason)

    def _taint_refused(self, name: str, error: Forbidden, asked_by: str) -> None:
        """Report once that the right to set taints is missing, and what to do; the node is tried again.

        Args:
            name: of the node.
            error: the API server's answer.
            asked_by: the field of the FleetPolicy that asks for the taint.
        """
        self._later(name, REFUSED_SECONDS)
        self._refusals.by_node[name] = error.refused_by
        if isinstance(error, Denied):  # say, by the policy muster-scope; no right is missing
            log.warning("taint denied", node=name, error=str(error))
            return
        if self._refusals.is_reported:
            return
        self._refusals.is_reported = True
        self._report_policy(
            "taint refused",
            name,
            error,
            "NodeTaintRefused",
            "Muster may not write the taint muster.dev/unhealthy on Nodes (403). Its own jobs avoid unhealthy nodes "
            f"without the taint. Add {name_component('node-taint')}, or set {asked_by} to Jobs.",
        )

    def _removal_refused(self, name: str, error: ApiError) -> None:
        """Report once for each node that an earlier taint stays, and which command removes it; the node is tried again.

        This happens after manifests/components/node-taint was removed: the permission is gone, the taints are not.
        """
        self._later(name, REFUSED_SECONDS)
        if name in self._refusals.remaining:
            return
        self._refusals.remaining.add(name)
        text = (
            f"Node {name} no longer needs Muster's taint {TAINT_KEY}, but Muster may not remove it (403). The taint "
            f"keeps new pods away. Run `kubectl taint node {name} {TAINT_KEY}-`, or add {name_component('node-taint')}."
        )
        self._events.record(Regarding("v1", "Node", name, name), WARNING, "NodeTaintLeft", text)
        self._report_policy("taint left", name, error, "NodeTaintLeft", text)

    def _report_policy(self, event: str, name: str, error: ApiError, reason: str, text: str) -> None:
        """Log a problem, with an Event of the FleetPolicy where there is one."""
        log.error(event, node=name, error=str(error), message=text)
        record_policy_event(self._cluster, self._events, WARNING, reason, text)

    def _announce(self, order: Order, event: EmitEvent) -> None:
        name, conclusion = order.name, order.verdict.conclusion
        log.info(
            "verdict",
            node=name,
            state=conclusion.state and conclusion.state.value,
            reason=conclusion.reason,
            act=order.ruling.act,
            announced=event.reason,
        )
        kind = WARNING if event.is_warning else NORMAL
        # Events of nodes carry the node's name as uid: so `kubectl describe node` finds them.
        self._events.record(Regarding("v1", "Node", name, name), kind, event.reason, event.text)
        record = self._cluster.healths.store.get(("", name))
        if event.is_of_record and isinstance(record, NodeHealth):
            about = Regarding(API_VERSION, "NodeHealth", name, record.metadata.uid)
            self._events.record(about, kind, event.reason, event.text)


def _measure(verdict: Verdict, now: datetime) -> None:
    """Observe how long it has taken from the first sign of a node's fault until jobs avoid the node."""
    findings = verdict.conclusion.findings
    if findings and not (verdict.grounds.only_planned or findings[0].observed):
        _latency.observe(max((now - findings[0].since).total_seconds(), 0.0))


def taint_patch(node: NodeView, reason: str) -> list[dict[str, Any]]:
    """The JSON patch that adds Muster's taint to the node's other taints.

    The API server refuses it as Invalid where it does not fit: the node has the taint already, has no taints any more,
    or has some by now.
    """
    ours = _taint(reason)
    if node.taints:
        return [{"op": "add", "path": "/spec/taints/-", "value": ours}]
    return [
        {"op": "test", "path": "/spec/taints", "value": None},
        {"op": "add", "path": "/spec/taints", "value": [ours]},
    ]


def _taint(reason: str) -> dict[str, str]:
    return {"key": TAINT_KEY, "value": reason[:63], "effect": "NoSchedule"}

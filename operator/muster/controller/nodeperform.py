"""Puts into force what was decided about a node: its record, placement and jobs, the taint, Events; in this order.

The record comes first, with the incident marked as acted on, so that the budget is charged before anything is done. A
crash in between is repaired by the next pass, which starts from what is stored.

Tests: tests/unit/controller/test_nodereconciler.py.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec
import structlog
from prometheus_client import Histogram

from muster.api.base import API_VERSION
from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import NodeHealthStatus, VerdictState
from muster.controller.cluster import Cluster
from muster.controller.nodereports import NodeReports
from muster.controller.pace import Pace
from muster.health.orders import InForce, Order
from muster.health.signs import CHECK_WANTED
from muster.health.sources import UNHEALTHY_TAINT
from muster.health.story import observed_effect_text, recorded_status, status_message
from muster.health.verdict import Verdict
from muster.health.verdict_index import is_tainted
from muster.kube import decode, paths
from muster.kube.client import APPLY_PATCH, Client
from muster.kube.decode import Undecodable
from muster.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
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
# The agent's part of the status; the rest is the operator's.
_AGENTS = frozenset({"evidence", "agent"})
JSON_PATCH = "application/json-patch+json"
READ_AGAIN_SECONDS = 2.0
REFUSED_SECONDS = 300.0
"""Pause after the API server refused a taint, of one node."""

log = structlog.get_logger()
_latency = Histogram(
    "muster_detection_seconds",
    "Time from the first sign of a node's fault until jobs avoid the node.",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)


class NodePerformer:
    """Puts orders about nodes into force.

    Args:
        mark_node: has a node judged again.
        reports: reports defects.
        clock: monotonic seconds.

    Attributes:
        in_force: what was last put into force, by node.
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
        self._room = asyncio.Semaphore(NODES_AT_ONCE)
        self.in_force: dict[str, InForce] = {}
        self._written: dict[str, Mapping[str, Any]] = {}  # what we are writing into a record
        self._pace = Pace(clock)
        self._postponed: set[str] = set()  # nodes that are looked at again when there may be another write
        self._is_refused = False  # the last taint, by the API server
        self._left_tainted: set[str] = set()  # nodes whose taint could not be removed, and it was said

    def is_echo(self, name: str, status: NodeHealthStatus | None) -> bool:
        """Whether a changed record says what this process has just written into it; to be asked once for each
        change."""
        written = self._written.pop(name, None)
        return status is not None and written is not None and _operator_part(status) == written

    async def perform(self, order: Order, enforcement: Enforcement, now: datetime) -> bool:
        """Put an order into force, once there is room; returns whether that has succeeded.

        Raises:
            LeadershipLost: this process may not write any more.
        """
        async with self._room:
            try:
                await self._put_into_force(order, enforcement, now)
            except (ServerError, Unreachable) as error:
                log.warning("whether a node was dealt with is not known", node=order.name, error=str(error))
                await self._read_record(order.name)  # what was decided counts until then
            except ApiError as error:
                log.warning("node not dealt with", node=order.name, error=str(error))
            except LeadershipLost:
                raise
            except Exception as error:
                log.exception("node not dealt with", node=order.name)
                self._reports.defect(order.name, error)
            else:
                return True
        return False

    async def _put_into_force(self, order: Order, enforcement: Enforcement, now: datetime) -> None:
        """Write the record, which is what jobs see, set the taint and emit Events, as ordered.

        Raises:
            ApiError: a part failed; those after it were not begun.
        """
        name, verdict, wanted = order.name, order.verdict, order.effect
        before = self.in_force.get(name)
        if not await self._record(order, enforcement, now):
            return
        self.in_force[name] = order.outcome
        node = self._cluster.fleet.nodes.get(name)
        # The taints of a node that cannot be read are unknown, ours and those of others.
        is_readable = node is not None and node.ready_reason != decode.UNREADABLE
        if node is not None and is_readable and is_tainted(node) != wanted.taint:
            try:
                reason = verdict.conclusion.reason
                await (self._taint(node, reason) if wanted.taint else self._change_taint(name, False, ""))
                self._is_refused = False
                self._left_tainted.discard(name)
            except Forbidden as error:  # all else is done without it
                if wanted.taint:
                    self._taint_refused(name, error)
                else:
                    self._removal_refused(name, error)
        self._emit_events(order, enforcement, before)

    def forget(self, name: str) -> None:
        """Drop what is known of a node that is gone."""
        self.in_force.pop(name, None)
        self._pace.forget(name)

    async def _record(self, order: Order, enforcement: Enforcement, now: datetime) -> bool:
        """Write the operator's part of NodeHealth, if it says anything new.

        Returns False where the write has to wait: it changes no decision, and such changes come and go all the time.
        """
        name, health = order.name, self._cluster.node_record(order.name)
        if health is None:  # it has become unreadable just now
            return False
        status = recorded_status(order, enforcement)
        ours = _operator_part(status)
        exists = bool(health.metadata.uid)
        if ours == _operator_part(health.status) or (not exists and _says_nothing(status)):
            return True
        # What changes a decision neither waits nor keeps others waiting.
        if _may_wait(order, status, health.status, self.in_force.get(name)):
            wait = self._pace.wait_seconds(name)
            if wait > 0:
                self._later(name, wait)
                return False
            self._pace.wrote(name)
        path = paths.muster("nodehealths", name=name, subresource="status")
        body = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}, "status": ours}
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        if not exists:
            await self._create(name)
        self._written[name] = ours
        try:
            answer = await self._client.patch(path, body, APPLY_PATCH, query, one_of_many=True)
        except NotFound:  # it has just been deleted
            await self._create(name)
            answer = await self._client.patch(path, body, APPLY_PATCH, query, one_of_many=True)
        self._cluster.healths.assume(answer)
        if health.status.exclusion is None and status.exclusion is not None:
            _measure(order.verdict, now)
        return True

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
        if name not in self._postponed:
            self._postponed.add(name)
            asyncio.get_running_loop().call_later(seconds, self._due, name)

    def _due(self, name: str) -> None:
        self._postponed.discard(name)
        self._mark_node(name)

    async def _create(self, name: str) -> None:
        body = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await self._client.post(paths.muster("nodehealths"), body, one_of_many=True)

    async def _taint(self, node: NodeView, reason: str) -> None:
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
            found = msgspec.json.decode(data)
            others = [taint for taint in found["spec"].get("taints") or () if taint.get("key") != TAINT_KEY]
            ours = [_taint(reason)] if wanted else []
            patch = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
                {"op": "add", "path": "/spec/taints", "value": [*others, *ours]},
            ]
            answer = await self._client.patch(path, patch, JSON_PATCH)
        except (NotFound, ValueError):
            return
        except Conflict:
            self._mark_node(name)  # another client was writing to it
            return
        self._cluster.nodes.assume(answer)
        log.info("tainted" if wanted else "taint removed", node=name, reason=reason)

    def _taint_refused(self, name: str, error: ApiError) -> None:
        """Report once that the right to set taints is missing, and what to do; the node is tried again."""
        self._later(name, REFUSED_SECONDS)
        if self._is_refused:
            return
        self._is_refused = True
        self._report_policy(
            "taint refused",
            name,
            error,
            "NodeTaintRefused",
            "Muster may not write the taint muster.dev/unhealthy on Nodes (403). Its own jobs avoid unhealthy nodes "
            "without the taint. Add manifests/components/node-taint to the overlay, or set spec.health.enforcement to "
            "Jobs.",
        )

    def _removal_refused(self, name: str, error: ApiError) -> None:
        """Report once for each node that an earlier taint stays, and which command removes it; the node is tried again.

        This happens after manifests/components/node-taint was removed: the permission is gone, the taints are not.
        """
        self._later(name, REFUSED_SECONDS)
        if name in self._left_tainted:
            return
        self._left_tainted.add(name)
        text = (
            f"Node {name} no longer needs Muster's taint {TAINT_KEY}, but Muster may not remove it (403). The taint "
            f"keeps new pods away. Run `kubectl taint node {name} {TAINT_KEY}-`, or add "
            "manifests/components/node-taint to the overlay."
        )
        self._events.record(Regarding("v1", "Node", name, name), WARNING, "NodeTaintLeft", text)
        self._report_policy("taint left", name, error, "NodeTaintLeft", text)

    def _report_policy(self, event: str, name: str, error: ApiError, reason: str, text: str) -> None:
        """Log a problem, with an Event of the FleetPolicy where there is one."""
        log.error(event, node=name, error=str(error), message=text)
        policy = self._cluster.policies.store.get(("", "default"))
        if policy is not None:
            uid = policy.uid if isinstance(policy, Undecodable) else policy.metadata.uid
            self._events.record(Regarding(API_VERSION, "FleetPolicy", "default", uid), WARNING, reason, text)

    def _emit_events(self, order: Order, enforcement: Enforcement, before: InForce | None) -> None:
        name, verdict, ruling, wanted = order.name, order.verdict, order.ruling, order.effect
        conclusion, grounds = verdict.conclusion, verdict.grounds
        known = before.state if before else None
        asks = conclusion.reason == CHECK_WANTED and before is not None and before.reason != CHECK_WANTED
        same = conclusion.state is known and (before is None or before.effect == wanted)
        observed = order.outcome.observed
        if observed and (before is None or before.observed != observed) and same:
            assert conclusion.would is not None
            would = conclusion.would
            log.info("only observed", node=name, reason=would.reason, would=would.state.value)
            if before is not None:  # a new leader has nothing new to tell
                text = observed_effect_text(would, enforcement)
                self._events.record(Regarding("v1", "Node", name, name), NORMAL, "NodeObserved", text)
        if same and not asks:
            return
        if before is None and conclusion.state in (None, VerdictState.HEALTHY):
            return
        well = conclusion.state in (None, VerdictState.HEALTHY)
        text = status_message(order, enforcement) or "no finding counts against the node any more"
        planned = "NodeMaintenance" if grounds.removal is None else "NodeRemoval"
        reason = planned if grounds.only_planned else f"Node{conclusion.state.value if conclusion.state else 'Healthy'}"
        kind = NORMAL if well or grounds.only_planned or conclusion.state is VerdictState.SUSPECT else WARNING
        log.info(
            "verdict",
            node=name,
            state=conclusion.state and conclusion.state.value,
            reason=conclusion.reason,
            act=ruling.act,
        )
        # Events of nodes carry the node's name as uid: so `kubectl describe node` finds them.
        self._events.record(Regarding("v1", "Node", name, name), kind, reason, text)
        health = self._cluster.node_record(name)
        if health is not None and health.metadata.uid:
            about = Regarding(API_VERSION, "NodeHealth", name, health.metadata.uid)
            self._events.record(about, kind, reason, text)


def _says_nothing(status: NodeHealthStatus) -> bool:
    """Whether a record has nothing to tell people or jobs, so that none need be made for it."""
    for_jobs = status.exclusion or status.fault or status.suspicion
    return (
        status.state in (None, VerdictState.HEALTHY)
        and not for_jobs
        and not any(finding.observed for finding in status.findings)
    )


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


def _may_wait(order: Order, status: NodeHealthStatus, known: NodeHealthStatus, before: InForce | None) -> bool:
    """Whether the new record only informs people, so that its write may wait.

    It is so where the node is used as before, nothing is counted by time, and no decision, charge or request has
    changed. That other nodes come before it is a preference, which may come late.
    """
    light, follow_up = (None, VerdictState.HEALTHY, VerdictState.SUSPECT), order.verdict.follow_up
    if before is None or order.effect != before.effect or order.ruling.charge or follow_up.wake is not None:
        return False
    if status.state not in light or known.state not in light or order.outcome.observed != before.observed:
        return False
    kept = (
        "incidents",
        "offences",
        "earlier_offences",
        "check",
        "maintenance",
        "node_uid",
        "boot_id",
        "effect",
        "exclusion",
        "fault",
    )
    return all(getattr(status, name) == getattr(known, name) for name in kept) and follow_up.followed is None


def _operator_part(status: NodeHealthStatus) -> dict[str, Any]:
    """The operator's part of a NodeHealth status, in the form in which it is written."""
    return {key: value for key, value in status.to_json().items() if key not in _AGENTS}

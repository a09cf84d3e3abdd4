"""Judges every node again whenever something about it changes, and does what follows: record, exclude, taint, tell.

All judgement is pure (`muster.health`). Here its inputs are gathered and its outcome is put into force, in this order for
each node: the record (NodeHealth's status, with the incident marked as acted on, so that the budget is charged before
anything is done), then placement and jobs, then the taint, then Events. A crash in between is mended by the next look,
which starts from what is stored.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog
from prometheus_client import Gauge, Histogram

from muster.api.base import API_VERSION, ObjectMeta
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import NodeHealth, NodeHealthStatus, VerdictState
from muster.controller.cluster import Cluster
from muster.health.assess import Verdict, assess
from muster.health.breaker import Breaker, BreakerState, Ruling, Situation, rule
from muster.health.effects import Effect, effect
from muster.health.facts import NodeFacts
from muster.health.memory import Memory
from muster.health.sources import Rules
from muster.health.story import effect_text, tell
from muster.kube import paths
from muster.kube.client import APPLY_PATCH, Client
from muster.kube.decode import Undecodable
from muster.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from muster.kube.events import NORMAL, WARNING, EventRecorder, Regarding
from muster.placement.space import domain_path
from muster.world.fleet import Exclusion
from muster.world.views import NodeView

TAINT_KEY = "muster.dev/unhealthy"
FIELD_MANAGER = "muster"
WRITES_AT_ONCE = 16
# Nodes fall sick in crowds: they are judged together, so that the budget sees them together.
GATHER_SECONDS = 0.1
RETRY_SECONDS = 2.0
# The agent's part of the status; the rest is the operator's.
_AGENTS = frozenset({"evidence", "agent"})
JSON_PATCH = "application/json-patch+json"

log = structlog.get_logger()
_nodes = Gauge("muster_nodes", "Nodes by verdict; `Unknown` are those of which nobody says anything.", ["state"])
_findings = Gauge("muster_node_findings", "Nodes with a finding that weighs against them, by its reason.", ["reason"])
_breaker = Gauge("muster_breaker_open", "Whether the budget of nodes to take out holds any back (1) or not (0).")
_held = Gauge("muster_breaker_held_nodes", "Sick nodes that the budget holds back.")
_contradictions = Gauge(
    "muster_health_policy_problems", "What in the FleetPolicy's health makes no sense together; the log names it."
)
_latency = Histogram(
    "muster_detection_seconds",
    "Time from the first sign of what took a node out to the moment when jobs avoid it.",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300),
)
# Reasons come from tables, but rules of a policy can name their own: no more series than that.
MAX_REASONS = 100


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What was last put into force for a node."""

    state: VerdictState | None
    reason: str
    effect: Effect


class HealthKeeper:
    """Keeps verdicts, exclusions and taints in line with what is known of the nodes.

    Args:
        rings: called with a job's uid when a node of it is to be left, or is well again.
        freed: called when a node may be used again.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        events: EventRecorder,
        rings: Callable[[str], None],
        freed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._events = events
        self._rings = rings
        self._freed = freed
        self._clock = clock
        self._wall_clock = wall_clock
        self._dirty: set[str] = set()
        self._stirred = asyncio.Event()
        self._verdicts: dict[str, Verdict] = {}
        self._wakes: dict[str, datetime] = {}
        self._outcomes: dict[str, _Outcome] = {}
        self._breaker: Breaker | None = None
        self._policy: FleetPolicySpec | None = None
        self._rules = Rules.of(FleetPolicySpec())
        self._reasons: set[str] = set()
        cluster.nodes.store.subscribe(self._node_changed)
        cluster.healths.store.subscribe(self._health_changed)
        cluster.policies.store.subscribe(lambda _old, _new: self.everything())

    def everything(self) -> None:
        """Look at every node again."""
        self._stir(self._cluster.fleet.nodes)

    async def run(self) -> None:
        """Judge and act until cancelled; to be run by the leader."""
        self.everything()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause()):
                    await self._stirred.wait()
            await asyncio.sleep(GATHER_SECONDS)
            self._stirred.clear()
            failed = await self._look()
            if failed:
                await asyncio.sleep(RETRY_SECONDS)
                self._stir(failed)

    def _stir(self, nodes: Iterable[str]) -> None:
        self._dirty.update(nodes)
        self._stirred.set()

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        node = new or old
        assert node is not None
        if old is None or new is None or _facts(old) != _facts(new):
            self._stir([node.name])

    def _health_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        self._stir([value.name if isinstance(value, Undecodable) else value.metadata.name])

    def _pause(self) -> float | None:
        """Seconds until something is due by time alone."""
        moments = [*self._wakes.values()]
        if self._breaker is not None and self._breaker.next_try is not None:
            moments.append(self._breaker.next_try)
        if not moments:
            return None
        return max((min(moments) - self._wall_clock()).total_seconds(), 0.0)

    async def _look(self) -> Collection[str]:
        """Judge what is dirty or due and put the outcome into force; returns the nodes of which it failed."""
        now = self._wall_clock()
        self._take_in_policy()
        due = {name for name, moment in self._wakes.items() if moment <= now}
        names, self._dirty = self._dirty | due, set()
        memory = Memory(h.status.offences for h in self._healths() if h.status.offences.hardware)
        for name in names:
            self._judge(name, memory, now)
        rulings, self._breaker = rule(self._situation(), self._rules, now)
        self._measure()
        # A ruling can change without its node: the budget is everybody's.
        changed = [name for name, ruling in rulings.items() if name in names or self._differs(name, ruling)]
        limit = asyncio.Semaphore(WRITES_AT_ONCE)
        failed: set[str] = set()

        async def one(name: str) -> None:
            async with limit:
                try:
                    await self._put_into_force(name, rulings[name], now)
                except ApiError as error:
                    log.warning("node not dealt with", node=name, error=str(error))
                    failed.add(name)

        await asyncio.gather(*(one(name) for name in changed))
        return failed

    def _take_in_policy(self) -> None:
        policy = self._cluster.fleet.policy
        if policy != self._policy:
            self._policy, self._rules = policy, Rules.of(policy)
            _contradictions.set(len(self._rules.problems))
            for problem in self._rules.problems:
                log.warning("the FleetPolicy's health makes no sense together", problem=problem)

    def _healths(self) -> list[NodeHealth]:
        return [health for health in self._cluster.healths.store.values() if isinstance(health, NodeHealth)]

    def _judge(self, name: str, memory: Memory, now: datetime) -> None:
        node, health = self._cluster.fleet.nodes.get(name), self._health(name)
        self._wakes.pop(name, None)
        if node is not None and health is None:
            return  # a record that cannot be read acquits nobody
        if node is None or health is None:
            self._verdicts.pop(name, None)
            self._outcomes.pop(name, None)
            self._cluster.fleet.exclude(name, None)
            return
        verdict = assess(NodeFacts.of(node), health, self._rules, now, memory=memory)
        self._verdicts[name] = verdict
        if verdict.wake is not None:
            self._wakes[name] = verdict.wake

    def _health(self, name: str) -> NodeHealth | None:
        """The node's record, an empty one where there is none; None for one that cannot be read."""
        found = self._cluster.healths.store.get(("", name))
        if isinstance(found, Undecodable):
            return None
        return found or NodeHealth(metadata=ObjectMeta(name=name))

    def _situation(self) -> Situation:
        fleet = self._cluster.fleet
        nodes = {name: fleet.nodes[name] for name in self._verdicts if name in fleet.nodes}
        return Situation(
            verdicts={name: self._verdicts[name] for name in nodes},
            tainted={name for name, node in nodes.items() if _is_tainted(node)},
            domains={name: domain_path(node, fleet) for name, node in nodes.items()},
            gone=[
                incident
                for health in self._healths()
                if health.metadata.name not in fleet.nodes
                for incident in health.status.incidents
            ],
            nodes=len(fleet.nodes),
        )

    def _differs(self, name: str, ruling: Ruling) -> bool:
        verdict, outcome = self._verdicts[name], self._outcomes.get(name)
        wanted = effect(verdict, ruling, self._rules.enforcement)
        tainted = _is_tainted(self._cluster.fleet.nodes[name])
        return ruling.charge or outcome is None or outcome.effect != wanted or wanted.taint != tainted

    async def _put_into_force(self, name: str, ruling: Ruling, now: datetime) -> None:
        verdict = self._verdicts[name]
        if ruling.charge:
            verdict = self._verdicts[name] = verdict.taken(now)
        wanted = effect(verdict, ruling, self._rules.enforcement)
        await self._record(name, verdict, ruling, wanted)
        before = self._outcomes.get(name)
        self._outcomes[name] = _Outcome(verdict.state, verdict.reason, wanted)
        self._exclude(name, verdict, wanted, now)
        node = self._cluster.fleet.nodes.get(name)
        if node is not None and _is_tainted(node) != wanted.taint:
            await self._taint(name, wanted.taint, verdict.reason)
        self._tell(name, verdict, ruling, wanted, before)

    def _exclude(self, name: str, verdict: Verdict, wanted: Effect, now: datetime) -> None:
        exclusion = Exclusion(verdict.reason, verdict.message[:512], wanted.leave) if wanted.avoid else None
        was = self._cluster.fleet.exclusion(name)
        if not self._cluster.fleet.exclude(name, exclusion):
            return
        if exclusion is None:
            self._freed()
        elif was is None and verdict.findings:
            _latency.observe(max((now - verdict.findings[0].since).total_seconds(), 0.0))
        for uid in self._cluster.jobs_on(name):
            self._rings(uid)

    async def _record(self, name: str, verdict: Verdict, ruling: Ruling, wanted: Effect) -> None:
        """Write the operator's part of NodeHealth, if it says anything new."""
        health = self._health(name)
        if health is None:
            return
        enforcement = self._rules.enforcement
        status = NodeHealthStatus(
            state=verdict.state,
            reason=verdict.reason,
            message=tell(name, verdict, ruling, wanted, enforcement),
            since=verdict.since,
            recommended_action=verdict.recommended_action,
            findings=list(verdict.findings),
            effect=effect_text(verdict, ruling, wanted, enforcement),
            incidents=list(verdict.incidents),
            offences=verdict.offences,
            node_uid=verdict.node_uid,
            boot_id=verdict.boot_id,
        ).to_json()
        ours = {key: value for key, value in status.items() if key not in _AGENTS}
        stored = {key: value for key, value in health.status.to_json().items() if key not in _AGENTS}
        exists = bool(health.metadata.uid)
        if ours == stored or (not exists and verdict.state in (None, VerdictState.HEALTHY)):
            return
        path = paths.muster("nodehealths", name=name, subresource="status")
        body = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}, "status": ours}
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        if not exists:
            await self._create(name)
        try:
            answer = await self._client.patch(path, body, APPLY_PATCH, query)
        except NotFound:  # it has just been deleted
            await self._create(name)
            answer = await self._client.patch(path, body, APPLY_PATCH, query)
        self._cluster.healths.assume(answer)

    async def _create(self, name: str) -> None:
        body = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await self._client.post(paths.muster("nodehealths"), body)

    async def _taint(self, name: str, wanted: bool, reason: str) -> None:
        """Put our taint on the node, or take it off; everybody else's stay as they are."""
        path = paths.core("nodes", name=name)
        try:
            node = msgspec.json.decode(await self._client.get(path))
            others = [taint for taint in node["spec"].get("taints") or () if taint.get("key") != TAINT_KEY]
            ours = [{"key": TAINT_KEY, "value": reason[:63], "effect": "NoSchedule"}] if wanted else []
            patch = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]},
                {"op": "add", "path": "/spec/taints", "value": [*others, *ours]},
            ]
            answer = await self._client.patch(path, patch, JSON_PATCH)
        except NotFound:
            return
        except Conflict:
            self._stir([name])  # somebody else was writing to it
            return
        self._cluster.nodes.assume(answer)
        log.info("tainted" if wanted else "taint removed", node=name, reason=reason)

    def _tell(self, name: str, verdict: Verdict, ruling: Ruling, wanted: Effect, before: _Outcome | None) -> None:
        known = before.state if before else None
        if verdict.state is known and (before is None or before.effect == wanted):
            return
        if before is None and verdict.state in (None, VerdictState.HEALTHY):
            return
        well = verdict.state in (None, VerdictState.HEALTHY)
        text = tell(name, verdict, ruling, wanted, self._rules.enforcement) or "nothing stands against it any more"
        reason = f"Node{verdict.state.value if verdict.state else 'Healthy'}"
        kind = NORMAL if well or verdict.state is VerdictState.SUSPECT else WARNING
        log.info(
            "verdict", node=name, state=verdict.state and verdict.state.value, reason=verdict.reason, act=ruling.act
        )
        # Events of nodes carry the node's name as uid: so `kubectl describe node` finds them.
        self._events.record(Regarding("v1", "Node", name, name), kind, reason, text)
        health = self._health(name)
        if health is not None and health.metadata.uid:
            about = Regarding(API_VERSION, "NodeHealth", name, health.metadata.uid)
            self._events.record(about, kind, reason, text)

    def _measure(self) -> None:
        states = Counter(v.state.value if v.state else "Unknown" for v in self._verdicts.values())
        for state in (*VerdictState, "Unknown"):
            _nodes.labels(str(state)).set(states.get(str(state), 0))
        reasons = Counter(f.reason for v in self._verdicts.values() if v.out for f in v.findings[:1])
        for reason in sorted(reasons):
            if len(self._reasons) < MAX_REASONS:
                self._reasons.add(reason)
        for reason in self._reasons:
            _findings.labels(reason).set(reasons.get(reason, 0))
        assert self._breaker is not None
        _breaker.set(self._breaker.state is not BreakerState.CLOSED)
        _held.set(self._breaker.held)


def _facts(node: NodeView) -> tuple[Any, ...]:
    """What of a node its health is judged by."""
    return (
        node.uid,
        node.labels,
        node.taints,
        node.unschedulable,
        node.boot_id,
        node.allocatable,
        node.capacity,
        node.conditions,
    )


def _is_tainted(node: NodeView) -> bool:
    return any(taint.key == TAINT_KEY for taint in node.taints)

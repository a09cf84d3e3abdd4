"""Judges every node again whenever something about it changes, and does what follows: record, exclude, taint, tell.

All judgement is pure (`muster.health`). Here its inputs are gathered and its outcome is put into force, in this order for
each node: the record (NodeHealth's status, with the incident marked as acted on, so that the budget is charged before
anything is done), then placement and jobs, then the taint, then Events. A crash in between is mended by the next look,
which starts from what is stored.

A look costs what has changed and what is out, not what the fleet has. It does not wait for the writes of the one before:
a node that is being dealt with is looked at again when that is done, if it has changed meanwhile.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import structlog
from prometheus_client import Gauge, Histogram

from muster.api.base import API_VERSION, ObjectMeta
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import HealthIncident, NodeHealth, NodeHealthStatus, VerdictState
from muster.controller.cluster import Cluster
from muster.health.assess import Verdict, ailment, assess
from muster.health.breaker import Act, Breaker, BreakerState, Ruling, Situation, concerned, held_back, rule
from muster.health.effects import Effect, effect
from muster.health.facts import NodeFacts
from muster.health.memory import Memory
from muster.health.sources import Rules
from muster.health.story import effect_text, tell
from muster.kube import paths
from muster.kube.client import APPLY_PATCH, Client
from muster.kube.decode import Undecodable
from muster.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, LeadershipLost, NotFound
from muster.kube.events import NORMAL, WARNING, EventRecorder, Regarding
from muster.placement.where import DomainPath, domain_path
from muster.world.fleet import Exclusion, Fleet
from muster.world.views import NodeView

TAINT_KEY = "muster.dev/unhealthy"
FIELD_MANAGER = "muster"
NODES_AT_ONCE = 32
# Nodes fall sick in crowds: they are judged together, so that the budget sees them together.
GATHER_SECONDS = 0.1
RETRY_SECONDS = 2.0
# The agent's part of the status; the rest is the operator's.
_AGENTS = frozenset({"evidence", "agent"})
JSON_PATCH = "application/json-patch+json"

_NO_RULING = Ruling(Act.NOTHING)

log = structlog.get_logger()
_nodes = Gauge("muster_nodes", "Nodes by verdict; `Unknown` are those of which nobody says anything.", ["state"])
_findings = Gauge("muster_node_findings", "Nodes with a finding that weighs against them, by its reason.", ["reason"])
_breaker = Gauge("muster_breaker_open", "Whether the budget of nodes to take out holds any back (1) or not (0).")
_held = Gauge("muster_breaker_held_nodes", "Sick nodes that the budget holds back.")
_contradictions = Gauge(
    "muster_health_policy_problems", "What in the FleetPolicy's health makes no sense together; the log names it."
)
_unread_policy = Gauge(
    "muster_fleet_policy_unreadable",
    "Whether the FleetPolicy cannot be read, and an older one or the defaults hold (1).",
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
        self._room = asyncio.Semaphore(NODES_AT_ONCE)
        self._doing: dict[str, _Doing] = {}
        self._resting: set[str] = set()  # nodes of which something failed just now
        self._failure: BaseException | None = None
        self._ground = _Ground()
        self._memory = Memory()
        self._books = _Books()
        self._wakes: dict[str, datetime] = {}
        self._outcomes: dict[str, _Outcome] = {}
        self._written: dict[str, Mapping[str, Any]] = {}  # what we are writing into a record
        self._echoes: set[str] = set()  # nodes whose record says what we have written last
        self._breaker: Breaker | None = None
        self._policy: FleetPolicySpec | None = None
        self._rules = Rules.of(FleetPolicySpec())
        self._reasons: set[str] = set()
        self._policy_problem = ""
        self._refuted: set[str] = set()
        self._unreadable: dict[str, str] = {}  # nodes whose record cannot be read -> why
        cluster.nodes.store.subscribe(self._node_changed)
        cluster.healths.store.subscribe(self._health_changed)
        cluster.policies.store.subscribe(lambda _old, _new: self.everything())

    def everything(self) -> None:
        """Look at every node again."""
        self._echoes.clear()
        self._stir(self._cluster.fleet.nodes)

    async def run(self) -> None:
        """Judge and act until cancelled; to be run by the leader.

        Raises:
            LeadershipLost: this process may not write any more.
        """
        self.everything()
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause()):
                        await self._stirred.wait()
                await asyncio.sleep(GATHER_SECONDS)
                self._stirred.clear()
                if self._failure is not None:
                    raise self._failure
                try:
                    self.look()
                except Exception:  # what is in force stays; whatever it was is met again, or is over
                    log.exception("nodes not judged", nodes=len(self._dirty))
                    asyncio.get_running_loop().call_later(RETRY_SECONDS, self._stirred.set)
        finally:
            for doing in self._doing.values():
                doing.task.cancel()

    def _stir(self, nodes: Iterable[str]) -> None:
        self._dirty.update(nodes)
        self._stirred.set()

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        node = new or old
        assert node is not None
        self._ground.put(node.name, new, self._cluster.fleet)
        if old is None or new is None or _facts(old) != _facts(new):
            self._stir([node.name])
        elif _is_tainted(old) != _is_tainted(new):
            outcome = self._outcomes.get(node.name)
            if outcome is None or outcome.effect.taint != _is_tainted(new):
                self._stir([node.name])  # it was not we who did it

    def _health_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        name = value.name if isinstance(value, Undecodable) else value.metadata.name
        if not isinstance(new, Undecodable):  # an account that cannot be read is not one that is settled
            self._memory.put(name, new.status.offences if new else None)
            self._ground.put_incidents(name, new.status.incidents if new else ())
        written = self._written.pop(name, None)
        if isinstance(new, NodeHealth) and written is not None and _ours(new.status) == written:
            self._echoes.add(name)
        else:
            self._echoes.discard(name)
        self._stir([name])

    def _pause(self) -> float | None:
        """Seconds until something is due by time alone."""
        moments = [*self._wakes.values()]
        if self._breaker is not None and self._breaker.next_try is not None:
            moments.append(self._breaker.next_try)
        if not moments:
            return None
        return max((min(moments) - self._wall_clock()).total_seconds(), 0.0)

    def look(self) -> None:
        """Judge what is dirty or due, and begin to put the outcome into force."""
        now = self._wall_clock()
        self._take_in_policy()
        names = self._dirty | {name for name, moment in self._wakes.items() if moment <= now}
        # One that is being dealt with is judged by what is written then.
        self._dirty = names & self._doing.keys()
        names -= self._dirty
        for name in self._dirty:
            self._wakes.pop(name, None)
        for name in list(names):
            before = self._books.verdicts.get(name)
            if not self._judged(name, now):
                names.discard(name)
                continue
            if name in self._echoes and before is not None and _same(before, self._books.verdicts.get(name)):
                names.discard(name)  # as it is in force and on record
            self._echoes.discard(name)
        rulings, self._breaker = rule(self._situation(), self._rules, now)
        if self._cluster.policy_unknown:
            rulings = {name: held_back(ruling) for name, ruling in rulings.items()}
        self._measure()
        # A ruling can change without its node: the budget is everybody's. Who is sick comes first.
        changed = [name for name, ruling in rulings.items() if name in names or self._differs(name, ruling)]
        changed += [name for name in names if name not in rulings and name in self._books.verdicts]
        for name in changed:
            if name in self._doing:
                self._dirty.add(name)
            elif name not in self._resting:
                self._begin(name, rulings.get(name, _NO_RULING), now)

    async def settled(self) -> None:
        """Returns once nothing is being put into force."""
        while self._doing:
            await asyncio.wait([doing.task for doing in self._doing.values()])

    def _begin(self, name: str, ruling: Ruling, now: datetime) -> None:
        verdict = self._books.verdicts[name]
        if ruling.charge:  # the next look must know, though it is written only in a moment
            verdict = verdict.taken(now)
            self._books.put(name, verdict)
        wanted = self._effect(name, verdict, ruling)
        task = asyncio.create_task(self._deal_with(name, verdict, ruling, wanted, now), name=f"health of {name}")
        self._doing[name] = _Doing(task, wanted)
        task.add_done_callback(lambda task: self._done(name, task))

    async def _deal_with(self, name: str, verdict: Verdict, ruling: Ruling, wanted: Effect, now: datetime) -> None:
        async with self._room:
            try:
                await self._put_into_force(name, verdict, ruling, wanted, now)
            except ApiError as error:
                log.warning("node not dealt with", node=name, error=str(error))
                self._rest(name)
            except LeadershipLost:
                raise
            except Exception as error:
                log.exception("node not dealt with", node=name)
                self._rest(name)
                self._events.record(Regarding("v1", "Node", name, name), WARNING, "InternalError", _defect(error))

    def _rest(self, name: str) -> None:
        """Leave a node alone for a moment: something failed."""
        self._resting.add(name)
        asyncio.get_running_loop().call_later(RETRY_SECONDS, self._rested, name)

    def _rested(self, name: str) -> None:
        self._resting.discard(name)
        self._stir([name])

    def _done(self, name: str, task: asyncio.Task[None]) -> None:
        del self._doing[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
            self._stirred.set()
        if name in self._dirty:
            self._stirred.set()

    def _take_in_policy(self) -> None:
        self._tell_policy()
        policy = self._cluster.fleet.policy
        if policy != self._policy:
            self._policy, self._rules = policy, Rules.of(policy)
            self._ground.lay_out(self._cluster.fleet)
            _contradictions.set(len(self._rules.problems))
            for problem in self._rules.problems:
                log.warning("the FleetPolicy's health makes no sense together", problem=problem)

    def _tell_policy(self) -> None:
        """That the FleetPolicy cannot be read, and what holds meanwhile."""
        problem = self._cluster.policy_problem
        _unread_policy.set(bool(problem))
        if problem == self._policy_problem:
            return
        self._policy_problem = problem
        policy = self._cluster.policies.store.get(("", "default"))
        if not isinstance(policy, Undecodable):
            log.info("FleetPolicy readable again")
            return
        holds = (
            "the defaults hold, and no node is newly taken out, because what it said before is not known"
            if self._cluster.policy_unknown
            else "what it said before holds"
        )
        text = f"it does not fit its schema ({problem}): {holds}. Mend that field, or run the version that it was written for."
        log.error("FleetPolicy unreadable", error=problem, holds=holds)
        self._events.record(
            Regarding(API_VERSION, "FleetPolicy", policy.name, policy.uid), WARNING, "PolicyUnreadable", text
        )

    def _judged(self, name: str, now: datetime) -> bool:
        """Judge a node; False where that met a defect, and its last verdict stands."""
        try:
            self._judge(name, now)
        except Exception as error:
            log.exception("node not judged", node=name)
            self._rest(name)
            self._events.record(Regarding("v1", "Node", name, name), WARNING, "InternalError", _defect(error))
            return False
        return True

    def _judge(self, name: str, now: datetime) -> None:
        node, health = self._cluster.fleet.nodes.get(name), self._health(name)
        self._wakes.pop(name, None)
        if node is not None and health is None:
            self._tell_unreadable(name)  # which acquits nobody
            return
        self._unreadable.pop(name, None)
        self._tell_refuted(name)
        if node is None or health is None:
            self._books.put(name, None)
            self._outcomes.pop(name, None)
            self._cluster.fleet.exclude(name, None)
            self._cluster.fleet.ail(name, "")
            return
        verdict = assess(NodeFacts.of(node), health, self._rules, now, memory=self._memory)
        self._books.put(name, verdict)
        if self._cluster.fleet.ail(name, ailment(verdict)):
            for uid in self._cluster.jobs_on(name):
                self._rings(uid)
        if verdict.wake is not None:
            self._wakes[name] = verdict.wake

    def _health(self, name: str) -> NodeHealth | None:
        """The node's record, an empty one where there is none; None for one that cannot be read."""
        found = self._cluster.healths.store.get(("", name))
        if isinstance(found, Undecodable):
            return None
        return found or NodeHealth(metadata=ObjectMeta(name=name))

    def _situation(self) -> Situation:
        """Everything that a ruling can be about: what is out, what was, and what bears our taint."""
        books, ground, nodes = self._books, self._ground, self._cluster.fleet.nodes
        names = [n for n in books.concerned | ground.tainted if n in books.verdicts and n in nodes]
        return Situation(
            verdicts={name: books.verdicts[name] for name in names},
            tainted=ground.tainted,
            domains={name: ground.domains[name] for name in names},
            gone=[i for name, several in ground.incidents.items() if name not in nodes for i in several],
            nodes=len(nodes),
            sizes=ground.sizes,
        )

    def _effect(self, name: str, verdict: Verdict, ruling: Ruling) -> Effect:
        """What is to be in force. While nobody knows what the policy says of taints they stay as they are."""
        wanted = effect(verdict, ruling, self._rules.enforcement)
        return replace(wanted, taint=name in self._ground.tainted) if self._cluster.policy_unknown else wanted

    def _differs(self, name: str, ruling: Ruling) -> bool:
        """Whether something else has to be in force than is, or is about to be."""
        verdict, outcome, doing = self._books.verdicts[name], self._outcomes.get(name), self._doing.get(name)
        wanted = self._effect(name, verdict, ruling)
        if doing is not None:
            return doing.effect != wanted
        tainted = name in self._ground.tainted
        return ruling.charge or outcome is None or outcome.effect != wanted or wanted.taint != tainted

    async def _put_into_force(self, name: str, verdict: Verdict, ruling: Ruling, wanted: Effect, now: datetime) -> None:
        await self._record(name, verdict, ruling, wanted)
        before = self._outcomes.get(name)
        self._outcomes[name] = _Outcome(verdict.state, verdict.reason, wanted)
        self._exclude(name, verdict, wanted, now)
        node = self._cluster.fleet.nodes.get(name)
        if node is not None and _is_tainted(node) != wanted.taint:
            await (self._taint(node, verdict.reason) if wanted.taint else self._change_taint(name, False, ""))
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
        )
        ours = _ours(status)
        exists = bool(health.metadata.uid)
        if ours == _ours(health.status) or (not exists and verdict.state in (None, VerdictState.HEALTHY)):
            return
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

    async def _create(self, name: str) -> None:
        body = {"apiVersion": API_VERSION, "kind": "NodeHealth", "metadata": {"name": name}}
        with contextlib.suppress(AlreadyExists):
            await self._client.post(paths.muster("nodehealths"), body, one_of_many=True)

    async def _taint(self, node: NodeView, reason: str) -> None:
        """Put our taint on the node beside everybody else's, in one request that touches none of them."""
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
        """Read the node, then put our taint on it or take it off; everybody else's stay as they are."""
        path = paths.core("nodes", name=name)
        try:
            node = msgspec.json.decode(await self._client.get(path))
            others = [taint for taint in node["spec"].get("taints") or () if taint.get("key") != TAINT_KEY]
            ours = [_taint(reason)] if wanted else []
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

    def _tell_refuted(self, name: str) -> None:
        """That a node of which somebody has said that it is dead gives signs of life."""
        why = self._cluster.refuted(name)
        if why and name not in self._refuted:
            text = f"somebody has said that this machine is lost, but {why}: nothing on it is taken for dead"
            text += f". To take the word back: kubectl muster lost {name} --undo"
            log.warning("not lost", node=name, why=why)
            self._events.record(Regarding("v1", "Node", name, name), WARNING, "NotLost", text)
        (self._refuted.add if why else self._refuted.discard)(name)

    def _tell_unreadable(self, name: str) -> None:
        record = self._cluster.healths.store.get(("", name))
        if not isinstance(record, Undecodable) or self._unreadable.get(name) == record.error:
            return
        self._unreadable[name] = record.error
        text = (
            f"NodeHealth {name} does not fit its schema ({record.error}): the node stays as it was last judged. Mend that "
            "field, or delete the NodeHealth: what Muster remembers of the node goes with it."
        )
        log.warning("health record unreadable", node=name, error=record.error)
        self._events.record(Regarding("v1", "Node", name, name), WARNING, "RecordUnreadable", text)

    def _measure(self) -> None:
        states, reasons = self._books.states, self._books.reasons
        for state in (*VerdictState, "Unknown"):
            _nodes.labels(str(state)).set(states.get(str(state), 0))
        for reason in sorted(reasons):
            if len(self._reasons) < MAX_REASONS:
                self._reasons.add(reason)
        for reason in self._reasons:
            _findings.labels(reason).set(reasons.get(reason, 0))
        assert self._breaker is not None
        _breaker.set(self._breaker.state is not BreakerState.CLOSED)
        _held.set(self._breaker.held)


def _defect(error: Exception) -> str:
    what = f"an unexpected error keeps Muster from judging this node ({type(error).__name__}: {error})"
    return f"{what}. It stays as it was last judged. This is a defect: report it with the operator's log."


def taint_patch(node: NodeView, reason: str) -> list[dict[str, Any]]:
    """The JSON patch that adds our taint to the others'. Refused as Invalid where it cannot: the node has ours already, has
    none any more, or has some by now.
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


@dataclass(frozen=True, slots=True)
class _Doing:
    """A node that is being dealt with, and what will be in force then."""

    task: asyncio.Task[None]
    effect: Effect


class _Ground:
    """What rulings need to know of all nodes, kept up to date with each change instead of counted at each look.

    Attributes:
        domains: path of each node's innermost domain.
        sizes: how many nodes each of these has.
        tainted: nodes that bear our taint.
        incidents: those of each NodeHealth, whether its node exists or not.
    """

    def __init__(self) -> None:
        self.domains: dict[str, DomainPath] = {}
        self.sizes: Counter[DomainPath] = Counter()
        self.tainted: set[str] = set()
        self.incidents: dict[str, Sequence[HealthIncident]] = {}

    def put(self, name: str, node: NodeView | None, fleet: Fleet) -> None:
        """A node as it now is; None: it is gone."""
        before = self.domains.pop(name, None)
        if before is not None:
            self.sizes[before] -= 1
        if node is not None:
            path = self.domains[name] = domain_path(node, fleet.policy.topology.labels)
            self.sizes[path] += 1
        (self.tainted.add if node is not None and _is_tainted(node) else self.tainted.discard)(name)

    def put_incidents(self, name: str, incidents: Sequence[HealthIncident]) -> None:
        """The incidents of a record."""
        if incidents:
            self.incidents[name] = incidents
        else:
            self.incidents.pop(name, None)

    def lay_out(self, fleet: Fleet) -> None:
        """The topology is another one."""
        self.sizes.clear()
        self.domains.clear()
        for name, node in fleet.nodes.items():
            self.put(name, node, fleet)


class _Books:
    """All verdicts, and what is counted of them.

    Attributes:
        verdicts: by node.
        concerned: nodes that the breaker has to know of.
        states: nodes by verdict.
        reasons: nodes that are out, by their strongest finding.
    """

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.concerned: set[str] = set()
        self.states: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def put(self, name: str, verdict: Verdict | None) -> None:
        """The verdict on a node; None: it is gone."""
        before = self.verdicts.pop(name, None)
        if before is not None:
            self._count(before, -1)
        self.concerned.discard(name)
        if verdict is None:
            return
        self.verdicts[name] = verdict
        self._count(verdict, 1)
        if concerned(verdict):
            self.concerned.add(name)

    def _count(self, verdict: Verdict, by: int) -> None:
        self.states[verdict.state.value if verdict.state else "Unknown"] += by
        if verdict.out and verdict.findings:
            self.reasons[verdict.findings[0].reason] += by


def _same(one: Verdict, other: Verdict | None) -> bool:
    """Whether two verdicts come to the same; what would follow later is not compared."""
    if other is None:
        return False
    return one == replace(other, wake=one.wake, offences_if_taken=one.offences_if_taken)


def _ours(status: NodeHealthStatus) -> dict[str, Any]:
    """The operator's part of a status, as it is written."""
    return {key: value for key, value in status.to_json().items() if key not in _AGENTS}


def _facts(node: NodeView) -> tuple[Any, ...]:
    """What of a node its health is judged by; our own taint is none of it."""
    return (
        node.uid,
        node.labels,
        [taint for taint in node.taints if taint.key != TAINT_KEY],
        node.unschedulable,
        node.boot_id,
        node.allocatable,
        node.capacity,
        node.conditions,
    )


def _is_tainted(node: NodeView) -> bool:
    return any(taint.key == TAINT_KEY for taint in node.taints)

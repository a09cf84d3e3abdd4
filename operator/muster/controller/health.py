"""Judges every node again whenever something about it changes, and does what follows: record, exclude, taint, tell.

Observe, decide, act: what is said of nodes is gathered and judged here, one node at a time; `muster.health.orders` decides about
all of them at once, which is pure; `nodeacts` puts that into force.

A look costs what has changed and what is out, not what the fleet has. It does not wait for the writes of the one before:
a node that is being dealt with is looked at again when that is done, if it has changed meanwhile.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from prometheus_client import Gauge

from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import Gang
from muster.api.nodehealth import CheckResult, NodeHealth, VerdictState
from muster.controller.cluster import Cluster
from muster.controller.nodeacts import TAINT_KEY, NodeActs
from muster.controller.nodewords import NodeWords
from muster.controller.slices import Slices
from muster.health.assess import BurnInWord, Verdict, ailment, assess
from muster.health.books import Books, Ground, is_tainted
from muster.health.breaker import Breaker, BreakerState
from muster.health.effects import Effect
from muster.health.facts import NodeFacts
from muster.health.memory import Memory
from muster.health.orders import Order, View, decide
from muster.health.sources import Rules
from muster.kube.client import Client
from muster.kube.decode import Undecodable
from muster.kube.errors import ApiError, LeadershipLost
from muster.kube.events import EventRecorder
from muster.preflight.upkeep import Finding
from muster.world.views import NodeView

NODES_AT_ONCE = 32
# Nodes fall sick in crowds: they are judged together, so that the budget sees them together.
GATHER_SECONDS = 0.1
RETRY_SECONDS = 2.0
TESTS = "tests"  # of idle nodes, among the uids of jobs

log = structlog.get_logger()
_nodes = Gauge("muster_nodes", "Nodes by verdict; `Unknown` are those of which nobody says anything.", ["state"])
_findings = Gauge("muster_node_findings", "Nodes with a finding that weighs against them, by its reason.", ["reason"])
_breaker = Gauge("muster_breaker_open", "Whether the budget of nodes to take out holds any back (1) or not (0).")
_held = Gauge("muster_breaker_held_nodes", "Sick nodes that the budget holds back.")
_contradictions = Gauge(
    "muster_health_policy_problems", "What in the FleetPolicy's health makes no sense together; the log names it."
)
# Reasons come from tables, but rules of a policy can name their own: no more series than that.
MAX_REASONS = 100


@dataclass(frozen=True, slots=True)
class _Doing:
    """A node that is being dealt with, and what will be in force then."""

    task: asyncio.Task[None]
    effect: Effect


class HealthKeeper:
    """Keeps verdicts, exclusions and taints in line with what is known of the nodes.

    Args:
        rings: called with a job's uid when a node of it is to be left, or is well again.
        freed: called when a node may be used again.
        pass_age_seconds: since a node passed its burn-in last; None where no pass of it holds.
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
        pass_age_seconds: Callable[[str], float | None] = lambda _node: None,
    ) -> None:
        self._cluster = cluster
        self._pass_age_seconds = pass_age_seconds
        self._rings = rings
        self._clock = clock
        self._wall_clock = wall_clock
        self._dirty: set[str] = set()
        self._stirred = asyncio.Event()
        self._room = asyncio.Semaphore(NODES_AT_ONCE)
        self._doing: dict[str, _Doing] = {}
        self._resting: set[str] = set()  # nodes of which something failed just now
        self._failure: BaseException | None = None
        self._ground = Ground()
        self._memory = Memory()
        self._books = Books()
        self._burned: dict[str, dict[str, list[BurnInWord]]] = {}  # node -> uid of a job, or TESTS -> what it failed
        self._results: dict[str, CheckResult] = {}  # what came of tests that somebody wished for, until it is written
        self._wakes: dict[str, datetime] = {}
        self._echoes: set[str] = set()  # nodes whose record says what we have written last
        self._breaker: Breaker | None = None
        self._policy: FleetPolicySpec | None = None
        self._rules = Rules.of(FleetPolicySpec())
        self._reasons: set[str] = set()
        self._words = NodeWords(cluster, events)
        self._acts = NodeActs(client, cluster, events, self._health, rings, freed, lambda name: self._stir([name]))
        cluster.nodes.store.subscribe(self._node_changed)
        cluster.healths.store.subscribe(self._health_changed)
        cluster.gangs.store.subscribe(self._gang_changed)
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
                    await self.look()
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
        elif is_tainted(old) != is_tainted(new):
            outcome = self._acts.in_force.get(node.name)
            if outcome is None or outcome.effect.taint != is_tainted(new):
                self._stir([node.name])  # it was not we who did it

    def _health_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        name = value.name if isinstance(value, Undecodable) else value.metadata.name
        if not isinstance(new, Undecodable):  # an account that cannot be read is not one that is settled
            self._memory.put(name, new.status.offences if new else None)
            self._ground.put_incidents(name, new.status.incidents if new else ())
        if self._acts.is_echo(name, new.status if isinstance(new, NodeHealth) else None):
            self._echoes.add(name)
        else:
            self._echoes.discard(name)
        self._stir([name])

    def open_since(self, name: str) -> datetime | None:
        """Since when a node is out; None for one that is not."""
        verdict = self._books.verdicts.get(name)
        incident = verdict.open_incident if verdict else None
        return incident.time if incident else None

    def heard(self, name: str) -> None:
        """The node's checker has news: it may have passed what it was waiting for."""
        verdict = self._books.verdicts.get(name)
        if verdict is not None and verdict.state is VerdictState.VALIDATING:
            self._stir([name])

    def tested(self, finding: Finding) -> None:
        """A test of a node that no gang has came to an end."""
        now = self._wall_clock()
        health = self._health(finding.node)
        node = self._cluster.fleet.nodes.get(finding.node)
        boot = health.status.agent.boot_id if health and health.status.agent else ""
        boot = boot or (node.boot_id if node else "")
        words = [BurnInWord(boot, fail.probe, f"test of the node: {fail.words}", now) for fail in finding.fails]
        self._take_words(finding.node, TESTS, words)
        if finding.wish is not None:
            self._results[finding.node] = finding.result(finding.wish, now)
        self._stir([finding.node])

    def _take_words(self, node: str, owner: str, words: list[BurnInWord]) -> None:
        of_node = self._burned.setdefault(node, {})
        of_node.pop(owner, None)
        if words:
            of_node[owner] = words
        if not of_node:
            del self._burned[node]

    def _gang_changed(self, old: Gang | Undecodable | None, new: Gang | Undecodable | None) -> None:
        """Take in which nodes have failed its burn-in."""
        if isinstance(new, Undecodable):
            return
        before, after = _failures_in(old), _failures_in(new)
        if before == after:
            return
        uid = (new or old).spec.job_uid  # type: ignore[union-attr] # one of them has failures, so it is a Gang
        for node in before.keys() | after.keys():
            self._take_words(node, uid, after.get(node, []))
        self._stir(after)

    def _pause(self) -> float | None:
        """Seconds until something is due by time alone."""
        moments = [*self._wakes.values()]
        if self._breaker is not None and self._breaker.next_try is not None:
            moments.append(self._breaker.next_try)
        if not moments:
            return None
        return max((min(moments) - self._wall_clock()).total_seconds(), 0.0)

    async def look(self) -> None:
        """Judge what is dirty or due, decide about all of it, and begin to put that into force."""
        now = self._wall_clock()
        self._take_in_policy()
        judged = await self._observe(now)
        view = View(
            now=now,
            rules=self._rules,
            books=self._books,
            ground=self._ground,
            nodes=self._cluster.fleet.nodes.keys(),
            judged=judged,
            in_force=self._acts.in_force,
            under_way={name: doing.effect for name, doing in self._doing.items()},
            policy_unknown=self._cluster.policy_unknown,
        )
        orders, self._breaker = decide(view)
        self._measure()
        for order in orders:
            if order.name in self._doing:
                self._dirty.add(order.name)
            elif order.name not in self._resting:
                self._begin(order, now)

    async def _observe(self, now: datetime) -> set[str]:
        """Judge what is dirty or due; returns those of which something else has to be done or written than last time."""
        names = self._dirty | {name for name, moment in self._wakes.items() if moment <= now}
        # One that is being dealt with is judged by what is written then.
        self._dirty = names & self._doing.keys()
        for name in self._dirty:
            self._wakes.pop(name, None)
        judged, slices = set(), Slices(self._clock)
        for name in names - self._dirty:
            await slices.pause()
            before = self._books.verdicts.get(name)
            if not self._judged(name, now):
                continue
            if not (name in self._echoes and before is not None and _same(before, self._books.verdicts.get(name))):
                judged.add(name)  # otherwise it is as it is in force and on record
            self._echoes.discard(name)
        return judged

    async def settled(self) -> None:
        """Returns once nothing is being put into force."""
        while self._doing:
            await asyncio.wait([doing.task for doing in self._doing.values()])

    def _begin(self, order: Order, now: datetime) -> None:
        if order.ruling.charge:  # the next look must know, though it is written only in a moment
            self._books.put(order.name, order.verdict)
        task = asyncio.create_task(self._deal_with(order, now), name=f"health of {order.name}")
        self._doing[order.name] = _Doing(task, order.effect)
        task.add_done_callback(lambda task: self._done(order.name, task))

    async def _deal_with(self, order: Order, now: datetime) -> None:
        async with self._room:
            try:
                await self._acts.put_into_force(order, self._rules.enforcement, now)
            except ApiError as error:
                log.warning("node not dealt with", node=order.name, error=str(error))
                self._rest(order.name)
            except LeadershipLost:
                raise
            except Exception as error:
                log.exception("node not dealt with", node=order.name)
                self._rest(order.name)
                self._words.defect(order.name, error)

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
        self._words.policy()
        policy = self._cluster.fleet.policy
        if policy != self._policy:
            self._policy, self._rules = policy, Rules.of(policy)
            self._ground.lay_out(self._cluster.fleet)
            _contradictions.set(len(self._rules.problems))
            for problem in self._rules.problems:
                log.warning("the FleetPolicy's health makes no sense together", problem=problem)

    def _judged(self, name: str, now: datetime) -> bool:
        """Judge a node; False where that met a defect, and its last verdict stands."""
        try:
            self._judge(name, now)
        except Exception as error:
            log.exception("node not judged", node=name)
            self._rest(name)
            self._words.defect(name, error)
            return False
        return True

    def _judge(self, name: str, now: datetime) -> None:
        node, health = self._cluster.fleet.nodes.get(name), self._health(name)
        self._wakes.pop(name, None)
        if node is not None and health is None:
            self._words.record(name)  # which acquits nobody
            return
        self._words.readable(name)
        self._words.refuted(name)
        if node is None or health is None:
            self._books.put(name, None)
            self._acts.in_force.pop(name, None)
            self._cluster.fleet.exclude(name, None)
            self._cluster.fleet.ail(name, "")
            return
        burned = [word for words in self._burned.get(name, {}).values() for word in words]
        age = self._pass_age_seconds(name) if self._rules.validates else None
        verdict = assess(
            NodeFacts.of(node),
            health,
            self._rules,
            now,
            memory=self._memory,
            burn_ins=burned,
            passed=None if age is None else now - timedelta(seconds=age),
        )
        result = self._results.get(name)
        if result is not None and (health.status.check is None or health.status.check.id != result.id):
            verdict = replace(verdict, check=result)
        else:
            self._results.pop(name, None)
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


def _failures_in(gang: Gang | Undecodable | None) -> dict[str, list[BurnInWord]]:
    """By node, what it has failed, as the record tells."""
    found: dict[str, list[BurnInWord]] = {}
    if not isinstance(gang, Gang) or gang.spec.burn_in is None:
        return found
    job = f"{gang.metadata.namespace}/{gang.metadata.name}"
    for failure in gang.spec.burn_in.failures:
        message = f"burn-in of {job}: {failure.message}"
        word = BurnInWord(failure.boot, failure.probe, message, failure.time)
        found.setdefault(failure.node, []).append(word)
    return found


def _same(one: Verdict, other: Verdict | None) -> bool:
    """Whether two verdicts come to the same; what would follow later is not compared."""
    if other is None:
        return False
    return one == replace(other, wake=one.wake, offences_if_taken=one.offences_if_taken)


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

"""The loop over nodes: changed nodes in, one decision about all of them at a time, its orders put into force.

As with jobs, deciding and performing part: what is known of the changed nodes is judged one after the other, what
follows is decided about all nodes at once (`muster.health.orders`), and what that asks for is performed side by side.
A node is not judged again while the writes for it are under way: what was charged to a budget for it counts until they
have ended.

The cost of a pass grows with what has changed and what is out of use, not with the fleet.

Tests: tests/unit/controller/test_nodereconciler.py.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from muster.api.nodehealth import NodeHealth, VerdictState
from muster.controller.cluster import Cluster
from muster.controller.dirty import DirtyKeys
from muster.controller.keptnodes import KeptNodes
from muster.controller.nodefigures import NodeFigures
from muster.controller.nodefitness import NodeFitness
from muster.controller.nodemarks import NodeMarks
from muster.controller.nodeperform import TAINT_KEY, NodePerformer
from muster.controller.nodereports import NodeReports
from muster.controller.nodeworlds import NodeWorlds
from muster.controller.slices import Slices
from muster.health.assess import assess
from muster.health.effects import Effect
from muster.health.engine import Engine
from muster.health.fitness import DecidedFitness, exclusion_of
from muster.health.orders import Circumstances, Order
from muster.health.verdict import Verdict, node_fault
from muster.health.verdict_index import is_tainted
from muster.kube.decode import Undecodable, object_key
from muster.world.views import NodeView

# Nodes become unhealthy many at a time: they are judged together, so that the budget sees them together.
GATHER_SECONDS = 0.1
RETRY_SECONDS = 2.0
BEGIN_TRIES = 3
CLOCK_CHECK_SECONDS = 30.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Writes:
    """The writes under way for a node, and what will be in force after them."""

    task: asyncio.Task[bool]
    effect: Effect


class NodeReconciler:
    """Judges nodes again whenever something about them changes, and has the decisions put into force. `queue` has the
    names of the nodes to judge, as keys without a namespace.

    Attributes:
        kept: where each decision is remembered.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: DirtyKeys,
        engine: Engine,
        worlds: NodeWorlds,
        performer: NodePerformer,
        fitness: NodeFitness,
        marks: NodeMarks,
        reports: NodeReports,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._engine = engine
        self._worlds = worlds
        self._performer = performer
        self._fitness = fitness
        self._marks = marks
        self._reports = reports
        self._clock = clock
        self._wall_clock = wall_clock
        self.kept = KeptNodes()
        self._figures = NodeFigures()
        self._writes: dict[str, _Writes] = {}
        self._unjudged: set[str] = set()  # nodes that a defect of Muster keeps from being judged
        self._failure: BaseException | None = None
        cluster.nodes.store.subscribe(self._node_changed)
        cluster.healths.store.subscribe(self._record_changed)
        cluster.policies.store.subscribe(lambda _old, _new: self.mark_all_nodes())

    def mark_nodes(self, nodes: Iterable[str]) -> None:
        """Have these nodes judged, because something about them may have changed."""
        for name in nodes:
            self._queue.add(("", name))

    def mark_all_nodes(self) -> None:
        """Have every node judged, and its record compared with what it should say."""
        self._engine.forget_echoes()
        self.mark_nodes(self._cluster.fleet.nodes)

    async def begin(self) -> None:
        """Judge all nodes, before a new leader gives any to a job: a fault that could not be recorded is on no record.

        The writes that follow are begun, and not waited for.
        """
        self._worlds.lead()
        self.mark_all_nodes()
        for _ in range(BEGIN_TRIES):
            if await self._pass():
                return
            await asyncio.sleep(RETRY_SECONDS)
        log.error("nodes not judged: until they are, jobs see them as their records have them")

    async def run(self) -> None:
        """Judge nodes and act until cancelled; to be run by the leader, after `begin`.

        Raises:
            LeadershipLost: this process may not write any more.
        """
        try:
            while True:
                await self._queue.wait(self._pause())
                await asyncio.sleep(GATHER_SECONDS)
                if self._failure is not None:
                    raise self._failure
                if not await self._pass():
                    await asyncio.sleep(RETRY_SECONDS)
        finally:
            for writes in self._writes.values():
                writes.task.cancel()

    async def _pass(self) -> bool:
        """Judge and decide once; returns whether that has succeeded."""
        try:
            await self.reconcile()
        except Exception:  # what is in force stays; whatever it was is met again, or is over
            log.exception("nodes not judged")
            return False
        return True

    def _pause(self) -> float | None:
        """The seconds until something is due by time alone; None = never."""
        now, moments, pauses = self._wall_clock(), self._engine.moments(), self._worlds.pauses()
        if self._worlds.rules.windows.is_pending(now):
            # Windows are of the wall clock, and waiting is not: one that is set forward is noticed in time.
            moments.append(now + timedelta(seconds=CLOCK_CHECK_SECONDS))
        if moments:
            pauses.append(max((min(moments) - now).total_seconds(), 0.0))
        return min(pauses, default=None)

    async def reconcile(self) -> None:
        """Judge the nodes that are due, decide about all nodes, and begin to put that into force.

        Raises:
            Exception: not all orders were given. The nodes are judged again after a while.
        """
        now = self._wall_clock()
        self._apply_policy()
        self.mark_nodes(self._engine.woken(now))
        self.mark_nodes(self._worlds.changed())
        # In the order of names, because it decides which nodes are tested first. That of a set differs by process.
        due = dict.fromkeys(sorted(name for _, name in self._queue.next_keys()))
        self._reports.jobs_outside(due)
        failed = set(due)
        try:
            judged = await self._assessed(due, failed, now)
            orders = self._engine.decide(now, self._worlds.rules, judged, self._circumstances(now))
            self._publish()
            for order in orders:
                self._show(order)
                if order.name not in failed:
                    self._begin(order, now, is_taken=order.name in due)
        except Exception:
            failed.update(due)
            raise
        finally:
            for name in due:
                if name not in self._writes:
                    self._release(name, has_failed=name in failed)

    def _apply_policy(self) -> None:
        self._reports.policy()
        if self._worlds.apply_policy():
            self._reports.contradictions(self._worlds.rules.problems)
        self._reports.scope()
        self._reports.pools(self._worlds.rules.entries, self._engine.node_index)

    async def _assessed(self, due: Iterable[str], failed: set[str], now: datetime) -> set[str]:
        """Judge these nodes; returns the names of those whose verdict asks for something that may not be in force yet.

        Args:
            due: the names of the nodes.
            failed: the same names; those that are judged are removed.
            now: the time.
        """
        judged, slices = set(), Slices(self._clock)
        for name in due:
            await slices.pause()
            old_verdict = self._engine.verdict_index.verdicts.get(name)
            try:
                self._assess_node(name, now)
            except Exception as error:  # its last verdict stays
                log.exception("node not judged", node=name)
                self._reports.defect(name, error)
                self._unjudged.add(name)
                continue
            failed.discard(name)
            self._unjudged.discard(name)
            if self._engine.note_difference(name, old_verdict):
                judged.add(name)
        return judged

    def _assess_node(self, name: str, now: datetime) -> None:
        """Judge one node, and keep the verdict."""
        if name not in self._cluster.fleet.nodes:
            self._forget(name, now)
            self._marks.forget(name)
            return
        if name in self._cluster.fleet.outside:
            self._forget(name, now)
            if not self._cluster.scope_unknown:
                self._clear(name)
            return
        worlds, world = self._worlds, self._worlds.world_of(name, now)
        if world is None:
            self._reports.record(name)  # which clears no node
            return
        self._reports.readable(name)
        self._reports.refuted(name)
        verdict = self.kept.assess_and_keep(assess, worlds.policy, world)
        verdict, others = self._engine.with_test_if_allowed(name, verdict, worlds.rules)
        self.mark_nodes(others)
        self._engine.set_verdict(name, verdict)
        worlds.note_verdict(name, verdict, now)
        self._marks.want(name, verdict)

    def _forget(self, name: str, now: datetime) -> None:
        """Drop what is known of a node that is gone, or outside the scope. Its record stays."""
        self._reports.readable(name)
        self._reports.refuted(name)
        self._engine.set_verdict(name, None)
        self._unjudged.discard(name)
        self._performer.forget(name)
        self._worlds.note_verdict(name, None, now)
        self.mark_nodes(self._engine.forget_test(name))

    def _clear(self, name: str) -> None:
        """Begin to remove Muster's taint and condition from a node outside the scope."""
        self._marks.clear(name)
        if is_tainted(self._cluster.fleet.nodes[name]):
            task = asyncio.create_task(self._performer.clear(name), name=f"health of {name}")
            self._writes[name] = _Writes(task, Effect())
            task.add_done_callback(lambda task: self._ended(name, task))

    def _circumstances(self, now: datetime) -> Circumstances:
        nodes = self._cluster.fleet.nodes.keys()
        return Circumstances(
            nodes,
            self._performer.in_force,
            {name: writes.effect for name, writes in self._writes.items()},
            self._cluster.policy_unknown,
            self._engine.ages_of_future_times(nodes, now, self._clock()),
            self._performer.refused | self._unjudged,
            self._reports.unreadable,
        )

    def _publish(self) -> None:
        breaker = self._engine.breaker
        assert breaker is not None
        self._figures.publish(self._engine.verdict_index, breaker)
        self._reports.held(breaker)
        self._reports.silent(self._worlds.silent_pools)

    def _show(self, order: Order) -> None:
        """Show the decision to jobs, whatever becomes of its record."""
        decided = DecidedFitness(exclusion_of(order.verdict, order.effect), node_fault(order.verdict))
        self._fitness.note_decision(order.name, decided)

    def _begin(self, order: Order, now: datetime, *, is_taken: bool) -> None:
        """Begin to put an order into force; nothing is done that cannot be recorded.

        Args:
            order: what to do.
            now: the time.
            is_taken: whether the node is taken from the queue. One of which only the budget has changed is not.
        """
        name, key = order.name, ("", order.name)
        if isinstance(self._cluster.healths.store.get(key), Undecodable):
            return
        if (rest := self._performer.rest_seconds(name)) > 0:
            self._queue.add(key, rest)
            return
        if not is_taken and not self._queue.reserve_key(key):
            return
        self._engine.begin(order)
        self.kept.note_order(order)
        performing = self._performer.perform(order, self._worlds.rules_of(name), now, lambda: self._queue.has_news(key))
        task = asyncio.create_task(performing, name=f"health of {name}")
        self._writes[name] = _Writes(task, order.effect)
        task.add_done_callback(lambda task: self._ended(name, task))

    def _ended(self, name: str, task: asyncio.Task[bool]) -> None:
        del self._writes[name]
        self._queue.done(("", name))
        if task.cancelled():
            return
        self._failure = task.exception() or self._failure
        if self._failure is not None or not task.result():
            self._queue.add(("", name), self._performer.rest_seconds(name))

    def _release(self, name: str, *, has_failed: bool) -> None:
        """Let a node be judged again when something about it changes; after a failure in any case, after a while."""
        self._queue.done(("", name), RETRY_SECONDS if has_failed else 0.0)
        if has_failed:
            self.mark_nodes([name])

    async def settled(self) -> None:
        """Wait until no writes are under way for any node."""
        while self._writes:
            await asyncio.wait([writes.task for writes in self._writes.values()])

    def verdict_of(self, name: str) -> Verdict | None:
        """The newest verdict on a node; None: there is none."""
        return self._engine.verdict_index.verdicts.get(name)

    def verdicts(self) -> Collection[Verdict]:
        """The newest verdicts of all nodes."""
        return self._engine.verdict_index.verdicts.values()

    def out(self) -> list[str]:
        """The names of the nodes that are out of use, by their last verdict."""
        verdicts = self._engine.verdict_index
        return [name for name in verdicts.concerned if verdicts.verdicts[name].out]

    def open_since(self, name: str) -> datetime | None:
        """The time since when a node is out of use, or since its last repair ended; None for a node in use."""
        verdict = self.verdict_of(name)
        incident = verdict.open_incident if verdict else None
        if incident is None:
            return None
        return max(incident.time, incident.repair_ended_time or incident.time)

    def effect_in_force(self, name: str) -> Effect | None:
        """What is in force for a node; None while it is not known, or being changed."""
        in_force = self._performer.in_force.get(name)
        return None if in_force is None or name in self._writes else in_force.effect

    def is_repaired(self, name: str) -> bool:
        """Whether a repair of the node may be under way, or may begin in a moment, as far as is known."""
        verdict = self.verdict_of(name)
        if verdict is not None and verdict.grounds.maintenance is not None:
            return True
        return self._worlds.is_repair_in_progress(name)

    def checker_heard(self, name: str) -> None:
        """Have a node judged whose checker has news: it may have passed the test that it was waiting for."""
        verdict = self.verdict_of(name)
        if verdict is not None and (
            VerdictState.VALIDATING in (verdict.conclusion.state, verdict.conclusion.own)
            or verdict.follow_up.followed is not None
        ):
            self.mark_nodes([name])

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        node = new or old
        assert node is not None
        self._engine.node_index.set_node(node.name, new, self._cluster.fleet)
        if old is None or new is None or _facts(old) != _facts(new):
            self.mark_nodes([node.name])
        elif is_tainted(old) != is_tainted(new):
            outcome = self._performer.in_force.get(node.name)
            if outcome is None or outcome.effect.taint != is_tainted(new):
                self.mark_nodes([node.name])  # it was not we who did it

    def _record_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        name = object_key(value)[1]
        if not isinstance(new, Undecodable):  # an account that cannot be read is not one that is settled
            self._engine.note_record(name, new.status if new else None)
        is_echo = self._performer.is_echo(name, new.status if isinstance(new, NodeHealth) else None)
        self._engine.note_echo(name, is_echo=is_echo)
        self.mark_nodes([name])


def _facts(node: NodeView) -> tuple[Any, ...]:
    """The facts about a node by which its health is judged, for comparison; Muster's own taint is none of them."""
    return (
        node.uid,
        node.labels,
        [taint for taint in node.taints if taint.key != TAINT_KEY],
        node.unschedulable,
        node.boot_id,
        node.allocatable,
        node.capacity,
        node.conditions,
        node.annotations,
        node.deleting,
    )

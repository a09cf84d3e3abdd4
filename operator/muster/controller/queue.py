"""Keeps the queue of jobs that wait for nodes, and makes its plan whenever something may have changed it.

A plan is made for the whole queue at once (`muster.queueing`): what one job gets depends on those before it. Each job
then takes the nodes that it was promised in a pass of its own, which first checks whether they are still free. So a
plan that is a moment old does no harm, and plans need not be made more often than their making allows.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain

import structlog

from muster.controller import queuefigures
from muster.controller.awaitedpreemptors import AwaitedPreemptors
from muster.controller.bus import Bus, Key
from muster.controller.cluster import Cluster
from muster.controller.preemptioncandidates import PreemptionCandidates
from muster.controller.reservationcharges import ReservationCharges
from muster.controller.slices import Slices, in_slices
from muster.controller.startestimates import StartEstimates
from muster.controller.undecidedjobs import UndecidedJobs
from muster.placement.fragmentation import fragmentation
from muster.queueing.preemption import Preemption
from muster.queueing.queue import Failed, NamespaceRules, plan_steps
from muster.queueing.quotas import OverQuota
from muster.queueing.short_estimates import ShortEstimates
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import Backfill, NotPlaced, Placed, QueueDecision
from muster.world.quotas import QuotaView

# Heartbeats grow old without any watch telling so.
REPLAN_SECONDS = 15.0
# A plan of a long queue takes its time: at most this share of it is spent on planning.
PLANNING_SHARE = 0.2
MEASURE_SECONDS = 15.0

log = structlog.get_logger()


@dataclass(slots=True)
class _Entry:
    key: Key
    waiting: WaitingJob
    since: float  # time.time() at which it began to wait


class Queue:
    """The waiting jobs, with their answers from the newest plan. Jobs whose answer has changed are named on the bus.

    Attributes:
        reserved: free nodes that wait for the rest of a gang.
        undecided: the jobs that a new leader decides about before it plans.
        estimates: when the first jobs start.
        candidates: the jobs that hold nodes and may have to give way.
        charges: of jobs whose reservations came to nothing.
        preemptors: the jobs for which others leave, and that have not begun.
    """

    def __init__(
        self,
        cluster: Cluster,
        bus: Bus,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._cluster = cluster
        self._bus = bus
        self._clock = clock
        self._wall_clock = wall_clock
        self._entries: dict[str, _Entry] = {}
        self._uids: dict[Key, str] = {}
        self._decisions: dict[str, QueueDecision] = {}
        self._stale = asyncio.Event()
        self._failed: dict[str, str] = {}  # jobs that planning failed at -> how
        self._without_room: set[str] = set()  # namespaces with a job that a ResourceQuota keeps waiting
        self._short_estimates = ShortEstimates()
        self.reserved: frozenset[str] = frozenset()
        self.undecided = UndecidedJobs(clock, self.replan)
        self.estimates = StartEstimates(cluster.fleet, self.replan)
        self.candidates = PreemptionCandidates(cluster.fleet, bus.job_changed, self.replan, self._now)
        self.charges = ReservationCharges(clock, self.replan)
        self.preemptors = AwaitedPreemptors(clock, self.charges.charge)
        cluster.quotas.store.subscribe(self._quota_changed)
        bus.nodes_freed.subscribe(self.estimates.outdate)
        bus.nodes_freed.subscribe(self.replan)
        bus.reservation_unused.subscribe(self.charges.charge)

    def set_waiting(self, key: Key, job_uid: str, waiting: WaitingJob | None, waited_seconds: float = 0.0) -> None:
        """Set what a job waits for now, and for how long it has already waited; None = it waits no longer."""
        if self._uids.get(key, job_uid) != job_uid:  # another job has its name now, and its end was never seen
            self.set_waiting(key, self._uids[key], None)
        entry = self._entries.get(job_uid)
        if waiting != (entry.waiting if entry else None):
            old = self._decisions.pop(job_uid, None)  # what was promised is the answer to another question
            self._stale.set()
            if job_uid in self.estimates.by_uid and _backfill(old) is None:
                self.estimates.outdate()
            if waiting is None:
                del self._entries[job_uid]
                del self._uids[key]
                self._failed.pop(job_uid, None)
            else:
                since = entry.since if entry else self._wall_clock() - waited_seconds
                self._entries[job_uid] = _Entry(key, waiting, since)
                self._uids[key] = job_uid
        self.undecided.note_decided(key)

    def forget(self, key: Key) -> None:
        """Remove a job that is gone."""
        self.charges.forget(key)
        self.candidates.set(key, "", None)
        self.preemptors.check(key, "", holds_nodes=False, has_begun=False)
        if key in self._uids:
            self.set_waiting(key, self._uids[key], None)
        self.undecided.note_decided(key)

    def note_returned_nodes(self, key: Key, job_uid: str, attempt: int, ago_seconds: float) -> None:
        """Note that the gang of a job could not be assembled: it pays once, also if others were asked to leave."""
        if self.charges.charge_returned_nodes(key, job_uid, attempt, ago_seconds):
            self.preemptors.forget(key)

    def note_giving_way(self, job_uids: Iterable[str]) -> None:
        """Note that jobs give way: those that preempt them by their priority have to start in time."""
        preemptors = chain.from_iterable(self.candidates.preempted_by(uid) or () for uid in job_uids)
        names = {preemptor.name for preemptor in preemptors if preemptor.priority_class}
        for uid, entry in self._entries.items():
            if entry.waiting.name in names and not entry.waiting.replacement:
                self.preemptors.expect(entry.key, uid)

    def note_short_estimates(self, namespace: str, job_uid: str, times: Sequence[datetime]) -> None:
        """Note when estimates of the job were too short, as its record says."""
        if times:
            self._short_estimates.note(namespace, job_uid, times, self._now())

    def replan(self) -> None:
        """Have the plan made again, because something that it depends on has changed."""
        self._stale.set()

    def decision_of(self, job_uid: str) -> QueueDecision | None:
        """The job's answer in the newest plan, for what it waits for now; None for a job that is in no such plan."""
        return self._decisions.get(job_uid)

    def jobs_in_order(self) -> list[tuple[WaitingJob, Placed | NotPlaced]]:
        """The jobs of the newest plan, in its order, with their answers."""
        planned = sorted((decision.position, uid) for uid, decision in self._decisions.items() if uid in self._entries)
        return [(self._entries[uid].waiting, self._decisions[uid].answer) for _, uid in planned]

    def placed(self, job_uid: str, domains: Mapping[str, int], estimated: datetime | None = None) -> None:
        """Count in the metrics how long the job has waited and in how many domains it is: it has its nodes.

        Args:
            job_uid: of the job.
            domains: by level, how many domains it is in.
            estimated: when it would start by the first estimate, by the API server's clock; None: there was none.
        """
        entry = self._entries.get(job_uid)
        if entry is not None and not entry.waiting.replacement:
            now = self._wall_clock()
            queuefigures.observe_wait(now - entry.since)
            if estimated is not None:
                started = self._cluster.server_now(datetime.fromtimestamp(now, UTC))
                queuefigures.observe_estimate((started - estimated).total_seconds())
        queuefigures.observe_domains(domains)

    async def run(self) -> None:
        """Make plans until cancelled."""
        measured, counted_until = float("-inf"), self._clock()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPLAN_SECONDS):  # wait_for can lose a cancellation before Python 3.12
                    await self._stale.wait()
            self._stale.clear()
            if self.undecided.are_awaited:
                continue
            began_at = self._clock()
            queuefigures.count_reserved(len(self.reserved) * (began_at - counted_until))
            counted_until = began_at
            try:
                self._cluster.free_unbound_pods()
                await self._plan()
                if self._clock() - measured >= MEASURE_SECONDS:
                    measured = self._clock()
                    await self._measure()
            except Exception:  # the next plan may meet another queue, or another fleet
                log.exception("no plan", jobs=len(self._entries))
            spent = self._clock() - began_at
            await asyncio.sleep(spent / PLANNING_SHARE - spent)

    async def _plan(self) -> None:
        asked = {uid: entry.waiting for uid, entry in self._entries.items()}
        reserved: dict[str, str] = {}
        preemption = self.candidates.for_plan(self.charges.charged())
        decisions = await self._decide(asked, reserved, preemption)
        # A job that has left meanwhile, or waits for something else now, gets no answer. While it waits for anything,
        # the next plan says whether others still give way to it: they are not asked anew for each of its changes.
        decisions = {uid: decision for uid, decision in decisions.items() if self._waits(uid, asked)}
        waiting = {asked[uid].name for uid in asked.keys() & self._entries.keys()}
        preempted_by = {
            uid: tuple(job for job in to if job.name in waiting) for uid, to in preemption.preempted_by.items()
        }
        self.candidates.note_plan({uid: to for uid, to in preempted_by.items() if to})
        victims = preempted_by.keys() & preemption.victims.keys()
        # Also those that an earlier leader has asked.
        self.note_giving_way(uid for uid in victims if preemption.victims[uid].leaves)
        old_decisions, self._decisions, self.reserved = self._decisions, decisions, frozenset(reserved)
        self._without_room = {
            asked[uid].namespace for uid, decision in decisions.items() if isinstance(decision.answer, OverQuota)
        }
        queuefigures.set_pending(decisions.values())
        for uid, decision in decisions.items():
            if isinstance(decision.answer, Placed) or decision != old_decisions.get(uid):
                self._bus.job_changed.publish(self._entries[uid].key)

    async def _decide(
        self, asked: Mapping[str, WaitingJob], reserved: dict[str, str], preemption: Preemption
    ) -> dict[str, QueueDecision]:
        """Return the answers to these jobs; also filled in: what is reserved for them, and who gives way to them."""
        loans_made = self.candidates.loans_made
        namespaces = {waiting.namespace for waiting in asked.values()}
        limits = self._cluster.limits_of(namespaces)
        answers = ((namespace, self._cluster.closed(namespace)) for namespace in namespaces)
        closed = {namespace: answer for namespace, answer in answers if answer is not None}
        held = self._cluster.held_by_namespace() if limits else {}
        rules = NamespaceRules(limits, held, self._cluster.quotas_of, closed)
        offers = self.estimates.for_plan(preemption)
        no_backfill = self._short_estimates.closed(self._now())
        queue = [replace(job, expected_seconds=None) if job.namespace in no_backfill else job for job in asked.values()]
        steps = plan_steps(self._cluster.fleet, queue, rules, preemption, offers, reserved)
        decisions: dict[str, QueueDecision] = {}
        began_at, slices = self._clock(), Slices(self._clock)
        for step in steps:
            now = self._clock()
            if step is not None:
                uid, decision = step
                queuefigures.observe_placement(now - began_at)
                # A plan has not deducted what was lent while it was made: by it no job passes that has to leave enough.
                backfill = _backfill(decision)
                if backfill is None or not backfill.leaves_enough or self.candidates.loans_made == loans_made:
                    decisions[uid] = _with_backfill_closed(decision, asked[uid], no_backfill)
                if isinstance(decision.answer, OverQuota):
                    self._without_room.add(asked[uid].namespace)
                self._log_failure(uid, decision)
                began_at = now
            began_at += await slices.pause()
        return decisions

    def _waits(self, uid: str, asked: Mapping[str, WaitingJob]) -> bool:
        entry = self._entries.get(uid)
        return entry is not None and entry.waiting == asked[uid]

    def _log_failure(self, uid: str, decision: QueueDecision) -> None:
        if isinstance(decision.answer, Failed) and self._failed.get(uid) != decision.answer.message:
            self._failed[uid] = decision.answer.message
            log.error("no answer for a job", job_uid=uid, exc_info=decision.answer.error)

    async def _measure(self) -> None:
        queuefigures.set_fragmentation(await in_slices(fragmentation(self._cluster.fleet), self._clock))

    def _quota_changed(self, old: QuotaView | None, new: QuotaView | None) -> None:
        changed = new or old
        if changed is not None and changed.namespace in self._without_room:
            self._stale.set()

    def _now(self) -> datetime:
        """By the API server's clock."""
        return self._cluster.server_now(datetime.fromtimestamp(self._wall_clock(), UTC))


def _backfill(decision: QueueDecision | None) -> Backfill | None:
    return decision.answer.backfill if decision is not None and isinstance(decision.answer, Placed) else None


def _with_backfill_closed(
    decision: QueueDecision, waiting: WaitingJob, no_backfill: Mapping[str, datetime]
) -> QueueDecision:
    """Note in the answer of a job until when it passes no reservation, where its estimate would let it."""
    until = None if waiting.expected_seconds is None else no_backfill.get(waiting.namespace)
    return decision if until is None else replace(decision, no_backfill_until=until)

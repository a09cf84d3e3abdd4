"""Keeps the queue of jobs that wait for nodes, and makes its plan whenever something may have changed it.

A plan is made for the whole queue at once (`muster.queueing`): what one job gets depends on those before it. Each job
then takes the nodes that it was promised in a pass of its own, which first checks whether they are still free. So a
plan that is a moment old does no harm, and plans need not be made more often than their making allows.
"""

import asyncio
import contextlib
import heapq
import time
from collections import Counter as Counted
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter, Gauge, Histogram

from muster.controller.bus import Bus, Key
from muster.controller.cluster import Cluster
from muster.controller.slices import Slices, in_slices
from muster.placement.fragmentation import fragmentation
from muster.queueing.charges import Charges
from muster.queueing.preemption import Borrower, Preemption, PreemptionCandidate, Victim
from muster.queueing.queue import Failed, plan_steps
from muster.queueing.quotas import OverQuota
from muster.queueing.short_estimates import ShortEstimates
from muster.queueing.waiting import ExpectedStart, WaitingJob, expected_start
from muster.world.queuedecision import NotPlaced, Placed, Preemptors, QueueDecision, StartEstimate
from muster.world.quotas import QuotaView

# Heartbeats grow old without any watch telling so.
REPLAN_SECONDS = 15.0
# A new leader's first plan waits this long at most for the API server's answers about templates.
CHECKS_SECONDS = 15.0
# A plan of a long queue takes its time: at most this share of it is spent on planning.
PLANNING_SHARE = 0.2
MEASURE_SECONDS = 15.0
# A job for which running ones were asked to leave uses its nodes within so long, or pays for it.
PREEMPTOR_SECONDS = 600.0

log = structlog.get_logger()
_placement = Histogram(
    "muster_placement_seconds",
    "Time to find nodes for one waiting job, or to find that there are none.",
    buckets=(0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1),
)
_waited = Histogram(
    "muster_queue_wait_seconds",
    "Time from a job's creation (or its return to the queue) to its nodes.",
    buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400, 43200, 86400, 604800),
)
_estimate_error = Histogram(
    "muster_queue_estimate_error_seconds",
    "By how much a job got its nodes earlier or later than was first estimated.",
    ["direction"],
    buckets=(60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 604800),
)
_pending = Gauge("muster_jobs_pending", "Jobs that wait for nodes, by reason.", ["reason"])
_reserved_seconds = Counter(
    "muster_reserved_node_seconds_total",
    "Node-seconds that free nodes were reserved for jobs that do not have all of their nodes yet.",
)
_domains = Histogram(
    "muster_gang_domains",
    "Domains of a level that a gang was placed in.",
    ["level"],
    buckets=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256),
)
_fragmentation = Gauge(
    "muster_free_nodes_fragmentation",
    "Share of the free nodes that are in domains of which a part is in use.",
    ["level"],
)


@dataclass(slots=True)
class _Entry:
    key: Key
    waiting: WaitingJob
    since: float  # time.time() at which it began to wait


@dataclass(slots=True)
class _Preemptor:
    job_uid: str
    since: float | None = None  # it holds nodes


class Queue:
    """The waiting jobs, with their answers from the newest plan. Jobs whose answer has changed are named on the bus."""

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
        self._unseen: set[Key] = set()
        self._unchecked: set[Key] = set()
        self._checks_until = float("-inf")
        self._stale = asyncio.Event()
        self._failed: dict[str, str] = {}  # jobs that planning failed at -> how
        self.reserved: frozenset[str] = frozenset()  # free nodes that wait for the rest of a gang
        self._charges = Charges()
        self._short_estimates = ShortEstimates()
        self._gave_back: dict[Key, tuple[str, int]] = {}  # uid, and attempt of the record that says so
        self.earlier: Mapping[str, Sequence[float]] = {}  # for how long ended jobs held nodes, by namespace
        self.estimates: Mapping[str, StartEstimate] = {}  # when the first jobs start, by uid
        self._is_outdated = False  # nodes, or places in the queue, have become free since: jobs may start sooner
        self._is_used = False  # a plan has gone by the estimates
        self._known_loans: Mapping[str, Borrower] = {}  # jobs whose nodes were lent then, by uid
        # Those that hold nodes, each with its uid.
        self._candidates: dict[Key, tuple[str, PreemptionCandidate]] = {}
        self._preempted_by: Mapping[str, Preemptors] | None = None  # by uid; None: there is no plan yet
        self.preemptors: dict[Key, _Preemptor] = {}  # jobs that have running ones leave, and have not begun
        self._without_room: set[str] = set()  # namespaces with a job that a ResourceQuota keeps waiting
        cluster.quotas.store.subscribe(self._quota_changed)
        bus.nodes_freed.subscribe(self._nodes_freed)
        bus.reservation_unused.subscribe(self._charge)

    def expect(self, keys: list[Key]) -> None:
        """Make no plan before these jobs have been looked at once: a new leader must not serve first the job it sees
        first."""
        self._unseen = set(keys)
        self._checks_until = self._clock() + CHECKS_SECONDS

    def await_check(self, key: Key) -> None:
        """Wait for the next look at a job, too: it can wait for nodes once the API server has accepted its template.
        A new leader would otherwise serve first the job whose answer comes first."""
        if self._clock() < self._checks_until:
            self._unchecked.add(key)

    def set_waiting(self, key: Key, job_uid: str, waiting: WaitingJob | None, waited_seconds: float = 0.0) -> None:
        """Set what a job waits for now, and for how long it has already waited; None = it waits no longer."""
        if self._uids.get(key, job_uid) != job_uid:  # another job has its name now, and its end was never seen
            self.set_waiting(key, self._uids[key], None)
        entry = self._entries.get(job_uid)
        if waiting != (entry.waiting if entry else None):
            old = self._decisions.pop(job_uid, None)  # what was promised is the answer to another question
            self._stale.set()
            if job_uid in self.estimates and not _passes(old):
                self._outdate_estimates()
            if waiting is None:
                del self._entries[job_uid]
                del self._uids[key]
                self._failed.pop(job_uid, None)
            else:
                since = entry.since if entry else self._wall_clock() - waited_seconds
                self._entries[job_uid] = _Entry(key, waiting, since)
                self._uids[key] = job_uid
        self.note_decided(key)

    def set_preemption_candidate(self, key: Key, job_uid: str, job: PreemptionCandidate | None) -> None:
        """Set the job that holds nodes and may have to give way; None = it holds none, or may keep them."""
        was = self._candidates.pop(key, None)
        if job is not None:
            self._candidates[key] = job_uid, job
            if was is None:
                self._stale.set()  # other jobs may have its nodes now

    def preemption(self) -> Preemption:
        """The jobs that hold nodes and may have to give way."""
        holders = [(uid, job) for uid, job in self._candidates.values() if self._cluster.fleet.nodes_of(uid)]
        lent = {uid: job for uid, job in holders if isinstance(job, Borrower)}
        victims = {uid: job for uid, job in holders if isinstance(job, Victim)}
        return Preemption(lent, victims, self._now())

    def preempted_by(self, job_uid: str) -> Preemptors | None:
        """The jobs that a job gives its nodes to; None: there is no plan yet."""
        return None if self._preempted_by is None else self._preempted_by.get(job_uid, ())

    def note_giving_way(self, job_uid: str) -> None:
        """Note that a job has begun to give way: those that preempt it by their priority have to start in time."""
        names = {preemptor.name for preemptor in self.preempted_by(job_uid) or () if preemptor.priority_class}
        for uid, entry in self._entries.items():
            if entry.waiting.name in names and not entry.waiting.replacement:
                self.preemptors.setdefault(entry.key, _Preemptor(uid))

    def check_preemptor(self, key: Key, job_uid: str, *, holds_nodes: bool, has_begun: bool) -> None:
        """Charge a job that has had others leave, and then does not begin in time, or wants no nodes any more.

        Args:
            key: of the job.
            job_uid: of the job; "": there is none that wants nodes.
            holds_nodes: whether it has got nodes.
            has_begun: whether it has begun to use them.
        """
        preemptor = self.preemptors.get(key)
        if preemptor is None:
            return
        if not holds_nodes:
            preemptor.since = None
        elif preemptor.since is None:
            preemptor.since = self._clock()
        is_late = preemptor.since is not None and self._clock() - preemptor.since >= PREEMPTOR_SECONDS
        if has_begun or is_late or preemptor.job_uid != job_uid:
            del self.preemptors[key]
            if not has_begun:
                self._charge(key[0], preemptor.job_uid)

    def note_decided(self, key: Key) -> None:
        """Note that a job of `expect` has been looked at, or is gone."""
        if self._unseen or self._unchecked:
            self._unseen.discard(key)
            self._unchecked.discard(key)
            if not self.awaits_jobs:
                self._stale.set()

    @property
    def awaits_jobs(self) -> bool:
        """Whether jobs of `expect` have not been looked at, or may soon wait for nodes."""
        return bool(self._unseen or (self._unchecked and self._clock() < self._checks_until))

    def forget(self, key: Key) -> None:
        """Remove a job that is gone."""
        self._gave_back.pop(key, None)
        self._candidates.pop(key, None)
        self.check_preemptor(key, "", holds_nodes=False, has_begun=False)
        if key in self._uids:
            self.set_waiting(key, self._uids[key], None)
        self.note_decided(key)

    def charge_returned_nodes(self, key: Key, job_uid: str, attempt: int, ago_seconds: float) -> None:
        """Charge a job whose gang could not be assembled and gave its nodes back; once, however often this is called.
        The record of this attempt has said so for `ago_seconds`: a new leader reads it late.
        """
        if self._gave_back.get(key) == (job_uid, attempt):
            return
        self._gave_back[key] = job_uid, attempt
        self._charge(key[0], job_uid, ago_seconds)

    def note_short_estimates(self, namespace: str, job_uid: str, times: Sequence[datetime]) -> None:
        """Note when estimates of the job were too short, as its record says."""
        if times:
            self._short_estimates.note(namespace, job_uid, times, self._now())

    def _now(self) -> datetime:
        """By the API server's clock."""
        return self._cluster.server_now(datetime.fromtimestamp(self._wall_clock(), UTC))

    def _charge(self, namespace: str, job_uid: str, ago_seconds: float = 0.0) -> None:
        self._charges.charge(namespace, job_uid, self._clock() - ago_seconds)
        self._stale.set()

    def decision_of(self, job_uid: str) -> QueueDecision | None:
        """The job's answer in the newest plan, for what it waits for now; None for a job that is in no such plan."""
        return self._decisions.get(job_uid)

    def first_jobs(self, count: int) -> list[tuple[WaitingJob, Placed | NotPlaced]]:
        """The first jobs of the newest plan, in its order, with their answers."""
        placed = [(decision.position, uid) for uid, decision in self._decisions.items() if uid in self._entries]
        first = [uid for _, uid in heapq.nsmallest(count, placed)]
        return [(self._entries[uid].waiting, self._decisions[uid].answer) for uid in first]

    def replan(self) -> None:
        """Have the plan made again, because something that it depends on has changed."""
        self._stale.set()

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
            _waited.observe(max(now - entry.since, 0.0))
            if estimated is not None:
                late = (self._cluster.server_now(datetime.fromtimestamp(now, UTC)) - estimated).total_seconds()
                _estimate_error.labels("later" if late > 0 else "earlier").observe(abs(late))
        for level, count in domains.items():
            _domains.labels(level).observe(count)

    def _quota_changed(self, old: QuotaView | None, new: QuotaView | None) -> None:
        changed = new or old
        if changed is not None and changed.namespace in self._without_room:
            self._stale.set()

    async def run(self) -> None:
        """Make plans until cancelled."""
        measured, counted_until = float("-inf"), self._clock()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPLAN_SECONDS):  # wait_for can lose a cancellation before Python 3.12
                    await self._stale.wait()
            self._stale.clear()
            if self.awaits_jobs:
                continue
            began_at = self._clock()
            _reserved_seconds.inc(len(self.reserved) * (began_at - counted_until))
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

    def _note_preempted(self, preempted_by: Mapping[str, Preemptors]) -> None:
        old, self._preempted_by = self._preempted_by, preempted_by
        for key, (uid, _) in list(self._candidates.items()):
            if old is None or old.get(uid) != preempted_by.get(uid):
                self._bus.job_changed.publish(key)

    async def _measure(self) -> None:
        shares = await in_slices(fragmentation(self._cluster.fleet), self._clock)
        _fragmentation.clear()  # the policy may have other levels now
        for level, share in shares.items():
            _fragmentation.labels(level).set(share)

    def _waits(self, uid: str, asked: Mapping[str, WaitingJob]) -> bool:
        entry = self._entries.get(uid)
        return entry is not None and entry.waiting == asked[uid]

    def _log_failure(self, uid: str, decision: QueueDecision) -> None:
        if isinstance(decision.answer, Failed) and self._failed.get(uid) != decision.answer.message:
            self._failed[uid] = decision.answer.message
            log.error("no answer for a job", job_uid=uid, exc_info=decision.answer.error)

    def set_estimates(self, estimates: Mapping[str, StartEstimate], loans: Mapping[str, Borrower]) -> None:
        """Set when the first jobs start, by uid, as it was estimated while these jobs had nodes that are lent."""
        self.estimates, self._known_loans = estimates, loans
        if self._is_outdated:
            self._stale.set()  # jobs may pass again
        self._is_outdated = self._is_used = False

    def _outdate_estimates(self) -> None:
        self._is_outdated = self._is_used  # one plan goes by each estimate, or no job would pass on a busy fleet

    def _nodes_freed(self) -> None:
        self._outdate_estimates()
        self.replan()

    def _starts(self, preemption: Preemption) -> Mapping[str, ExpectedStart]:
        """When the first jobs start, as estimated, by uid; who is absent has no known start.

        None has one that was estimated before a job ended, or another one left the queue: who passed by that would be
        lent nodes for too long.
        """
        self._is_used = True
        if self._is_outdated:
            return {}
        # A time cannot say which loans are new: records are by the leader's clock, and are seen a moment later.
        known_loans = {(uid, job.since) for uid, job in self._known_loans.items()}
        new = (uid for uid, job in preemption.jobs.items() if (uid, job.since) not in known_loans)
        lent = sum(len(self._cluster.fleet.nodes_of(uid)) for uid in new)
        starts = ((uid, expected_start(it, preemption.now, lent)) for uid, it in self.estimates.items())
        return {uid: start for uid, start in starts if start is not None}

    async def _plan(self) -> None:
        asked = {uid: entry.waiting for uid, entry in self._entries.items()}
        reserved: dict[str, str] = {}
        preemption = self.preemption()
        decisions = await self._decide(asked, reserved, preemption)
        # A job that has left meanwhile, or waits for something else now, gets no answer. While it waits for anything,
        # the next plan says whether others still give way to it: they are not asked anew for each of its changes.
        decisions = {uid: decision for uid, decision in decisions.items() if self._waits(uid, asked)}
        waiting = {asked[uid].name for uid in asked.keys() & self._entries.keys()}
        preempted_by = {
            uid: tuple(job for job in to if job.name in waiting) for uid, to in preemption.preempted_by.items()
        }
        self._note_preempted({uid: to for uid, to in preempted_by.items() if to})
        old_decisions, self._decisions, self.reserved = self._decisions, decisions, frozenset(reserved)
        self._without_room = {
            asked[uid].namespace for uid, decision in decisions.items() if isinstance(decision.answer, OverQuota)
        }
        _count_pending(decisions.values())
        for uid, decision in decisions.items():
            if isinstance(decision.answer, Placed) or decision != old_decisions.get(uid):
                self._bus.job_changed.publish(self._entries[uid].key)

    async def _decide(
        self, asked: Mapping[str, WaitingJob], reserved: dict[str, str], preemption: Preemption
    ) -> dict[str, QueueDecision]:
        """Return the answers to these jobs; also filled in: what is reserved for them, and who gives way to them."""
        namespaces = {waiting.namespace for waiting in asked.values()}
        limits = self._cluster.limits_of(namespaces)
        answers = ((namespace, self._cluster.closed(namespace)) for namespace in namespaces)
        closed = {namespace: answer for namespace, answer in answers if answer is not None}
        held = self._cluster.held_by_namespace() if limits else {}
        charged = self._charges.charged(self._clock())
        quotas = self._cluster.quotas_of
        fleet = self._cluster.fleet
        starts = self._starts(preemption)
        no_backfill = self._short_estimates.closed(self._now())
        queue = [replace(job, expected_seconds=None) if job.namespace in no_backfill else job for job in asked.values()]
        steps = plan_steps(fleet, queue, limits, held, reserved, quotas, charged, closed, preemption, starts)
        decisions: dict[str, QueueDecision] = {}
        began_at, slices = self._clock(), Slices(self._clock)
        for step in steps:
            now = self._clock()
            if step is not None:
                uid, decision = step
                _placement.observe(now - began_at)
                decisions[uid] = _with_backfill_closed(decision, asked[uid], no_backfill)
                if isinstance(decision.answer, OverQuota):
                    self._without_room.add(asked[uid].namespace)
                self._log_failure(uid, decision)
                began_at = now
            began_at += await slices.pause()
        return decisions


def _count_pending(decisions: Iterable[QueueDecision]) -> None:
    answers = (decision.answer for decision in decisions)
    _pending.clear()
    for reason, count in Counted(answer.reason for answer in answers if isinstance(answer, NotPlaced)).items():
        _pending.labels(reason).set(count)


def _passes(decision: QueueDecision | None) -> bool:
    return decision is not None and isinstance(decision.answer, Placed) and decision.answer.backfill is not None


def _with_backfill_closed(
    decision: QueueDecision, waiting: WaitingJob, no_backfill: Mapping[str, datetime]
) -> QueueDecision:
    """Note in the answer of a job until when it passes no reservation, where its estimate would let it."""
    until = None if waiting.expected_seconds is None else no_backfill.get(waiting.namespace)
    return decision if until is None else replace(decision, no_backfill_until=until)

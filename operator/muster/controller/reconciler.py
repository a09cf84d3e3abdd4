"""The loop: dirty keys in, one decision at a time for each job, its actions performed, its status written once.

Deciding and performing part: decisions are made one after the other and never wait for a write, what they ask for is
performed side by side (`pool`), for one job in order and one pass at a time. The nodes that a plan takes count as taken
from the moment of the decision, so that no two jobs choose the same one. Nothing is written once this process has lost
the lease (the client sees to that).
"""

import asyncio
import functools
import time
from collections import Counter as Counted
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import structlog
from prometheus_client import Counter, Histogram

from muster.api.base import API_VERSION
from muster.api.gang import Gang, GangSpec
from muster.api.trainingjob import TrainingJob
from muster.controller.backoff import doubled
from muster.controller.bus import Key
from muster.controller.cluster import Cluster
from muster.controller.dirty import DirtyKeys
from muster.controller.jobfigures import JobFigures
from muster.controller.keptjobs import KeptJobs
from muster.controller.perform import Performer
from muster.controller.pool import Pool
from muster.controller.queue import Queue
from muster.controller.slices import in_slices
from muster.controller.undecidedjobs import UndecidedJobs
from muster.decision.accounted import plan_with_goodput
from muster.decision.decided import Decided, error_text
from muster.goodput.prices import listed
from muster.kube.decode import Undecodable
from muster.kube.errors import ApiError, Conflict, LeadershipLost
from muster.kube.events import NORMAL, WARNING, EventRecorder, Regarding
from muster.lifecycle.plan import Action, ApplySupport, CheckTemplate, CommitGang, CreatePod, Plan
from muster.lifecycle.queue_needs import QueueNeeds, expected_seconds, has_begun, preemption_candidate, queue_needs
from muster.lifecycle.step import decide, with_status
from muster.placement.names import visible_name
from muster.placement.tree import Tree
from muster.pods.worker_pod import WorkerSettings
from muster.queueing.preemption import Place, Victim
from muster.queueing.priority_classes import (
    PRIORITY_CLASS_MISSING,
    WITH_ANOTHER_CLASS,
    missing_class_remedy,
    named_class,
)
from muster.queueing.waiting import WaitingJob
from muster.record.preemptions import is_giving_way
from muster.status.figures import compute_or_fallback
from muster.status.report import Announcement, State, StatusReport
from muster.status.start_estimate import first_time_of
from muster.world.checks import NodeChecks
from muster.world.job import JobWorld
from muster.world.queuedecision import Preemptors

RETRY_FIRST_SECONDS = 0.2
RETRY_LIMIT_SECONDS = 30.0
FORGOTTEN_SECONDS = 60.0  # a failure after so long is the first one
CONFLICT_LIMIT_SECONDS = 5.0  # nothing is wrong, and the change may have come without being noticed
MAX_LOOKS = 8  # a fleet that changes faster than it can be looked at is looked at again later
# Changes come in bursts (the pods of a gang start together): a job rests so long after a decision that changed nothing,
# and a large one so long that deciding takes no more than this share of the time.
SPACING_SECONDS = 0.02
DECIDING_SHARE = 0.1
REMEDY_OF_INVALID = (
    "Muster does nothing to the job, and its workers go on as they are. Run the version of Muster that knows the "
    "value, or delete the job and create it again."
)

log = structlog.get_logger()
_seconds = Histogram("muster_reconcile_seconds", "Time of one reconciliation of one job, API calls included.")
_failures = Counter(
    "muster_reconcile_failures_total",
    "Reconciliations that ended with an error, most often the API server's.",
    ["reason"],
)


class Reconciler:
    """Decides about changed jobs and performs the decisions, until cancelled. `settings` returns what the installation
    adds to every worker. `directives_changed` is called with a job whose launchers may have something new to do.
    `checks_wanted` is called with the uid of a job, and all that it wants of checkers from now on.

    Attributes:
        undecided: the jobs of which a pass has to end, in whatever way; then `all_decided` is called.
    """

    def __init__(
        self,
        cluster: Cluster,
        performer: Performer,
        dirty: DirtyKeys,
        events: EventRecorder,
        queue: Queue,
        settings: Callable[[], WorkerSettings],
        directives_changed: Callable[[TrainingJob], None],
        clock: Callable[[], float] = time.monotonic,
        pool: Pool | None = None,
        kept: KeptJobs | None = None,
        checks_wanted: Callable[[str, Mapping[str, NodeChecks] | None], None] = lambda _uid, _checks: None,
        all_decided: Callable[[], None] = lambda: None,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._performer = performer
        self._dirty = dirty
        self._events = events
        self._queue = queue
        self._settings = settings
        self._directives_changed = directives_changed
        self._clock = clock
        self._pool = pool or Pool()
        self._kept = kept or KeptJobs()
        self._checks_wanted = checks_wanted
        self._figures = JobFigures(lambda: cluster.server_now(wall_clock()), lambda: listed(cluster.policy().prices))
        self._tested: dict[Key, str] = {}  # jobs that want something of checkers -> their uids
        self.undecided = UndecidedJobs(clock, all_decided)
        self._failures: dict[Key, tuple[int, float]] = {}  # one after the other, and when the last was
        self._pauses: dict[Key, float] = {}  # how long to leave a job alone after the pass under way
        self._resting_until: dict[Key, float] = {}  # jobs that Muster itself fails at

    async def run(self) -> None:
        """Decide and act until cancelled.

        Raises:
            LeadershipLost: this process must not write any more.
        """
        try:
            async with asyncio.TaskGroup() as group:
                await self._decide_one_by_one(group)
        except ExceptionGroup as ended:  # nothing else ends a pass
            raise ended.exceptions[0] from ended

    async def _decide_one_by_one(self, group: asyncio.TaskGroup) -> None:
        """Decide about one changed job after the other; nothing here waits for a write."""
        while True:
            key = await self._dirty.next_key()
            await asyncio.sleep(0)  # many that have nothing to write would never let go of the loop
            wake = self._rest_seconds(key)
            if wake is not None:
                self._end(key, wake)
                continue
            decision = await self._decided(key)
            if decision is None:
                continue
            urgent = _recovers(self._cluster.gang_of(decision.job.metadata.uid))
            if self._pool.enter(key[0], urgent=urgent):
                group.create_task(self._perform(key, decision))
            else:
                self._wait(group, key, decision, urgent)

    def _wait(self, group: asyncio.TaskGroup, key: Key, decision: "_Decision", urgent: bool) -> None:
        """Decide again about a job and perform that, once there is room."""
        self._release(decision)
        self._pool.wait(key[0], urgent=urgent, start=lambda: _start(group, self._perform(key, None)))

    async def _decided(self, key: Key) -> "_Decision | None":
        """Decide about a job, and take its nodes away from other decisions. Returns None where there is nothing to
        perform.

        No other task runs between the view of the world and the moment at which the nodes are taken.
        """
        began_at, wake = self._clock(), None
        try:
            for _ in range(MAX_LOOKS):
                job = self._readable(key)
                if job is None:
                    break
                plan = self._decide(job)
                if plan.unprepared is not None:
                    await in_slices(Tree.prepare(self._cluster.fleet, plan.unprepared), self._clock)
                    continue
                self._assume(job, plan)
                # Of the published status, which every reader has: the plan's own may be half a minute ahead of it.
                figures = functools.partial(self._figures.set_status, key, job.status, job.spec.throughput)
                compute_or_fallback("figures of jobs", figures, None)
                if not plan.commits:  # what is not on record yet is requested of no component
                    self._want_checks(key, job.metadata.uid, plan.checks)
                return _Decision(job, plan, began_at)
            else:
                wake = RETRY_FIRST_SECONDS
        except Exception as error:  # noqa: BLE001 - it is logged there
            wake = self._broken(key, error)
        self._end(key, wake)
        return None

    async def _perform(self, key: Key, decision: "_Decision | None") -> None:
        """Perform one pass of a job. With None, decide first, because the job has waited for room."""
        wake: float | None = None
        try:
            decision = decision or await self._decided(key)
            if decision is None:
                return
            wake = await self._carry_out(key, decision.job, decision.plan)
            if decision.plan.acts or decision.plan.status is not None:  # waiting says nothing of what failed
                self._failures.pop(key, None)
        except (LeadershipLost, asyncio.CancelledError):
            self._pool.close()
            raise
        except Conflict as conflict:
            # Another client wrote first. The watch brings that, however far behind it is: the next decision counts
            # with it.
            log.info("changed meanwhile", job="/".join(key), error=conflict.message)
            wake = self._again_in(key, CONFLICT_LIMIT_SECONDS)
            if wake > RETRY_FIRST_SECONDS:  # the same again: what the queue promises anew must not begin it at once
                self._pauses[key] = wake
        except ApiError as error:
            wake = self._failed(key, error.reason or type(error).__name__)
            log.warning("pass failed", job="/".join(key), error=str(error), retry_seconds=round(wake, 1))
        except Exception as error:  # noqa: BLE001 - it is logged there
            wake = self._broken(key, error)
        finally:
            self._pool.release(key[0])
            if decision is not None:
                self._release(decision)
                _seconds.observe(self._clock() - decision.begun)
                self._end(key, wake)

    def _end(self, key: Key, wake: float | None) -> None:
        """End the pass of a job. The next one is due after `wake` seconds (None = no such time), or when something
        changes."""
        if wake is not None:
            self._dirty.add(key, wake)
        self.undecided.note_decided(key)
        self._dirty.done(key, self._pauses.pop(key, SPACING_SECONDS))

    def _broken(self, key: Key, error: Exception) -> float:
        """Note that a defect of Muster has ended a job's pass; returns the seconds until the next try.

        Other jobs are not affected: the queue of a new leader does not wait for this one any longer.
        """
        self._queue.undecided.note_decided(key)
        wake = self._failed(key, type(error).__name__)
        self._resting_until[key] = self._clock() + wake
        log.error("pass failed unexpectedly", job="/".join(key), retry_seconds=round(wake, 1), exc_info=error)
        self._report_internal_error(key, error)
        return wake

    def _assume(self, job: TrainingJob, plan: Plan) -> None:
        """Count the nodes that a plan takes as the job's while it is performed, so that no other decision chooses them.

        That includes nodes of pods that are being created: should the record go meanwhile, they are in no other list
        yet.
        """
        taken_nodes = frozenset(node for action in plan.actions for node in _nodes_of(action) if node)
        if taken_nodes:
            self._cluster.fleet.occupy(("assumed", job.metadata.uid), job.metadata.uid, taken_nodes)

    def _release(self, decision: "_Decision") -> None:
        """End what `_assume` has counted: the nodes are on record now, or will not be."""
        if self._cluster.fleet.occupy(("assumed", decision.job.metadata.uid), "", frozenset()):
            self._queue.replan()

    def _want_checks(self, key: Key, uid: str, checks: Mapping[str, NodeChecks] | None) -> None:
        """Pass on what a job wants of checkers, by node; None = nothing. The uid is "" where no job has this key any
        more.
        """
        old_uid = self._tested.pop(key, "")
        if old_uid and old_uid != uid:
            self._checks_wanted(old_uid, None)
        if checks:
            self._tested[key] = uid
        if checks or (uid and old_uid == uid):
            self._checks_wanted(uid, checks)

    def _rest_seconds(self, key: Key) -> float | None:
        """The seconds for which to leave the job alone, whatever happens meanwhile; None when it need not be left
        alone."""
        until = self._resting_until.get(key)
        if until is None or until <= self._clock():
            self._resting_until.pop(key, None)
            return None
        return until - self._clock()

    def _readable(self, key: Key) -> TrainingJob | None:
        """The job of this key, if it exists and can be read; else None."""
        job = self._cluster.job(key)
        if isinstance(job, TrainingJob):
            return job
        self._figures.forget(key)
        if job is None:
            self._failures.pop(key, None)
            self._want_checks(key, "", None)
        else:
            self._report_undecodable(job)
        self._queue.forget(key)
        return None

    def _decide(self, job: TrainingJob) -> Plan:
        began_at = self._clock()
        world, record = self._cluster.world(job), self._cluster.unreadable_record_of(job)
        key, uid = (job.metadata.namespace, job.metadata.name), job.metadata.uid
        if record is not None:
            self._queue.set_waiting(key, uid, None)
            self._queue.candidates.set(key, uid, None)
            return _without_record(world, record)
        needs = queue_needs(world)
        returned = needs.returned_nodes
        if returned is not None:
            self._queue.note_returned_nodes(key, uid, returned.attempt, returned.seconds_ago)
        self._queue.note_short_estimates(key[0], uid, world.gang.spec.short_estimates if world.gang else ())
        if needs.held:
            self._report_missing_class(job)
        if needs.request is not None:
            self._report_class_in_queue(job)
        waiting = self._waiting(job, needs, expected_seconds(world, self._queue.estimates.earlier.get(key[0], ())))
        self._queue.set_waiting(key, uid, waiting, needs.waited_seconds)
        if key in self._queue.preemptors:
            wanting = uid if job.wants_nodes and not job.spec.suspend else ""
            has_nodes = needs.held > 0 and needs.request is None
            self._queue.preemptors.check(key, wanting, holds_nodes=has_nodes, has_begun=has_begun(world))
        place = -self._cluster.priority_of(job), needs.queued_since, f"{key[0]}/{key[1]}"
        self._set_candidate(world, world.gang.spec if world.gang else None, place)
        answers = replace(
            world,
            queue_decision=self._queue.decision_of(uid),
            start_estimate=self._queue.estimates.estimate_of(uid),
            preempted_by=self._preempted_by(job),
        )
        plan = self._plan(key, answers)
        for action in plan.actions:
            if isinstance(action, CommitGang) and not needs.held:  # estimates are made before it is on record, too
                self._set_candidate(world, action.spec, place)
        if any(isinstance(action, CheckTemplate) for action in plan.actions):
            self._queue.undecided.await_check(key)
        if plan.unprepared is None:
            # A job that has just done something goes on at once; one that waits can wait for several changes together.
            idle = max(SPACING_SECONDS, (self._clock() - began_at) / DECIDING_SHARE)
            self._pauses[key] = 0.0 if plan.acts else idle
        return plan

    def _set_candidate(self, world: JobWorld, record: GangSpec | None, place: Place) -> None:
        """Set how the job may have to give way with the nodes of this record."""
        job, candidate = world.job, preemption_candidate(world, record, place)
        keeps_nodes = isinstance(candidate, Victim) and self._cluster.lacks_class(job)
        key = job.metadata.namespace, job.metadata.name
        self._queue.candidates.set(key, job.metadata.uid, None if keeps_nodes else candidate)

    def _plan(self, key: Key, world: JobWorld) -> Plan:
        """Make the plan for a job, and keep the world it was made of, also where that fails."""
        settings = self._settings()
        try:
            plan = plan_with_goodput(world, decide(world, settings))
        except Exception as error:
            self._kept.keep(key, Decided(world, settings, None, error_text(error)))
            raise
        if plan.unprepared is None:
            self._kept.keep(key, Decided(world, settings, plan))
        return plan

    def _waiting(self, job: TrainingJob, needs: QueueNeeds, expected: float | None) -> WaitingJob | None:
        """What the job waits for, as the queue sees it; None = it waits for no nodes."""
        if needs.request is None:
            return None
        shows_all = self._cluster.policy().queueing.show_jobs_of_other_namespaces
        request = needs.request if shows_all else replace(needs.request, viewer=job.metadata.namespace)
        return WaitingJob(
            job_uid=job.metadata.uid,
            name=f"{job.metadata.namespace}/{job.metadata.name}",
            namespace=job.metadata.namespace,
            priority=self._cluster.priority_of(job),
            created=needs.queued_since,
            request=request,
            replacement=needs.is_replacement,
            held=needs.held,
            claim=self._cluster.claim_of(job),
            expected_seconds=expected,
            preemptible=job.spec.queueing.preemptible,
            preempts_by=self._cluster.preempts_by(job),
        )

    def _preempted_by(self, job: TrainingJob) -> Preemptors | None:
        """The jobs that the job gives its nodes to, by the names that its people may see."""
        jobs, namespace = self._queue.candidates.preempted_by(job.metadata.uid), job.metadata.namespace
        viewer = None if self._cluster.policy().queueing.show_jobs_of_other_namespaces else namespace
        return jobs and tuple(
            dict.fromkeys(preemptor._replace(name=visible_name(preemptor.name, viewer)) for preemptor in jobs)
        )

    async def _carry_out(self, key: Key, job: TrainingJob, plan: Plan) -> float | None:
        if plan.overtaken:
            self._queue.replan()
        _log_decision(key, plan)
        try:
            await self._performer.perform(job, plan)
            self._count_placement(job, plan)
            if any(isinstance(action, CommitGang) and is_giving_way(action.spec) for action in plan.actions):
                self._queue.note_giving_way([job.metadata.uid])
            if plan.commits:
                self._want_checks(key, job.metadata.uid, plan.checks)
        finally:
            if plan.commits:
                self._directives_changed(job)
        unwritten = await self._performer.conclude(job, plan)
        if plan.status is not None and plan.status.completion is not None:
            self._directives_changed(job)
        for announcement in plan.announcements:
            self._emit_event(job, announcement)
        wakes = [wake for wake in (plan.wake_in_seconds, unwritten) if wake is not None]
        return min(wakes, default=None)

    def _count_placement(self, job: TrainingJob, plan: Plan) -> None:
        for action in plan.actions:
            if isinstance(action, CommitGang) and self._queue.decision_of(job.metadata.uid) is not None:
                domains = {count.level: count.domains for count in action.spec.topology}
                self._queue.placed(job.metadata.uid, domains, first_time_of(job))

    def _failed(self, key: Key, reason: str) -> float:
        """Count a failed pass of the job; returns the seconds until the next try."""
        _failures.labels(reason).inc()
        return self._again_in(key, RETRY_LIMIT_SECONDS)

    def _again_in(self, key: Key, limit: float) -> float:
        """The seconds until the next try: more each time, up to `limit`, until a pass of the job completes."""
        now = self._clock()
        count, last = self._failures.get(key, (0, now))
        count = count if now - last < FORGOTTEN_SECONDS else 0
        self._failures[key] = count + 1, now
        return doubled(RETRY_FIRST_SECONDS, count, limit)

    def _emit_event(self, job: TrainingJob, announcement: Announcement) -> None:
        about = Regarding(API_VERSION, "TrainingJob", job.metadata.name, job.metadata.uid, job.metadata.namespace)
        kind = WARNING if announcement.warning else NORMAL
        self._events.record(about, kind, announcement.reason, announcement.note)

    def _report_missing_class(self, job: TrainingJob) -> None:
        """Report of a job with nodes, as long as that is so, that its PriorityClass does not exist."""
        note = ""
        if self._cluster.lacks_class(job):
            name = named_class(job)
            note = (
                f"PriorityClass {name} does not exist: no other job preempts this one, and its new pods will be "
                f"refused. To change that, {missing_class_remedy(name)}."
            )
        self._report_once(job, PRIORITY_CLASS_MISSING, note)

    def _report_class_in_queue(self, job: TrainingJob) -> None:
        """Report of a waiting job, as long as that is so, that its PriorityClass counts for nothing, or preempts no
        job."""
        name, queueing = named_class(job), self._cluster.policy().queueing
        ignored = not_allowed = ""
        if name and not queueing.counts(name):
            ignored = (
                f"PriorityClass {name} does not count in the queue: the job waits as one that names none. To change "
                f"that, add the class to spec.queueing.priorityClasses of FleetPolicy default, or {WITH_ANOTHER_CLASS}."
            )
        elif name in {entry.name for entry in queueing.preemption.priority_classes} and not queueing.may_preempt(
            name, job.metadata.namespace
        ):
            not_allowed = (
                f"PriorityClass {name} preempts no job for namespace {job.metadata.namespace}: it only orders the "
                "queue. To change that, add the namespace to this class in spec.queueing.preemption.priorityClasses of "
                f"FleetPolicy default, or {WITH_ANOTHER_CLASS}."
            )
        self._report_once(job, "PriorityIgnored", ignored)
        self._report_once(job, "PreemptionNotAllowed", not_allowed)

    def _report_once(self, job: TrainingJob, reason: str, note: str) -> None:
        """Write an Event with a warning once as long as its note stays the same; "": nothing is to be said any more."""
        reported = self._cluster.memory(job.metadata.uid).reported
        if note and reported.get(reason) != note:
            self._emit_event(job, Announcement(reason, note, warning=True))
        reported[reason] = note

    def _report_undecodable(self, job: Undecodable) -> None:
        about = Regarding(API_VERSION, "TrainingJob", job.name, job.uid, job.namespace)
        remedy = f" {REMEDY_OF_INVALID}" if job.reason == "InvalidSpec" else ""
        self._events.record(about, WARNING, job.reason, f"{job.error}.{remedy}")
        log.warning("job does not fit its schema", job=f"{job.namespace}/{job.name}", error=job.error)

    def _report_internal_error(self, key: Key, error: Exception) -> None:
        job = self._cluster.job(key)
        if isinstance(job, TrainingJob):
            defect = f"an unexpected error keeps Muster from looking after this job ({type(error).__name__}: {error}). "
            remedy = "It goes on trying, and what runs goes on. This is a defect: report it with the operator's log."
            self._emit_event(job, Announcement("InternalError", defect + remedy, warning=True))


@dataclass(frozen=True, slots=True)
class _Decision:
    """A plan to perform.

    Attributes:
        begun: when its making began, by the clock of the loop.
    """

    job: TrainingJob
    plan: Plan
    begun: float


def _nodes_of(action: Action) -> Iterable[str]:
    """The nodes that an action takes; "" among them where none is named."""
    match action:
        case CommitGang():
            return (member.node for member in action.spec.members)
        case CreatePod():
            return (action.node,)
        case _:
            return ()


def _recovers(gang: Gang | Undecodable | None) -> bool:
    """Whether a gang has trained already: then its actions go before first starts."""
    return isinstance(gang, Gang) and (
        gang.spec.attempt > 1 or gang.spec.start is not None or bool(gang.spec.incidents)
    )


def _start(group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
    group.create_task(work)


def _without_record(world: JobWorld, record: Undecodable) -> Plan:
    """The plan for a job whose record cannot be read: it does nothing but report that in the status."""
    message = (
        f"The Gang {record.name} of the job does not fit its schema ({record.error}). Muster does nothing to the job, "
        "and its workers go on as they are. Run the version of Muster that wrote the Gang, or delete the Gang: the job "
        "then starts anew once its pods have ended."
    )
    old_status = world.job.status
    seen = {"attempt": old_status.attempt, "nodes_ready": old_status.nodes_ready, "nodes": old_status.nodes}
    plan = with_status(world, Plan((), StatusReport(State.STALLED, "RecordUnreadable", message)))
    return replace(plan, status=plan.status and plan.status.model_copy(update=seen))


def _log_decision(key: Key, plan: Plan) -> None:
    """Log one line for each decision that changes something; asking for what is there already is none."""
    actions = Counted(type(action).__name__ for action in plan.actions if not isinstance(action, ApplySupport))
    if actions or plan.announcements:
        why = "; ".join(announcement.note for announcement in plan.announcements)
        log.info("decided", job="/".join(key), actions=dict(actions), why=why[:500])

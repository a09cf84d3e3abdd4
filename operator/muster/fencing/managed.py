"""Ranks that a launcher has started: it reports them, and ends them by itself when it is cut off. Pure.

A gang whose members were not all cut off together is broken. A launcher that is cut off misses a peer, or hears by
gossip that the gang has gone on. It then ends its ranks after the length of its fence (muster.protocol.fence). That
holds for every set of workers that is cut off together: each has a path to one that misses a peer outside. Only a gang
that is alive as a whole, and heard by no coordinator, misses no peer. The fence file in the checkpoint directory stops
it. Without the file only proof of its death helps. See docs/decisions/0012.

Tests: tests/unit/fencing/test_survivors.py.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from muster.api.gang import MAX_FENCE_SECONDS, GangSpec, Proof, UnfencedWorker
from muster.fencing import proofs
from muster.fencing.proofs import moment_text
from muster.protocol.fence import fenced_after_seconds, marked_after_seconds
from muster.protocol.messages import IDLE
from muster.world.job import JobWorld, WorkerView
from muster.world.views import FRESH_SECONDS, LauncherView

# Several pings; between two answers there is always a moment.
COMPLAINT_SECONDS = 5.0


class ManagedProofs:
    """What proves that ranks have ended that a launcher has started; see `muster.fencing.survivors.Proofs`."""

    def unfenced_worker(self, world: JobWorld, record: GangSpec, worker_view: WorkerView) -> UnfencedWorker | None:
        """Return a former worker whose ranks may be alive, with the proof that is possible; None: no rank of it can be
        alive.

        No rank is alive where the pod is dead, or its launcher never saw the start barrier open.
        """
        member, view = worker_view.member, world.launchers.get(worker_view.member.pod_uid)
        never_began = record.start is None and view is not None and (view.state, view.attempt) == (IDLE, record.attempt)
        if not member.pod_uid or world.is_dead(member.pod_uid) or never_began:
            return None
        obeys, seen = record.obeys_fence_file(member), _member_figures(world)
        # One that this leader has not heard has the same steps as the others.
        fence = max(member.fence_seconds, math.ceil(max(seen.fence_seconds, view.fence_seconds if view else 0.0)))
        unfenced_worker = UnfencedWorker(
            pod=worker_view.name,
            pod_uid=member.pod_uid,
            node=member.node,
            boot_id=member.boot_id,
            fenced_time=world.now,
            fence_seconds=min(fence, MAX_FENCE_SECONDS),
            attempt=record.attempt if record.start else record.attempt - 1,
            proof=Proof.FENCE_FILE if obeys else Proof.DEATH,
            fence_file_id=record.fence_file_id if obeys else "",
        )
        # What happened to one of them since they were last heard may have happened to all.
        unfenced_worker = proofs.silent_since(world, unfenced_worker, world.silent_seconds if world.views else 0.0)
        missing = _missing_seconds(world, unfenced_worker, worker_view)
        return (
            unfenced_worker
            if missing is None
            else _with_fence_proof(world, unfenced_worker, _counted_seconds(world, record, view, missing))
        )

    def with_current_proof(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> UnfencedWorker:
        """Return an unfenced worker, its fence counting where its gang is known to be broken.

        The workers that show this may be no members of the next record, so that the record has to keep the fence.
        """
        broken = _broken_seconds(world, unfenced_worker)
        return (
            _with_fence_proof(world, unfenced_worker, broken)
            if broken and unfenced_worker.proof is not Proof.FENCE
            else unfenced_worker
        )

    def is_ended(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
        """Whether no rank of an unfenced worker can be alive: by its fence, the fence file, or the job's time limit."""
        if not _is_quiet(world, unfenced_worker) or proofs.is_being_ended(world, unfenced_worker):
            return False
        if unfenced_worker.proof is Proof.FENCE:
            return _remaining_fence_seconds(world, unfenced_worker) <= 0
        if _broken_seconds(world, unfenced_worker) >= fenced_after_seconds(float(unfenced_worker.fence_seconds)):
            return True
        if unfenced_worker.proof is Proof.FENCE_FILE and not _is_elsewhere(world, unfenced_worker):
            return _fence_file_seconds(world, unfenced_worker) >= marked_after_seconds(
                float(unfenced_worker.fence_seconds)
            )
        return proofs.given_up(world, unfenced_worker, _silent_seconds(world, unfenced_worker))

    def awaited_proof_message(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> str:
        """Return the message that says what proof of the worker's end is awaited, and by when."""
        start, record = proofs.may_train_message(unfenced_worker), world.gang.spec if world.gang else None
        if unfenced_worker.pod_uid in world.removed_seconds:
            alive = "it is gone from the API server, but its launcher reports living ranks"
            return f"{start}: {alive}. {proofs.remedy(unfenced_worker)}"
        if unfenced_worker.proof is Proof.FENCE:
            until = moment_text(world.now, _remaining_fence_seconds(world, unfenced_worker))
            return f"{start}: it lost contact. If it lives, its launcher ends its ranks by {until}."
        others = record is not None and any(member.pod_uid for member in record.members)
        if _broken_seconds(world, unfenced_worker) or others:
            left = fenced_after_seconds(float(unfenced_worker.fence_seconds)) - _broken_seconds(world, unfenced_worker)
            return (
                f"{start}: it lost contact, and the other workers have gone on. If it lives, its launcher ends its "
                f"ranks by {moment_text(world.now, left)}."
            )
        if unfenced_worker.proof is not Proof.FENCE_FILE or _is_elsewhere(world, unfenced_worker):
            wrong = " Its successor sees another checkpoint directory: is the volume mounted there, and shared?"
            because = wrong if _is_elsewhere(world, unfenced_worker) else ""
            return proofs.unstoppable_message(world, unfenced_worker, _silent_seconds(world, unfenced_worker), because)
        if _later_claims(world, unfenced_worker):
            until = moment_text(
                world.now,
                marked_after_seconds(float(unfenced_worker.fence_seconds))
                - _fence_file_seconds(world, unfenced_worker),
            )
            return (
                f"{start}: the whole gang lost contact at once. The fence file in the checkpoint directory stops it by "
                f"{until} at the latest."
            )
        errors = [view.fence_file_error for view in world.views.values() if view.fence_file_error]
        if errors:
            remedy = proofs.remedy(unfenced_worker)
            return f"{start}: the fence file that stops it cannot be written ({errors[0]}). Correct that. {remedy}"
        return (
            f"{start}: the whole gang lost contact at once. The next attempt writes a fence file into the checkpoint "
            "directory, which stops it."
        )


@dataclass(frozen=True, slots=True)
class _MemberFigures:
    """Figures from the members' reports that all unfenced workers have in common, computed once for each decision.

    Attributes:
        fence_seconds: the longest fence that any launcher counts by.
        dead: indices of the members whose ranks have ended for certain.
        ages: by attempt, for how many seconds the first of the launchers has been in it.
        claims: the reports of the launchers that have written their attempt into the fence file.
        step_ages: the ages in seconds of the two youngest steps, each with the report of a launcher that is heard.
        gone_on: by attempt, for how many seconds the first of the launchers that are heard has been in it.
        ended: by attempt, how many seconds ago the first of its ranks ended, as far as launchers that are heard report
            it.
    """

    fence_seconds: float
    dead: frozenset[int]
    ages: Mapping[int, float]
    claims: tuple[LauncherView, ...]
    step_ages: Sequence[tuple[float, LauncherView]]
    gone_on: Mapping[int, float]
    ended: Mapping[int, float]


def _member_figures(world: JobWorld) -> _MemberFigures:
    return world.derived(_compute_member_figures)


def _compute_member_figures(world: JobWorld) -> _MemberFigures:
    views = world.views.values()
    kept = [worker_view for worker_view in world.worker_views if worker_view.member.pod_uid]
    ages: dict[int, float] = {}
    for worker_view in kept:
        view = worker_view.launcher
        if view is not None:
            ages[view.attempt] = max(ages.get(view.attempt, 0.0), view.attempt_age_seconds)
    record, heard = world.gang.spec if world.gang else None, [v for v in views if v.heard_age_seconds <= FRESH_SECONDS]
    current = [v for v in heard if record is None or record.start is None or v.attempt == record.attempt]
    steps = [(v.step_age_seconds, v) for v in current if v.step_age_seconds is not None]
    gone_on: dict[int, float] = {}
    ended: dict[int, float] = {}
    for view in heard:
        gone_on[view.attempt] = max(gone_on.get(view.attempt, 0.0), view.attempt_age_seconds)
        for rank in view.ranks:
            if rank.exited_age_seconds is not None:
                ended[view.attempt] = max(ended.get(view.attempt, 0.0), rank.exited_age_seconds)
    return _MemberFigures(
        max((view.fence_seconds for view in views), default=0.0),
        frozenset(worker_view.index for worker_view in kept if world.is_dead(worker_view.member.pod_uid)),
        ages,
        tuple([view for view in views if view.fence_file_age_seconds is not None]),
        heapq.nsmallest(2, steps, key=lambda step: step[0]),
        gone_on,
        ended,
    )


def _with_fence_proof(world: JobWorld, unfenced_worker: UnfencedWorker, counted_seconds: float) -> UnfencedWorker:
    """Return the unfenced worker with its fence as the proof, of which a part has passed already.

    Args:
        world: the state of the job.
        unfenced_worker: the worker.
        counted_seconds: for how long the fence has been counting.
    """
    left = math.ceil(fenced_after_seconds(float(unfenced_worker.fence_seconds)) - counted_seconds)
    return unfenced_worker.model_copy(
        update={
            "proof": Proof.FENCE,
            "remaining_seconds": max(0, left),
            "fenced_time": world.now + timedelta(seconds=left),
        }
    )


def _missing_seconds(world: JobWorld, unfenced_worker: UnfencedWorker, worker_view: WorkerView) -> float | None:
    """Return for how many seconds this worker, if it lives, has certainly missed a peer; None: it may miss none.

    A neighbour that is heard and gets no answer from the worker counts: pings are round trips, so neither hears the
    other. Where no neighbour complains, all that could may be cut off with the worker. The last report of a launcher
    that fell silent with the worker is no complaint.

    News that a member is dead, or has gone on, reaches launchers that do not ping it by gossip.
    """
    complaints = world.complaints.get(worker_view.index, ())
    silent = worker_view.launcher.heard_age_seconds if worker_view.launcher else math.inf
    heard_since = min(FRESH_SECONDS, silent - COMPLAINT_SECONDS)
    certain = [s for other, s in complaints if s >= COMPLAINT_SECONDS and other.heard_age_seconds <= heard_since]
    if _member_figures(world).dead - {worker_view.index}:
        certain.append(0.0)
    broken = _broken_seconds(world, unfenced_worker)
    return max([*certain, broken] if broken else certain, default=None)


def _counted_seconds(world: JobWorld, record: GangSpec, view: LauncherView | None, missing_seconds: float) -> float:
    """Return for how many seconds this worker's fence has been counting.

    The fence counts from the last of three moments: an answer of the coordinator, a finished step, the first missing
    peer.

    Args:
        world: the state of the job.
        record: of the gang.
        view: the launcher's last report; None: this leader never heard it.
        missing_seconds: for how long the worker has missed a peer.
    """
    if view is None:
        return 0.0
    running = world.start_age_seconds if record.start else missing_seconds
    return min(view.heard_age_seconds, _stepless_seconds(world, view), running, missing_seconds)


def _stepless_seconds(world: JobWorld, silent: LauncherView) -> float:
    """Return for how many seconds this worker has certainly finished no step.

    A step may come over a network on which no launcher pings. The worker's own reports are old. Others report until
    when there were steps, or that a rank of theirs has ended, without which no step is finished. Before the start
    barrier opens, ranks of the attempt before count. Where only the silent worker reports steps, nothing is certain.

    Args:
        world: the state of the job.
        silent: the last report of the worker's launcher.
    """
    seen = _member_figures(world)
    step_age = next((age for age, teller in seen.step_ages if teller is not silent), None)
    if step_age is None and silent.step_age_seconds is not None:
        gone_on = (age for attempt, age in seen.gone_on.items() if attempt > silent.attempt)
        step_age = max([*gone_on, seen.ended.get(silent.attempt, 0.0)])
    return world.newest_step_age_seconds if step_age is None else min(step_age, world.newest_step_age_seconds)


def _broken_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """Return for how many seconds a worker of its gang has been known to have gone on without it; 0: none has."""
    ages = _member_figures(world).ages
    return max((age for attempt, age in ages.items() if attempt > unfenced_worker.attempt), default=0.0)


def _is_quiet(world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
    """Whether an unfenced worker has not been heard with a living rank for the length of its fence.

    A worker that this leader has never heard gets a whole fence of this leader's time.
    """
    view, limit = (
        world.launchers.get(unfenced_worker.pod_uid),
        fenced_after_seconds(float(unfenced_worker.fence_seconds)),
    )
    if view is None:
        return world.leader_age_seconds >= limit
    return view.heard_age_seconds > limit or proofs.is_rankless(view)


def _remaining_fence_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """Return for how many seconds the fence of an unfenced worker still counts; until then it may have living ranks."""
    at_first = (
        unfenced_worker.remaining_seconds
        if unfenced_worker.remaining_seconds >= 0
        else fenced_after_seconds(float(unfenced_worker.fence_seconds))
    )
    return at_first - proofs.age_seconds(world, unfenced_worker)


def _fence_file_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """Return for how many seconds the fence file has told this worker's ranks to end; 0 while it does not."""
    claims = (v for v in _later_claims(world, unfenced_worker) if v.fence_file_id == unfenced_worker.fence_file_id)
    return max((view.fence_file_age_seconds or 0.0 for view in claims), default=0.0)


def _later_claims(world: JobWorld, unfenced_worker: UnfencedWorker) -> list[LauncherView]:
    """Return the reports of launchers that have written an attempt after the worker's own into the fence file they
    see."""
    return [view for view in _member_figures(world).claims if view.fence_file_attempt > unfenced_worker.attempt]


def _is_elsewhere(world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
    """Whether the fence file was written, but in another directory than the one that this worker's launcher reads."""
    claims = _later_claims(world, unfenced_worker)
    return bool(unfenced_worker.fence_file_id and claims) and all(
        view.fence_file_id != unfenced_worker.fence_file_id for view in claims
    )


def _silent_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """Return for how many seconds this leader has heard nothing that could mean that the worker's ranks live."""
    view = world.launchers.get(unfenced_worker.pod_uid)
    if view is None:
        return world.leader_age_seconds
    age = proofs.age_seconds(world, unfenced_worker)
    return max(view.heard_age_seconds, age) if proofs.is_rankless(view) else view.heard_age_seconds

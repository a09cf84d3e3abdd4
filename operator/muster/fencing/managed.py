"""Ranks that a launcher has started: it reports them, and ends them by itself when it is cut off. Pure.

A gang whose members have not all been cut off together is broken: whoever is cut off misses somebody, or hears from a
neighbour that the gang has gone on, and ends its ranks after the length of its fence (muster.protocol.fence). That
holds for every set that is cut off together, because everyone in it has a path to one who misses somebody outside. Only
a gang that is alive and together as a whole, and heard by nobody, misses nobody: it is told by the fence file in the
checkpoint directory, and where there is none nothing but proof of its death will do. See docs/decisions/0012.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from muster.api.gang import MAX_FENCE_SECONDS, GangSpec, Proof, UnfencedWorker
from muster.fencing import proofs
from muster.fencing.proofs import by
from muster.protocol.fence import fenced_after_seconds, marked_after_seconds
from muster.protocol.messages import IDLE, RECLAIMING, RUNNING
from muster.world.job import JobWorld, WorkerView
from muster.world.views import FRESH_SECONDS, LauncherView

# Several pings; between two answers there is always a moment.
COMPLAINT_SECONDS = 5.0


class ManagedProofs:
    """See `muster.fencing.survivors.Proofs`."""

    def unfenced_worker(self, world: JobWorld, record: GangSpec, worker_view: WorkerView) -> UnfencedWorker | None:
        """A pod that has had a go, with the proof that can be had."""
        member, view = worker_view.member, world.launchers.get(worker_view.member.pod_uid)
        never_began = record.start is None and view is not None and (view.state, view.attempt) == (IDLE, record.attempt)
        if not member.pod_uid or world.is_dead(member.pod_uid) or never_began:
            return None
        obeys, seen = record.obeys_fence_file(member), _seen(world)
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
            gossips=record.gossips,
        )
        # What happened to one of them since they were last heard may have happened to all.
        unfenced_worker = proofs.silent_since(world, unfenced_worker, world.silent_seconds if world.views else 0.0)
        missing = _missing_seconds(world, unfenced_worker, worker_view)
        return (
            unfenced_worker
            if missing is None
            else _fenced(world, unfenced_worker, _counted_seconds(world, record, view, missing))
        )

    def known(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> UnfencedWorker:
        """Those of its gang who tell that it is broken may be no members of the next record."""
        broken = _broken_seconds(world, unfenced_worker)
        return (
            _fenced(world, unfenced_worker, broken)
            if broken and unfenced_worker.proof is not Proof.FENCE
            else unfenced_worker
        )

    def is_ended(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
        """By its kubelet, by its fence, by the fence file, or by the limit."""
        if proofs.removal_left(world, unfenced_worker) <= 0 and not _is_heard_alive(world, unfenced_worker):
            return True
        if not _is_quiet(world, unfenced_worker) or proofs.is_being_ended(world, unfenced_worker):
            return False
        if unfenced_worker.proof is Proof.FENCE:
            return _fence_left(world, unfenced_worker) <= 0
        if _broken_seconds(world, unfenced_worker) >= fenced_after_seconds(float(unfenced_worker.fence_seconds)):
            return True
        if unfenced_worker.proof is Proof.FENCE_FILE and not _is_elsewhere(world, unfenced_worker):
            return _marked_seconds(world, unfenced_worker) >= marked_after_seconds(float(unfenced_worker.fence_seconds))
        return proofs.given_up(world, unfenced_worker, _silent_seconds(world, unfenced_worker))

    def waited_for(self, world: JobWorld, unfenced_worker: UnfencedWorker) -> str:
        """The same in words."""
        start, record = proofs.may_train(unfenced_worker), world.gang.spec if world.gang else None
        if unfenced_worker.pod_uid in world.removed_seconds:
            alive = "it is gone from the API server, but its launcher reports living ranks"
            return f"{start}: {alive}. {proofs.remedy(unfenced_worker)}"
        if unfenced_worker.proof is Proof.FENCE:
            until = by(world.now, _fence_left(world, unfenced_worker))
            return f"{start}: it lost contact. If it lives, its launcher ends its ranks by {until}."
        others = record is not None and any(member.pod_uid for member in record.members)
        if _broken_seconds(world, unfenced_worker) or (unfenced_worker.gossips and others):
            left = fenced_after_seconds(float(unfenced_worker.fence_seconds)) - _broken_seconds(world, unfenced_worker)
            return (
                f"{start}: it lost contact, and the other workers have gone on. If it lives, its launcher ends its "
                f"ranks by {by(world.now, left)}."
            )
        if unfenced_worker.proof is not Proof.FENCE_FILE or _is_elsewhere(world, unfenced_worker):
            wrong = " Its successor sees another checkpoint directory: is the volume mounted there, and shared?"
            because = wrong if _is_elsewhere(world, unfenced_worker) else ""
            return proofs.from_nobody(world, unfenced_worker, _silent_seconds(world, unfenced_worker), because)
        if _claims(world, unfenced_worker):
            until = by(
                world.now,
                marked_after_seconds(float(unfenced_worker.fence_seconds)) - _marked_seconds(world, unfenced_worker),
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
class _Seen:
    """What the members tell, in figures that all unfenced workers have in common; of thousands they are worked out
    once.

    Attributes:
        fence_seconds: the longest that any launcher counts by.
        dead: indices of the members whose ranks have ended for certain.
        kept: how many members have a pod from before.
        ages: attempt -> for how long those have been there who have come to it: the least, the most, and how many they
            are.
        claims: what those tell who have written their attempt into the fence file.
        step_ages: the two youngest steps of which somebody tells who is heard, and who: of this attempt, and before the
            go of any.
        gone_on: attempt -> for how long one of those who are heard has been there.
        ended: attempt -> since when a rank of it has ended that one of them tells of.
    """

    fence_seconds: float
    dead: frozenset[int]
    kept: int
    ages: Mapping[int, tuple[float, float, int]]
    claims: tuple[LauncherView, ...]
    step_ages: Sequence[tuple[float, LauncherView]]
    gone_on: Mapping[int, float]
    ended: Mapping[int, float]


def _seen(world: JobWorld) -> _Seen:
    return world.derived(_look)


def _look(world: JobWorld) -> _Seen:
    views = world.views.values()
    kept = [worker_view for worker_view in world.worker_views if worker_view.member.pod_uid]
    ages: dict[int, list[float]] = {}
    for worker_view in kept:
        if worker_view.launcher is not None:
            ages.setdefault(worker_view.launcher.attempt, []).append(worker_view.launcher.attempt_age_seconds)
    record, heard = world.gang.spec if world.gang else None, [v for v in views if v.heard_age_seconds <= FRESH_SECONDS]
    told = [v for v in heard if record is None or record.start is None or v.attempt == record.attempt]
    steps = [(v.step_age_seconds, v) for v in told if v.step_age_seconds is not None]
    gone_on: dict[int, float] = {}
    ended: dict[int, float] = {}
    for view in heard:
        gone_on[view.attempt] = max(gone_on.get(view.attempt, 0.0), view.attempt_age_seconds)
        for rank in view.ranks:
            if rank.exited_age_seconds is not None:
                ended[view.attempt] = max(ended.get(view.attempt, 0.0), rank.exited_age_seconds)
    return _Seen(
        max((view.fence_seconds for view in views), default=0.0),
        frozenset(worker_view.index for worker_view in kept if world.is_dead(worker_view.member.pod_uid)),
        len(kept),
        {attempt: (min(several), max(several), len(several)) for attempt, several in ages.items()},
        tuple([view for view in views if view.fence_file_age_seconds is not None]),
        heapq.nsmallest(2, steps, key=lambda step: step[0]),
        gone_on,
        ended,
    )


def _fenced(world: JobWorld, unfenced_worker: UnfencedWorker, counted_seconds: float) -> UnfencedWorker:
    """The same, its fence having counted for so long."""
    left = math.ceil(fenced_after_seconds(float(unfenced_worker.fence_seconds)) - counted_seconds)
    return unfenced_worker.model_copy(
        update={
            "proof": Proof.FENCE,
            "remaining_seconds": max(0, left),
            "fenced_time": world.now + timedelta(seconds=left),
        }
    )


def _missing_seconds(world: JobWorld, unfenced_worker: UnfencedWorker, worker_view: WorkerView) -> float | None:
    """For how long this worker, if it lives, has missed somebody of its gang, for certain; None where it may miss
    nobody.

    A neighbour that is heard and gets no answer from it gets none through either way: pings are round trips. Where none
    complains those who could may be cut off with it; and what was last said by one who fell silent with it is no
    complaint.

    Whoever misses a neighbour himself needs nobody to tell him. That a member is dead, or has gone on, reaches those
    who do not ping it only from mouth to mouth, through any of those who are left with them: it counts where every
    launcher of the gang passes on such news.
    """
    complaints = world.complaints.get(worker_view.index, ())
    silent = worker_view.launcher.heard_age_seconds if worker_view.launcher else math.inf
    heard_since = min(FRESH_SECONDS, silent - COMPLAINT_SECONDS)
    certain = [s for other, s in complaints if s >= COMPLAINT_SECONDS and other.heard_age_seconds <= heard_since]
    if unfenced_worker.gossips and _seen(world).dead - {worker_view.index}:
        certain.append(0.0)
    broken = _broken_seconds(world, unfenced_worker)
    return max([*certain, broken] if broken else certain, default=None)


def _counted_seconds(world: JobWorld, record: GangSpec, view: LauncherView | None, missing_seconds: float) -> float:
    """For how long this worker's fence has been counting: from the last of an answer, a step, and its first missing
    peer."""
    if view is None:
        return 0.0
    running = world.go_age_seconds if record.start else missing_seconds
    return min(view.heard_age_seconds, _stepless_seconds(world, view), running, missing_seconds)


def _stepless_seconds(world: JobWorld, silent: LauncherView) -> float:
    """For how long it has finished no step, for certain: a step may come by a network on which nobody pings.

    What it has told itself is old. Others tell until when there were steps, or that a rank of theirs has ended, without
    which there is none; before the go those of the attempt before may still be at it. Where only the silent one tells
    steps, as a rank 0 does that alone prints them, nobody knows.
    """
    seen = _seen(world)
    told = next((age for age, teller in seen.step_ages if teller is not silent), None)
    if told is None and silent.step_age_seconds is not None:
        gone_on = (age for attempt, age in seen.gone_on.items() if attempt > silent.attempt)
        told = max([*gone_on, seen.ended.get(silent.attempt, 0.0)])
    return world.newest_step_age_seconds if told is None else min(told, world.newest_step_age_seconds)


def _broken_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """For how long one of its gang has been known to have gone on without it: whoever is left with the unfenced worker
    misses that one.

    Where its gang does not pass on such news (see `_missing_seconds`) it has to be the only one left, and all others
    have to have gone on: then it misses each of them itself.
    """
    seen = _seen(world)
    gone_on = [ages for attempt, ages in seen.ages.items() if attempt > unfenced_worker.attempt]
    if unfenced_worker.gossips:
        return max((most for _, most, _ in gone_on), default=0.0)
    is_only_one = world.gang is not None and world.gang.spec.unfenced_workers == [unfenced_worker]
    all_have = sum(count for _, _, count in gone_on) == seen.kept
    return min((least for least, _, _ in gone_on), default=0.0) if is_only_one and all_have else 0.0


def _is_quiet(world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
    """Whether it has not been heard with a living rank for the length of its fence.

    One that this leader has never heard gets a whole fence of this leader's time.
    """
    view, limit = (
        world.launchers.get(unfenced_worker.pod_uid),
        fenced_after_seconds(float(unfenced_worker.fence_seconds)),
    )
    if view is None:
        return world.leader_age_seconds >= limit
    return view.heard_age_seconds > limit or _is_rankless(view)


def _is_heard_alive(world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
    """Whether its launcher tells that it has ranks: who is force-deleted is still heard, and some cannot be killed."""
    view = world.launchers.get(unfenced_worker.pod_uid)
    return view is not None and view.heard_age_seconds <= FRESH_SECONDS and not _is_rankless(view)


def _is_rankless(view: LauncherView) -> bool:
    # One that is just starting its ranks, or ending them, may have some that it has not told of.
    return view.state not in (RUNNING, RECLAIMING) and not any(rank.alive for rank in view.ranks)


def _fence_left(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """For how long its fence still counts, as far as this leader has seen: until then it may have living ranks."""
    at_first = (
        unfenced_worker.remaining_seconds
        if unfenced_worker.remaining_seconds >= 0
        else fenced_after_seconds(float(unfenced_worker.fence_seconds))
    )
    return at_first - proofs.age_seconds(world, unfenced_worker)


def _marked_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """For how long the fence file has told this pod's ranks to end; 0 while it does not."""
    told = (v for v in _claims(world, unfenced_worker) if v.fence_file_id == unfenced_worker.fence_file_id)
    return max((view.fence_file_age_seconds or 0.0 for view in told), default=0.0)


def _claims(world: JobWorld, unfenced_worker: UnfencedWorker) -> list[LauncherView]:
    """The launchers that have written an attempt after its own into the fence file, each in the directory that it
    sees."""
    return [view for view in _seen(world).claims if view.fence_file_attempt > unfenced_worker.attempt]


def _is_elsewhere(world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
    """Whether the fence file was written, and not where this pod's launcher reads it."""
    claims = _claims(world, unfenced_worker)
    return bool(unfenced_worker.fence_file_id and claims) and all(
        view.fence_file_id != unfenced_worker.fence_file_id for view in claims
    )


def _silent_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """For how long this leader has heard nothing that could mean that its ranks live."""
    view = world.launchers.get(unfenced_worker.pod_uid)
    if view is None:
        return world.leader_age_seconds
    age = proofs.age_seconds(world, unfenced_worker)
    return max(view.heard_age_seconds, age) if _is_rankless(view) else view.heard_age_seconds

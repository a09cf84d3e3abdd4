"""Who may still be alive: the ranks that a record drops and cannot ask, and what proves that they have ended. Pure.

A gang whose members have not all been cut off together is broken: whoever is cut off misses somebody, or hears from a
neighbour that the gang has gone on, and ends its ranks after the length of its fence (muster.launcher.fence). That holds
for every set that is cut off together, because everyone in it has a path to one who misses somebody outside. Only a gang
that is alive and together as a whole, and heard by nobody, misses nobody: it is told by the marker in the checkpoint
directory, and where there is none nothing but proof of its death will do. See docs/decisions/0012.
"""

import math
from collections.abc import Iterable
from datetime import timedelta

from muster.api.gang import MAX_FENCE_SECONDS, GangSpec, Ghost, Member, Proof
from muster.api.trainingjob import LaunchMode
from muster.launcher.fence import fenced_after_seconds, marked_after_seconds
from muster.protocol.messages import IDLE, RECLAIMING, RUNNING
from muster.recovery.silence import FRESH_SECONDS, unproved_seconds
from muster.world.job import JobWorld, Seat
from muster.world.views import LauncherView

BOOT_CHARACTERS = 8
# Several pings; between two answers there is always a moment.
COMPLAINT_SECONDS = 5.0


def ghosts(world: JobWorld, record: GangSpec, members: Iterable[Member]) -> list[Ghost]:
    """Pods that the new members leave behind and whose ranks may be alive: the next start has to outwait them."""
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        return []  # there a pod is not created before its predecessors are proved dead
    kept = {(member.index, member.incarnation) for member in members}
    left = [seat for seat in world.seats if (seat.index, seat.member.incarnation) not in kept]
    known = [_known(world, record, ghost) for ghost in record.ghosts if not laid(world, record, ghost)]
    return known + [_ghost(world, record, seat) for seat in left if _may_live(world, record, seat)]


def laid(world: JobWorld, record: GangSpec, ghost: Ghost) -> bool:
    """Whether no rank of this pod can be alive any more."""
    if world.is_dead(ghost.pod_uid) or _rebooted(world, ghost):
        return True
    if not _is_quiet(world, ghost):
        return False
    if ghost.proof is Proof.FENCE:
        return world.now >= ghost.fenced_time
    if _broken_seconds(world, ghost) >= fenced_after_seconds(float(ghost.fence_seconds), len(record.members)):
        return True
    if ghost.proof is Proof.MARKER:
        return marked_seconds(world, ghost) >= marked_after_seconds(float(ghost.fence_seconds))
    limit = unproved_seconds(world)
    return limit is not None and (world.now - ghost.fenced_time).total_seconds() >= limit


def marked_seconds(world: JobWorld, ghost: Ghost) -> float:
    """For how long the marker has told this pod's ranks to end; 0 while it does not."""
    views = (view for view in world.views.values() if view.marker_attempt > ghost.attempt)
    return max((view.marker_age_seconds for view in views if view.marker_age_seconds is not None), default=0.0)


def needs_marker(record: GangSpec) -> bool:
    """Whether the next start has to tell ranks of before to end by the marker: nobody that they could miss is left."""
    kept = any(member.pod_uid for member in record.members)
    return not kept and any(ghost.proof is Proof.MARKER for ghost in record.ghosts)


def waited_for(world: JobWorld, record: GangSpec, ghost: Ghost) -> str:
    """What proof is waited for, in words, and the remedy where a person can help."""
    who = f"waiting for proof that the ranks of pod {ghost.pod} on {ghost.node} have ended"
    remedy = f"if you know that they have, say so: kubectl muster lost {ghost.node}"
    if ghost.proof is Proof.FENCE:
        return f"{who}: if it lives, it ends them by itself by {ghost.fenced_time:%H:%M:%S} UTC"
    if any(member.pod_uid for member in record.members):
        left = fenced_after_seconds(float(ghost.fence_seconds), len(record.members)) - _broken_seconds(world, ghost)
        return f"{who}: if it lives, it ends them by itself in {max(0.0, left):.0f} s, since the others have gone on"
    if ghost.proof is Proof.MARKER:
        errors = [view.marker_error for view in world.views.values() if view.marker_error]
        if errors:
            return f"{who}: it cannot be told in the checkpoint directory ({errors[0]}); mend that, or {remedy}"
        left = marked_after_seconds(float(ghost.fence_seconds)) - marked_seconds(world, ghost)
        return (
            f"{who}: all of its gang fell silent together, and the checkpoint directory tells it to; {left:.0f} s left"
        )
    limit = unproved_seconds(world)
    if limit is None:
        return f"{who}: nothing tells it to; {remedy}"
    left = max(0.0, limit - (world.now - ghost.fenced_time).total_seconds())
    return f"{who}: nothing tells it to, so that it gets another {left:.0f} s (spec.recovery.unprovedDeathTimeoutSeconds); {remedy}"


def _may_live(world: JobWorld, record: GangSpec, seat: Seat) -> bool:
    uid, view = seat.member.pod_uid, world.launchers.get(seat.member.pod_uid)
    if not uid or world.is_dead(uid):
        return False
    never_began = record.go is None and view is not None and (view.state, view.attempt) == (IDLE, record.attempt)
    return not never_began


def _ghost(world: JobWorld, record: GangSpec, seat: Seat) -> Ghost:
    member, view = seat.member, world.launchers.get(seat.member.pod_uid)
    # Launchers of old set the length by themselves; one that this leader has not heard has the same steps as the others.
    own = [other.fence_seconds for other in (view, *world.views.values()) if other is not None]
    fence = max(member.fence_seconds, math.ceil(max(own, default=0.0)))
    ghost = Ghost(
        pod=seat.name,
        pod_uid=member.pod_uid,
        node=member.node,
        boot=member.boot,
        fenced_time=world.now - timedelta(seconds=_silent_seconds(world)),
        fence_seconds=min(fence, MAX_FENCE_SECONDS),
        attempt=record.attempt if record.go else record.attempt - 1,
        proof=Proof.MARKER if member.reads_marker else Proof.DEATH,
    )
    missing = _missing_seconds(world, record, ghost, seat)
    return ghost if missing is None else _fenced(world, record, ghost, _counted_seconds(world, record, view, missing))


def _silent_seconds(world: JobWorld) -> float:
    """For how long nobody of the gang has been heard: what happened since to one of them may have happened to all."""
    return min((view.heard_age_seconds for view in world.views.values()), default=0.0)


def _known(world: JobWorld, record: GangSpec, ghost: Ghost) -> Ghost:
    """A ghost of before, with what is known by now: those of its gang who tell it may be no members of the next record."""
    broken = _broken_seconds(world, ghost)
    return _fenced(world, record, ghost, broken) if broken and ghost.proof is not Proof.FENCE else ghost


def _fenced(world: JobWorld, record: GangSpec, ghost: Ghost, counted_seconds: float) -> Ghost:
    """The same, its fence having counted for so long."""
    limit = fenced_after_seconds(float(ghost.fence_seconds), len(record.members))
    until = world.now + timedelta(seconds=math.ceil(limit - counted_seconds))
    return ghost.model_copy(update={"proof": Proof.FENCE, "fenced_time": until})


def _missing_seconds(world: JobWorld, record: GangSpec, ghost: Ghost, seat: Seat) -> float | None:
    """For how long this worker, if it lives, has missed somebody of its gang, for certain; None where it may miss nobody.

    A neighbour that is heard and gets no answer from it gets none through either way: pings are round trips. Where none
    complains those who could may be cut off with it; and what was last said by one who fell silent with it is no complaint.
    """
    complaints = world.complaints.get(seat.index, ())
    silent = seat.launcher.heard_age_seconds if seat.launcher else math.inf
    heard_since = min(FRESH_SECONDS, silent - COMPLAINT_SECONDS)
    certain = [s for other, s in complaints if s >= COMPLAINT_SECONDS and other.heard_age_seconds <= heard_since]
    if any(m.pod_uid and m.index != seat.index and world.is_dead(m.pod_uid) for m in record.members):
        certain.append(0.0)
    broken = _broken_seconds(world, ghost)
    return max([*certain, broken] if broken else certain, default=None)


def _counted_seconds(world: JobWorld, record: GangSpec, view: LauncherView | None, missing_seconds: float) -> float:
    """For how long this worker's fence has been counting: from the last of an answer, a step, and its first missing peer."""
    if view is None:
        return 0.0
    running = (world.now - record.go.time).total_seconds() if record.go else missing_seconds
    return min(view.heard_age_seconds, world.newest_step_age_seconds, running, missing_seconds)


def _broken_seconds(world: JobWorld, ghost: Ghost) -> float:
    """For how long one of its gang has been known to have gone on without it: whoever is left with the ghost misses that one."""
    gone_on = (
        seat.launcher.attempt_age_seconds
        for seat in world.seats
        if seat.member.pod_uid and seat.launcher is not None and seat.launcher.attempt > ghost.attempt
    )
    return max(gone_on, default=0.0)


def _is_quiet(world: JobWorld, ghost: Ghost) -> bool:
    """Whether it has not been heard with a living rank for the length of its fence.

    One that this leader has never heard gets a whole fence of this leader's time: its time was set by another clock.
    """
    view, limit = world.launchers.get(ghost.pod_uid), fenced_after_seconds(float(ghost.fence_seconds), 1)
    if view is None:
        return world.leader_age_seconds >= limit
    # One that is just starting its ranks, or ending them, may have some that it has not told of.
    rankless = view.state not in (RUNNING, RECLAIMING) and not any(rank.alive for rank in view.ranks)
    return view.heard_age_seconds > limit or rankless


def _rebooted(world: JobWorld, ghost: Ghost) -> bool:
    node = world.fleet.nodes.get(ghost.node)
    boot = node.boot_id[:BOOT_CHARACTERS] if node else ""
    return bool(boot and ghost.boot and boot != ghost.boot)

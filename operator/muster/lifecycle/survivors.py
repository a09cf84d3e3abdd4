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
from muster.launcher.fence import fenced_after_seconds
from muster.protocol.messages import IDLE
from muster.recovery.failures import FRESH_SECONDS, unproved_seconds
from muster.world.job import JobWorld, Seat

# A file system's clients see a new file in a directory that they know after so long (NFS: acdirmax).
MARKER_SECONDS = 60.0
BOOT_CHARACTERS = 8


def ghosts(world: JobWorld, record: GangSpec, members: Iterable[Member]) -> list[Ghost]:
    """Pods that the new members leave behind and whose ranks may be alive: the next start has to outwait them."""
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        return []  # there a pod is not created before its predecessors are proved dead
    kept = {(member.index, member.incarnation) for member in members}
    left = [seat for seat in world.seats if (seat.index, seat.member.incarnation) not in kept]
    broken = any(member.pod_uid and world.is_dead(member.pod_uid) for member in record.members)
    known = [ghost for ghost in record.ghosts if not laid(world, record, ghost)]
    return known + [_ghost(world, record, seat, broken) for seat in left if _may_live(world, record, seat)]


def laid(world: JobWorld, record: GangSpec, ghost: Ghost) -> bool:
    """Whether no rank of this pod can be alive any more."""
    if world.is_dead(ghost.pod_uid) or _rebooted(world, ghost):
        return True
    if not _is_quiet(world, ghost):
        return False
    if ghost.proof is Proof.FENCE or any(member.pod_uid for member in record.members):
        # Somebody of its gang has ended, or has gone on with this record: the gang is broken in the eyes of the others.
        return world.now >= ghost.fenced_time
    if ghost.proof is Proof.MARKER:
        return marked_seconds(world, ghost) >= max(float(ghost.fence_seconds), MARKER_SECONDS)
    limit = unproved_seconds(world)
    return limit is not None and (world.now - ghost.fenced_time).total_seconds() >= limit


def marked_seconds(world: JobWorld, ghost: Ghost) -> float:
    """For how long the marker has told this pod's ranks to end; 0 while it does not."""
    views = (view for view in world.views.values() if view.marker_attempt > ghost.attempt)
    return max((view.marker_age_seconds for view in views if view.marker_age_seconds is not None), default=0.0)


def needs_marker(record: GangSpec) -> bool:
    """Whether the next start has to tell ranks of before to end by the marker."""
    kept = any(member.pod_uid for member in record.members)
    return not kept and any(ghost.proof is Proof.MARKER for ghost in record.ghosts)


def waited_for(world: JobWorld, record: GangSpec, ghost: Ghost) -> str:
    """What proof is waited for, in words, and the remedy where a person can help."""
    who = f"waiting for proof that the ranks of pod {ghost.pod} on {ghost.node} have ended"
    remedy = f"if you know that they have, say so: kubectl muster lost {ghost.node}"
    if ghost.proof is Proof.FENCE or any(member.pod_uid for member in record.members):
        return f"{who}: if it lives, it ends them by itself by {ghost.fenced_time:%H:%M:%S} UTC"
    if ghost.proof is Proof.MARKER:
        errors = [view.marker_error for view in world.views.values() if view.marker_error]
        if errors:
            return f"{who}: it cannot be told in the checkpoint directory ({errors[0]}); mend that, or {remedy}"
        left = max(float(ghost.fence_seconds), MARKER_SECONDS) - marked_seconds(world, ghost)
        return f"{who}: all of its gang fell silent together, and the checkpoint directory tells it to; {left:.0f} s left"
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


def _ghost(world: JobWorld, record: GangSpec, seat: Seat, broken: bool) -> Ghost:
    member, view = seat.member, world.launchers.get(seat.member.pod_uid)
    # Launchers of old set the length by themselves; one that this leader has not heard has the same steps as the others.
    own = [other.fence_seconds for other in (view, *world.views.values()) if other is not None]
    fence = max(member.fence_seconds, math.ceil(max(own, default=0.0)))
    limit = fenced_after_seconds(float(fence), len(record.members))
    proof = Proof.MARKER if member.reads_marker else Proof.DEATH
    if broken and len(record.members) > 1:
        proof = Proof.FENCE
    since = timedelta(seconds=limit - _counted_seconds(world, record, seat))
    if proof is Proof.DEATH:
        since = -timedelta(seconds=view.heard_age_seconds if view else 0.0)
    return Ghost(
        pod=seat.name,
        pod_uid=member.pod_uid,
        node=member.node,
        boot=member.boot,
        fenced_time=world.now + since,
        fence_seconds=min(fence, MAX_FENCE_SECONDS),
        attempt=record.attempt,
        proof=proof,
    )


def _counted_seconds(world: JobWorld, record: GangSpec, seat: Seat) -> float:
    """For how long this worker's fence has been counting, for certain.

    The launcher counts from the last of three: an answer of the coordinator, a step, and the moment from which it knows
    somebody of its gang to be missing. Of the last only a neighbour can tell that is heard and gets no answer from it:
    pings are round trips, so what is silent on its side is silent on the other. Where none complains it counts for
    nothing: those who could may be cut off with it.
    """
    view = world.launchers.get(seat.member.pod_uid)
    if view is None:
        return 0.0
    if record.go is None:  # the others have ended their ranks since this attempt was committed, or are dead
        return min(view.heard_age_seconds, (world.now - record.time).total_seconds())
    complaints = world.complaints.get(seat.index, ())
    silent = [seconds for other, seconds in complaints if other.heard_age_seconds < FRESH_SECONDS]
    return min(
        view.heard_age_seconds,
        world.newest_step_age_seconds,
        (world.now - record.go.time).total_seconds(),
        max(silent, default=0.0),
    )


def _is_quiet(world: JobWorld, ghost: Ghost) -> bool:
    """Whether it has not been heard with a living rank for the length of its fence.

    One that this leader has never heard gets a whole fence of this leader's time: its time was set by another clock.
    """
    view, limit = world.launchers.get(ghost.pod_uid), fenced_after_seconds(float(ghost.fence_seconds), 1)
    if view is None:
        return world.leader_age_seconds >= limit
    return view.heard_age_seconds > limit or not any(rank.alive for rank in view.ranks)


def _rebooted(world: JobWorld, ghost: Ghost) -> bool:
    node = world.fleet.nodes.get(ghost.node)
    boot = node.boot_id[:BOOT_CHARACTERS] if node else ""
    return bool(boot and ghost.boot and boot != ghost.boot)

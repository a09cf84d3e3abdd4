"""Who may still be alive: the ranks that a record drops and cannot ask, and what proves that they have ended. Pure.

A gang whose members have not all been cut off together is broken: whoever is cut off misses somebody, or hears from a
neighbour that the gang has gone on, and ends its ranks after the length of its fence (muster.launcher.fence). That holds
for every set that is cut off together, because everyone in it has a path to one who misses somebody outside. Only a gang
that is alive and together as a whole, and heard by nobody, misses nobody: it is told by the marker in the checkpoint
directory, and where there is none nothing but proof of its death will do. See docs/decisions/0012.

Nothing here is measured by the wall clock, which may step: a leader counts what it has seen itself, and a new one anew.
"""

import math
from collections.abc import Iterable
from datetime import timedelta

from muster.api.gang import MAX_FENCE_SECONDS, GangSpec, Ghost, Member, Proof
from muster.api.trainingjob import LaunchMode
from muster.launcher.fence import fenced_after_seconds, marked_after_seconds
from muster.lifecycle.words import by
from muster.protocol.messages import IDLE, RECLAIMING, RUNNING
from muster.recovery.silence import FRESH_SECONDS, WHOLE_GANG_SECONDS, unproved_seconds
from muster.world.job import JobWorld, Seat
from muster.world.views import LauncherView

BOOT_CHARACTERS = 8
# Several pings; between two answers there is always a moment.
COMPLAINT_SECONDS = 5.0
# A kubelet that was cut off lists its pods anew within this time (client-go tries again after 30 s, up to twice that by
# chance), and then ends what the API server does not have, with the grace that the pod asks for.
KUBELET_LISTS_SECONDS = 60.0
DEFAULT_GRACE_SECONDS = 30.0


def ghosts(world: JobWorld, record: GangSpec, members: Iterable[Member]) -> list[Ghost]:
    """Pods that the new members leave behind and whose ranks may be alive: the next start has to outwait them."""
    kept = {(member.index, member.incarnation) for member in members}
    left = [seat for seat in world.seats if (seat.index, seat.member.incarnation) not in kept]
    known = [_known(world, record, ghost) for ghost in record.ghosts if not laid(world, record, ghost)]
    make = _plain_ghost if _is_plain(world) else _ghost
    return known + [make(world, record, seat) for seat in left if _may_live(world, record, seat)]


def laid(world: JobWorld, record: GangSpec, ghost: Ghost) -> bool:
    """Whether no rank of this pod can be alive any more."""
    if world.is_dead(ghost.pod_uid) or _rebooted(world, ghost) or _removal_left(world, ghost) <= 0:
        return True
    if _is_plain(world):
        return _given_up(world, ghost)
    if not _is_quiet(world, ghost) or _is_being_ended(world, ghost):
        return False
    if ghost.proof is Proof.FENCE:
        return _fence_left(world, ghost) <= 0
    if _broken_seconds(world, ghost) >= fenced_after_seconds(float(ghost.fence_seconds)):
        return True
    if ghost.proof is Proof.MARKER and not _is_elsewhere(world, ghost):
        return marked_seconds(world, ghost) >= marked_after_seconds(float(ghost.fence_seconds))
    return _given_up(world, ghost)


def marked_seconds(world: JobWorld, ghost: Ghost) -> float:
    """For how long the marker has told this pod's ranks to end; 0 while it does not."""
    told = (v for v in _claims(world, ghost) if not ghost.marker or v.marker_lineage == ghost.marker)
    return max((view.marker_age_seconds or 0.0 for view in told), default=0.0)


def waited_for(world: JobWorld, record: GangSpec, ghost: Ghost) -> str:
    """What proof is waited for, in words, and the remedy where a person can help."""
    who = f"waiting for proof that the ranks of pod {ghost.pod} on {ghost.node} have ended"
    remedy = f"if you know that they have, say so: kubectl muster lost {ghost.node}"
    if ghost.pod_uid in world.disowned:
        left = _removal_left(world, ghost)
        return (
            f"{who}: its node is heard, and has ended what Kubernetes does not know any more by {by(world.now, left)}"
        )
    if _is_being_ended(world, ghost):
        return f"{who}: its node is heard, and is to end the pod; until {by(world.now, _patience_left(world, ghost))} at the latest"
    if _is_plain(world):
        return _waited_for_death(world, ghost, who, remedy)
    if ghost.proof is Proof.FENCE:
        return f"{who}: if it lives, it ends them by itself by {by(world.now, _fence_left(world, ghost))}"
    if _broken_seconds(world, ghost) or (ghost.passes_news and any(member.pod_uid for member in record.members)):
        left = fenced_after_seconds(float(ghost.fence_seconds)) - _broken_seconds(world, ghost)
        return f"{who}: if it lives, it ends them by itself, since the others have gone on, by {by(world.now, left)}"
    if ghost.proof is Proof.MARKER and not _is_elsewhere(world, ghost):
        errors = [view.marker_error for view in world.views.values() if view.marker_error]
        if errors and not _claims(world, ghost):
            return f"{who}: it cannot be told in the checkpoint directory ({errors[0]}); mend that, or {remedy}"
        left = marked_after_seconds(float(ghost.fence_seconds)) - marked_seconds(world, ghost)
        if not _claims(world, ghost):
            return f"{who}: all of its gang fell silent together, and the checkpoint directory is to tell it to"
        return f"{who}: all of its gang fell silent together; the checkpoint directory tells it to, by {by(world.now, left)}"
    return _waited_for_death(world, ghost, who, remedy)


def _waited_for_death(world: JobWorld, ghost: Ghost, who: str, remedy: str) -> str:
    if _is_elsewhere(world, ghost):
        who += ", and its successor has another checkpoint directory than it had (is the volume mounted there?)"
    if world.fleet.nodes.get(ghost.node) is None:
        who += ", and that node is gone from the cluster"
    limit = unproved_seconds(world)
    if limit is None:
        return f"{who}: nothing tells it to; {remedy}, or set spec.recovery.unprovedDeathTimeoutSeconds"
    until = by(world.now, limit - _silent_seconds(world, ghost))
    return f"{who}: nothing tells it to, so that it gets time until {until} (spec.recovery.unprovedDeathTimeoutSeconds); {remedy}"


# Making ghosts.


def _may_live(world: JobWorld, record: GangSpec, seat: Seat) -> bool:
    uid = _uid(world, seat)
    if not uid or world.is_dead(uid):
        return False
    if _is_plain(world):
        return True
    view = world.launchers.get(uid)
    never_began = record.go is None and view is not None and (view.state, view.attempt) == (IDLE, record.attempt)
    return not never_began


def _uid(world: JobWorld, seat: Seat) -> str:
    """The pod that may have ranks: in mode Plain one has them from the moment at which it is bound."""
    bound = _is_plain(world) and seat.pod is not None and seat.pod.node
    return seat.member.pod_uid or (seat.pod.uid if seat.pod is not None and bound else "")


def _plain_ghost(world: JobWorld, record: GangSpec, seat: Seat) -> Ghost:
    ghost = Ghost(
        pod=seat.name,
        pod_uid=_uid(world, seat),
        node=seat.member.node,
        boot=seat.member.boot or (seat.node.boot_id[:BOOT_CHARACTERS] if seat.node else ""),
        fenced_time=world.now,
        attempt=record.attempt,
        proof=Proof.DEATH,
    )
    return _since(world, ghost, _silent_seconds(world, ghost))


def _ghost(world: JobWorld, record: GangSpec, seat: Seat) -> Ghost:
    member, view = seat.member, world.launchers.get(seat.member.pod_uid)
    # Launchers of old set the length by themselves; one that this leader has not heard has the same steps as the others.
    own = [other.fence_seconds for other in (view, *world.views.values()) if other is not None]
    fence = max(member.fence_seconds, math.ceil(max(own, default=0.0)))
    obeys = record.obeys_marker(member)
    ghost = Ghost(
        pod=seat.name,
        pod_uid=member.pod_uid,
        node=member.node,
        boot=member.boot,
        fenced_time=world.now,
        fence_seconds=min(fence, MAX_FENCE_SECONDS),
        attempt=record.attempt if record.go else record.attempt - 1,
        proof=Proof.MARKER if obeys else Proof.DEATH,
        marker=record.marker if obeys else "",
        passes_news=record.passes_news,
    )
    ghost = _since(world, ghost, _all_silent_seconds(world))
    missing = _missing_seconds(world, record, ghost, seat)
    return ghost if missing is None else _fenced(world, ghost, _counted_seconds(world, record, view, missing))


def _since(world: JobWorld, ghost: Ghost, silent_seconds: float) -> Ghost:
    return ghost.model_copy(update={"fenced_time": world.now - timedelta(seconds=silent_seconds)})


def _all_silent_seconds(world: JobWorld) -> float:
    """For how long nobody of the gang has been heard: what happened since to one of them may have happened to all."""
    return min((view.heard_age_seconds for view in world.views.values()), default=0.0)


def _known(world: JobWorld, record: GangSpec, ghost: Ghost) -> Ghost:
    """A ghost of before, with what is known by now: those of its gang who tell it may be no members of the next record."""
    broken = _broken_seconds(world, ghost)
    return _fenced(world, ghost, broken) if broken and ghost.proof is not Proof.FENCE else ghost


def _fenced(world: JobWorld, ghost: Ghost, counted_seconds: float) -> Ghost:
    """The same, its fence having counted for so long."""
    left = math.ceil(fenced_after_seconds(float(ghost.fence_seconds)) - counted_seconds)
    return ghost.model_copy(
        update={"proof": Proof.FENCE, "left_seconds": max(0, left), "fenced_time": world.now + timedelta(seconds=left)}
    )


def _missing_seconds(world: JobWorld, record: GangSpec, ghost: Ghost, seat: Seat) -> float | None:
    """For how long this worker, if it lives, has missed somebody of its gang, for certain; None where it may miss nobody.

    A neighbour that is heard and gets no answer from it gets none through either way: pings are round trips. Where none
    complains those who could may be cut off with it; and what was last said by one who fell silent with it is no complaint.

    Whoever misses a neighbour himself needs nobody to tell him. That a member is dead, or has gone on, reaches those who
    do not ping it only from mouth to mouth, through any of those who are left with them: it counts where every launcher of
    the gang passes on such news.
    """
    complaints = world.complaints.get(seat.index, ())
    silent = seat.launcher.heard_age_seconds if seat.launcher else math.inf
    heard_since = min(FRESH_SECONDS, silent - COMPLAINT_SECONDS)
    certain = [s for other, s in complaints if s >= COMPLAINT_SECONDS and other.heard_age_seconds <= heard_since]
    others_dead = (m.pod_uid and m.index != seat.index and world.is_dead(m.pod_uid) for m in record.members)
    if ghost.passes_news and any(others_dead):
        certain.append(0.0)
    broken = _broken_seconds(world, ghost)
    return max([*certain, broken] if broken else certain, default=None)


def _counted_seconds(world: JobWorld, record: GangSpec, view: LauncherView | None, missing_seconds: float) -> float:
    """For how long this worker's fence has been counting: from the last of an answer, a step, and its first missing peer."""
    if view is None:
        return 0.0
    running = world.go_age_seconds if record.go else missing_seconds
    return min(view.heard_age_seconds, world.newest_step_age_seconds, running, missing_seconds)


# What proves an end.


def _broken_seconds(world: JobWorld, ghost: Ghost) -> float:
    """For how long one of its gang has been known to have gone on without it: whoever is left with the ghost misses that one.

    Where its gang does not pass on such news (see `_missing_seconds`) it has to be the only one left, and all others have
    to have gone on: then it misses each of them itself.
    """
    kept = [seat.launcher for seat in world.seats if seat.member.pod_uid]
    gone_on = [view.attempt_age_seconds for view in kept if view is not None and view.attempt > ghost.attempt]
    if ghost.passes_news:
        return max(gone_on, default=0.0)
    is_only_one = world.gang is not None and world.gang.spec.ghosts == [ghost] and len(gone_on) == len(kept)
    return min(gone_on, default=0.0) if is_only_one else 0.0


def _is_quiet(world: JobWorld, ghost: Ghost) -> bool:
    """Whether it has not been heard with a living rank for the length of its fence.

    One that this leader has never heard gets a whole fence of this leader's time.
    """
    view, limit = world.launchers.get(ghost.pod_uid), fenced_after_seconds(float(ghost.fence_seconds))
    if view is None:
        return world.leader_age_seconds >= limit
    return view.heard_age_seconds > limit or _is_rankless(view)


def _is_rankless(view: LauncherView) -> bool:
    # One that is just starting its ranks, or ending them, may have some that it has not told of.
    return view.state not in (RUNNING, RECLAIMING) and not any(rank.alive for rank in view.ranks)


def _fence_left(world: JobWorld, ghost: Ghost) -> float:
    """For how long its fence still counts, as far as this leader has seen: until then it may have living ranks."""
    at_first = ghost.left_seconds if ghost.left_seconds >= 0 else fenced_after_seconds(float(ghost.fence_seconds))
    return at_first - _age(world, ghost)


def _is_being_ended(world: JobWorld, ghost: Ghost) -> bool:
    """Whether its pod is there, and a kubelet that lives and will end it: its word is worth more than arithmetic.

    A launcher that stands still as a whole (a regular expression without end keeps the interpreter's lock) ends nothing,
    while its kubelet takes seconds. One of a machine that is dead is taken for alive for no longer than any fence counts.
    """
    pod, node = world.pods.get(ghost.pod), world.fleet.nodes.get(ghost.node)
    if pod is None or pod.uid != ghost.pod_uid or pod.terminal or node is None or not node.ready:
        return False
    return world.heartbeat_age_seconds(node.name) < FRESH_SECONDS and _patience_left(world, ghost) > 0


def _patience_left(world: JobWorld, ghost: Ghost) -> float:
    return (unproved_seconds(world) or WHOLE_GANG_SECONDS) - _age(world, ghost)


def _removal_left(world: JobWorld, ghost: Ghost) -> float:
    """How much longer its kubelet has to be heard, which has nothing of this pod to run any more; it has no rank then."""
    grace = (world.job.spec.template.get("spec") or {}).get("terminationGracePeriodSeconds")
    seconds = DEFAULT_GRACE_SECONDS if grace is None else float(grace)
    return KUBELET_LISTS_SECONDS + seconds - world.disowned.get(ghost.pod_uid, 0.0)


def _claims(world: JobWorld, ghost: Ghost) -> list[LauncherView]:
    """The launchers that have written an attempt after its own into the marker, each in the directory that it sees."""
    views = world.views.values()
    return [view for view in views if view.marker_age_seconds is not None and view.marker_attempt > ghost.attempt]


def _is_elsewhere(world: JobWorld, ghost: Ghost) -> bool:
    """Whether the marker was written, and not where this pod's launcher reads it."""
    claims = _claims(world, ghost)
    return bool(ghost.marker and claims) and all(view.marker_lineage != ghost.marker for view in claims)


def _given_up(world: JobWorld, ghost: Ghost) -> bool:
    """Whether it has been silent for so long that the job takes it for dead, though nothing proves it.

    A limit of days may outlive leaders: beyond what this one has seen itself the wall clock counts as well.
    """
    limit = unproved_seconds(world)
    if limit is None or _silent_seconds(world, ghost) < min(limit, WHOLE_GANG_SECONDS):
        return False
    return limit <= WHOLE_GANG_SECONDS or (world.now - ghost.fenced_time).total_seconds() >= limit


def _silent_seconds(world: JobWorld, ghost: Ghost) -> float:
    """For how long this leader has heard nothing that could mean that its ranks live."""
    if _is_plain(world):
        node = world.fleet.nodes.get(ghost.node)
        if node is None:
            return _age(world, ghost)
        return 0.0 if node.ready else world.heartbeat_age_seconds(node.name)
    view = world.launchers.get(ghost.pod_uid)
    if view is None:
        return world.leader_age_seconds
    return max(view.heard_age_seconds, _age(world, ghost)) if _is_rankless(view) else view.heard_age_seconds


def _age(world: JobWorld, ghost: Ghost) -> float:
    """For how long this leader has seen it in the record."""
    return world.ghost_ages.get(ghost.pod_uid, 0.0)


def _is_plain(world: JobWorld) -> bool:
    return world.job.spec.launch.mode is LaunchMode.PLAIN


def _rebooted(world: JobWorld, ghost: Ghost) -> bool:
    node = world.fleet.nodes.get(ghost.node)
    boot = node.boot_id[:BOOT_CHARACTERS] if node else ""
    return bool(boot and ghost.boot and boot != ghost.boot)

"""What proves that a pod's ranks have ended, however they were started. Pure.

Nothing here is measured by the wall clock, which may step: a leader counts what it has seen itself, and a new one anew.

Tests: tests/unit/fencing/test_survivors.py.
"""

import math
from datetime import datetime, timedelta

from muster.api.gang import UnfencedWorker
from muster.api.trainingjob import LaunchMode
from muster.protocol.messages import RECLAIMING, RUNNING
from muster.world.job import JobWorld
from muster.world.views import FRESH_SECONDS, LauncherView, PodView

# Many that fall silent at once point to the network or to the control plane: wait as long as Kubernetes does before it
# gives a node's pods up. So long, too, where nothing could tell a gang that is silent altogether to end its ranks.
WHOLE_GANG_SECONDS = 300.0
BOOT_CHARACTERS = 8
# A kubelet that was cut off lists its pods anew within this time (client-go tries again after 30 s, up to twice that by
# chance), and then ends what the API server does not have, with the grace that the pod asks for.
KUBELET_LISTS_SECONDS = 60.0
DEFAULT_GRACE_SECONDS = 30.0
# Of moments that are worked out again in each decision: the message, and so the status, stay the same.
COARSE_SECONDS = 5


def is_dead(world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
    """Whether an unfenced worker is proved dead: its pod has ended, its kubelet has ended what has no pod any more, its
    node has booted again, or a person has declared it."""
    return (
        world.is_dead(unfenced_worker.pod_uid)
        or _has_rebooted(world, unfenced_worker)
        or (remaining_removal_seconds(world, unfenced_worker) <= 0 and not _is_heard_alive(world, unfenced_worker))
    )


def _has_rebooted(world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
    node = world.fleet.nodes.get(unfenced_worker.node)
    boot = node.boot_id[:BOOT_CHARACTERS] if node else ""
    return bool(boot and unfenced_worker.boot_id and boot != unfenced_worker.boot_id)


def _is_heard_alive(world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
    """Whether the launcher of an unfenced worker still reports living ranks.

    A launcher whose pod was force-deleted is still heard, and some ranks cannot be killed.
    """
    view = world.launchers.get(unfenced_worker.pod_uid)
    return view is not None and view.heard_age_seconds <= FRESH_SECONDS and not is_rankless(view)


def is_rankless(view: LauncherView) -> bool:
    """Whether a launcher has no rank. One that is just starting its ranks, or ending them, may have some that it has
    not reported.
    """
    return view.state not in (RUNNING, RECLAIMING) and not any(rank.alive for rank in view.ranks)


def remaining_removal_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """Return for how many more seconds the kubelet has to be heard to prove that the deleted pod has no rank any more.

    The proof is complete at 0 or less.
    """
    grace = world.job.spec.pod.get("terminationGracePeriodSeconds")
    seconds = float(grace) if isinstance(grace, int) else DEFAULT_GRACE_SECONDS
    return KUBELET_LISTS_SECONDS + seconds - world.removed_seconds.get(unfenced_worker.pod_uid, 0.0)


def is_being_ended(world: JobWorld, unfenced_worker: UnfencedWorker) -> bool:
    """Whether a living kubelet is about to end the pod of an unfenced worker: then its report is awaited.

    A launcher that is stuck as a whole ends nothing, while its kubelet takes seconds. A kubelet is awaited for no
    longer than the job's time limit.
    """
    pod, node = world.pods.get(unfenced_worker.pod), world.fleet.nodes.get(unfenced_worker.node)
    if pod is None or pod.uid != unfenced_worker.pod_uid or pod.terminal or node is None or not node.ready:
        return False
    return (
        world.heartbeat_age_seconds(node.name) < FRESH_SECONDS and _remaining_wait_seconds(world, unfenced_worker) > 0
    )


def _remaining_wait_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    return (unproved_seconds(world) or WHOLE_GANG_SECONDS) - age_seconds(world, unfenced_worker)


def unproved_seconds(world: JobWorld) -> float | None:
    """Return after how many seconds of silence ranks are assumed dead without proof; None: never."""
    limit = world.job.spec.recovery.unfenced_timeout_seconds
    if limit is not None:
        return float(limit)
    return None if world.job.spec.launch.mode is LaunchMode.PLAIN else WHOLE_GANG_SECONDS


def is_pod_given_up(world: JobWorld, pod: PodView) -> bool:
    """Whether a pod's node has been silent for so long that the job assumes the pod dead."""
    limit, node = unproved_seconds(world), world.fleet.nodes.get(pod.node)
    if limit is None or (node is not None and node.ready):
        return False
    return world.heartbeat_age_seconds(pod.node) >= limit


def given_up(world: JobWorld, unfenced_worker: UnfencedWorker, silent_seconds: float) -> bool:
    """Whether an unfenced worker has been silent for so long that the job assumes it dead without proof.

    A limit of days may outlive leaders: beyond what this leader has seen itself, the wall clock counts, too.

    Args:
        world: the state of the job.
        unfenced_worker: the worker.
        silent_seconds: for how long this leader has not heard it.
    """
    limit = unproved_seconds(world)
    if limit is None or silent_seconds < min(limit, WHOLE_GANG_SECONDS):
        return False
    return limit <= WHOLE_GANG_SECONDS or (world.now - unfenced_worker.fenced_time).total_seconds() >= limit


def silent_since(world: JobWorld, unfenced_worker: UnfencedWorker, silent_seconds: float) -> UnfencedWorker:
    """Return the unfenced worker with the time at which its silence began."""
    return unfenced_worker.model_copy(update={"fenced_time": world.now - timedelta(seconds=silent_seconds)})


def age_seconds(world: JobWorld, unfenced_worker: UnfencedWorker) -> float:
    """Return for how many seconds this leader has seen the unfenced worker in the record."""
    return world.unfenced_ages.get(unfenced_worker.pod_uid, 0.0)


# What is waited for, in words.


def may_train_message(unfenced_worker: UnfencedWorker) -> str:
    """Return the beginning of the message about an unfenced worker: that its pod may still be training."""
    return f"Pod {unfenced_worker.pod} on node {unfenced_worker.node} may still be training"


def remedy(unfenced_worker: UnfencedWorker) -> str:
    """Return the sentence that says what a user can do who knows that the worker's ranks have ended."""
    return f"If you know that its ranks have ended, run: kubectl muster lost {unfenced_worker.node}"


def kubelet_message(world: JobWorld, unfenced_worker: UnfencedWorker) -> str:
    """Return the message where the worker's kubelet is about to prove its end; "" where the kubelet is silent."""
    if remaining_removal_seconds(world, unfenced_worker) > 0 and unfenced_worker.pod_uid in world.removed_seconds:
        until = moment_text(world.now, remaining_removal_seconds(world, unfenced_worker))
        return (
            f"{may_train_message(unfenced_worker)}: it is gone from the API server. The kubelet of its node is heard, "
            f"and will have ended it by {until}."
        )
    if is_being_ended(world, unfenced_worker):
        until = moment_text(world.now, _remaining_wait_seconds(world, unfenced_worker))
        return (
            f"{may_train_message(unfenced_worker)}: the kubelet of its node is heard, and is ending it. Muster waits "
            f"until {until} at the latest."
        )
    return ""


def unstoppable_message(
    world: JobWorld, unfenced_worker: UnfencedWorker, silent_seconds: float, because: str = ""
) -> str:
    """Return the message where nothing can stop the ranks: until when Muster waits, and what a user can do.

    Args:
        world: the state of the job.
        unfenced_worker: the worker.
        silent_seconds: for how long this leader has not heard it.
        because: a sentence that says why, with a space before it; "" where there is nothing more to say.
    """
    limit = unproved_seconds(world)
    if world.fleet.nodes.get(unfenced_worker.node) is None:
        because += " That node is gone from the cluster."
    text = f"{may_train_message(unfenced_worker)}, and cannot be stopped remotely.{because}"
    if limit is None:
        return f"{text} {remedy(unfenced_worker)}, or set spec.recovery.unfencedTimeoutSeconds"
    until = moment_text(world.now, limit - silent_seconds)
    return f"{text} It is assumed dead at {until} (spec.recovery.unfencedTimeoutSeconds). {remedy(unfenced_worker)}"


def moment_text(now: datetime, seconds: float) -> str:
    """Return the moment in this many seconds as text, e.g. `10:32:15 UTC`; it is rounded up, to five seconds."""
    moment = math.ceil((now.timestamp() + max(0.0, seconds)) / COARSE_SECONDS) * COARSE_SECONDS
    return f"{now + timedelta(seconds=moment - now.timestamp()):%H:%M:%S} UTC"

"""Workers that keep the gang waiting for a start though their nodes are there. Pure.

Tests: tests/unit/recovery/test_waits.py.
"""

import math
from collections.abc import Collection

from muster.api.gang import Gang, Level
from muster.protocol.checkpoints import UNVERIFIED
from muster.protocol.messages import IDLE
from muster.recovery.failure import Failure, Kind, failure_of
from muster.recovery.tries import LONE_SECONDS, lone_failure, next_level
from muster.recovery.verification import verifiers
from muster.world.job import JobWorld, WorkerView
from muster.world.views import FRESH_SECONDS, LauncherView, PodView

RECLAIM_DEADLINE_SECONDS = 30.0
POD_STUCK_SECONDS = 30.0
# Beyond the slowest pull of a large image; only when other pods of the gang have come to run.
POD_START_SECONDS = 900.0
# Its threads speak on when the supervisor itself is stuck, say in a call to a stalled file system.
STUCK_SECONDS = 45.0
# From the start of the ranks, or from the moment at which others have listed their checkpoints.
LAGGING_SECONDS = 120.0
# A listing that does not fail, and does not come to an end either, is compared with the slowest of the others: so many
# times as long it may take, within these bounds.
TIMES_AS_LONG = 10.0
SLOW_LISTING_SECONDS = 600.0


def start_failed(world: JobWorld, worker_view: WorkerView, pod: PodView) -> Failure | None:
    """Return the failure of a pod that is being deleted, or does not start to run in time; None: neither."""
    if pod.deleting:
        return failure_of(worker_view, Kind.POD_DELETED, Level.POD, f"pod {pod.name} is being deleted")
    has_begun = world.gang is not None and world.gang.spec.start is not None
    if pod.phase != "Pending" or (
        has_begun and worker_view.runs
    ):  # a start waits for sidecars, too; what trains goes on without
        return None
    # A predecessor that is proved dead may still not give its node's accelerators back.
    return stuck_predecessor(world, worker_view) or _start_timeout(world, worker_view, pod)


def stuck_predecessor(world: JobWorld, worker_view: WorkerView) -> Failure | None:
    """Return the failure of a worker whose former pod on the same node is not ended by its kubelet; None: there is
    none."""
    for pod in world.others.get(worker_view.index, ()):
        same_place = pod.incarnation < worker_view.member.incarnation and pod.node == worker_view.member.node
        if not same_place or pod.terminal or not pod.deleting:
            continue
        if world.ages_of(pod).deleting > pod.grace_seconds + POD_STUCK_SECONDS:
            message = f"pod {pod.name} on {worker_view.member.node} should have ended {POD_STUCK_SECONDS:.0f} s ago"
            return failure_of(worker_view, Kind.POD_STUCK, Level.REPLACE, message)
    return None


def _start_timeout(world: JobWorld, worker_view: WorkerView, pod: PodView) -> Failure | None:
    """Return the failure of a pod that has not started within 15 minutes though others of the gang run; None: it may
    yet."""
    if world.ages_of(pod).there < POD_START_SECONDS or not any(
        other.phase == "Running" for other in world.pods.values()
    ):
        return None
    message = (
        f"pod {pod.name} has not started on {worker_view.member.node} within {POD_START_SECONDS / 60:.0f} min, "
        "others have"
    )
    return failure_of(worker_view, Kind.POD_START_TIMEOUT, Level.REPLACE, message)


def barrier_failed(world: JobWorld, gang: Gang, worker_view: WorkerView, launcher: LauncherView) -> Failure | None:
    """Return the failure of a worker that keeps the others waiting for the next start though it is heard; None: it does
    not."""
    # A leader that is new, or was cut off, has only just been able to tell the launcher; one that is idle has nothing
    # to end.
    waited = min(world.attempt_age_seconds, world.leader_age_seconds, launcher.talking_age_seconds)
    unlisted = world.job.spec.checkpoint.directory and worker_view.index not in world.listed
    if launcher.heard_age_seconds >= FRESH_SECONDS:
        return _slow_listing(world, gang, worker_view) if unlisted else None
    if waited > RECLAIM_DEADLINE_SECONDS and launcher.state != IDLE:
        message = f"worker {worker_view.index} has not ended its old ranks within {RECLAIM_DEADLINE_SECONDS:.0f} s"
        return failure_of(worker_view, Kind.RECLAIM_SLOW, Level.POD, message)
    if waited > STUCK_SECONDS and launcher.loop_age_seconds - launcher.heard_age_seconds > STUCK_SECONDS:
        return _rank_start_failure(gang, worker_view, launcher)
    if not unlisted:
        return None
    return _listing_failure(world, gang, worker_view, launcher, waited) or _slow_listing(world, gang, worker_view)


def _listing_failure(
    world: JobWorld, gang: Gang, worker_view: WorkerView, launcher: LauncherView, waited: float
) -> Failure | None:
    """Return the failure of a worker that cannot list or verify checkpoints though others can; None: it can, or none
    can.

    Args:
        world: the state of the job.
        gang: its record.
        worker_view: the worker.
        launcher: its last report.
        waited: for how many seconds the worker could have reported.
    """
    error, waited = launcher.checkpoint_error, min(waited, world.listing_age_seconds)
    if len(world.worker_views) == 1:
        message = f"worker {worker_view.index} cannot list the checkpoints: {error}"
        if not error or launcher.checkpoint_error_kind == UNVERIFIED or waited < LONE_SECONDS:
            return None
        return lone_failure(gang, worker_view, Kind.LISTING_STUCK, message)
    waited = min(waited, _verification_seconds(world, gang))
    if waited < LAGGING_SECONDS:  # no listing may take less: those of all others, of each worker, need not be compared
        return None
    longest = LAGGING_SECONDS if error else _longest_listing(world, gang, worker_view)
    if waited < longest:
        return None
    if not _peers_that_listed(world, gang, worker_view):
        return None  # no worker can: that is the storage, and another node would do no better
    message = f"worker {worker_view.index} cannot list the checkpoints, others can: {error or _no_end_text(longest)}"
    return failure_of(worker_view, Kind.LISTING_STUCK, next_level(gang, worker_view, Kind.LISTING_STUCK), message)


def _slow_listing(world: JobWorld, gang: Gang, worker_view: WorkerView) -> Failure | None:
    """Return the failure of a worker that is heard rarely, as on a very slow node, and lists no checkpoints; None: not
    yet."""
    running_seconds = world.ages_of(worker_view.pod).running if worker_view.pod else 0.0
    waited = min(world.attempt_age_seconds, world.leader_age_seconds, world.listing_age_seconds, running_seconds)
    if min(waited, _verification_seconds(world, gang)) < SLOW_LISTING_SECONDS or not _peers_that_listed(
        world, gang, worker_view
    ):
        return None
    message = (
        f"worker {worker_view.index} cannot list the checkpoints, others can: {_no_end_text(SLOW_LISTING_SECONDS)}"
    )
    return failure_of(worker_view, Kind.LISTING_STUCK, next_level(gang, worker_view, Kind.LISTING_STUCK), message)


def _no_end_text(seconds: float) -> str:
    return f"its listing has not ended within {seconds:.0f} s"


def _verification_seconds(world: JobWorld, gang: Gang) -> float:
    """Return for how many seconds the present verifiers have been chosen; infinite where they were never changed.

    A worker that is no verifier any more may be able to list.
    """
    since = gang.spec.verifier_round_time
    return math.inf if since is None else (world.now - since).total_seconds()


def _peers_that_listed(world: JobWorld, gang: Gang, worker_view: WorkerView) -> Collection[int]:
    """Return the indices of the workers that have listed what this worker is asked to list."""
    chosen = {judge.index for judge in verifiers(world, gang.spec)}
    return world.listed & chosen if worker_view.index in chosen else world.listed


def _longest_listing(world: JobWorld, gang: Gang, worker_view: WorkerView) -> float:
    """Return how many seconds the listing of a worker may take, measured by the slowest listing that is complete."""
    ages = [world.views[index].scanned_age_seconds for index in _peers_that_listed(world, gang, worker_view)]
    if not ages or None in ages:
        return SLOW_LISTING_SECONDS
    took = world.listing_age_seconds - min(age for age in ages if age is not None)
    return min(SLOW_LISTING_SECONDS, max(LAGGING_SECONDS, TIMES_AS_LONG * took))


def not_started(world: JobWorld, gang: Gang, worker_view: WorkerView, launcher: LauncherView) -> Failure | None:
    """Return the failure of a worker whose start barrier is open and that starts no ranks though others have; None: it
    may yet."""
    waited = min(world.start_age_seconds, world.leader_age_seconds) if gang.spec.start else 0.0
    if waited < LAGGING_SECONDS or launcher.heard_age_seconds >= FRESH_SECONDS or launcher.ranks:
        return None
    others = (view for index, view in world.views.items() if index != worker_view.index)
    if not any(view.attempt == gang.spec.attempt and view.ranks for view in others) and len(world.worker_views) > 1:
        return None
    return _rank_start_failure(gang, worker_view, launcher)


def _rank_start_failure(gang: Gang, worker_view: WorkerView, launcher: LauncherView) -> Failure:
    still = max(0.0, launcher.loop_age_seconds - launcher.heard_age_seconds)
    done = f"has done nothing for {still:.0f} s" if still > STUCK_SECONDS else "does not start its ranks"
    message = (
        f"the launcher of worker {worker_view.index} reports, but {done} (a program on storage that is stalled?), "
        "and the gang waits"
    )
    return failure_of(worker_view, Kind.LAUNCHER_STUCK, next_level(gang, worker_view, Kind.LAUNCHER_STUCK), message)

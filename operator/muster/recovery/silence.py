"""Workers that are not heard any more, or never were, and the other signs against them. Pure.

Tests: tests/unit/recovery/test_failures.py, tests/unit/recovery/test_waits.py.
"""

import math

from muster.api.gang import Gang, Level
from muster.fencing.proofs import WHOLE_GANG_SECONDS, unproved_seconds
from muster.protocol.messages import EXITED
from muster.recovery.failure import Failure, Kind, failure_of
from muster.recovery.tries import LONE_SECONDS, lone_failure, next_level
from muster.world.job import JobWorld, WorkerView
from muster.world.views import FRESH_SECONDS, LauncherView, PodView

# While no rank trains one sign is enough, once the node's own signs have had time to show.
UNHEARD_SECONDS = 60.0
# Another witness than the launcher's own silence must agree; a peer's word counts once it has missed this share.
PEER_SHARE_OF_TIMEOUT = 0.5
# A launcher whose container runs is heard within seconds, once any other of its gang is.
NEVER_HEARD_SECONDS = 120.0
# Said of a node of which nothing is heard; merely an echo of the missing heartbeat, and no second witness.
STATUS_UNKNOWN = "NodeStatusUnknown"


def unreachable(world: JobWorld, worker_view: WorkerView, pod: PodView) -> Failure | None:
    """Return the failure of a worker that is silent by two independent signs, while no step was finished; None: it is
    not."""
    if pod.uid in world.lost:
        return _said_to_be_lost(worker_view)
    timeout = float(world.job.spec.recovery.unreachable_timeout_seconds)
    launcher = worker_view.launcher
    if launcher is None and not worker_view.member.pod_uid:
        # No launcher was heard in this pod that could be silent now: a control plane that is overloaded by the start
        # delays first reports and heartbeats alike. The pod trains nothing yet, so that its node alone counts.
        return silent_node(world, worker_view, timeout)
    timeout = max(timeout, world.derived(_patience_seconds))
    if not _silent(world, launcher, timeout):
        return None
    witnesses = _witnesses(world, worker_view, timeout)
    if not witnesses:
        return None
    message = f"worker {worker_view.index} has been silent for {timeout:.0f} s, and {' and '.join(witnesses)}"
    return failure_of(worker_view, Kind.NODE_UNREACHABLE, Level.REPLACE, message)


def silent_for_good(world: JobWorld, worker_view: WorkerView, pod: PodView) -> Failure | None:
    """Return the failure of a worker without a launcher whose node was declared lost or is silent for too long; None:
    neither.

    Without a launcher only the node shows that ranks have ended; silence alone does not prove it.
    """
    if pod.uid in world.lost:
        return _said_to_be_lost(worker_view)
    if pod.phase == "Pending":  # no rank of it was seen to begin, and its successor waits for proof all the same
        return silent_node(world, worker_view, float(world.job.spec.recovery.unreachable_timeout_seconds))
    limit = unproved_seconds(world)
    return None if limit is None else silent_node(world, worker_view, limit)


def _said_to_be_lost(worker_view: WorkerView) -> Failure:
    message = f"a user declared node {worker_view.member.node} lost"
    return failure_of(worker_view, Kind.NODE_LOST, Level.REPLACE, message)


def unheard(world: JobWorld, gang: Gang, worker_view: WorkerView, pod: PodView) -> Failure | None:
    """Return the failure of a worker whose silent launcher keeps the gang waiting though its node looks healthy; None:
    none.

    While no launcher of the gang is heard, the cause (say, a network policy) would stop a new pod, too. Then Muster
    waits, with a reason in the status. A gang of one is tried elsewhere while launchers of other jobs are heard.
    """
    launcher, has_go = worker_view.launcher, gang.spec.start is not None
    if launcher is None and not worker_view.member.pod_uid:
        return _never_heard(world, gang, worker_view, pod)
    if launcher is not None and launcher.heard_age_seconds < UNHEARD_SECONDS:
        return None
    if has_go and not world.derived(_have_ended):
        return None
    silent = launcher.heard_age_seconds if launcher else world.leader_age_seconds
    limit = max(UNHEARD_SECONDS, 2.0 * world.job.spec.recovery.unreachable_timeout_seconds)
    limit = max(limit, WHOLE_GANG_SECONDS) if world.silence.widespread else limit
    silent = min(silent, world.start_age_seconds if has_go else world.attempt_age_seconds)
    if min(silent, _others_heard_seconds(world)) < limit:
        return None
    message = (
        f"the launcher of worker {worker_view.index} has not reported for {limit:.0f} s, and the gang waits for it"
    )
    return failure_of(worker_view, Kind.LAUNCHER_SILENT, next_level(gang, worker_view, Kind.LAUNCHER_SILENT), message)


def _patience_seconds(world: JobWorld) -> float:
    """Return for how long silence has to last when it may be no worker's fault, or may end no ranks; 0: the usual
    timeout."""
    if world.silence.widespread or world.dark.widespread:
        return WHOLE_GANG_SECONDS
    record = world.gang.spec if world.gang else None
    if record is None or world.silent_seconds < world.job.spec.recovery.unreachable_timeout_seconds:
        return 0.0
    # The whole gang is silent. Where the fence file reaches its ranks the successor can wait for them; else they may
    # train on.
    if record.start is None or all(map(record.obeys_fence_file, record.members)):
        return 0.0
    return unproved_seconds(world) or WHOLE_GANG_SECONDS


def _silent(world: JobWorld, launcher: LauncherView | None, timeout: float) -> bool:
    """Whether a worker has not been heard for the timeout, neither directly nor by a step, which needs every worker.

    A launcher that this leader has never heard gets twice the time.

    Args:
        world: the state of the job.
        launcher: the worker's last report; None: never heard.
        timeout: in seconds.
    """
    silence = world.leader_age_seconds / 2 if launcher is None else launcher.heard_age_seconds
    return silence >= timeout and world.newest_step_age_seconds >= timeout


def _never_heard(world: JobWorld, gang: Gang, worker_view: WorkerView, pod: PodView) -> Failure | None:
    alone = len(world.worker_views) == 1
    heard = world.silent_seconds < FRESH_SECONDS  # by others
    if pod.phase != "Running" or not (heard or (alone and world.silence.total > world.silence.silent)):
        return None
    waited = min(world.ages_of(pod).running, world.attempt_age_seconds, _others_heard_seconds(world))
    limit = LONE_SECONDS if alone else NEVER_HEARD_SECONDS
    if min(waited, world.leader_age_seconds) < limit:
        return None
    message = (
        f"the launcher of worker {worker_view.index} has not reported once in {limit:.0f} s since its container started"
    )
    if alone:
        return lone_failure(gang, worker_view, Kind.LAUNCHER_SILENT, f"{message}; launchers of other jobs report")
    return failure_of(worker_view, Kind.LAUNCHER_SILENT, next_level(gang, worker_view, Kind.LAUNCHER_SILENT), message)


def _others_heard_seconds(world: JobWorld) -> float:
    """Return for how many seconds some launcher of the gang has been heard without a break; infinite for a gang of one.

    After an outage of the leader one launcher is the first to be heard again; the others need as long.
    """
    if len(world.worker_views) == 1:
        return math.inf
    return world.derived(_heard_seconds)


def _heard_seconds(world: JobWorld) -> float:
    views = world.views.values()
    return max((view.talking_age_seconds for view in views if view.heard_age_seconds < FRESH_SECONDS), default=0.0)


def _have_ended(world: JobWorld) -> bool:
    """Whether some workers are heard, and each of them has ended its ranks of this attempt."""
    attempt = world.gang.spec.attempt if world.gang else 0
    heard = [view for view in world.views.values() if view.heard_age_seconds < FRESH_SECONDS]
    return bool(heard) and all(view.attempt == attempt and view.state == EXITED for view in heard)


def silent_node(world: JobWorld, worker_view: WorkerView, timeout: float) -> Failure | None:
    """Return the failure of a worker whose node is not ready and has sent no heartbeat for the timeout; None: it has.

    Where many nodes are silent at once the timeout is at least 300 s.

    Args:
        world: the state of the job.
        worker_view: the worker.
        timeout: in seconds.
    """
    node = worker_view.node
    if node is None or node.ready or world.heartbeat_age_seconds(node.name) < timeout:
        return None
    if timeout < WHOLE_GANG_SECONDS and world.dark.widespread:
        return silent_node(world, worker_view, WHOLE_GANG_SECONDS)
    message = f"node {node.name} has sent no heartbeat for {timeout:.0f} s and is not ready ({node.ready_reason})"
    return failure_of(worker_view, Kind.NODE_UNREACHABLE, Level.REPLACE, message)


def _witnesses(world: JobWorld, worker_view: WorkerView, timeout: float) -> list[str]:
    node, witnesses = worker_view.node, []
    if world.heartbeat_age_seconds(worker_view.member.node) >= timeout:
        witnesses.append("its kubelet sends no heartbeat")
    if node is not None and not node.ready and node.ready_reason != STATUS_UNKNOWN:
        witnesses.append(f"its node is not ready ({node.ready_reason})")
    peers = [
        seconds
        for view, seconds in world.complaints.get(worker_view.index, ())
        if view.heard_age_seconds < timeout / 2 and seconds >= timeout * PEER_SHARE_OF_TIMEOUT
    ]
    if peers:
        witnesses.append(f"{len(peers)} of its neighbours get no answer")
    return witnesses

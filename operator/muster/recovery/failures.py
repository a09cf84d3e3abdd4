"""Finds what is wrong with the current attempt, member by member. Says what is seen; blames nobody yet."""

import re
import signal
from dataclasses import dataclass, replace
from enum import StrEnum

from muster.api.gang import Gang, Level
from muster.api.trainingjob import LaunchMode
from muster.protocol.messages import EXITED, IDLE, LEAVING
from muster.world.fleet import Leave
from muster.world.job import JobWorld, Seat
from muster.world.views import SCHEDULER_NAME, ContainerView, LauncherView, PodView, RankView

RECLAIM_DEADLINE_SECONDS = 30.0
POD_STUCK_SECONDS = 30.0
# Beyond the slowest pull of a large image; only when other pods of the gang have come to run.
POD_START_SECONDS = 900.0
# A report older than this says too little about now.
FRESH_SECONDS = 15.0
# While nobody trains one witness is enough, once the node's own signs have had time to show.
UNHEARD_SECONDS = 60.0
LAST_LINES = 5
LAST_LINES_CHARS = 600
# Another witness than the launcher's own silence must agree; a peer's word counts once it has missed this share.
PEER_SHARE_OF_TIMEOUT = 0.5

KUBELET_REJECTIONS = re.compile(
    r"^(OutOf.*|NodeAffinity|UnexpectedAdmissionError|NodeShutdown|Terminated|TopologyAffinityError)$"
)
# What runc and crun say when the command is not in the image: no other node would do better. A mount that fails with
# "no such file or directory" is the node's affair.
COMMAND_NOT_FOUND = re.compile(
    r"exec: .*(executable file not found|no such file or directory|permission denied)|executable file .*not found",
    re.IGNORECASE,
)

# Many that fall silent at once point to the network or to the control plane: wait as long as Kubernetes does before it
# gives a node's pods up. So long, too, where nothing could tell a gang that is silent altogether to end its ranks.
WHOLE_GANG_SECONDS = 300.0
# A launcher whose container runs is heard within seconds, once any other of its gang is.
NEVER_HEARD_SECONDS = 120.0
# Its threads speak on when the supervisor itself is stuck, say in a call to a stalled file system.
STUCK_SECONDS = 45.0
# From the go, or from the moment at which others have listed theirs.
LAGGING_SECONDS = 120.0
# Said of a node of which nothing is heard; merely an echo of the missing heartbeat, and no second witness.
STATUS_UNKNOWN = "NodeStatusUnknown"

# What a rank prints when ANOTHER one has died: gloo's and NCCL's words for a lost peer.
VICTIM = re.compile(
    r"Connection (was )?(closed|reset|refused)( by)?|Broken pipe|Socket Timeout|remote process exited"
    r"|ncclRemoteError|Watchdog caught collective operation timeout|DistBackendError|failed to recv",
    re.IGNORECASE,
)


class Kind(StrEnum):
    """What was seen; the values are reasons of Events and incidents."""

    RANK_FAILED = "RankFailed"
    HANG = "StepTimeout"
    START_HANG = "StartTimeout"
    FENCED = "Fenced"
    RECLAIM_SLOW = "ReclaimSlow"
    LAUNCHER_SILENT = "LauncherSilent"
    LAUNCHER_STUCK = "LauncherStuck"
    LISTING_STUCK = "CheckpointsUnreadable"
    RESUMED_BEHIND = "ResumedBehind"
    POD_DELETED = "PodDeleted"
    POD_GONE = "PodGone"
    POD_ENDED = "PodEnded"
    OUT_OF_MEMORY = "OutOfMemory"
    EVICTED = "Evicted"
    START_FAILED = "ContainerCannotStart"
    POD_REJECTED = "RejectedByKubelet"
    NODE_CONFLICT = "NodeConflict"
    POD_STUCK = "PodStuckTerminating"
    POD_START_TIMEOUT = "PodStartTimeout"
    NODE_GONE = "NodeGone"
    NODE_UNREACHABLE = "NodeUnreachable"
    NODE_LOST = "NodeLost"
    NODE_UNHEALTHY = "NodeUnhealthy"


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that is wrong with one member.

    Attributes:
        level: the least level of recovery that mends it.
        age_seconds: since it happened, as far as is known.
        victim: its own words say that another rank was lost first.
        ailment: what is wrong with its node; "" if nothing is known.
        if_free: `level` only where there is another node; else the ranks restart in place.
    """

    kind: Kind
    level: Level
    index: int
    node: str
    message: str
    rank: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    age_seconds: float = 0.0
    victim: bool = False
    ailment: str = ""
    if_free: bool = False


def find(world: JobWorld) -> list[Failure]:
    """All failures of the current attempt's members, at most one for each member."""
    gang = world.gang
    if gang is None:
        return []
    judge = _plain_failure if world.job.spec.launch.mode is LaunchMode.PLAIN else _managed_failure
    found = []
    for seat in world.seats:
        failure = _common_failure(world, gang, seat) or judge(world, gang, seat) if seat.member.node else None
        if failure:
            found.append(failure)
    return found or _hang(world, gang)


def _common_failure(world: JobWorld, gang: Gang, seat: Seat) -> Failure | None:
    """What a node, or a pod that is gone, says by itself."""
    node = seat.member.node
    if seat.node is None:
        return _of(seat, Kind.NODE_GONE, Level.REPLACE, f"node {node} is gone from the cluster")
    exclusion = world.fleet.exclusion(node)
    if exclusion and exclusion.leave is Leave.NOW:
        message = f"node {node} is unhealthy ({exclusion.reason}): {exclusion.message}"
        return _of(seat, Kind.NODE_UNHEALTHY, Level.REPLACE, message)
    if seat.pod is None:
        if seat.member.pod_uid:
            return _of(seat, Kind.POD_GONE, Level.POD, f"pod {seat.name} is gone")
        return _stuck_predecessor(world, seat)
    return None


def _plain_failure(world: JobWorld, gang: Gang, seat: Seat) -> Failure | None:
    if seat.pod is None or (seat.over and seat.succeeded):
        return None
    return _ended(seat) or _plain_lost(world, seat, seat.pod) or _start_failure(world, seat, seat.pod)


def _managed_failure(world: JobWorld, gang: Gang, seat: Seat) -> Failure | None:
    if seat.pod is None:
        return None
    return (
        _ended(seat)
        or _unreachable(world, gang, seat, seat.pod)
        or _start_failure(world, seat, seat.pod)
        or _unheard(world, gang, seat, seat.pod)
        or (_launcher_failure(world, gang, seat, seat.launcher) if seat.launcher else None)
    )


def _of(seat: Seat, kind: Kind, level: Level, message: str) -> Failure:
    return Failure(kind, level, seat.index, seat.member.node, message)


def _start_failure(world: JobWorld, seat: Seat, pod: PodView) -> Failure | None:
    if pod.deleting:
        return _of(seat, Kind.POD_DELETED, Level.POD, f"pod {pod.name} is being deleted")
    if pod.phase != "Pending":
        return None
    # A predecessor that is proved dead may still not give its node's accelerators back.
    return _stuck_predecessor(world, seat) or _start_timeout(world, seat, pod)


def _launcher_failure(world: JobWorld, gang: Gang, seat: Seat, launcher: LauncherView) -> Failure | None:
    if launcher.state == LEAVING:  # it says so before the watch does
        return _of(seat, Kind.POD_DELETED, Level.POD, f"pod {seat.name} was told to terminate")
    if gang.spec.go is None:
        return _barrier_failure(world, gang, seat, launcher)
    if launcher.attempt != gang.spec.attempt:
        return _not_started(world, gang, seat, launcher)
    if launcher.fenced:
        message = f"worker {seat.index} was cut off from everybody and ended its ranks"
        return _of(seat, Kind.FENCED, Level.IN_PLACE, message)
    return (
        _rank_failure(launcher.ranks, seat, world.fleet.ailment(seat.member.node))
        or _behind(world, gang, seat, launcher)
        or _not_started(world, gang, seat, launcher)
    )


def _barrier_failure(world: JobWorld, gang: Gang, seat: Seat, launcher: LauncherView) -> Failure | None:
    """A worker that keeps the others waiting for the next start, though it is heard."""
    # A leader that is new has only just been able to tell the launcher; one that is idle has nothing to end.
    waited = min((world.now - gang.spec.time).total_seconds(), world.leader_age_seconds)
    if launcher.heard_age_seconds >= FRESH_SECONDS:
        return None
    if waited > RECLAIM_DEADLINE_SECONDS and launcher.state != IDLE:
        message = f"worker {seat.index} has not ended its old ranks within {RECLAIM_DEADLINE_SECONDS:.0f} s"
        return _of(seat, Kind.RECLAIM_SLOW, Level.POD, message)
    if waited > STUCK_SECONDS and launcher.loop_age_seconds - launcher.heard_age_seconds > STUCK_SECONDS:
        return _stuck(gang, seat, launcher)
    unlisted = world.job.spec.checkpoint.directory and launcher.scanned_for_attempt != gang.spec.attempt
    if not unlisted or waited < LAGGING_SECONDS or not launcher.checkpoint_error:
        return None
    others = (view for index, view in world.views.items() if index != seat.index)
    if not any(view.scanned_for_attempt == gang.spec.attempt for view in others):
        return None  # nobody can: that is the storage, and another node would do no better
    message = f"worker {seat.index} cannot list the checkpoints, others can: {launcher.checkpoint_error}"
    return _of(seat, Kind.LISTING_STUCK, _next_level(gang, seat, Kind.LISTING_STUCK), message)


def _not_started(world: JobWorld, gang: Gang, seat: Seat, launcher: LauncherView) -> Failure | None:
    """It has its go and does not start, while others have started."""
    go = gang.spec.go
    waited = min((world.now - go.time).total_seconds(), world.leader_age_seconds) if go else 0.0
    if waited < LAGGING_SECONDS or launcher.heard_age_seconds >= FRESH_SECONDS or launcher.ranks:
        return None
    others = (view for index, view in world.views.items() if index != seat.index)
    if not any(view.attempt == gang.spec.attempt and view.ranks for view in others) and len(world.seats) > 1:
        return None
    return _stuck(gang, seat, launcher)


def _stuck(gang: Gang, seat: Seat, launcher: LauncherView) -> Failure:
    still = max(0.0, launcher.loop_age_seconds - launcher.heard_age_seconds)
    done = f"has done nothing for {still:.0f} s" if still > STUCK_SECONDS else "does not come to start its ranks"
    message = f"the launcher of worker {seat.index} reports, but {done} (a program on storage that is stalled?), and the gang waits"
    return _of(seat, Kind.LAUNCHER_STUCK, _next_level(gang, seat, Kind.LAUNCHER_STUCK), message)


def _next_level(gang: Gang, seat: Seat, kind: Kind) -> Level:
    """A new pod on the same node; another node when that has been tried since the last start."""
    for incident in reversed(gang.spec.incidents):
        if incident.resumed_step is not None:
            break
        if (incident.reason, incident.node) == (kind, seat.member.node):
            return Level.REPLACE
    return Level.POD


def _behind(world: JobWorld, gang: Gang, seat: Seat, launcher: LauncherView) -> Failure | None:
    """A trainer that does not go on from where it was told to: stopped once, then only told (`runs_behind`)."""
    resume = gang.spec.go.resume if gang.spec.go else None
    if not runs_behind(gang, launcher) or resume is None:
        return None
    if gang.spec.incidents and gang.spec.incidents[-1].reason == Kind.RESUMED_BEHIND:
        return None
    message = (
        f"its first step is {launcher.first_step}, though the ranks were told to go on from step {resume.step} "
        f"({resume.path}): the trainer has to load what MUSTER_RESUME_PATH names"
    )
    return _of(seat, Kind.RESUMED_BEHIND, Level.IN_PLACE, message)


def runs_behind(gang: Gang, launcher: LauncherView) -> bool:
    """Whether the first step of this attempt is one that the checkpoint which it was told to resume from holds."""
    resume = gang.spec.go.resume if gang.spec.go else None
    if resume is None or launcher.attempt != gang.spec.attempt or launcher.first_step is None:
        return False
    return launcher.first_step < resume.step


def late(world: JobWorld, gang: Gang, attempt: int) -> list[Failure]:
    """The rank failures of an attempt that is over, as far as its workers tell of them afterwards."""
    found = []
    for seat in world.seats:
        view = seat.launcher
        if view is None or attempt not in (view.attempt, view.previous_attempt):
            continue
        ranks = view.ranks if view.attempt == attempt else view.previous_ranks
        failure = _rank_failure(ranks, seat, world.fleet.ailment(seat.member.node))
        if failure:
            found.append(failure)
    return found


def _rank_failure(ranks: tuple[RankView, ...], seat: Seat, ailment: str) -> Failure | None:
    failed = [rank for rank in ranks if _failed(rank)]
    if not failed:
        return None
    first = max(failed, key=lambda rank: (not VICTIM.search(rank.tail), rank.exited_age_seconds or 0.0))
    return Failure(
        Kind.RANK_FAILED,
        Level.REPLACE if ailment else Level.IN_PLACE,
        seat.index,
        seat.member.node,
        f"rank {first.rank} {_how_it_ended(first)}"
        + (f" on a sick node ({ailment})" if ailment else "")
        + (
            f"; its last lines: {_last_lines(first.tail)}"
            if first.tail.strip() and first.signal != signal.SIGKILL
            else ""
        ),
        rank=first.rank,
        exit_code=first.exit_code,
        signal=first.signal,
        age_seconds=first.exited_age_seconds or 0.0,
        victim=bool(VICTIM.search(first.tail)),
        ailment=ailment,
        if_free=bool(ailment),
    )


def _failed(rank: RankView) -> bool:
    return (
        not rank.alive and not rank.ended_by_launcher and (rank.signal is not None or rank.exit_code not in (0, None))
    )


def _how_it_ended(rank: RankView) -> str:
    if rank.signal is None:
        return f"exited with code {rank.exit_code}"
    try:
        return f"was ended by {signal.Signals(rank.signal).name}"
    except ValueError:
        return f"was ended by signal {rank.signal}"


def _last_lines(tail: str) -> str:
    """The last few lines as one, short enough for an Event; the very last one is the most telling and is whole."""
    lines = [line.strip() for line in tail.splitlines() if any(character.isalnum() for character in line)]
    return " | ".join(lines[-LAST_LINES:])[-LAST_LINES_CHARS:]


def _ended(seat: Seat) -> Failure | None:
    """A pod that has ended, or of which the container that trains has."""
    pod = seat.pod
    if pod is None or not seat.over:
        return None
    if KUBELET_REJECTIONS.match(pod.reason):
        message = f"the kubelet of {seat.member.node} rejected pod {pod.name}: {pod.reason}: {pod.message}"
        # Whom Muster has bound itself it has bound on its own account of the node, and somebody else was faster.
        kind = Kind.NODE_CONFLICT if pod.scheduler == SCHEDULER_NAME else Kind.POD_REJECTED
        return _of(seat, kind, Level.REPLACE, message)
    if pod.reason in ("Evicted", "Preempting", "PreemptionByScheduler"):
        return _of(seat, Kind.EVICTED, Level.POD, f"pod {pod.name}: {pod.reason}: {pod.message}")
    container = _culprit(seat, pod)
    if pod.deleting and (container is None or container.terminated_reason != "OOMKilled"):
        return _of(seat, Kind.POD_DELETED, Level.POD, f"pod {pod.name} was deleted")
    if container is None:
        return _of(seat, Kind.POD_ENDED, Level.POD, f"pod {pod.name} ended: {pod.reason} {pod.message}".strip())
    if container.terminated_reason in ("StartError", "ContainerCannotRun") and COMMAND_NOT_FOUND.search(
        container.terminated_message
    ):
        message = f"container {container.name} of pod {pod.name} cannot start: {container.terminated_message}"
        return replace(_of(seat, Kind.START_FAILED, Level.POD, message), exit_code=container.exit_code)
    kind = Kind.OUT_OF_MEMORY if container.terminated_reason == "OOMKilled" else Kind.POD_ENDED
    message = f"container {container.name} of pod {pod.name} ended with code {container.exit_code} ({container.terminated_reason})"
    return replace(_of(seat, kind, Level.POD, message), exit_code=container.exit_code)


def _culprit(seat: Seat, pod: PodView) -> ContainerView | None:
    """The container whose end is told: the one that trains, unless another has failed and taken the pod with it."""
    if seat.container is not None and seat.container.terminated and (seat.container.exit_code or not pod.terminal):
        return seat.container
    ended = [container for container in pod.containers if container.terminated]
    return next((c for c in ended if c.exit_code), ended[-1] if ended else None)


def _stuck_predecessor(world: JobWorld, seat: Seat) -> Failure | None:
    for pod in world.others.get(seat.index, ()):
        same_place = pod.incarnation < seat.member.incarnation and pod.node == seat.member.node
        if not same_place or pod.terminal or pod.deletion_time is None:
            continue
        if (world.now - pod.deletion_time).total_seconds() > POD_STUCK_SECONDS:
            message = f"pod {pod.name} on {seat.member.node} should have ended {POD_STUCK_SECONDS:.0f} s ago"
            return _of(seat, Kind.POD_STUCK, Level.REPLACE, message)
    return None


def _start_timeout(world: JobWorld, seat: Seat, pod: PodView) -> Failure | None:
    """A pod that does not come to run on its node although others of the gang do on theirs."""
    age = (world.now - pod.created).total_seconds() if pod.created else 0.0
    if age < POD_START_SECONDS or not any(other.phase == "Running" for other in world.pods.values()):
        return None
    message = (
        f"pod {pod.name} has not started on {seat.member.node} within {POD_START_SECONDS / 60:.0f} min, others have"
    )
    return _of(seat, Kind.POD_START_TIMEOUT, Level.REPLACE, message)


def _unreachable(world: JobWorld, gang: Gang, seat: Seat, pod: PodView) -> Failure | None:
    """Two witnesses agree that the worker is silent, and no step has been finished since."""
    if pod.uid in world.lost:
        return _of(
            seat, Kind.NODE_LOST, Level.REPLACE, f"node {seat.member.node} is gone for good, as somebody has said"
        )
    timeout = float(world.job.spec.recovery.unreachable_timeout_seconds)
    launcher = seat.launcher
    if launcher is None and not seat.member.pod_uid:
        # Nobody has been heard in it who could be silent now: a control plane that is overloaded by the start itself
        # delays first words and heartbeats alike. It trains nothing yet, so that its node alone is asked.
        return _silent_node(world, seat, timeout)
    timeout = max(timeout, _patience_seconds(world, gang, timeout))
    if not _silent(world, launcher, timeout):
        return None
    witnesses = _witnesses(world, seat, timeout)
    if not witnesses:
        return None
    message = f"worker {seat.index} has been silent for {timeout:.0f} s, and {' and '.join(witnesses)}"
    return _of(seat, Kind.NODE_UNREACHABLE, Level.REPLACE, message)


def _patience_seconds(world: JobWorld, gang: Gang, timeout: float) -> float:
    """How long silence has to last that may be nobody's fault, or that ends nothing where it is."""
    if world.silence.widespread or world.dark.widespread:
        return WHOLE_GANG_SECONDS
    if any(view.heard_age_seconds < timeout for view in world.views.values()):
        return 0.0
    # The whole gang is silent. Where the marker reaches its ranks the successor can wait for them; else they may train on.
    if gang.spec.go is None or all(seat.member.reads_marker for seat in world.seats):
        return 0.0
    return unproved_seconds(world) or WHOLE_GANG_SECONDS


def unproved_seconds(world: JobWorld) -> float | None:
    """After how long silence is taken for death though nothing proves it; None: never."""
    limit = world.job.spec.recovery.unproved_death_timeout_seconds
    if limit is not None:
        return float(limit)
    return None if world.job.spec.launch.mode is LaunchMode.PLAIN else WHOLE_GANG_SECONDS


def given_up(world: JobWorld, pod: PodView) -> bool:
    """Whether a pod's node has been silent for so long that the job takes it for dead."""
    limit, node = unproved_seconds(world), world.fleet.nodes.get(pod.node)
    if limit is None or (node is not None and node.ready):
        return False
    return world.heartbeat_age_seconds(pod.node) >= limit


def _silent(world: JobWorld, launcher: LauncherView | None, timeout: float) -> bool:
    """Whether nothing has been heard of a worker for so long, directly or by a step, which needs every worker.

    One that this leader has never heard has had twice the time to find it.
    """
    silence = world.leader_age_seconds / 2 if launcher is None else launcher.heard_age_seconds
    return silence >= timeout and world.newest_step_age_seconds >= timeout


def _unheard(world: JobWorld, gang: Gang, seat: Seat, pod: PodView) -> Failure | None:
    """A launcher that keeps the next start, or the end, waiting, though its node looks well.

    While nobody of the gang is heard what is in the way, say a network policy, would stop its successor, too: it is
    waited for, with a reason in the status.
    """
    launcher, go = seat.launcher, gang.spec.go
    if launcher is None and not seat.member.pod_uid:
        return _never_heard(world, gang, seat, pod)
    if launcher is not None and launcher.heard_age_seconds < UNHEARD_SECONDS:
        return None
    if go is not None and not _others_have_ended(world, gang, seat.index):
        return None
    silent = launcher.heard_age_seconds if launcher else world.leader_age_seconds
    since = go.time if go else gang.spec.time
    limit = max(UNHEARD_SECONDS, 2.0 * world.job.spec.recovery.unreachable_timeout_seconds)
    limit = max(limit, WHOLE_GANG_SECONDS) if world.silence.widespread else limit
    if min(silent, (world.now - since).total_seconds()) < limit:
        return None
    message = f"the launcher of worker {seat.index} has not been heard for {limit:.0f} s, and the gang waits for it"
    return _of(seat, Kind.LAUNCHER_SILENT, _next_level(gang, seat, Kind.LAUNCHER_SILENT), message)


def _never_heard(world: JobWorld, gang: Gang, seat: Seat, pod: PodView) -> Failure | None:
    others = (view for index, view in world.views.items() if index != seat.index)
    if pod.phase != "Running" or not any(view.heard_age_seconds < FRESH_SECONDS for view in others):
        return None
    begun = (seat.container.started if seat.container else None) or pod.created or gang.spec.time
    waited = (world.now - max(begun, gang.spec.time)).total_seconds()
    if min(waited, world.leader_age_seconds) < NEVER_HEARD_SECONDS:
        return None
    message = f"the launcher of worker {seat.index} has never been heard, {NEVER_HEARD_SECONDS:.0f} s after its container began"
    return _of(seat, Kind.LAUNCHER_SILENT, _next_level(gang, seat, Kind.LAUNCHER_SILENT), message)


def _others_have_ended(world: JobWorld, gang: Gang, index: int) -> bool:
    """Whether some other workers are heard, and all of those have ended their ranks of this attempt."""
    heard = [view for i, view in world.views.items() if i != index and view.heard_age_seconds < FRESH_SECONDS]
    return bool(heard) and all(view.attempt == gang.spec.attempt and view.state == EXITED for view in heard)


def _plain_lost(world: JobWorld, seat: Seat, pod: PodView) -> Failure | None:
    """Without a launcher only its node could say that the ranks have ended; silence says nothing of the kind."""
    if pod.uid in world.lost:
        return _of(
            seat, Kind.NODE_LOST, Level.REPLACE, f"node {seat.member.node} is gone for good, as somebody has said"
        )
    if pod.phase == "Pending":  # nobody has seen its ranks begin, and its successor waits for proof all the same
        return _silent_node(world, seat, float(world.job.spec.recovery.unreachable_timeout_seconds))
    limit = unproved_seconds(world)
    return None if limit is None else _silent_node(world, seat, limit)


def _silent_node(world: JobWorld, seat: Seat, timeout: float) -> Failure | None:
    node = seat.node
    if node is None or node.ready or world.heartbeat_age_seconds(node.name) < timeout:
        return None
    if timeout < WHOLE_GANG_SECONDS and world.dark.widespread:
        return _silent_node(world, seat, WHOLE_GANG_SECONDS)
    message = f"node {node.name} has sent no heartbeat for {timeout:.0f} s and is not ready ({node.ready_reason})"
    return _of(seat, Kind.NODE_UNREACHABLE, Level.REPLACE, message)


def _witnesses(world: JobWorld, seat: Seat, timeout: float) -> list[str]:
    node, witnesses = seat.node, []
    if world.heartbeat_age_seconds(seat.member.node) >= timeout:
        witnesses.append("its kubelet sends no heartbeat")
    if node is not None and not node.ready and node.ready_reason != STATUS_UNKNOWN:
        witnesses.append(f"its node is not ready ({node.ready_reason})")
    peers = [
        seconds
        for view, seconds in world.complaints.get(seat.index, ())
        if view.heard_age_seconds < timeout / 2 and seconds >= timeout * PEER_SHARE_OF_TIMEOUT
    ]
    if peers:
        witnesses.append(f"{len(peers)} of its neighbours get no answer")
    return witnesses


def _hang(world: JobWorld, gang: Gang) -> list[Failure]:
    """Nobody has finished a step for longer than the user allows; a step needs all, so those who are heard suffice."""
    progress, go = world.job.spec.progress, gang.spec.go
    if go is None:
        return []
    views = {
        index: view
        for index, view in world.views.items()
        if view.attempt == gang.spec.attempt and view.heard_age_seconds < FRESH_SECONDS and not view.progress_error
    }
    if not any(rank.alive for view in views.values() for rank in view.ranks):
        return []
    if any(view.step is not None for view in views.values()):
        limit, kind = progress.step_timeout_seconds, Kind.HANG
        ages = [_as_told(view, view.step_age_seconds) for view in views.values() if view.step_age_seconds is not None]
    else:
        limit, kind = progress.start_timeout_seconds, Kind.START_HANG
        ages = [_as_told(view, view.started_age_seconds or 0.0) for view in views.values()]
    age = min(ages, default=0.0)
    if limit is None or age < limit:
        return []
    lowest = min(view.step if view.step is not None else -1 for view in views.values())
    behind = [index for index, view in views.items() if (view.step if view.step is not None else -1) == lowest]
    suspects = behind if len(behind) < len(views) else list(views)
    level = Level.POD if _hung_before(gang, lowest) else Level.IN_PLACE
    who = world.by_index[suspects[0]].where + (" and others" if len(suspects) > 1 else "")
    behind_step = f"step {lowest}" if lowest >= 0 else "no step yet"
    message = f"no step finished for {age:.0f} s (limit {limit} s); furthest behind: {who}, {behind_step}"
    return [replace(_of(world.by_index[index], kind, level, message), age_seconds=age) for index in suspects]


def _as_told(view: LauncherView, age_seconds: float) -> float:
    """An age at the time of the report: what happened since then nobody has told, and silence is no hang."""
    return age_seconds - view.heard_age_seconds


def _hung_before(gang: Gang, step: int) -> bool:
    """Whether the attempt before this one ended in a hang, too, with no step won since."""
    last = gang.spec.incidents[-1] if gang.spec.incidents else None
    if last is None or last.reason not in (Kind.HANG, Kind.START_HANG):
        return False
    return step <= (-1 if last.step is None else last.step)

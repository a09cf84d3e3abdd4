"""Finds what is wrong with the current attempt, member by member. Says what is seen; blames nobody yet."""

import re
import signal
from dataclasses import dataclass
from enum import StrEnum

from muster.api.gang import Gang, Level, Member
from muster.api.trainingjob import LaunchMode
from muster.protocol.messages import EXITED, IDLE, LEAVING
from muster.world.fleet import Leave
from muster.world.job import JobWorld
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

# While no member of a gang is heard at all, nothing tells a lost network from lost nodes, and the ranks may be training
# on: wait as long as Kubernetes does before it gives a node's pods up (docs/decisions/0006).
WHOLE_GANG_SECONDS = 300.0

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
    NODE_UNHEALTHY = "NodeUnhealthy"


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that is wrong with one member.

    Attributes:
        level: the least level of recovery that mends it.
        age_seconds: since it happened, as far as is known.
        victim: its own words say that another rank was lost first.
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


def find(world: JobWorld) -> list[Failure]:
    """All failures of the current attempt's members, at most one for each member."""
    gang = world.gang
    if gang is None:
        return []
    found = []
    for index, member in enumerate(gang.spec.members):
        failure = _member_failure(world, gang, index, member) if member.node else None
        if failure:
            found.append(failure)
    return found or _hang(world, gang)


def _member_failure(world: JobWorld, gang: Gang, index: int, member: Member) -> Failure | None:
    if world.node(member) is None:
        return Failure(
            Kind.NODE_GONE, Level.REPLACE, index, member.node, f"node {member.node} is gone from the cluster"
        )
    exclusion = world.fleet.exclusion(member.node)
    if exclusion and exclusion.leave is Leave.NOW:
        message = f"node {member.node} is unhealthy ({exclusion.reason}): {exclusion.message}"
        return Failure(Kind.NODE_UNHEALTHY, Level.REPLACE, index, member.node, message)
    pod = world.pod(index, member)
    if pod is None:
        if member.pod_uid:
            return Failure(Kind.POD_GONE, Level.POD, index, member.node, f"pod {world.pod_name(index, member)} is gone")
        return _stuck_predecessor(world, index, member)
    plain = world.job.spec.launch.mode is LaunchMode.PLAIN
    if pod.terminal:
        return None if plain and pod.phase == "Succeeded" else _ended(pod, index, member)
    unreachable = _unreachable(world, gang, index, member, pod)
    if unreachable:
        return unreachable
    if pod.deleting:
        return Failure(Kind.POD_DELETED, Level.POD, index, member.node, f"pod {pod.name} is being deleted")
    if pod.phase == "Pending" and (stuck := _stuck_predecessor(world, index, member)):
        return stuck  # proved dead, but its node's accelerators are not given back
    if pod.phase == "Pending" and (slow := _start_timeout(world, index, member, pod)):
        return slow
    unheard = _unheard(world, gang, index, member, pod)
    if unheard:
        return unheard
    launcher = world.launchers.get(pod.uid)
    if launcher is None:
        return None
    if launcher.state == LEAVING:  # it says so before the watch does
        return Failure(Kind.POD_DELETED, Level.POD, index, member.node, f"pod {pod.name} was told to terminate")
    return _launcher_failure(world, gang, index, member, launcher)


def _launcher_failure(
    world: JobWorld, gang: Gang, index: int, member: Member, launcher: LauncherView
) -> Failure | None:
    attempt = gang.spec.attempt
    if gang.spec.go is None:
        # A leader that is new has only just been able to tell the launcher; one that is idle has nothing to end.
        waited = min((world.now - gang.spec.time).total_seconds(), world.leader_age_seconds)
        heard = launcher.heard_age_seconds < FRESH_SECONDS
        if waited > RECLAIM_DEADLINE_SECONDS and heard and launcher.state != IDLE:
            message = f"worker {index} has not ended its old ranks within {RECLAIM_DEADLINE_SECONDS:.0f} s"
            return Failure(Kind.RECLAIM_SLOW, Level.POD, index, member.node, message)
        return None
    if launcher.attempt != attempt:
        return None
    if launcher.fenced:
        message = f"worker {index} was cut off from everybody and ended its ranks"
        return Failure(Kind.FENCED, Level.IN_PLACE, index, member.node, message)
    return _rank_failure(launcher.ranks, index, member)


def late(world: JobWorld, gang: Gang, attempt: int) -> list[Failure]:
    """The rank failures of an attempt that is over, as far as its workers tell of them afterwards."""
    found = []
    for index, member in enumerate(gang.spec.members):
        view = world.views.get(index)
        if view is None or attempt not in (view.attempt, view.previous_attempt):
            continue
        failure = _rank_failure(view.ranks if view.attempt == attempt else view.previous_ranks, index, member)
        if failure:
            found.append(failure)
    return found


def _rank_failure(ranks: tuple[RankView, ...], index: int, member: Member) -> Failure | None:
    failed = [rank for rank in ranks if _failed(rank)]
    if not failed:
        return None
    first = max(failed, key=lambda rank: (not VICTIM.search(rank.tail), rank.exited_age_seconds or 0.0))
    return Failure(
        Kind.RANK_FAILED,
        Level.IN_PLACE,
        index,
        member.node,
        f"rank {first.rank} {_how_it_ended(first)}"
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


def _ended(pod: PodView, index: int, member: Member) -> Failure:
    if KUBELET_REJECTIONS.match(pod.reason):
        message = f"the kubelet of {member.node} rejected pod {pod.name}: {pod.reason}: {pod.message}"
        # Whom Muster has bound itself it has bound on its own account of the node, and somebody else was faster.
        kind = Kind.NODE_CONFLICT if pod.scheduler == SCHEDULER_NAME else Kind.POD_REJECTED
        return Failure(kind, Level.REPLACE, index, member.node, message)
    if pod.reason in ("Evicted", "Preempting", "PreemptionByScheduler"):
        return Failure(Kind.EVICTED, Level.POD, index, member.node, f"pod {pod.name}: {pod.reason}: {pod.message}")
    container = _culprit(pod)
    if pod.deleting and (container is None or container.terminated_reason != "OOMKilled"):
        return Failure(Kind.POD_DELETED, Level.POD, index, member.node, f"pod {pod.name} was deleted")
    if container is None:
        return Failure(
            Kind.POD_ENDED, Level.POD, index, member.node, f"pod {pod.name} ended: {pod.reason} {pod.message}".strip()
        )
    if container.terminated_reason in ("StartError", "ContainerCannotRun") and COMMAND_NOT_FOUND.search(
        container.terminated_message
    ):
        message = f"container {container.name} of pod {pod.name} cannot start: {container.terminated_message}"
        return Failure(Kind.START_FAILED, Level.POD, index, member.node, message, exit_code=container.exit_code)
    kind = Kind.OUT_OF_MEMORY if container.terminated_reason == "OOMKilled" else Kind.POD_ENDED
    message = f"container {container.name} of pod {pod.name} ended with code {container.exit_code} ({container.terminated_reason})"
    return Failure(kind, Level.POD, index, member.node, message, exit_code=container.exit_code)


def _culprit(pod: PodView) -> ContainerView | None:
    ended = [container for container in pod.containers if container.terminated]
    return next((c for c in ended if c.exit_code), ended[-1] if ended else None)


def _stuck_predecessor(world: JobWorld, index: int, member: Member) -> Failure | None:
    for pod in world.others.get(index, ()):
        same_place = pod.incarnation < member.incarnation and pod.node == member.node
        if not same_place or pod.terminal or pod.deletion_time is None:
            continue
        if (world.now - pod.deletion_time).total_seconds() > POD_STUCK_SECONDS:
            message = f"pod {pod.name} on {member.node} should have ended {POD_STUCK_SECONDS:.0f} s ago"
            return Failure(Kind.POD_STUCK, Level.REPLACE, index, member.node, message)
    return None


def _start_timeout(world: JobWorld, index: int, member: Member, pod: PodView) -> Failure | None:
    """A pod that does not come to run on its node although others of the gang do on theirs."""
    age = (world.now - pod.created).total_seconds() if pod.created else 0.0
    if age < POD_START_SECONDS or not any(other.phase == "Running" for other in world.pods.values()):
        return None
    message = f"pod {pod.name} has not started on {member.node} within {POD_START_SECONDS / 60:.0f} min, others have"
    return Failure(Kind.POD_START_TIMEOUT, Level.REPLACE, index, member.node, message)


def _unreachable(world: JobWorld, gang: Gang, index: int, member: Member, pod: PodView) -> Failure | None:
    """Two witnesses agree that the worker is silent, and no step has been finished since."""
    timeout = float(world.job.spec.recovery.unreachable_timeout_seconds)
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        return _plain_unreachable(world, index, member, timeout)
    launcher = world.launchers.get(pod.uid)
    if launcher is None and not member.pod_uid:
        # Nobody has been heard in it who could be silent now: a control plane that is overloaded by the start itself
        # delays first words and heartbeats alike.
        return _plain_unreachable(world, index, member, timeout)
    if not _silent(world, launcher, timeout):
        return None
    if world.silence.widespread or not any(view.heard_age_seconds < timeout for view in world.views.values()):
        timeout = max(timeout, WHOLE_GANG_SECONDS)
        if not _silent(world, launcher, timeout):
            return None
    witnesses = _witnesses(world, index, member, timeout)
    if not witnesses:
        return None
    message = f"worker {index} has been silent for {timeout:.0f} s, and {' and '.join(witnesses)}"
    return Failure(Kind.NODE_UNREACHABLE, Level.REPLACE, index, member.node, message)


def _silent(world: JobWorld, launcher: LauncherView | None, timeout: float) -> bool:
    """Whether nothing has been heard of a worker for so long, directly or by a step, which needs every worker.

    One that this leader has never heard has had twice the time to find it.
    """
    silence = world.leader_age_seconds / 2 if launcher is None else launcher.heard_age_seconds
    return silence >= timeout and world.newest_step_age_seconds >= timeout


def _unheard(world: JobWorld, gang: Gang, index: int, member: Member, pod: PodView) -> Failure | None:
    """A launcher that was there before keeps the next start, or the end, waiting, though its node looks well.

    One that has never been heard is waited for, with a reason in the status: what is in its way, say a network policy,
    would stop its successor, too.
    """
    plain = world.job.spec.launch.mode is LaunchMode.PLAIN
    known = bool(member.pod_uid) or pod.uid in world.launchers
    launcher = world.launchers.get(pod.uid)
    if plain or not known or (launcher is not None and launcher.heard_age_seconds < UNHEARD_SECONDS):
        return None
    if gang.spec.go is not None and not _others_have_ended(world, gang, index):
        return None
    silent = launcher.heard_age_seconds if launcher else world.leader_age_seconds
    since = gang.spec.go.time if gang.spec.go else gang.spec.time
    limit = max(UNHEARD_SECONDS, 2.0 * world.job.spec.recovery.unreachable_timeout_seconds)
    limit = max(limit, WHOLE_GANG_SECONDS) if world.silence.widespread else limit
    if min(silent, (world.now - since).total_seconds()) < limit:
        return None
    message = f"the launcher of worker {index} has not been heard for {limit:.0f} s, and the gang waits for it"
    return Failure(Kind.LAUNCHER_SILENT, Level.POD, index, member.node, message)


def _others_have_ended(world: JobWorld, gang: Gang, index: int) -> bool:
    """Whether some other workers are heard, and all of those have ended their ranks of this attempt."""
    heard = [view for i, view in world.views.items() if i != index and view.heard_age_seconds < FRESH_SECONDS]
    return bool(heard) and all(view.attempt == gang.spec.attempt and view.state == EXITED for view in heard)


def _plain_unreachable(world: JobWorld, index: int, member: Member, timeout: float) -> Failure | None:
    """Without a launcher the node's heartbeat and its Ready condition are the two witnesses."""
    node = world.node(member)
    if node is None or node.ready or world.fleet.heartbeats.age_seconds(member.node) < timeout:
        return None
    message = f"node {member.node} has sent no heartbeat for {timeout:.0f} s and is not ready ({node.ready_reason})"
    return Failure(Kind.NODE_UNREACHABLE, Level.REPLACE, index, member.node, message)


def _witnesses(world: JobWorld, index: int, member: Member, timeout: float) -> list[str]:
    node, witnesses = world.node(member), []
    if world.fleet.heartbeats.age_seconds(member.node) >= timeout:
        witnesses.append("its kubelet sends no heartbeat")
    if node is not None and not node.ready:
        witnesses.append(f"its node is not ready ({node.ready_reason})")
    peers = [
        seconds
        for view, seconds in world.complaints.get(index, ())
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
        if view.attempt == gang.spec.attempt and view.heard_age_seconds < FRESH_SECONDS
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
    who = f"worker {suspects[0]} on {gang.spec.members[suspects[0]].node}" + (
        " and others" if len(suspects) > 1 else ""
    )
    behind_step = f"step {lowest}" if lowest >= 0 else "no step yet"
    message = f"no step finished for {age:.0f} s (limit {limit} s); furthest behind: {who}, {behind_step}"
    return [Failure(kind, level, index, gang.spec.members[index].node, message, age_seconds=age) for index in suspects]


def _as_told(view: LauncherView, age_seconds: float) -> float:
    """An age at the time of the report: what happened since then nobody has told, and silence is no hang."""
    return age_seconds - view.heard_age_seconds


def _hung_before(gang: Gang, step: int) -> bool:
    """Whether the attempt before this one ended in a hang, too, with no step won since."""
    last = gang.spec.incidents[-1] if gang.spec.incidents else None
    if last is None or last.reason not in (Kind.HANG, Kind.START_HANG):
        return False
    return step <= (-1 if last.step is None else last.step)

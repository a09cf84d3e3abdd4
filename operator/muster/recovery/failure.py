"""What can be wrong with one member of a gang, as it is seen; blames nobody yet. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from muster.api.gang import Level
from muster.world.job import WorkerView

# Exits closer together than this have no order: reports carry ages, not a common clock.
ORDER_ERROR_SECONDS = 0.2


class Kind(StrEnum):
    """What was seen; the values are reasons of Events and incidents."""

    RANK_FAILED = "RankFailed"
    CORRUPTION = "CorruptionFound"
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
    CONTAINER_LOST = "ContainerLost"
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
        dated: of a pod that is deleted: it was seen before, so that the deletion is no older than this.
        victim: its last lines say that it lost a peer.
        killed: a signal from outside ended it, or what it ran.
        node_fault: what is wrong with its node; "" if nothing is known. The worker moves if there is another node,
            whatever the level.
        suspected: failures of jobs have followed its node, which proves nothing. The worker moves if there is another
            node, whatever the level.
        if_free: `level` only where there is another node; else the ranks restart in place.
        printed: what the rank or the container printed last, as it is: for people by `exits.message_of` alone.
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
    dated: bool = False
    victim: bool = False
    killed: bool = False
    node_fault: str = ""
    suspected: bool = False
    if_free: bool = False
    printed: str = ""


def failure_of(worker_view: WorkerView, kind: Kind, level: Level, message: str) -> Failure:
    """One thing that is wrong with the member that is viewed."""
    return Failure(kind, level, worker_view.index, worker_view.member.node, message)

"""The failures that one member of a gang can show. They say what was seen and blame nothing yet. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from muster.api.gang import Level
from muster.world.job import WorkerView

# Exits closer together than this have no order: reports carry ages, not a common clock.
ORDER_ERROR_SECONDS = 0.2


class Kind(StrEnum):
    """The kind of a failure as it was seen; the values are reasons of Events and incidents."""

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
    """One thing that is wrong with one member of a gang.

    Attributes:
        kind: what was seen.
        level: the least level of recovery that repairs it.
        index: of the member.
        node: of the member.
        message: for people.
        rank: the number of the failed rank; None: the failure is not of a rank.
        exit_code: of the rank or container; None: unknown, or ended by a signal.
        signal: the number of the signal that ended the rank; None: none did.
        age_seconds: since the failure happened, as far as is known.
        dated: whether the pod was seen before its deletion, so that `age_seconds` is the deletion's age.
        victim: whether the rank's last lines say that it lost a peer.
        killed: whether a signal from outside ended the rank, or the process that it ran.
        node_fault: what is wrong with the node; "" if nothing is known. If set, the worker moves where another node is
        free, whatever the level.
        suspected: whether failures of jobs have followed the node, which proves nothing. If so, the worker moves where
        another node is free, whatever the level.
        if_free: whether `level` holds only where another node is free; else the ranks restart in place.
        printed: the last lines of the rank or container with secrets in them: only `exits.message_of` may show them.
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
    """Return a failure of the member that is viewed, with its index and node."""
    return Failure(kind, level, worker_view.index, worker_view.member.node, message)

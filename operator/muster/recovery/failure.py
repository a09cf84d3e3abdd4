"""The failures that one member of a gang can show. They say what was seen and blame nothing yet. Pure.

Tests: tests/unit/recovery/test_blame.py, tests/unit/recovery/test_failures.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from muster.api.gang import FaultClass, Level
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
class Traits:
    """What follows from a kind of failure, for every decision that asks.

    Attributes:
        fault_class: the class, which says which budget pays for the restart; None: it depends on how the rank ended.
        of_sick_node: whether an unhealthy node does this to a sound program. Other kinds name their cause: used-up
            memory, a command that is not in the image, or a cause outside of the job.
        follows_node: whether a node that looks healthy can do this to a sound program. Such failures of several
            attempts speak against the node that they follow: it is tested, so the tests have to be able to find the
            cause.
        avoids_node: whether this job avoids the node for a while after the failure has taken the worker from it.
        lost_node: whether the node went silent or away.
        of_one_cause: whether its tries count together with those of the others of which this is true.
    """

    fault_class: FaultClass | None
    of_sick_node: bool = False
    follows_node: bool = False
    avoids_node: bool = False
    lost_node: bool = False
    of_one_cause: bool = False


TRAITS: Mapping[Kind, Traits] = {
    Kind.NODE_GONE: Traits(FaultClass.INFRASTRUCTURE, lost_node=True),
    Kind.NODE_LOST: Traits(FaultClass.INFRASTRUCTURE, follows_node=True, avoids_node=True, lost_node=True),
    Kind.NODE_UNREACHABLE: Traits(FaultClass.INFRASTRUCTURE, follows_node=True, avoids_node=True, lost_node=True),
    Kind.NODE_UNHEALTHY: Traits(FaultClass.HARDWARE),
    Kind.POD_REJECTED: Traits(FaultClass.INFRASTRUCTURE, follows_node=True, avoids_node=True),
    Kind.POD_STUCK: Traits(FaultClass.INFRASTRUCTURE, follows_node=True, avoids_node=True),
    Kind.POD_START_TIMEOUT: Traits(FaultClass.INFRASTRUCTURE, follows_node=True, avoids_node=True),
    Kind.START_FAILED: Traits(FaultClass.APPLICATION),
    Kind.OUT_OF_MEMORY: Traits(FaultClass.APPLICATION),
    Kind.EVICTED: Traits(FaultClass.INFRASTRUCTURE),
    Kind.CONTAINER_LOST: Traits(FaultClass.INFRASTRUCTURE, follows_node=True),
    Kind.POD_DELETED: Traits(FaultClass.INFRASTRUCTURE),
    Kind.POD_GONE: Traits(FaultClass.INFRASTRUCTURE),
    Kind.POD_ENDED: Traits(FaultClass.UNKNOWN, of_sick_node=True, follows_node=True),
    Kind.LAUNCHER_SILENT: Traits(FaultClass.INFRASTRUCTURE, follows_node=True, avoids_node=True, of_one_cause=True),
    Kind.LAUNCHER_STUCK: Traits(FaultClass.INFRASTRUCTURE, follows_node=True, avoids_node=True, of_one_cause=True),
    Kind.LISTING_STUCK: Traits(FaultClass.INFRASTRUCTURE, avoids_node=True, of_one_cause=True),
    Kind.FENCED: Traits(FaultClass.INFRASTRUCTURE),
    # A tenant's report: the others fall because this one stops. If tests prove a fault of a node it becomes Hardware,
    # and the job is not charged.
    Kind.CORRUPTION: Traits(FaultClass.APPLICATION, of_sick_node=True, avoids_node=True),
    Kind.RANK_FAILED: Traits(None, of_sick_node=True, follows_node=True, avoids_node=True),
    Kind.RESUMED_BEHIND: Traits(FaultClass.APPLICATION),
    Kind.RECLAIM_SLOW: Traits(FaultClass.UNKNOWN, of_sick_node=True),
    Kind.HANG: Traits(FaultClass.UNKNOWN, of_sick_node=True, follows_node=True),
    Kind.START_HANG: Traits(FaultClass.UNKNOWN, of_sick_node=True, follows_node=True),
    Kind.NODE_CONFLICT: Traits(FaultClass.INFRASTRUCTURE, avoids_node=True),
}
"""Every kind, the stronger evidence first: a failure explains those of the kinds below it.

Kinds above LauncherSilent, but for PodEnded, happen to a worker from outside of it (`blame._OUTSIDE`).
"""


def kinds_with(trait: Callable[[Traits], bool]) -> frozenset[Kind]:
    """Return the kinds whose traits satisfy a condition."""
    return frozenset(kind for kind, traits in TRAITS.items() if trait(traits))


@dataclass(frozen=True, slots=True)
class Failure:
    """One thing that is wrong with one member of a gang.

    Attributes:
        kind: what was seen.
        level: the least level of recovery that repairs it. `lifecycle.placing.least_level` raises it to the least one
            of the job's launch mode: ranks that start with their pods all get new ones.
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
        own_exception: whether an exception of the program ended the rank that says nothing of its node.
        node_fault: what is wrong with the node; "" if nothing is known. If set, the worker moves where another node is
        free, whatever the level.
        suspected: whether failures of jobs have followed the node, which proves nothing. If so, the worker moves where
        another node is free, whatever the level.
        unlocated: whether nothing says which member it is of. Each of them then has the failure, and none is named for
        it, unless its node is known to be unhealthy.
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
    own_exception: bool = False
    node_fault: str = ""
    suspected: bool = False
    unlocated: bool = False
    if_free: bool = False
    printed: str = ""


def is_hang(reason: str) -> bool:
    """Whether an incident with this reason is a hang: no step was finished within a limit."""
    return reason in (Kind.HANG, Kind.START_HANG)


def failure_of(worker_view: WorkerView, kind: Kind, level: Level, message: str) -> Failure:
    """Return a failure of the member that is viewed, with its index and node."""
    return Failure(kind, level, worker_view.index, worker_view.member.node, message)

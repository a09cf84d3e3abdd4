"""What jobs see of a node: its exclusion, fault and suspicion, as NodeHealth has them. Pure.

Jobs act on what is on record and on nothing else, so that a new leader sees what the one before it saw.

Tests: tests/unit/health/test_fitness.py, tests/unit/controller/test_nodefitness.py.
"""

from dataclasses import dataclass

from muster.api.nodehealth import ExclusionCause, NodeExclusion, NodeHealthStatus
from muster.health.maintenance import window_text
from muster.world.fleet import Exclusion, Removal, Suspicion


@dataclass(frozen=True, slots=True)
class Fitness:
    """What jobs see of one node.

    Attributes:
        exclusion: why no new worker is placed there, and what the present ones do; None: the node may be used.
        fault: what is wrong with it; "" if nothing is known.
        suspicion: why other nodes are the better choice; None: it is as good as they are.
    """

    exclusion: Exclusion | None = None
    fault: str = ""
    suspicion: Suspicion | None = None


UNREADABLE = Fitness(
    Exclusion(
        "RecordUnreadable",
        "its NodeHealth cannot be read by this version of Muster, so that it is not known whether the node is fit",
        last_choice=True,
    )
)
"""What jobs see of a node whose record cannot be read: whether it is fit is not known, so others come first."""


def fitness_of(status: NodeHealthStatus) -> Fitness:
    """Return what jobs see of a node with this record."""
    excluded, suspicion = status.exclusion, status.suspicion
    return Fitness(
        None if excluded is None else _exclusion(excluded, status),
        status.fault,
        None if suspicion is None else Suspicion(suspicion.followed_time, suspicion.wants_test),
    )


def until_recorded(excluded: NodeExclusion) -> Exclusion:
    """Return what jobs see of a node whose exclusion is decided and not on record: no new worker goes there, and the
    present ones stay until it is recorded."""
    return Exclusion(excluded.reason, excluded.message, last_choice=excluded.last_choice, cause=excluded.cause)


def _exclusion(excluded: NodeExclusion, status: NodeHealthStatus) -> Exclusion:
    removal = excluded.removal
    return Exclusion(
        excluded.reason,
        excluded.message,
        excluded.evacuate,
        excluded.gone_by_time,
        _waiting_text(excluded, status),
        excluded.last_choice,
        None if removal is None else Removal(removal.announced_by, removal.gone_by_time, removal.final),
        excluded.cause,
    )


def _waiting_text(excluded: NodeExclusion, status: NodeHealthStatus) -> str:
    """Return the text for jobs that wait for the node; "": that it is unhealthy."""
    if excluded.cause is ExclusionCause.REMOVAL and excluded.removal is not None:
        return f"being removed by {excluded.removal.announced_by}"
    if excluded.cause is ExclusionCause.MAINTENANCE and status.maintenance is not None:
        return window_text(status.maintenance)
    return ""

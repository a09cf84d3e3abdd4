"""What jobs see of a node: its exclusion, fault and suspicion, as NodeHealth has them: written and read. Pure.

Jobs act on what is on record and on nothing else, so that a new leader sees what the one before it saw.

Tests: tests/unit/health/test_fitness.py, tests/unit/controller/test_nodefitness.py.
"""

from dataclasses import dataclass, replace

from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import (
    Evacuate,
    ExclusionCause,
    NodeExclusion,
    NodeHealthStatus,
    NodeRemoval,
    NodeSuspicion,
    VerdictState,
)
from muster.health.effects import Effect
from muster.health.maintenance import window_text
from muster.health.verdict import Verdict
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
        "its NodeHealth cannot be read, so that Muster does not know whether the node is fit: correct or delete it",
        last_choice=True,
    )
)
"""What jobs see of a node whose record cannot be read: whether it is fit is not known, so others come first."""


def exclusion_of(verdict: Verdict, wanted: Effect) -> NodeExclusion | None:
    """Return a node's exclusion as NodeHealth has it for the node's jobs and for placement; None: the node may be used.

    Args:
        verdict: on the node.
        wanted: what Muster does about the node.
    """
    conclusion, grounds, removal = verdict.conclusion, verdict.grounds, verdict.grounds.removal
    if not wanted.avoid:
        return None
    return NodeExclusion(
        reason=conclusion.reason,
        message=conclusion.message,
        cause=_cause(verdict),
        last_choice=wanted.last_choice,
        evacuate=wanted.evacuate,
        gone_by_time=grounds.gone_by,
        removal=None
        if removal is None
        else NodeRemoval(announced_by=removal.by, gone_by_time=removal.gone_by, final=removal.final),
    )


def suspicion_of(verdict: Verdict, enforcement: Enforcement) -> NodeSuspicion | None:
    """Return why another node is the better choice than a node with this verdict; None: it is as good as others.

    Args:
        verdict: on the node.
        enforcement: of the policy: under Observe nothing follows from a suspicion.
    """
    follow_up = verdict.follow_up
    is_suspect = verdict.conclusion.state is VerdictState.SUSPECT or follow_up.followed is not None
    if not is_suspect or enforcement is Enforcement.OBSERVE:
        return None
    return NodeSuspicion(followed_time=follow_up.followed, wants_test=follow_up.wants_check)


def fitness_of(status: NodeHealthStatus) -> Fitness:
    """Return what jobs see of a node with this record."""
    excluded, suspicion = status.exclusion, status.suspicion
    return Fitness(
        None if excluded is None else _exclusion(excluded, status),
        status.fault,
        None if suspicion is None else Suspicion(suspicion.followed_time, suspicion.wants_test),
    )


@dataclass(frozen=True, slots=True)
class DecidedFitness:
    """What this leader has decided about a node, whether or not it is on record.

    Attributes:
        exclusion: why no new worker is placed there; None: the node may be used.
        fault: what is wrong with it; "" if nothing is known.
    """

    exclusion: NodeExclusion | None = None
    fault: str = ""


def corrected(recorded: Fitness, decided: DecidedFitness) -> Fitness:
    """Return what jobs see of a node: what is on record, as far as this leader's decision does not contradict it.

    New workers stay away as far as either says. Present ones leave only as far as both say: no worker leaves a node for
    a reason that is not on record, nor for one that the leader has taken back and cannot write.

    Args:
        recorded: what the record says.
        decided: what the leader has decided.
    """
    wanted, on_record = decided.exclusion, recorded.exclusion
    fault = recorded.fault or decided.fault
    if wanted is None or on_record is None:
        if wanted is not None:
            on_record = Exclusion(wanted.reason, wanted.message, last_choice=wanted.last_choice, cause=wanted.cause)
        elif on_record is not None:
            on_record = replace(on_record, evacuate=Evacuate.NO)
        return replace(recorded, exclusion=on_record, fault=fault)
    exclusion = replace(
        on_record,
        evacuate=min(on_record.evacuate, wanted.evacuate, key=_URGENCY.index),
        last_choice=on_record.last_choice and wanted.last_choice,
    )
    return replace(recorded, exclusion=exclusion, fault=fault)


_URGENCY = (Evacuate.NO, Evacuate.AFTER_CHECKPOINT, Evacuate.NOW)


def _cause(verdict: Verdict) -> ExclusionCause:
    grounds = verdict.grounds
    if grounds.only_planned and grounds.removal is not None:
        return ExclusionCause.REMOVAL
    if grounds.only_planned and grounds.maintenance is not None:
        return ExclusionCause.MAINTENANCE
    return ExclusionCause.HEALTH


def _exclusion(excluded: NodeExclusion, status: NodeHealthStatus) -> Exclusion:
    removal = excluded.removal
    return Exclusion(
        reason=excluded.reason,
        message=excluded.message,
        evacuate=excluded.evacuate,
        gone_by=excluded.gone_by_time,
        waiting_text=_waiting_text(excluded, status),
        last_choice=excluded.last_choice,
        removal=None if removal is None else Removal(removal.announced_by, removal.gone_by_time, removal.final),
        cause=excluded.cause,
    )


def _waiting_text(excluded: NodeExclusion, status: NodeHealthStatus) -> str:
    """Return the text for jobs that wait for the node; "": that it is unhealthy."""
    if excluded.cause is ExclusionCause.REMOVAL and excluded.removal is not None:
        return f"being removed by {excluded.removal.announced_by}"
    if excluded.cause is ExclusionCause.MAINTENANCE and status.maintenance is not None:
        return window_text(status.maintenance)
    return ""

"""The cause of a set of failures: their class, the culprit among them, and what late evidence changes."""

from collections.abc import Sequence

from muster.api.gang import FaultClass, GangIncident
from muster.recovery.failure import ORDER_ERROR_SECONDS, TRAITS, Failure, Kind, kinds_with
from muster.recovery.last_lines import is_killed

# How long a victim's exit waits for its culprit to be seen, and until the blame is final.
GATHER_SECONDS = 1.0
SETTLE_SECONDS = 5.0

OF_A_SICK_NODE = kinds_with(lambda traits: traits.of_sick_node)
_RANKING = list(TRAITS)
# What happens to a worker from outside of it: its node, or its pod, is lost.
_OUTSIDE = frozenset(_RANKING[: _RANKING.index(Kind.LAUNCHER_SILENT)]) - {Kind.POD_ENDED}


def culprit(failures: Sequence[Failure]) -> Failure:
    """Return the failure from which the others most likely follow.

    Among equals whose times differ by no more than the error bound, a fault of the node comes first. Then comes a rank
    that a signal from outside has ended, then the lowest index. A rank that its own exception ended before pods were
    deleted does not follow from the deletion.

    Args:
        failures: of one attempt; at least one.
    """
    own = [failure for failure in failures if _is_own(failure)]
    began = max((failure.age_seconds for failure in own), default=0.0)
    later = [f for f in failures if f.kind is Kind.POD_DELETED and f.dated and began > f.age_seconds + GATHER_SECONDS]
    failures = [failure for failure in failures if failure not in later]
    best = min(_RANKING.index(failure.kind) for failure in failures)
    strongest = [failure for failure in failures if _RANKING.index(failure.kind) == best]
    causes = [failure for failure in strongest if not failure.victim] or strongest
    oldest = max(failure.age_seconds for failure in causes)
    return min(
        (f for f in causes if oldest - f.age_seconds <= ORDER_ERROR_SECONDS),
        key=lambda f: (not f.node_fault, not f.killed, f.index),
    )


def _is_own(failure: Failure) -> bool:
    return failure.kind is Kind.RANK_FAILED and not failure.victim and not failure.killed


def gathering_seconds(failures: Sequence[Failure]) -> float:
    """Return how many more seconds to wait for the culprit while only victims have been seen; 0: decide now."""
    if not all(failure.victim for failure in failures):
        return 0.0
    return max(0.0, GATHER_SECONDS - max(failure.age_seconds for failure in failures))


def is_cause_of(failure: Failure, incident: GangIncident) -> bool:
    """Whether an incident follows from a failure that is seen later: a node or pod was lost, and a rank failed over it.

    Args:
        failure: seen after the incident was recorded.
        incident: on record; settled incidents do not change.
    """
    if incident.settled or incident.reason != Kind.RANK_FAILED or incident.fault_class is not FaultClass.UNKNOWN:
        return False
    if is_killed(incident.exit_code, incident.signal) and incident.index != failure.index:
        return False
    return failure.kind in _OUTSIDE


def fault_class(failure: Failure) -> FaultClass:
    """Return the provisional class of a failure by itself, before other failures or late evidence are compared."""
    if failure.node_fault:
        return FaultClass.HARDWARE
    usual = TRAITS[failure.kind].fault_class
    if usual is not None:
        return usual
    if failure.victim or failure.killed:
        return FaultClass.UNKNOWN
    return FaultClass.APPLICATION


def upgrade(
    incidents: Sequence[GangIncident], first_open: int, cause: FaultClass, reason: str, node: str
) -> list[GangIncident]:
    """Return the incidents with the class that late evidence gives them, so that the job is not charged for them.

    Only failures since the last start of the ranks change: no start has come between them, so they have one cause. What
    the program itself has raised stays its own once that is settled.

    Args:
        incidents: of the job, oldest first.
        first_open: the lowest attempt whose failure has not been followed by a start of the ranks.
        cause: the class of the evidence; only Hardware and Infrastructure change anything.
        reason: of the evidence, for the message.
        node: of the evidence, for the message.
    """
    if cause not in (FaultClass.HARDWARE, FaultClass.INFRASTRUCTURE):
        return list(incidents)
    return [
        incident.model_copy(
            update={"fault_class": cause, "message": f"{incident.message} (follows from {reason} on {node})"[:2048]}
        )
        if incident.attempt >= first_open
        and incident.fault_class in (FaultClass.APPLICATION, FaultClass.UNKNOWN)
        and not (incident.settled and incident.own_exception)
        else incident
        for incident in incidents
    ]

"""Whether a job's own failures repeat: each at the same step, or each before a step was seen. Pure.

A node that breaks programs does so at any step, so that the same step again points to the program or its data. Before
the first step there is no such sign: a node may do it, too. A hang counts as a failure.
"""

from collections.abc import Sequence
from itertools import takewhile

from muster.api.gang import FaultClass, GangIncident
from muster.recovery.failure import Kind, is_hang

_TIMES = ("twice", "three times", "four times", "five times", "six times", "seven times", "eight times", "nine times")


def same_step(incidents: Sequence[GangIncident]) -> int | None:
    """Return the step at which the last failures of the job all came; None: fewer than two, or they differ."""
    row = _row(incidents)
    return row[0].step if len(row) > 1 and row[0].trained else None


def repeated(incidents: Sequence[GangIncident]) -> str:
    """Return how often the last failure has come in the same way, for people; "" where it came so only once.

    Args:
        incidents: of the job, oldest first.
    """
    row = _row(incidents)
    if len(row) < 2:
        return ""
    times = _TIMES[len(row) - 2] if len(row) - 2 < len(_TIMES) else f"{len(row)} times"
    if not row[0].trained:
        return f"{times}, and no step was seen"
    return f"{times} at step {row[0].step}: the program, not a node, is the likely cause"


def _row(incidents: Sequence[GangIncident]) -> list[GangIncident]:
    """Return the last failures that are alike, the newest first; [] where the last one is none of the program's."""

    def is_alike(incident: GangIncident) -> bool:
        if is_hang(incident.reason):
            of_program = incident.fault_class is FaultClass.UNKNOWN
        else:
            of_program = incident.fault_class is FaultClass.APPLICATION and incident.reason == Kind.RANK_FAILED
        return of_program and _end(incident) == _end(incidents[-1])

    return list(takewhile(is_alike, reversed(incidents)))


def _end(incident: GangIncident) -> tuple[bool, int | None]:
    return incident.trained, incident.step if incident.trained else None

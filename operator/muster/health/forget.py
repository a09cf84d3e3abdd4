"""When the record of a node that no longer exists can be deleted, so that records do not accumulate.

A record is kept for as long as anything in it could still affect a verdict, after the node or its machine has come
back. It has the offence score, earlier faults, and a user's cordon.
"""

from datetime import datetime, timedelta
from decimal import Decimal

from muster.api.nodehealth import Decision, NodeHealth
from muster.health.action import SAME_FAULT_SECONDS
from muster.health.memory import score

GONE_SECONDS = 3600
"""A node that a reboot or a roll-out has removed is back by then."""

NO_OFFENCE = Decimal("0.05")
"""A smaller score moves no quarantine: an incident weighs 1, and the limit lies half of one below a whole number."""


def may_be_forgotten(health: NodeHealth, half_life_seconds: int, window_seconds: int, now: datetime) -> bool:
    """Whether the record of a node that does not exist has nothing left that could matter.

    Args:
        health: the record.
        half_life_seconds: the time in which the account of offences loses half of its weight.
        window_seconds: the window of the breaker's budget, which also counts nodes that are gone.
        now: the time. An entry with a time in the future is not old.
    """
    spec, status = health.spec, health.status
    if spec.override is not None and spec.override.decision is Decision.CORDON:
        return False
    accounts = (status.offences, *status.earlier_offences)
    if any(score(account, now, half_life_seconds) >= NO_OFFENCE for account in accounts):
        return False
    moments = [
        health.metadata.creation_timestamp,
        spec.override.time if spec.override else None,
        spec.lost.time if spec.lost else None,
        spec.check.time if spec.check else None,
        *(
            moment
            for incident in status.incidents
            for moment in (incident.time, incident.taken_out_time, incident.cleared_time)
        ),
        *(evidence.last_seen for evidence in status.evidence),
    ]
    times = [moment for moment in moments if moment is not None]
    kept = timedelta(seconds=max(SAME_FAULT_SECONDS, window_seconds))
    return bool(times) and max(times) + kept <= now

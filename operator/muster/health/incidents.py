"""The incidents of a node: the times that it was out of use, as recorded, and as a verdict goes on with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from muster.api.nodehealth import HealthIncident, VerdictState
from muster.health.maintenance import REASONS, was_within
from muster.health.node_world import NodeWorld
from muster.health.repairs import was_worked_on
from muster.health.signs import AGENT
from muster.health.verdict import AWAITS_BURN_IN, CORDONED, OUT, Conclusion, changed

ONE_FAULT_SECONDS = 3600
"""A fault that comes back this soon after it was charged, in the same boot and for the same cause, is charged once."""

ANOTHER_MACHINE = "another machine has the node's name now"


@dataclass(frozen=True, slots=True)
class IncidentHistory:
    """The incidents on a node's record, as they are before the verdict.

    Attributes:
        past: those that are closed, newest last.
        open: the one that has the node out; None: the node is not out.
        repair_ended: when work on the machine was last seen to have ended, where its agent has to look at it since;
            None: there is nothing to look at.
    """

    past: tuple[HealthIncident, ...]
    open: HealthIncident | None
    repair_ended: datetime | None = None


def history_of(world: NodeWorld) -> IncidentHistory:
    """Return the incidents on record, closed where another machine has the name now, and with the end of a repair."""
    incidents = tuple(world.before.incidents)
    if not incidents or incidents[-1].cleared_time is not None:
        return IncidentHistory(incidents, None)
    *past, last = incidents
    if world.is_replaced:
        return IncidentHistory((*past, _closed(last, ANOTHER_MACHINE, world.now)), None)
    last = _worked_on(last, world)
    is_looked_at = AGENT in world.rules.listens and world.before.agent is not None
    return IncidentHistory(tuple(past), last, last.repair_ended_time if is_looked_at else None)


def _worked_on(incident: HealthIncident, world: NodeWorld) -> HealthIncident:
    """Return the open incident with the time at which work on the machine was last seen to have ended.

    A recorded time in the future is replaced by now.
    """
    previous, now = world.before, world.now
    ended = was_worked_on(previous.findings, world.repair) or was_within(previous.maintenance, world.window, now)
    if ended or (incident.repair_ended_time is not None and incident.repair_ended_time > now):
        return changed(incident, {"repair_ended_time": now})
    return incident


def is_in_quarantine(incident: HealthIncident) -> bool:
    """Whether the machine's offences, and not a cordon, have the node out in this incident."""
    return incident.state is VerdictState.QUARANTINED and incident.reason != CORDONED


def is_forgiven(incident: HealthIncident, released: datetime | None) -> bool:
    """Whether a user's release, which covers all findings up to a time, covers this incident; None: there is none."""
    return released is not None and released >= incident.time


def awaits_burn_in(world: NodeWorld, history: IncidentHistory) -> bool:
    """Whether a node that was taken out has yet to pass a burn-in before it comes back.

    A pass from before the incident, or from before the end of the repair, does not count.
    """
    last = history.open
    if not world.rules.validates or last is None or last.reason == CORDONED:
        return False
    if last.taken_out_time is None and last.repair_ended_time is None:
        return False
    if is_forgiven(last, world.released):
        return False
    since = last.time if last.repair_ended_time is None else max(last.time, last.repair_ended_time)
    return world.passed is None or world.passed <= since


def incidents_of(
    world: NodeWorld, history: IncidentHistory, conclusion: Conclusion, *, only_observed: bool
) -> tuple[HealthIncident, ...]:
    """Return the incidents after the verdict: one is opened, goes on, or is closed.

    Args:
        world: what is known of the node.
        history: the incidents before.
        conclusion: the state, reason and message of the verdict.
        only_observed: whether the fault that had the node out is only observed by now.
    """
    return *history.past, *_newest(world, history, conclusion, only_observed)


def _newest(
    world: NodeWorld, history: IncidentHistory, conclusion: Conclusion, only_observed: bool
) -> Sequence[HealthIncident]:
    state, last = conclusion.state, history.open
    reason_fields = {"state": state, "reason": conclusion.reason, "message": conclusion.message}
    if state is None or state not in OUT:
        return [] if last is None else [_closed(last, _why_cleared(last, world, only_observed), world.now)]
    if last is None:
        return [HealthIncident.model_validate({**reason_fields, "time": world.now, "boot_id": world.boot})]
    is_worse = OUT[state] > OUT.get(last.state, 0)
    is_uncordoned = last.reason == CORDONED and not world.is_cordoned
    return [changed(last, reason_fields if is_worse or is_uncordoned else {})]


def _closed(incident: HealthIncident, why: str, now: datetime) -> HealthIncident:
    return changed(incident, {"cleared_time": now, "cleared_by": why})


def _why_cleared(incident: HealthIncident, world: NodeWorld, only_observed: bool) -> str:
    human = world.decision
    if human and is_forgiven(incident, world.released):
        return f"released by {human.user or 'a user'}: {human.reason}"
    if only_observed:
        return f"the FleetPolicy only observes {incident.reason} now"
    if incident.reason == CORDONED:
        return "a user ended the cordon"
    if incident.state is VerdictState.QUARANTINED:
        return "the machine's offence score has faded"
    if incident.reason == AWAITS_BURN_IN:
        return "the node passed its burn-in"
    if incident.reason in REASONS:
        was_begun = incident.repair_ended_time is not None
        window_text = "the maintenance window is over" if was_begun else "the maintenance window did not begin"
        return f"{window_text}, and no finding counts against the node"
    if incident.repair_ended_time is not None:
        return "the repair has ended, and the evidence is gone"
    if incident.boot_id and world.boot and incident.boot_id != world.boot:
        return "the node was rebooted, and the evidence is gone"
    return "the evidence is gone"

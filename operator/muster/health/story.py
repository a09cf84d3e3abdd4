"""The texts of a verdict, which an on-call engineer reads in `kubectl describe nodehealth`.

One text answers four questions in this order: what happened, since when, what Muster did, what to do and when the node
comes back. It has no ages, so that it changes only when something has happened.
"""

from datetime import UTC, datetime

from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import Evacuate, NodeHealthStatus, RecommendedAction, Severity, VerdictState
from muster.health.breaker import Act, Ruling
from muster.health.effects import Effect, exclusion_of, suspicion_of
from muster.health.maintenance import REASONS
from muster.health.orders import Order
from muster.health.repairs import FAILED, UNPROVEN, is_held
from muster.health.signs import FAILED_BURN_IN, REPAIR
from muster.health.silence import AGENT_SILENT
from muster.health.verdict import REPEAT_OFFENDER, ObservedEffect, Verdict, node_fault

MESSAGE_LENGTH, EFFECT_LENGTH = 1024, 256
_MAX_OTHERS = 4

_TO_DO = {
    RecommendedAction.NONE: "",
    RecommendedAction.INSPECT: "inspect the machine (docs/node-health.md says what to check for each reason)",
    RecommendedAction.RESET: "reset the GPUs, or reboot the node",
    RecommendedAction.REBOOT: "reboot the node",
    RecommendedAction.REPLACE: "have the hardware replaced",
}

_EVACUATES = {
    Evacuate.NO: "",
    Evacuate.AFTER_CHECKPOINT: "running jobs are evacuated after their next checkpoint",
    Evacuate.NOW: "running jobs are evacuated now, and continue elsewhere from their newest checkpoint",
}

_WOULD_EVACUATE = {
    Evacuate.NO: "running jobs would stay",
    Evacuate.AFTER_CHECKPOINT: "running jobs would be evacuated after their next checkpoint",
    Evacuate.NOW: "running jobs would be evacuated now",
}
_ONLY_OBSERVES = "spec.health of the FleetPolicy only observes"


def recorded_status(order: Order, enforcement: Enforcement) -> NodeHealthStatus:
    """Return the operator's part of the status that a node's NodeHealth gets by an order."""
    verdict, ruling = order.verdict, order.ruling
    conclusion, record = verdict.conclusion, verdict.record
    return NodeHealthStatus(
        state=conclusion.state,
        reason=conclusion.reason,
        message=status_message(order.name, verdict, ruling, order.effect, enforcement),
        since=conclusion.since,
        recommended_action=verdict.follow_up.recommended_action,
        findings=list(conclusion.findings),
        effect=effect_text(verdict, ruling, order.effect, enforcement),
        exclusion=exclusion_of(verdict, order.effect),
        fault=node_fault(verdict),
        suspicion=suspicion_of(verdict, enforcement),
        incidents=list(record.incidents),
        offences=record.offences,
        earlier_offences=list(record.earlier_offences),
        check=record.check,
        maintenance=verdict.grounds.maintenance,
        node_uid=record.node_uid,
        boot_id=record.boot_id,
    )


def effect_text(verdict: Verdict, ruling: Ruling, effect: Effect, enforcement: Enforcement) -> str:
    """Return what Muster did about a node, at most 256 characters: the text of NodeHealth's `status.effect`.

    Args:
        verdict: on the node.
        ruling: what the breaker allows.
        effect: what Muster does.
        enforcement: of the policy.
    """
    conclusion = verdict.conclusion
    if not verdict.out:
        return (
            ""
            if conclusion.would is None
            else _cut(f"nothing: {_ONLY_OBSERVES} {conclusion.would.reason}", EFFECT_LENGTH)
        )
    if enforcement is Enforcement.OBSERVE and not effect.avoid:
        return "nothing: spec.health.enforcement of the FleetPolicy is Observe"
    if ruling.act is Act.HOLD:
        stay = "running jobs stay" if effect.evacuate is Evacuate.NO else _EVACUATES[effect.evacuate]
        used = "given work only where no other node is left" if effect.last_choice else "excluded from placement"
        return _cut(f"{used}; {stay}: {ruling.why}", EFFECT_LENGTH)
    parts = ["tainted" if effect.taint else "excluded from placement", _EVACUATES[effect.evacuate]]
    if verdict.grounds.stays and effect.evacuate is Evacuate.NO:
        parts[1] = "running jobs stay"
    if ruling.act is Act.YIELD:
        parts.append(f"{ruling.why}, so Muster does not taint it")
    return _cut("; ".join(part for part in parts if part), EFFECT_LENGTH)


def status_message(node: str, verdict: Verdict, ruling: Ruling, effect: Effect, enforcement: Enforcement) -> str:
    """Return the whole explanation of a verdict, at most 1,024 characters: the text of NodeHealth's `status.message`.

    Args:
        node: its name.
        verdict: on the node.
        ruling: what the breaker allows.
        effect: what Muster does.
        enforcement: of the policy.
    """
    conclusion = verdict.conclusion
    observed = "" if conclusion.would is None else observed_effect_text(conclusion.would, enforcement)
    if conclusion.state in (None, VerdictState.HEALTHY):
        sentences = (_sentence(part) for part in (conclusion.message, observed) if part)
        return _cut(" ".join(sentences), MESSAGE_LENGTH)
    parts = [f"{conclusion.reason}: {_cut(conclusion.message, 400)}" if conclusion.reason else conclusion.message]
    if conclusion.since:
        parts.append(f"{conclusion.state} since {_moment(conclusion.since)}")
    others = _others(verdict)
    if others:
        parts.append(f"Other findings: {others}")
    if observed:
        parts.append(observed)
    did = effect_text(verdict, ruling, effect, enforcement)
    if did and verdict.out:
        parts.append(f"Muster: {did}")
    elif conclusion.state is VerdictState.SUSPECT:
        after = "" if enforcement is Enforcement.OBSERVE else ", after other nodes that are as near"
        parts.append(f"Muster: nothing; the node stays in use{after}")
    to_do = _TO_DO[verdict.follow_up.recommended_action]
    if to_do:
        parts.append(f"To do: {to_do}")
    if verdict.out:
        parts.append(_return_message(node, verdict))
    return _cut(" ".join(_sentence(part) for part in parts), MESSAGE_LENGTH)


def observed_effect_text(would: ObservedEffect, enforcement: Enforcement) -> str:
    """Return the text about findings that are only observed: what would follow from them if they counted.

    Args:
        would: what would follow.
        enforcement: of the policy.
    """
    what = f"Only observed: {would.reason}" + (f": {_cut(would.message, 300)}" if would.message else "")
    state = f"If the FleetPolicy did not only observe this, the node would be {would.state}"
    if would.state is VerdictState.SUSPECT:
        then = "and be used after other nodes that are as near"
    elif enforcement is Enforcement.OBSERVE:
        then = "and Muster would do nothing, because spec.health.enforcement is Observe"
    elif would.in_charge:
        then = (
            f"and be left to {would.in_charge}: excluded from placement; {_WOULD_EVACUATE[Evacuate.AFTER_CHECKPOINT]}"
        )
    else:
        taint = ", tainted" if enforcement is Enforcement.NODES else ""
        then = f"and, within the budget, excluded from placement{taint}; {_WOULD_EVACUATE[would.evacuate]}"
    return f"{_sentence(what)} {state} {then}. It uses no budget and is not charged to the machine"


def _others(verdict: Verdict) -> str:
    """Return the reasons of other findings that count, up to four, without the one that the message is about; "" if
    none."""
    conclusion = verdict.conclusion
    counting = (finding for finding in conclusion.findings if not finding.observed)
    weighty = [finding for finding in counting if finding.severity is not Severity.INFO]
    reasons = [finding.reason for finding in weighty]
    if conclusion.reason in reasons:
        reasons.remove(conclusion.reason)
    named = list(dict.fromkeys(reasons))
    more = f" and {len(named) - _MAX_OTHERS} more" if len(named) > _MAX_OTHERS else ""
    return ", ".join(named[:_MAX_OTHERS]) + more


def _return_message(node: str, verdict: Verdict) -> str:
    conclusion, grounds = verdict.conclusion, verdict.grounds
    by_hand = f"kubectl muster release {node} --reason ..."
    if grounds.cordoned:
        return f"Muster uses the node again when a user ends the cordon: {by_hand}"
    if is_held(conclusion.findings):
        return (
            f"Muster uses the node again when its repair has ended (kubectl describe repairrequest {node}) and "
            "no other finding counts against it"
        )
    if grounds.maintenance is not None and grounds.only_planned:
        end = f"{grounds.maintenance.end_time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        return (
            f"Muster uses the node again after {end}, once its agent has checked the whole node. To end the window "
            "earlier, change spec.maintenance of the FleetPolicy"
        )
    repairs = {
        each.reason for each in conclusion.findings if each.source == REPAIR and each.severity is not Severity.INFO
    }
    if FAILED in repairs:
        return (
            f"Its repair has failed. Muster uses the node again after {by_hand}. If the fault is still there, kubectl "
            f"delete repairrequest {node} has Muster request the repair again"
        )
    if conclusion.reason == UNPROVEN:
        return f"Muster uses the node again once its agent is Ready and has checked the whole node, or after {by_hand}"
    if conclusion.reason == REPEAT_OFFENDER:
        return (
            f"Muster uses the node again when a user confirms its repair ({by_hand}), or when its offence score has "
            "faded"
        )
    if conclusion.state is VerdictState.VALIDATING:
        return (
            f"Muster uses the node again when it has passed its burn-in (kubectl muster check {node}), or after "
            f"{by_hand}"
        )
    if conclusion.reason == FAILED_BURN_IN:
        return (
            f"Muster uses the node again when a user confirms its repair: kubectl muster check {node}, then {by_hand}"
        )
    if conclusion.reason == AGENT_SILENT:
        return f"Muster uses the node again when its agent is Ready again, or after {by_hand}"
    if grounds.in_charge:
        return f"Muster uses the node again when {grounds.in_charge} has finished with it"
    incident = verdict.open_incident
    if incident is not None and incident.repair_ended_time is not None:
        if incident.reason in REASONS:
            return (
                "Its maintenance has ended, but the evidence is still there. Muster uses the node again when the "
                f"evidence is gone, or after {by_hand}"
            )
        return (
            f"Its repair has ended, but the evidence is still there: kubectl delete repairrequest {node} has Muster "
            f"request the repair again. Muster uses the node again when the evidence is gone, or after {by_hand}"
        )
    if grounds.needs_boot:
        return f"Muster uses the node again after a reboot, or after {by_hand}"
    return f"Muster uses the node again when the evidence is gone, or after {by_hand}"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text}." if text and text[-1] not in ".!?…" else text


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"

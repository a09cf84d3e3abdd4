"""The texts of a verdict, which an on-call engineer reads in `kubectl describe nodehealth`.

One text answers four questions in this order: what happened, since when, what Muster did, what to do and when the node
comes back. It has no ages, so that it changes only when something has happened.
"""

from datetime import UTC, datetime

from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import Evacuate, HealthIncident, NodeHealthStatus, RecommendedAction, Severity, VerdictState
from muster.health.fitness import exclusion_of, suspicion_of
from muster.health.maintenance import REASONS
from muster.health.orders import Order
from muster.health.repairs import FAILED, UNPROVEN, is_held
from muster.health.rulings import Act
from muster.health.signs import FAILED_BURN_IN, REPAIR
from muster.health.silence import AGENT_SILENT
from muster.health.sources import Rules
from muster.health.verdict import AWAITS_BURN_IN, REPEAT_OFFENDER, Conclusion, ObservedEffect, Verdict, node_fault
from muster.world.names import shortened

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
_USED_AGAIN = {
    UNPROVEN: "once its agent is Ready and has checked the whole node, or after {release}",
    REPEAT_OFFENDER: "when a user confirms its repair ({release}), or when its offence score has faded",
    AWAITS_BURN_IN: "when it has passed its burn-in (kubectl muster check {node}), or after {release}",
    FAILED_BURN_IN: "when a user confirms its repair: kubectl muster check {node}, then {release}",
    AGENT_SILENT: "when its agent is Ready again, or after {release}",
}
"""By the reason of a verdict, when Muster uses the node again."""


def recorded_status(order: Order, rules: Rules, taint_refused_by: str = "") -> NodeHealthStatus:
    """Return the operator's part of the status that a node's NodeHealth gets by an order.

    Args:
        order: the verdict on a node, with what is done about it.
        rules: for the node.
        taint_refused_by: what refuses Muster's taint on the node; "": nothing, as far as is known.
    """
    verdict = order.verdict
    conclusion, record = verdict.conclusion, verdict.record
    return NodeHealthStatus(
        state=conclusion.state,
        reason=conclusion.reason,
        message=status_message(order, rules, taint_refused_by),
        since=conclusion.since,
        recommended_action=verdict.follow_up.recommended_action,
        findings=list(conclusion.findings),
        effect=effect_text(order, rules, taint_refused_by),
        exclusion=exclusion_of(verdict, order.effect),
        fault=node_fault(verdict),
        suspicion=suspicion_of(verdict, rules.enforcement),
        incidents=list(record.incidents),
        offences=record.offences,
        earlier_offences=list(record.earlier_offences),
        check=record.check,
        maintenance=verdict.grounds.maintenance,
        node_uid=record.node_uid,
        boot_id=record.boot_id,
    )


def effect_text(order: Order, rules: Rules, taint_refused_by: str = "") -> str:
    """Return what Muster did about a node, at most 256 characters: the text of NodeHealth's `status.effect`."""
    verdict, ruling, effect = order.verdict, order.ruling, order.effect
    conclusion = verdict.conclusion
    if not verdict.out:
        if conclusion.would is None:
            return ""
        reason = conclusion.would.reason
        path = rules.observed_path if reason in rules.observed_reasons else "spec.health"
        return _cut(f"nothing: {path} of the FleetPolicy only observes {reason}", EFFECT_LENGTH)
    if rules.enforcement is Enforcement.OBSERVE and not effect.avoid:
        return _cut(f"nothing: {rules.why_observed}", EFFECT_LENGTH)
    if ruling.act is Act.HOLD:
        stay = "running jobs stay" if effect.evacuate is Evacuate.NO else _EVACUATES[effect.evacuate]
        used = "given work only where no other node is left" if effect.last_choice else "excluded from placement"
        return _cut(f"{used}; {stay}: {ruling.why}", EFFECT_LENGTH)
    is_tainted = effect.taint and not taint_refused_by
    parts = ["tainted" if is_tainted else "excluded from placement", _EVACUATES[effect.evacuate]]
    if verdict.grounds.stays and effect.evacuate is Evacuate.NO:
        parts[1] = "running jobs stay"
    if ruling.act is Act.YIELD:
        parts.append(f"{ruling.why}, so Muster does not taint it")
    elif effect.taint and not is_tainted:
        parts.append(f"not tainted: refused by {taint_refused_by}")
    return _cut("; ".join(part for part in parts if part), EFFECT_LENGTH)


def status_message(order: Order, rules: Rules, taint_refused_by: str = "") -> str:
    """Return the whole explanation of a verdict, at most 1,024 characters: the text of NodeHealth's `status.message`.

    Args:
        order: the verdict on a node, with what is done about it.
        rules: for the node.
        taint_refused_by: what refuses Muster's taint on the node; "": nothing, as far as is known.
    """
    verdict = order.verdict
    conclusion = verdict.conclusion
    observed = "" if conclusion.would is None else observed_effect_text(conclusion.would, rules)
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
    effect = effect_text(order, rules, taint_refused_by)
    if effect and verdict.out:
        parts.append(f"Muster: {effect}")
    elif conclusion.state is VerdictState.SUSPECT:
        after = "" if rules.enforcement is Enforcement.OBSERVE else ", after other nodes that are as near"
        parts.append(f"Muster: nothing; the node stays in use{after}")
    to_do = _TO_DO[verdict.follow_up.recommended_action]
    if to_do:
        parts.append(f"To do: {to_do}")
    if verdict.out:
        parts.append(_return_message(order.name, verdict))
    return _cut(" ".join(_sentence(part) for part in parts), MESSAGE_LENGTH)


def observed_effect_text(would: ObservedEffect, rules: Rules) -> str:
    """Return the text about findings that are only observed: what would follow from them if they counted.

    Args:
        would: what would follow.
        rules: for the node.
    """
    observed_text = f"Only observed: {would.reason}" + (f": {_cut(would.message, 300)}" if would.message else "")
    state = f"If the FleetPolicy did not only observe this, the node would be {would.state}"
    if would.state is VerdictState.SUSPECT:
        then = "and be used after other nodes that are as near"
    elif rules.enforcement is Enforcement.OBSERVE:
        then = f"and Muster would do nothing, because {rules.why_observed}"
    elif would.in_charge:
        then = (
            f"and be left to {would.in_charge}: excluded from placement; {_WOULD_EVACUATE[Evacuate.AFTER_CHECKPOINT]}"
        )
    else:
        taint = ", tainted" if rules.enforcement is Enforcement.NODES else ""
        then = f"and, within the budget, excluded from placement{taint}; {_WOULD_EVACUATE[would.evacuate]}"
    return f"{_sentence(observed_text)} {state} {then}. It uses no budget and is not charged to the machine"


def _others(verdict: Verdict) -> str:
    """Return the reasons of other findings that count, up to four, without the one that the message is about; "" if
    none."""
    conclusion = verdict.conclusion
    counting = (finding for finding in conclusion.findings if not finding.observed)
    weighty = [finding for finding in counting if finding.severity is not Severity.INFO]
    reasons = [finding.reason for finding in weighty]
    if conclusion.reason in reasons:
        reasons.remove(conclusion.reason)
    return shortened(list(dict.fromkeys(reasons)), _MAX_OTHERS)


def _return_message(node: str, verdict: Verdict) -> str:
    """Return when the node is used again: by what people or other systems do with it, else by the verdict's reason."""
    conclusion, grounds, incident = verdict.conclusion, verdict.grounds, verdict.open_incident
    release = f"kubectl muster release {node} --reason ..."
    if grounds.cordoned:
        return f"Muster uses the node again when a user ends the cordon: {release}"
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
    if _has_failed_repair(conclusion):
        return (
            f"Its repair has failed. Muster uses the node again after {release}. If the fault is still there, kubectl "
            f"delete repairrequest {node} has Muster request the repair again"
        )
    if conclusion.reason in _USED_AGAIN:
        return f"Muster uses the node again {_USED_AGAIN[conclusion.reason].format(node=node, release=release)}"
    if grounds.in_charge:
        return f"Muster uses the node again when {grounds.in_charge} has finished with it"
    if incident is not None and incident.repair_ended_time is not None:
        return f"{_ended_work(node, incident)} Muster uses the node again when the evidence is gone, or after {release}"
    event = "after a reboot" if grounds.needs_boot else "when the evidence is gone"
    return f"Muster uses the node again {event}, or after {release}"


def _has_failed_repair(conclusion: Conclusion) -> bool:
    return any(
        finding.source == REPAIR and finding.reason == FAILED and finding.severity is not Severity.INFO
        for finding in conclusion.findings
    )


def _ended_work(node: str, incident: HealthIncident) -> str:
    """Return which work on the node has ended in vain, and how it is requested again."""
    if incident.reason in REASONS:
        return "Its maintenance has ended, but the evidence is still there."
    return (
        f"Its repair has ended, but the evidence is still there: kubectl delete repairrequest {node} has Muster "
        "request the repair again."
    )


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text}." if text and text[-1] not in ".!?…" else text


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"

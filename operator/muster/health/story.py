"""The verdict in words: what an on-call engineer reads in `kubectl describe nodehealth`.

One text answers four questions in this order: what happened, since when, what Muster did, what to do and when the node
comes back. It holds no ages, so that it changes only when something has happened.
"""

from datetime import UTC, datetime

from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import RecommendedAction, Severity, VerdictState
from muster.health.assess import FAILED_BURN_IN, REPEAT_OFFENDER, Verdict
from muster.health.breaker import Act, Ruling
from muster.health.effects import Effect
from muster.world.fleet import Leave

MESSAGE_LENGTH, EFFECT_LENGTH = 1024, 256
_MAX_OTHERS = 4

_TO_DO = {
    RecommendedAction.NONE: "",
    RecommendedAction.INSPECT: "look at the machine (docs/node-health.md says where to begin for each reason)",
    RecommendedAction.RESET: "reset the GPUs, or reboot the node",
    RecommendedAction.REBOOT: "reboot the node",
    RecommendedAction.REPLACE: "have the hardware replaced",
}

_LEAVES = {
    Leave.NO: "",
    Leave.AFTER_CHECKPOINT: "its jobs leave it after their next checkpoint",
    Leave.NOW: "its jobs leave it now and go on elsewhere from their newest checkpoint",
}


def effect_text(verdict: Verdict, ruling: Ruling, effect: Effect, enforcement: Enforcement) -> str:
    """What Muster did, at most 256 characters: NodeHealth's `status.effect`."""
    if not verdict.out:
        return ""
    if enforcement is Enforcement.OBSERVE and not effect.avoid:
        return "nothing: spec.health.enforcement of the FleetPolicy is Observe"
    if ruling.act is Act.HOLD:
        return _cut(f"excluded from placement; running jobs stay: {ruling.why}", EFFECT_LENGTH)
    parts = ["tainted" if effect.taint else "excluded from placement", _LEAVES[effect.leave]]
    if ruling.act is Act.YIELD:
        parts.append(f"{ruling.why}, so that Muster does not taint it")
    return _cut("; ".join(part for part in parts if part), EFFECT_LENGTH)


def tell(node: str, verdict: Verdict, ruling: Ruling, effect: Effect, enforcement: Enforcement) -> str:
    """The whole story, at most 1,024 characters: NodeHealth's `status.message`."""
    if verdict.state in (None, VerdictState.HEALTHY):
        return _cut(_sentence(verdict.message), MESSAGE_LENGTH)
    parts = [f"{verdict.reason}: {_cut(verdict.message, 400)}" if verdict.reason else verdict.message]
    if verdict.since:
        parts.append(f"{verdict.state} since {_moment(verdict.since)}")
    others = _others(verdict)
    if others:
        parts.append(f"Besides: {others}")
    did = effect_text(verdict, ruling, effect, enforcement)
    if did:
        parts.append(f"Muster: {did}")
    elif verdict.state is VerdictState.SUSPECT:
        parts.append("Muster: nothing; the node is used on")
    to_do = _TO_DO[verdict.recommended_action]
    if to_do:
        parts.append(f"To do: {to_do}")
    if verdict.out:
        parts.append(_comes_back(node, verdict))
    return _cut(" ".join(_sentence(part) for part in parts), MESSAGE_LENGTH)


def _others(verdict: Verdict) -> str:
    """Other findings that weigh something, by reason, without the one that the message is about."""
    weighty = [finding for finding in verdict.findings if finding.severity is not Severity.INFO]
    reasons = [finding.reason for finding in weighty]
    if verdict.reason in reasons:
        reasons.remove(verdict.reason)
    named = list(dict.fromkeys(reasons))
    more = f" and {len(named) - _MAX_OTHERS} more" if len(named) > _MAX_OTHERS else ""
    return ", ".join(named[:_MAX_OTHERS]) + more


def _comes_back(node: str, verdict: Verdict) -> str:
    by_hand = f"kubectl muster release {node} --reason ..."
    if verdict.cordoned:
        return f"It comes back when somebody takes the cordon back: {by_hand}"
    if verdict.reason == REPEAT_OFFENDER:
        return (
            f"It comes back when somebody vouches for the repair ({by_hand}), or when what is held against it has faded"
        )
    if verdict.state is VerdictState.VALIDATING:
        return f"It comes back when it has passed its burn-in (kubectl muster check {node}), or by {by_hand}"
    if verdict.reason == FAILED_BURN_IN:
        return f"It comes back when somebody vouches for the repair: kubectl muster check {node}, then {by_hand}"
    if verdict.in_charge:
        return f"It comes back when {verdict.in_charge} is done with it"
    if verdict.needs_boot:
        return f"It comes back by itself after a reboot, or by {by_hand}"
    return f"It comes back by itself when the evidence is gone, or by {by_hand}"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text}." if text and text[-1] not in ".!?…" else text


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"

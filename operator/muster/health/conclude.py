"""The state of a node, with its reason and its message, from the signs that count."""

from muster.api.nodehealth import Decision, Evacuate, Severity, VerdictState
from muster.health.account import OffenceAccount
from muster.health.incidents import IncidentHistory, awaits_burn_in
from muster.health.node_world import NodeWorld
from muster.health.signs import OWN_SOURCES
from muster.health.sources import in_charge
from muster.health.verdict import AWAITS_BURN_IN, CORDONED, RELEASED, REPEAT_OFFENDER, Conclusion, ObservedEffect
from muster.health.weigh import Weighed, findings_of, heaviest, weighing

_STATES = (VerdictState.HEALTHY, VerdictState.SUSPECT, VerdictState.DEGRADED, VerdictState.UNHEALTHY)
_UNTESTED = "no finding counts against the node any more; its checker tests it before Muster uses it again"
_IN_USE = (VerdictState.HEALTHY, VerdictState.SUSPECT)


def conclude(world: NodeWorld, history: IncidentHistory, weighed: Weighed, account: OffenceAccount) -> Conclusion:
    """Return what people read of the verdict.

    Args:
        world: what is known of the node.
        history: the incidents on its record.
        weighed: the signs against it.
        account: the offences of its machine.
    """
    is_out_anyway = world.is_cordoned or account.is_quarantined
    seen = [sign for sign in weighed.counting if sign.source in OWN_SOURCES]
    state = _state(weighed.worst, weighed.is_known, is_out_anyway)
    own = _state(heaviest(seen), world.before.agent is not None or bool(seen), is_out_anyway)
    reason, message = _reason_and_message(world, weighed, account, state)
    if not weighed.only_observed and awaits_burn_in(world, history):
        if own in _IN_USE and not _is_marked_as_before(weighed, history):
            own = VerdictState.VALIDATING
        if state in _IN_USE:
            state, reason, message = VerdictState.VALIDATING, AWAITS_BURN_IN, _UNTESTED
    is_unchanged = world.before.state is state and not world.is_replaced and world.before.since is not None
    since = world.before.since if is_unchanged else world.now
    would = None if is_out_anyway else _observed_effect(world, weighed)
    findings = findings_of(world, weighed)
    return Conclusion(state, reason, message, findings, None if state is None else since, own, would)


def _state(worst: int, is_known: bool, is_out_anyway: bool) -> VerdictState | None:
    """Return the state of a node by the greatest weight of its signs; None: nothing is known.

    Args:
        worst: this weight.
        is_known: whether anything is reported of the node.
        is_out_anyway: whether a cordon or the machine's offences have it out.
    """
    if is_out_anyway:
        return VerdictState.QUARANTINED
    return _STATES[worst] if is_known else None


def _is_marked_as_before(weighed: Weighed, history: IncidentHistory) -> bool:
    """Whether the mark of another system is there that took the node out: its writer may wait for Muster's own
    state."""
    opened = history.open.reason if history.open is not None else ""
    return any(sign.source not in OWN_SOURCES and sign.reason == opened for sign in weighed.counting)


def _reason_and_message(
    world: NodeWorld, weighed: Weighed, account: OffenceAccount, state: VerdictState | None
) -> tuple[str, str]:
    """Return the reason and the message of the verdict; both are "" where there is nothing to report."""
    human, agent, strongest = world.decision, world.before.agent, weighed.strongest
    seen = f"{strongest.in_public or strongest.message or strongest.reason}" if strongest else ""
    if strongest and strongest.subject:
        seen = f"{strongest.subject}: {seen}"
    if human and world.is_cordoned:
        return CORDONED, f"cordoned by {human.user or 'a user'}: {human.reason}"
    if account.is_quarantined:
        present_text = f"; now {strongest.reason}: {seen}" if strongest else "; no fault is reported now"
        return REPEAT_OFFENDER, f"the machine keeps failing (offence score {account.last}){present_text}"
    if strongest:
        return strongest.reason, seen
    if state is None:
        return "", ""
    if human and human.decision is Decision.RELEASE and (weighed.counting or weighed.forgiven):
        return RELEASED, f"released by {human.user or 'a user'}: {human.reason}"
    return "", f"the agent cannot check the whole node: {agent.problem}" if agent and agent.problem else ""


def _observed_effect(world: NodeWorld, weighed: Weighed) -> ObservedEffect | None:
    """Return what the signs that are only observed would change; None: nothing."""
    strongest = min(weighed.observed, key=lambda sign: sign.strength, default=None)
    if strongest is None or strongest.weighs <= weighed.worst:
        return None
    every = sorted([*weighed.counting, *weighed.observed], key=lambda sign: sign.strength)
    evacuate = Evacuate.NO
    if not all(sign.stays for sign in weighing(every)):
        evacuate = Evacuate.NOW if strongest.severity is Severity.FATAL else Evacuate.AFTER_CHECKPOINT
    message = ": ".join(filter(None, (strongest.subject, strongest.in_public or strongest.message)))
    repairer = in_charge(every, world.facts.node.unschedulable)
    return ObservedEffect(_STATES[strongest.weighs], strongest.reason, message, evacuate, repairer)

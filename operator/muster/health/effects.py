"""What Muster does about a node by its verdict and the breaker's ruling, under the policy's enforcement: avoid,
evacuate, taint.

Tests: tests/unit/health/test_budgets.py, tests/unit/health/test_observe.py.
"""

from typing import NamedTuple

from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import Evacuate, Severity, VerdictState
from muster.health.rulings import Act, Ruling
from muster.health.signs import BURN_IN, WEIGHT
from muster.health.sources import CORDONING_SOURCES
from muster.health.verdict import OUT, Verdict


class Effect(NamedTuple):
    """What Muster does about one node. It is compared with what is in force, for all unhealthy nodes at each decision.

    Attributes:
        avoid: whether no new worker is placed on the node.
        evacuate: whether and when the node's workers leave.
        taint: whether the node should bear Muster's taint; False: the taint is removed if it is there.
        last_choice: whether a new worker may still be placed on the node where no other node is left.
    """

    avoid: bool = False
    evacuate: Evacuate = Evacuate.NO
    taint: bool = False
    last_choice: bool = False


def effect(verdict: Verdict, ruling: Ruling, enforcement: Enforcement) -> Effect:
    """Return what Muster does about a node: avoid it, evacuate it, taint it.

    Under any policy, jobs are evacuated from a node that is being removed or whose maintenance is near. Under any
    policy, new workers avoid a node that a user has cordoned or whose RepairRequest is in progress.

    Args:
        verdict: on the node.
        ruling: what the breaker allows.
        enforcement: of the policy.
    """
    conclusion, grounds = verdict.conclusion, verdict.grounds
    goes = grounds.gone_by is not None or grounds.removal is not None
    planned = Evacuate.AFTER_CHECKPOINT if goes else Evacuate.NO
    if not grounds.cordoned and (not verdict.out or enforcement is Enforcement.OBSERVE):
        return Effect(avoid=goes or verdict.handed_over or grounds.maintenance is not None, evacuate=planned)
    if ruling.act is Act.HOLD:
        return Effect(avoid=True, evacuate=planned, last_choice=_may_be_used(verdict))
    now = grounds.fatal and not grounds.cordoned and ruling.act is Act.TAKE
    stays = conclusion.state is VerdictState.VALIDATING or grounds.stays
    later = planned if stays else Evacuate.AFTER_CHECKPOINT
    return Effect(
        avoid=True,
        evacuate=Evacuate.NOW if now else later,
        taint=ruling.act is Act.TAKE
        and enforcement is Enforcement.NODES
        and not (_is_only_removed(verdict) or _is_only_answered(verdict)),
    )


def _is_only_removed(verdict: Verdict) -> bool:
    """Whether only its removal has the node out. The system that removes the node has marked it already."""
    grounds = verdict.grounds
    return grounds.only_planned and grounds.removal is not None and grounds.maintenance is None


def _is_only_answered(verdict: Verdict) -> bool:
    """Whether only marks have the node out that other systems set after Muster took it out.

    Those of systems that repair nodes may be answers to the taint, whose writers remove them when the taint is gone: it
    must not wait for that. A mark for which the node was taken out may come and go.
    """
    conclusion = verdict.conclusion
    incident = verdict.open_incident
    if conclusion.own in OUT or incident is None or incident.taken_out_time is None:
        return False
    counting = [finding for finding in conclusion.findings if not finding.observed]
    weighing = [finding for finding in counting if WEIGHT[finding.severity] >= WEIGHT[Severity.DEGRADED]]
    taken_out_time = incident.taken_out_time.replace(microsecond=0)  # conditions have their time in seconds
    return all(
        finding.source in CORDONING_SOURCES and finding.since >= taken_out_time and finding.reason != incident.reason
        for finding in weighing
    )


def _may_be_used(verdict: Verdict) -> bool:
    """Whether a node that the budget keeps in use gets new workers when no other node is left.

    Many unhealthy nodes at once rarely have a fault each, and a false alarm must not stop the queue. The answer is no
    where the fault is certain, the node is quarantined or cordoned, or failed Muster's burn-in. It is also no where the
    node is being repaired, maintained or removed.
    """
    conclusion, grounds = verdict.conclusion, verdict.grounds
    if grounds.certain or conclusion.state is VerdictState.QUARANTINED or grounds.cordoned:
        return False
    if verdict.handed_over or grounds.maintenance is not None or grounds.removal is not None:
        return False
    return all(finding.observed or finding.source != BURN_IN for finding in conclusion.findings)

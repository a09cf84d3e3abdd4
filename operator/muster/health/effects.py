"""What a verdict and the breaker's ruling come to, under the policy's enforcement: avoid, leave, taint."""

from typing import NamedTuple

from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import VerdictState
from muster.health.assess import OUT, Verdict
from muster.health.breaker import Act, Ruling
from muster.health.maintenance import until
from muster.health.signs import BURN_IN
from muster.world.fleet import Cause, Evacuate, Exclusion


class Effect(NamedTuple):
    """What Muster does. At each decision that of all sick nodes is compared with what is in force.

    Attributes:
        avoid: no new worker is placed there.
        evacuate: workers that are there.
        taint: whether the node should bear Muster's taint; False: it has to go, if it is there.
        last_choice: where no other node is left for a new worker, it may be placed there all the same.
    """

    avoid: bool = False
    evacuate: Evacuate = Evacuate.NO
    taint: bool = False
    last_choice: bool = False


def avoids(state: VerdictState | None, enforcement: Enforcement, *, cordoned: bool) -> bool:
    """Whether no new worker is placed on a node, whatever the breaker rules; what a human has cordoned in any case."""
    return cordoned or (state in OUT and enforcement is not Enforcement.OBSERVE)


def effect(verdict: Verdict, ruling: Ruling, enforcement: Enforcement) -> Effect:
    """What is done about a node. What a human has cordoned, or maintains, or what is being taken away, is left in any
    case, too; what somebody repairs is avoided in any case."""
    goes = verdict.gone_by is not None or verdict.removal is not None
    planned = Evacuate.AFTER_CHECKPOINT if goes else Evacuate.NO
    if not avoids(verdict.state, enforcement, cordoned=verdict.cordoned):
        return Effect(avoid=goes or verdict.handed_over or verdict.maintenance is not None, evacuate=planned)
    if ruling.act is Act.HOLD:
        return Effect(avoid=True, evacuate=planned, last_choice=_may_be_used(verdict))
    now = verdict.fatal and not verdict.cordoned and ruling.act is Act.TAKE
    stays = verdict.state is VerdictState.VALIDATING or verdict.stays
    later = planned if stays else Evacuate.AFTER_CHECKPOINT
    return Effect(
        avoid=True,
        evacuate=Evacuate.NOW if now else later,
        taint=ruling.act is Act.TAKE and enforcement is Enforcement.NODES and not _is_only_removed(verdict),
    )


def exclusion_of(verdict: Verdict, wanted: Effect) -> Exclusion | None:
    """What placement and the jobs on a node are told; None: the node may be used."""
    if not wanted.avoid:
        return None
    cause, words = _planned(verdict)
    return Exclusion(
        verdict.reason,
        verdict.message[:512],
        wanted.evacuate,
        verdict.gone_by,
        words,
        wanted.last_choice,
        verdict.removal,
        cause,
    )


def _planned(verdict: Verdict) -> tuple[Cause, str]:
    """What has the node out, and the status text of jobs that wait for a node which only a plan has out; "" for
    others."""
    if verdict.only_planned and verdict.removal is not None:
        return Cause.REMOVAL, f"being taken away by {verdict.removal.by}"
    if verdict.only_planned and verdict.maintenance is not None:
        return Cause.MAINTENANCE, until(verdict.maintenance)
    return Cause.HEALTH, ""


def _is_only_removed(verdict: Verdict) -> bool:
    """Whether nothing but its removal has the node out: whoever takes it away has marked it already."""
    return verdict.only_planned and verdict.removal is not None and verdict.maintenance is None


def _may_be_used(verdict: Verdict) -> bool:
    """Whether a node that the budget holds back is given work when there is no other: so many sick at once are seldom
    each one's own fault, and a queue must not stand still for a false alarm.

    Never where it is no alarm: two ways of measuring say the same, Muster has measured it itself, or the machine has
        been bad again and
    again; nor where somebody is at work there, or has said no.
    """
    if verdict.certain or verdict.state is VerdictState.QUARANTINED or verdict.cordoned:
        return False
    if verdict.handed_over or verdict.maintenance is not None or verdict.removal is not None:
        return False
    return all(finding.observed or finding.source != BURN_IN for finding in verdict.findings)

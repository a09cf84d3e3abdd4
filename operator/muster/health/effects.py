"""What a verdict and the breaker's ruling come to, under the policy's enforcement: avoid, leave, taint."""

from dataclasses import dataclass

from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import VerdictState
from muster.health.assess import OUT, Verdict
from muster.health.breaker import Act, Ruling
from muster.world.fleet import Leave


@dataclass(frozen=True, slots=True)
class Effect:
    """What Muster does.

    Attributes:
        avoid: no new worker is placed there.
        leave: workers that are there.
        taint: whether the node should bear Muster's taint; False: it has to go, if it is there.
    """

    avoid: bool = False
    leave: Leave = Leave.NO
    taint: bool = False


def avoids(state: VerdictState | None, enforcement: Enforcement, *, cordoned: bool) -> bool:
    """Whether no new worker is placed on a node, whatever the breaker rules; what a human has cordoned in any case."""
    return cordoned or (state in OUT and enforcement is not Enforcement.OBSERVE)


def effect(verdict: Verdict, ruling: Ruling, enforcement: Enforcement) -> Effect:
    """What is done about a node. What a human has cordoned, or maintains, is left in any case, too; what somebody repairs is avoided in
    any case."""
    planned = Leave.NO if verdict.gone_by is None else Leave.AFTER_CHECKPOINT
    if not avoids(verdict.state, enforcement, cordoned=verdict.cordoned):
        return Effect(avoid=verdict.handed_over or verdict.maintenance is not None, leave=planned)
    if ruling.act is Act.HOLD:
        return Effect(avoid=True, leave=planned)
    now = verdict.fatal and not verdict.cordoned and ruling.act is Act.TAKE
    stays = verdict.state is VerdictState.VALIDATING or verdict.stays
    later = planned if stays else Leave.AFTER_CHECKPOINT
    return Effect(
        avoid=True,
        leave=Leave.NOW if now else later,
        taint=ruling.act is Act.TAKE and enforcement is Enforcement.NODES,
    )

"""A node's health as commands tell it: the verdict that stands in its NodeHealth, and whether Muster excludes it for that.

Pure. Whether it excludes is derived by the rule of `muster.health.effects`, of what is stored; a test holds the two
together.
"""

from pydantic import Field

from muster.api.base import ApiModel, Time
from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import Decision, HumanDecision, NodeHealth, RecommendedAction, VerdictState

CORDONED = "quarantined: Cordoned"
_OUT = frozenset({VerdictState.DEGRADED, VerdictState.UNHEALTHY, VerdictState.QUARANTINED})
_WELL = frozenset({None, VerdictState.HEALTHY})


class HealthRow(ApiModel):
    """What Muster makes of one node."""

    state: VerdictState | None = Field(None, description="Left out: nothing is known.")
    reason: str = Field("", description="The strongest, CamelCase.")
    message: str = Field("", description="What happened, since when, what Muster did, what to do.")
    since: Time | None = Field(None, description="In this state since.")
    effect: str = Field("", description="What Muster did, or why it holds back.")
    recommended_action: RecommendedAction = Field(RecommendedAction.NONE, description="For the machine.")
    human: HumanDecision | None = Field(None, description="What somebody has decided by cordon or release.")

    @property
    def sick(self) -> bool:
        """Whether something that weighs stands against the node."""
        return self.state not in _WELL


def health_row(health: NodeHealth) -> HealthRow:
    """The part of a NodeHealth that people and programs ask for."""
    status = health.status
    return HealthRow(
        state=status.state,
        reason=status.reason,
        message=status.message,
        since=status.since,
        effect=status.effect,
        recommended_action=status.recommended_action,
        human=health.spec.human,
    )


def excluded_for(row: HealthRow, enforcement: Enforcement) -> str:
    """For which health Muster places no worker on the node, in a few words that group well; "" if it does.

    What a human has just cordoned counts, although the operator may not have written its verdict yet.
    """
    if row.human is not None and row.human.decision is Decision.CORDON:
        return CORDONED
    if row.state not in _OUT or enforcement is Enforcement.OBSERVE:
        return ""
    return verdict(row)


def verdict(row: HealthRow) -> str:
    """State and reason, e.g. `unhealthy: Xid79`; "" if nothing is known."""
    return ": ".join(filter(None, (row.state.lower() if row.state else "", row.reason)))

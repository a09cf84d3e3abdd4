"""Summarise a node's health for commands: the verdict in its NodeHealth, and whether Muster excludes it for that.

Pure. The exclusion is what is stored: jobs act on it, too.
"""

from pydantic import Field

from muster.api.base import ApiModel, Time
from muster.api.maintenance import NodeMaintenance
from muster.api.nodehealth import (
    Decision,
    HumanDecision,
    NodeExclusion,
    NodeHealth,
    RecommendedAction,
    Severity,
    VerdictState,
)
from muster.health.maintenance import REASONS, window_text
from muster.health.verdict import CORDONED

_WELL = frozenset({None, VerdictState.HEALTHY})


class HealthRow(ApiModel):
    """Muster's verdict about one node."""

    state: VerdictState | None = Field(None, description="Left out: nothing is known.")
    reason: str = Field("", description="The strongest, CamelCase.")
    message: str = Field("", description="What happened, since when, what Muster did, what to do.")
    since: Time | None = Field(None, description="In this state since.")
    effect: str = Field("", description="What Muster did, or why it holds back.")
    exclusion: NodeExclusion | None = Field(
        None, description="Why no new worker comes, and what the present ones do. Left out: the node may be used."
    )
    recommended_action: RecommendedAction = Field(RecommendedAction.NONE, description="For the machine.")
    observed: list[str] = Field(
        [], description="Reasons that would count against it, and that the FleetPolicy only observes."
    )
    override: HumanDecision | None = Field(None, description="What a user has decided by cordon or release.")
    maintenance: NodeMaintenance | None = Field(None, description="A maintenance window that is near, or open.")

    @property
    def is_unhealthy(self) -> bool:
        """Whether a significant finding exists about the node."""
        return self.state not in _WELL


def health_row(health: NodeHealth) -> HealthRow:
    """Return the part of a NodeHealth that people and programs ask for."""
    status = health.status
    return HealthRow(
        state=status.state,
        reason=status.reason,
        message=status.message,
        since=status.since,
        effect=status.effect,
        exclusion=status.exclusion,
        recommended_action=status.recommended_action,
        observed=list(
            dict.fromkeys(f.reason for f in status.findings if f.observed and f.severity is not Severity.INFO)
        ),
        override=health.spec.override,
        maintenance=status.maintenance,
    )


def excluded_for(row: HealthRow) -> str:
    """Name the health for which Muster places no worker on the node, in a few words for grouping; "" if it does.

    A node that is the last choice is used where it has to be. A new cordon counts, although the operator may not have
    written its verdict yet.
    """
    if row.override is not None and row.override.decision is Decision.CORDON:
        return _verdict_text(VerdictState.QUARANTINED, CORDONED)
    return "" if row.exclusion is None or row.exclusion.last_choice else verdict(row)


def verdict(row: HealthRow) -> str:
    """Return state and reason, e.g. `unhealthy: Xid79`, or its maintenance window; "" if nothing is known."""
    if row.maintenance is not None and row.reason in REASONS:
        return window_text(row.maintenance)
    return _verdict_text(row.state, row.reason)


def _verdict_text(state: VerdictState | None, reason: str) -> str:
    return ": ".join(filter(None, (state.lower() if state else "", reason)))

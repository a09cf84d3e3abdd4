"""For which health a node is excluded, and in which words that is told."""

import pytest
from tests.unit.lifecycle.builders import at

from muster.answers.health import HealthRow, excluded_for, health_row
from muster.api.base import ObjectMeta
from muster.api.nodehealth import (
    Decision,
    Finding,
    HumanDecision,
    NodeExclusion,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    RecommendedAction,
    Severity,
    VerdictState,
)

CORDON = HumanDecision(decision=Decision.CORDON, reason="liquid", user="ann", time=at(0))
RELEASE = HumanDecision(decision=Decision.RELEASE, reason="dry", user="bob", time=at(60))


EXCLUSION = NodeExclusion(reason="Xid79")


@pytest.mark.parametrize(
    ("state", "exclusion", "human", "words"),
    [
        (VerdictState.DEGRADED, EXCLUSION, None, "degraded: Xid79"),
        (VerdictState.UNHEALTHY, EXCLUSION, None, "unhealthy: Xid79"),
        (VerdictState.UNHEALTHY, None, None, ""),  # the policy only observes
        (VerdictState.QUARANTINED, EXCLUSION, RELEASE, "quarantined: Xid79"),  # the operator has not looked yet
        (VerdictState.SUSPECT, None, None, ""),
        (VerdictState.SUSPECT, EXCLUSION, None, "suspect: Xid79"),  # another system repairs it
        (VerdictState.VALIDATING, EXCLUSION, None, "validating: Xid79"),
        (VerdictState.HEALTHY, None, RELEASE, ""),
        (None, None, None, ""),
        (None, None, CORDON, "quarantined: Cordoned"),
        (VerdictState.HEALTHY, None, CORDON, "quarantined: Cordoned"),
        (VerdictState.UNHEALTHY, EXCLUSION, CORDON, "quarantined: Cordoned"),
    ],
)
def test_the_words_group_well(
    state: VerdictState | None, exclusion: NodeExclusion | None, human: HumanDecision | None, words: str
) -> None:
    assert excluded_for(HealthRow(state=state, reason="Xid79", exclusion=exclusion, override=human)) == words


def test_what_is_told_is_what_stands_in_the_object() -> None:
    status = NodeHealthStatus(
        state=VerdictState.DEGRADED,
        reason="IbPortFlap",
        message="a port flaps",
        since=at(5),
        recommended_action=RecommendedAction.INSPECT,
        effect="excluded from placement",
        exclusion=EXCLUSION,
        findings=[
            Finding(source="agent", reason="IbPortFlap", severity=Severity.DEGRADED, since=at(5)),
            Finding(source="agent", reason="PcieReplay", severity=Severity.WARNING, since=at(5), observed=True),
            Finding(source="agent", reason="Throttle", severity=Severity.INFO, since=at(5), observed=True),
        ],
    )
    health = NodeHealth(metadata=ObjectMeta(name="n1"), spec=NodeHealthSpec(override=RELEASE), status=status)
    assert health_row(health).to_json() == {
        "state": "Degraded",
        "reason": "IbPortFlap",
        "message": "a port flaps",
        "since": "2026-01-01T00:00:05.000000Z",
        "observed": ["PcieReplay"],
        "effect": "excluded from placement",
        "exclusion": EXCLUSION.to_json(),
        "recommendedAction": "Inspect",
        "override": {"decision": "Release", "reason": "dry", "user": "bob", "time": "2026-01-01T00:01:00.000000Z"},
    }


def test_a_node_of_last_choice_is_not_called_excluded_unless_cordoned() -> None:
    held = EXCLUSION.model_copy(update={"last_choice": True})
    row = HealthRow(state=VerdictState.UNHEALTHY, reason="Xid79", exclusion=held)
    assert excluded_for(row) == ""
    assert excluded_for(row.model_copy(update={"override": CORDON})) == "quarantined: Cordoned"

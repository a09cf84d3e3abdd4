"""For which health a node is excluded, and in which words that is told."""

import pytest
from tests.unit.lifecycle.builders import at

from muster.answers.health import HealthRow, excluded_for, health_row
from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import (
    Decision,
    Finding,
    HumanDecision,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    RecommendedAction,
    Severity,
    VerdictState,
)
from muster.health.story import LAST_CHOICE

CORDON = HumanDecision(decision=Decision.CORDON, reason="liquid", user="ann", time=at(0))
RELEASE = HumanDecision(decision=Decision.RELEASE, reason="dry", user="bob", time=at(60))


@pytest.mark.parametrize(
    ("state", "human", "words", "observed"),
    [
        (VerdictState.DEGRADED, None, "degraded: Xid79", ""),
        (VerdictState.UNHEALTHY, None, "unhealthy: Xid79", ""),
        (VerdictState.QUARANTINED, RELEASE, "quarantined: Xid79", ""),  # the operator has not looked yet
        (VerdictState.SUSPECT, None, "", ""),
        (VerdictState.VALIDATING, None, "validating: Xid79", ""),
        (VerdictState.HEALTHY, RELEASE, "", ""),
        (None, None, "", ""),
        (None, CORDON, "quarantined: Cordoned", "quarantined: Cordoned"),
        (VerdictState.HEALTHY, CORDON, "quarantined: Cordoned", "quarantined: Cordoned"),
        (VerdictState.UNHEALTHY, CORDON, "quarantined: Cordoned", "quarantined: Cordoned"),
    ],
)
def test_the_words_group_well(
    state: VerdictState | None, human: HumanDecision | None, words: str, observed: str
) -> None:
    row = HealthRow(state=state, reason="Xid79", override=human)
    assert [excluded_for(row, enforcement) for enforcement in (Enforcement.JOBS, Enforcement.NODES)] == [words, words]
    assert excluded_for(row, Enforcement.OBSERVE) == observed


def test_what_is_told_is_what_stands_in_the_object() -> None:
    status = NodeHealthStatus(
        state=VerdictState.DEGRADED,
        reason="IbPortFlap",
        message="a port flaps",
        since=at(5),
        recommended_action=RecommendedAction.INSPECT,
        effect="excluded from placement",
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
        "recommendedAction": "Inspect",
        "override": {"decision": "Release", "reason": "dry", "user": "bob", "time": "2026-01-01T00:01:00.000000Z"},
    }


def test_a_node_that_is_the_last_choice_is_not_called_excluded_unless_somebody_cordons_it() -> None:
    effect = f"{LAST_CHOICE}; running jobs stay: the budget is used up"
    row = HealthRow(state=VerdictState.UNHEALTHY, reason="IbPortDown", effect=effect)
    assert excluded_for(row, Enforcement.NODES) == ""
    assert excluded_for(row.model_copy(update={"override": CORDON}), Enforcement.NODES) == "quarantined: Cordoned"

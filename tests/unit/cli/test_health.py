"""Whether a node is excluded for its health is told by the operator's own rule."""

import itertools

import pytest
from tests.unit.lifecycle.builders import at

from muster.api.base import ObjectMeta
from muster.api.fleetpolicy import Enforcement
from muster.api.nodehealth import (
    Decision,
    HumanDecision,
    NodeHealth,
    NodeHealthSpec,
    NodeHealthStatus,
    Offences,
    RecommendedAction,
    VerdictState,
)
from muster.cli.health import HealthRow, excluded_for, health_row
from muster.health.assess import Verdict
from muster.health.breaker import Act, Ruling
from muster.health.effects import effect

CORDON = HumanDecision(decision=Decision.CORDON, reason="liquid", by="ann", time=at(0))
RELEASE = HumanDecision(decision=Decision.RELEASE, reason="dry", by="bob", time=at(60))


def test_it_is_what_the_operator_avoids() -> None:
    states = [state for state in (None, *VerdictState) if state is not VerdictState.QUARANTINED]
    cases: list[tuple[VerdictState | None, HumanDecision | None]] = [
        (state, None) for state in (*states, VerdictState.QUARANTINED)
    ]
    cases += [(state, RELEASE) for state in states] + [(VerdictState.QUARANTINED, CORDON)]
    for (state, human), enforcement, act in itertools.product(cases, Enforcement, (Act.TAKE, Act.HOLD, Act.YIELD)):
        verdict = Verdict(state, "Why", "", RecommendedAction.NONE, (), at(0), (), Offences(), cordoned=human is CORDON)
        row = HealthRow(state=state, reason="Why", human=human)
        theirs = effect(verdict, Ruling(act), enforcement).avoid
        assert bool(excluded_for(row, enforcement)) is theirs, (state, human, enforcement, act)


@pytest.mark.parametrize(
    ("state", "human", "words"),
    [
        (VerdictState.UNHEALTHY, None, "unhealthy: Xid79"),
        (VerdictState.QUARANTINED, RELEASE, "quarantined: Xid79"),  # the operator has not looked yet
        (VerdictState.SUSPECT, None, ""),
        (None, None, ""),
        (None, CORDON, "quarantined: Cordoned"),
        (VerdictState.HEALTHY, CORDON, "quarantined: Cordoned"),
        (VerdictState.UNHEALTHY, CORDON, "quarantined: Cordoned"),
    ],
)
def test_the_words_group_well(state: VerdictState | None, human: HumanDecision | None, words: str) -> None:
    assert excluded_for(HealthRow(state=state, reason="Xid79", human=human), Enforcement.JOBS) == words


def test_what_is_told_is_what_stands_in_the_object() -> None:
    status = NodeHealthStatus(
        state=VerdictState.DEGRADED,
        reason="IbPortFlap",
        message="a port flaps",
        since=at(5),
        recommended_action=RecommendedAction.INSPECT,
        effect="excluded from placement",
    )
    health = NodeHealth(metadata=ObjectMeta(name="n1"), spec=NodeHealthSpec(human=RELEASE), status=status)
    assert health_row(health).to_json() == {
        "state": "Degraded",
        "reason": "IbPortFlap",
        "message": "a port flaps",
        "since": "2026-01-01T00:00:05.000000Z",
        "effect": "excluded from placement",
        "recommendedAction": "Inspect",
        "human": {"decision": "Release", "reason": "dry", "by": "bob", "time": "2026-01-01T00:01:00.000000Z"},
    }

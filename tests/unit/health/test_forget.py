"""What is known of a machine that is gone is kept for as long as it could matter, and no longer."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.health.builders import NOW, after, evidence, healthy, sick

from muster.api.base import ObjectMeta
from muster.api.nodehealth import (
    Decision,
    HealthIncident,
    HumanDecision,
    NodeHealth,
    NodeHealthSpec,
    Offences,
    VerdictState,
)
from muster.health.forget import may_be_forgotten

WEEK, DAY = 604800, 86400


def record(*, spec: NodeHealthSpec | None = None, age_days: float = 400, **status: Any) -> NodeHealth:
    health = healthy()
    return health.model_copy(
        update={
            "metadata": ObjectMeta(name="gone", uid="u", creation_timestamp=after(-age_days * DAY)),
            "spec": spec or NodeHealthSpec(),
            "status": health.status.model_copy(update=status),
        }
    )


def incident(days: float) -> HealthIncident:
    return HealthIncident(
        time=after(-days * DAY), state=VerdictState.UNHEALTHY, reason="Xid79", taken_out_time=after(-days * DAY)
    )


def cordon(decision: Decision) -> NodeHealthSpec:
    return NodeHealthSpec(override=HumanDecision(decision=decision, reason="x", time=after(-300 * DAY)))


@pytest.mark.parametrize(
    ("health", "forgotten"),
    [
        pytest.param(record(), True, id="nothing is known against it"),
        pytest.param(record(age_days=29), False, id="it is young"),
        pytest.param(NodeHealth(metadata=ObjectMeta(name="gone")), False, id="nobody knows how old it is"),
        pytest.param(record(incidents=[incident(29)]), False, id="a fault that may come back"),
        pytest.param(record(incidents=[incident(31)]), True, id="a fault of long ago"),
        pytest.param(record(offences=Offences(score="1", as_of=after(-20 * DAY))), False, id="an offence that counts"),
        pytest.param(record(offences=Offences(score="1", as_of=after(-31 * DAY))), True, id="one that has faded"),
        pytest.param(record(offences=Offences(score="3", as_of=after(-31 * DAY))), False, id="three that have not"),
        pytest.param(
            record(earlier_offences=[Offences(score="1", as_of=after(-20 * DAY))]),
            False,
            id="an offence of a machine that had the name before",
        ),
        pytest.param(record(spec=cordon(Decision.CORDON)), False, id="a human's cordon"),
        pytest.param(record(spec=cordon(Decision.RELEASE)), True, id="a human's release"),
        pytest.param(sick(evidence("Xid", 79, at=-DAY), health=record()), False, id="the agent spoke yesterday"),
    ],
)
def test_a_record_goes_when_nothing_in_it_matters(health: NodeHealth, forgotten: bool) -> None:
    assert may_be_forgotten(health, WEEK, 600, NOW) is forgotten


def test_all_is_forgotten_in_the_end_and_nothing_by_a_clock_that_goes_back() -> None:
    worst = record(incidents=[incident(0)], offences=Offences(score="1000", as_of=NOW), spec=cordon(Decision.RELEASE))
    assert may_be_forgotten(worst, WEEK, 600, NOW + timedelta(days=120))
    assert not may_be_forgotten(record(age_days=31), WEEK, 600, NOW - timedelta(days=30))

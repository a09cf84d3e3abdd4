"""What should be done with a machine: what repairs most of its gravest faults, and more where that was in vain."""

from decimal import Decimal

import pytest
from tests.unit.health.builders import after

from muster.api.nodehealth import HealthIncident, Offences, RecommendedAction, Severity, VerdictState
from muster.health.account import OffenceAccount
from muster.health.action import action
from muster.health.incidents import ANOTHER_MACHINE
from muster.health.signs import Sign

NONE, RESET, REBOOT, REPLACE, INSPECT = RecommendedAction
FATAL, DEGRADED, WARNING, INFO = Severity.FATAL, Severity.DEGRADED, Severity.WARNING, Severity.INFO


def sign(severity: Severity, action: RecommendedAction, then: RecommendedAction | None = None) -> Sign:
    return Sign("agent", "GpuLost", severity, after(0), after(0), action, then=then)


def incident(reason: str = "GpuLost", at: float = -99, **changes: object) -> HealthIncident:
    values = {"time": after(at), "state": VerdictState.UNHEALTHY, "reason": reason, "cleared_time": after(at + 9)}
    return HealthIncident.model_validate(values | changes)


@pytest.mark.parametrize(
    ("signs", "incidents", "is_quarantined", "expected"),
    [
        pytest.param([], [], False, NONE, id="nothing"),
        pytest.param([sign(INFO, REBOOT)], [], False, NONE, id="a sign without weight"),
        pytest.param([sign(WARNING, INSPECT)], [], False, INSPECT, id="a warning"),
        pytest.param([sign(DEGRADED, INSPECT), sign(WARNING, REPLACE)], [], False, INSPECT, id="the grave ones count"),
        pytest.param([sign(FATAL, RESET), sign(DEGRADED, REBOOT)], [], False, REBOOT, id="the most of them"),
        pytest.param([sign(FATAL, REBOOT, REPLACE)], [], False, REBOOT, id="for the first time"),
        pytest.param([sign(FATAL, REBOOT, REPLACE)], [incident()], False, REPLACE, id="in vain before"),
        pytest.param([sign(FATAL, REBOOT, REPLACE)], [incident(cleared_time=None)], False, REBOOT, id="not yet tried"),
        pytest.param([sign(FATAL, REBOOT, REPLACE)], [incident("Xid79")], False, REBOOT, id="another fault before"),
        pytest.param([sign(FATAL, REBOOT, REPLACE)], [incident(at=-31 * 86400)], False, REBOOT, id="long ago"),
        pytest.param(
            [sign(FATAL, REBOOT, REPLACE)],
            [incident(cleared_by=ANOTHER_MACHINE)],
            False,
            REBOOT,
            id="of another machine",
        ),
        pytest.param([sign(FATAL, RESET)], [], True, REPLACE, id="in quarantine repairs were in vain"),
        pytest.param([], [], True, INSPECT, id="in quarantine without a fault"),
    ],
)
def test_what_should_be_done(
    signs: list[Sign], incidents: list[HealthIncident], is_quarantined: bool, expected: RecommendedAction
) -> None:
    account = OffenceAccount(Offences(), (), Decimal(0), Decimal(2), faded=False, is_quarantined=is_quarantined)
    assert action(signs, account, incidents) is expected

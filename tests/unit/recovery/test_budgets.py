"""When a job has failed too often, and how long it pauses between failures."""

from datetime import timedelta

import pytest
from tests.unit.lifecycle.builders import EPOCH, an_incident, at

from muster.api.gang import FaultClass, GangIncident, GangSpec, Level, Resume
from muster.api.trainingjob import Recovery
from muster.recovery import budgets

INFRASTRUCTURE, UNKNOWN = FaultClass.INFRASTRUCTURE, FaultClass.UNKNOWN
NOW = at(3600)


def a_record(*incidents: GangIncident, checkpoint: int | None = None) -> GangSpec:
    resume = None if checkpoint is None else Resume(step=checkpoint, path="/c")
    return GangSpec(
        job_uid="u",
        attempt=9,
        time=EPOCH,
        level=Level.IN_PLACE,
        reason="x",
        incidents=list(incidents),
        checkpoint=resume,
    )


def test_own_failures_and_others_are_counted_apart() -> None:
    record = a_record(an_incident(1), an_incident(2, UNKNOWN), an_incident(3, INFRASTRUCTURE))
    assert budgets.application_restarts(record, NOW) == 2
    assert budgets.hardware_restarts(record, NOW) == 1


def test_a_planned_leave_is_free() -> None:
    record = a_record(an_incident(1, FaultClass.PLANNED))
    assert budgets.application_restarts(record, NOW) + budgets.hardware_restarts(record, NOW) == 0


def test_yesterday_is_forgotten() -> None:
    assert budgets.application_restarts(a_record(an_incident()), EPOCH + timedelta(hours=25)) == 0


@pytest.mark.parametrize(("checkpoint", "left"), [(None, 1), (10, 1), (11, 0)])
def test_a_checkpoint_beyond_the_failing_step_refills(checkpoint: int | None, left: int) -> None:
    record = a_record(an_incident(step=10), checkpoint=checkpoint)
    assert budgets.application_restarts(record, NOW) == left


def test_on_a_large_fleet_a_job_that_saves_between_failures_of_nodes_is_never_ended() -> None:
    incidents = [an_incident(n, INFRASTRUCTURE, step=10 * n) for n in range(1, 100)]
    assert budgets.exhausted(a_record(*incidents, checkpoint=989), Recovery(), NOW) == ""
    assert budgets.hardware_restarts(a_record(*incidents, checkpoint=989), NOW) == 1
    assert budgets.exhausted(a_record(*incidents, checkpoint=5), Recovery(), NOW) == "HardwareRestartsExhausted"


def test_a_checkpoint_that_was_there_before_refunds_nothing() -> None:
    """A step counter that begins anew, or an old checkpoint far ahead: 59 failures would have counted for none."""
    loop = [an_incident(n, step=12, checkpoint_step=1000, resumed_step=0) for n in range(1, 5)]
    record = a_record(*loop, checkpoint=1000)
    assert budgets.application_restarts(record, NOW) == 4
    assert budgets.back_off_seconds(record) > 0
    assert budgets.application_restarts(a_record(*loop, checkpoint=1010), NOW) == 0


def test_the_fourth_failure_is_one_too_many() -> None:
    incidents = [an_incident(n, step=4) for n in range(1, 5)]
    assert budgets.exhausted(a_record(*incidents[:3]), Recovery(), NOW) == ""
    assert budgets.exhausted(a_record(*incidents), Recovery(), NOW) == "ApplicationRestartsExhausted"


def test_hardware_has_its_own_limit() -> None:
    incidents = [an_incident(n, INFRASTRUCTURE) for n in range(1, 4)]
    limits = Recovery(hardware_restarts_per_day=2)
    assert budgets.exhausted(a_record(*incidents), limits, NOW) == "HardwareRestartsExhausted"


@pytest.mark.parametrize(
    ("incidents", "checkpoint", "seconds"),
    [
        pytest.param([], None, 0, id="nothing failed"),
        pytest.param([an_incident(n, step=5) for n in (1, 2)], None, 0, id="twice is no loop"),
        pytest.param([an_incident(n, step=5) for n in (1, 2, 3)], None, 10, id="three times"),
        pytest.param([an_incident(n, step=n) for n in (5, 6, 7)], None, 10, id="at steps that vary a little"),
        pytest.param([an_incident(n, step=5) for n in range(1, 5)], None, 20, id="it doubles"),
        pytest.param([an_incident(n, step=5) for n in range(1, 30)], None, 300, id="up to five minutes"),
        pytest.param([an_incident(n, step=5) for n in (1, 2, 3)], 6, 0, id="a checkpoint was won"),
        pytest.param(
            [*(an_incident(n, step=5) for n in (1, 2, 3)), an_incident(4, INFRASTRUCTURE)], None, 0, id="a node failed"
        ),
    ],
)
def test_back_off(incidents: list[GangIncident], checkpoint: int | None, seconds: float) -> None:
    assert budgets.back_off_seconds(a_record(*incidents, checkpoint=checkpoint)) == seconds

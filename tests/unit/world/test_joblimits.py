"""What a FleetPolicy lets one job ask for."""

import pytest
from tests.unit.lifecycle.builders import a_job

from muster.api.fleetpolicy import JobLimits
from muster.world.joblimits import lowered_fields, too_many_nodes, within_limits


def test_a_job_within_the_limits_is_the_same_object() -> None:
    job = a_job(checkpoint={"directory": "/c", "saveTimeoutSeconds": 3600})
    assert within_limits(job, JobLimits()) is job


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        pytest.param(JobLimits(), (3600, 90, 95), id="an hour for a save is the default"),
        pytest.param(JobLimits(save_timeout_seconds=86400), (86400, 90, 95), id="as the policy says"),
        pytest.param(JobLimits(save_timeout_seconds=0, application_restarts_per_day=0), (0, 0, 95), id="none"),
        pytest.param(JobLimits(hardware_restarts_per_day=7), (3600, 90, 7), id="failures of nodes"),
    ],
)
def test_what_is_beyond_a_limit_counts_as_the_limit(limits: JobLimits, want: tuple[int, int, int]) -> None:
    recovery = {"applicationRestartsPerDay": 90, "hardwareRestartsPerDay": 95, "unreachableTimeoutSeconds": 33}
    job = a_job(checkpoint={"directory": "/c", "saveTimeoutSeconds": 86400}, recovery=recovery)
    seen = within_limits(job, limits).spec
    restarts = seen.recovery.application_restarts_per_day, seen.recovery.hardware_restarts_per_day
    assert (seen.checkpoint.save_timeout_seconds, *restarts) == want
    assert (seen.checkpoint.directory, seen.recovery.unreachable_timeout_seconds) == ("/c", 33)
    assert job.spec.checkpoint.save_timeout_seconds == 86400, "the job itself is not changed"


def test_what_is_lowered_is_told_with_the_value_asked_for_and_the_one_applied() -> None:
    job = a_job(checkpoint={"directory": "/c", "saveTimeoutSeconds": 86400}, recovery={"hardwareRestartsPerDay": 95})
    assert lowered_fields(job, JobLimits(save_timeout_seconds=86400)) == ""
    saves = (
        "spec.checkpoint.saveTimeoutSeconds is 86400, and 3600 is applied: FleetPolicy default allows no more "
        "(spec.jobLimits.saveTimeoutSeconds)"
    )
    assert lowered_fields(job, JobLimits()) == saves
    restarts = (
        "spec.recovery.hardwareRestartsPerDay is 95, and 7 is applied: FleetPolicy default allows no more "
        "(spec.jobLimits.hardwareRestartsPerDay)"
    )
    assert lowered_fields(job, JobLimits(hardware_restarts_per_day=7)) == f"{saves}; {restarts}"


def test_a_hold_is_limited_where_a_job_has_one() -> None:
    recovery = {"holdSeconds": 86400}
    job = a_job(recovery={**recovery, "onFailure": "Hold"})
    assert within_limits(job, JobLimits()).spec.recovery.hold_seconds == 14400
    assert within_limits(job, JobLimits(hold_seconds=0)).spec.recovery.hold_seconds == 0
    assert "spec.recovery.holdSeconds is 86400, and 14400 is applied" in lowered_fields(job, JobLimits())
    recovers = a_job(recovery=recovery)
    assert lowered_fields(recovers, JobLimits(hold_seconds=0)) == ""
    assert within_limits(recovers, JobLimits(hold_seconds=0)) is recovers


def test_a_job_with_too_many_nodes_is_told_the_fields_and_the_remedy() -> None:
    assert too_many_nodes(a_job(nodes=3), JobLimits(nodes=3)) == ""
    found = too_many_nodes(a_job(nodes=4), JobLimits(nodes=3))
    assert found.startswith(
        "spec.nodes is 4, and FleetPolicy default lets a job have 3 at most (spec.jobLimits.nodes)."
    )
    assert "create it again with fewer" in found

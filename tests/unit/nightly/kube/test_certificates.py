"""The life of the coordinator's certificates over years, day by day."""

from datetime import timedelta

import pytest
from tests.unit.kube.leaders import (
    DAY,
    HOUR,
    Leaders,
    assert_that_a_clock_ahead_is_made_up_for,
    assert_that_jobs_have_the_next_authority_a_month_before,
    assert_that_nobody_distrusts,
)


@pytest.mark.parametrize("step", [4 * DAY, 10 * DAY])
def test_authority_changes_without_a_moment_of_distrust(step: timedelta) -> None:
    assert_that_nobody_distrusts(Leaders(), step)


def test_a_job_that_runs_for_weeks_has_the_next_authority_a_month_before_it_signs() -> None:
    assert_that_jobs_have_the_next_authority_a_month_before(Leaders(), DAY)


@pytest.mark.parametrize("ahead", [2 * HOUR, 20 * DAY, 400 * DAY])
def test_certificates_of_a_leader_with_a_clock_ahead_are_replaced(ahead: timedelta) -> None:
    """They are replaced once the clock is right."""
    assert_that_a_clock_ahead_is_made_up_for(Leaders(), ahead, every_hours=37)

"""Whether a job makes steps, and which failure it has not come back from."""

from typing import Any

import pytest
from tests.unit.cli.test_status import NOW, a_job, ago, incident

from muster.answers.reported import report
from muster.answers.training import open_incident, step_rate, still_since
from muster.api.trainingjob import TrainingJob
from muster.goodput.opened import figures_as_of
from muster.page.life import life


@pytest.mark.parametrize(
    ("status", "is_open"),
    [
        ({"state": "Recovering", "reason": "NodeLost", "incidents": [incident()]}, True),
        ({"state": "Running", "reason": "RanksStarted", "incidents": [incident()]}, True),
        ({"state": "Running", "reason": "Training", "incidents": [incident()]}, False),
        ({"state": "Running", "reason": "RanksStarted", "goodput": None, "incidents": [incident()]}, False),
        ({"state": "Recovering", "incidents": [incident(resumedTime=ago(1))]}, False),
        ({"state": "Failed", "incidents": [incident()]}, False),
        ({"state": "Suspended", "incidents": [incident()]}, False),
        ({"incidents": []}, False),
    ],
)
def test_an_incident_is_open_until_a_step_follows(status: dict[str, Any], is_open: bool) -> None:
    found = open_incident(TrainingJob.model_validate(a_job(**status)))
    assert (found is not None) == is_open
    assert found is None or found.number == 2


@pytest.mark.parametrize(
    ("state", "age_seconds", "step_milliseconds", "is_still"),
    [
        ("Running", 60, 500, False),
        ("Running", 121, 500, True),
        ("Running", 3 * 86400, 500, True),
        ("Running", 1000, 120_000, False),  # of ten steps that is not the time yet
        ("Running", 1201, 120_000, True),
        ("Suspended", 3 * 86400, 500, False),
        ("Recovering", 3 * 86400, 500, False),
    ],
)
def test_who_has_long_made_no_step_has_no_rate(
    state: str, age_seconds: int, step_milliseconds: int, is_still: bool
) -> None:
    goodput = {"creationTime": ago(10**6), "countedUntil": ago(age_seconds), "stepMilliseconds": step_milliseconds}
    job = TrainingJob.model_validate(a_job(state=state, goodput=goodput))
    assert (still_since(job, NOW) is not None) == is_still
    assert (step_rate(job, NOW) is not None) == (state == "Running" and not is_still)


@pytest.mark.parametrize("state", ["Running", "Recovering"])
@pytest.mark.parametrize("silent_seconds", [60, 5000])
@pytest.mark.parametrize("ahead_seconds", [3 * 3600, -3 * 3600])
def test_figures_by_a_clock_that_is_hours_off_are_what_they_would_be_by_a_true_one(
    ahead_seconds: int, silent_seconds: int, state: str
) -> None:
    def job(ahead: int) -> TrainingJob:
        times = {
            "creationTime": ago(10**5 - ahead),
            "countedUntil": ago(silent_seconds - ahead),
            "clockAheadSeconds": ahead,
        }
        goodput = {**times, "stepMilliseconds": 500, "seconds": {"compute": 10**5 - silent_seconds}}
        return TrainingJob.model_validate(a_job(state=state, goodput=goodput))

    true, off = job(0), job(ahead_seconds)
    assert figures_as_of(true, NOW).seconds == figures_as_of(off, NOW).seconds
    assert still_since(true, NOW) == still_since(off, NOW)
    assert step_rate(true, NOW) == step_rate(off, NOW)
    assert true.status.goodput is not None
    assert off.status.goodput is not None
    by_true, by_off = report(true, true.status.goodput, now=NOW), report(off, off.status.goodput, now=NOW)
    assert by_true == by_off, "its begin and end, too"
    drawn = [found.to_json() | {"marks": []} for each in (true, off) if (found := life(each, NOW))]
    assert drawn[0] == drawn[1]

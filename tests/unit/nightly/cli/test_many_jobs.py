"""What many jobs cost the commands that show them all."""

import json
import time

import pytest
from rich.console import Console
from tests.unit.cli import test_fleetreport as fleets
from tests.unit.cli.test_fleetreport import DAY, a_spec, lives
from tests.unit.cli.test_status import NOW, incident
from tests.unit.cli.test_top import named

from muster.answers.fleetreported import fleet_report
from muster.answers.overview import overview
from muster.api.trainingjob import TrainingJob
from muster.cli.top import screen


def test_500_jobs_are_made_into_a_screen_without_a_wait() -> None:
    """A quarter of a second here, beside the time of the API server; the bound is for what grows with the square of the
    jobs."""
    many = [incident(attempt=index, message="x" * 1000) for index in range(16)]
    data = [json.dumps(named(f"job-{index:03}", incidents=many)) for index in range(500)]
    began = time.process_time()
    it = overview([TrainingJob.model_validate_json(each) for each in data], "", NOW)
    console = Console(width=200, height=50)
    with console.capture():
        console.print(screen(it, NOW, 200, 50))
    assert time.process_time() - began < 5.0


def test_twenty_thousand_ended_jobs_are_reported_of_in_time() -> None:
    many = lives(*(a_spec(1).model_copy(update={"job_uid": f"u{number}"}) for number in range(20_000)))
    it = fleet_report(many, fleets.NOW, fleets.NOW - 9.5 * DAY)
    assert it.jobs == 20_000
    assert it.estimated_share == 1.0
    assert it.gpu_seconds == pytest.approx(20_000 * 691_200 / 2)

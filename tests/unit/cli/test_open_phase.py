"""A job that is down for hours: every surface shows the same, though nothing was written meanwhile."""

from datetime import timedelta

import pytest
from prometheus_client import REGISTRY
from tests.unit.cli.test_status import NOW, a_job, ago

from muster.api.endedjob import Ending
from muster.api.trainingjob import TrainingJob
from muster.cli.fleetreported import Life, fleet_report
from muster.cli.overview import overview
from muster.cli.reported import report
from muster.cli.standing import standing
from muster.controller.jobfigures import JobFigures
from muster.goodput.history import record
from muster.goodput.opened import as_of

DOWN = 36_000


def lost_a_node() -> TrainingJob:
    """Four nodes of eight accelerators trained for two hours; one died, and for ten hours no other is free."""
    goodput = {
        "begun": ago(7287 + DOWN),
        "time": ago(DOWN),
        "seconds": {"compute": 7200, "restarting": 87},
        "gpuSeconds": {"compute": 7200 * 32, "restarting": 87 * 24},
        "ettrPermille": 988,
        "openPhase": {"bucket": "requeued", "since": ago(DOWN), "gpus": 24},
    }
    job = a_job(state="Recovering", reason="NodeLost", nodes=["a", "b", "c", ""], goodput=goodput)
    return TrainingJob.model_validate(job)


def test_every_surface_counts_the_ten_hours() -> None:
    job = lost_a_node()
    goodput = job.status.goodput
    assert goodput is not None
    before = report(job, goodput)
    found = report(job, goodput, now=NOW)
    assert (before.ettr, found.ettr, found.wall_seconds) == (0.988, 0.166, 7287 + DOWN)
    assert found.gpu_hours - before.gpu_hours == pytest.approx(240)
    assert standing(job, None, None, None, NOW).ettr == 0.166
    top = overview([job], "", NOW)
    assert top.jobs[0].ettr == 0.166
    counted = as_of(job, NOW)
    assert counted is not None
    life = Life(record(job, None, counted, Ending.DELETED), "Recovering", running=True)
    fleet = fleet_report([life], NOW)
    assert fleet.gpu_hours - before.gpu_hours == pytest.approx(240)
    assert fleet.goodput == top.goodput == pytest.approx(7200 * 32 / (7200 * 32 + 87 * 24 + DOWN * 24))
    JobFigures(lambda: NOW).told(("ns", "llama"), job.status)
    labels = {"namespace": "ns", "job_name": "llama"}
    assert REGISTRY.get_sample_value("muster_job_ettr_ratio", labels) == 0.166
    held = REGISTRY.get_sample_value("muster_job_gpu_seconds", {**labels, "bucket": "requeued"})
    assert held == timedelta(hours=240).total_seconds()

"""Figures that several surfaces show: each shows the same."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from prometheus_client import REGISTRY
from tests.unit.cli.test_status import NOW, a_job, ago

from muster.answers.fleet_text import figures as fleet_figures
from muster.answers.fleet_text import remarks
from muster.answers.fleetreported import AccountedJob, fleet_report
from muster.answers.jobstatus import job_status
from muster.answers.overview import overview
from muster.answers.reported import report
from muster.answers.text_parts import duration, hours, percent
from muster.api.endedjob import Ending
from muster.api.goodput import Account
from muster.api.throughput import Throughput
from muster.api.trainingjob import TrainingJob
from muster.cli.report import render as render_report
from muster.cli.status import render as render_status
from muster.cli.top import screen
from muster.controller.jobfigures import JobFigures
from muster.goodput.figures import KeptWork
from muster.goodput.figures import figures as account_figures
from muster.goodput.history import ended_job_record
from muster.goodput.opened import figures_as_of
from muster.goodput.prices import Prices

DOWN = 36_000


def lost_a_node() -> TrainingJob:
    """Four nodes of eight accelerators trained for two hours; one died, and for ten hours no other is free."""
    goodput = {
        "creationTime": ago(7287 + DOWN),
        "countedUntil": ago(DOWN),
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
    assert job_status(job, None, None, None, NOW).ettr == 0.166
    top = overview([job], "", NOW)
    assert top.jobs[0].ettr == 0.166
    counted = figures_as_of(job, NOW)
    assert counted is not None
    life = AccountedJob(ended_job_record(job, None, counted, Ending.DELETED), "Recovering", running=True)
    fleet = fleet_report([life], NOW)
    assert fleet.gpu_hours - before.gpu_hours == pytest.approx(240)
    assert fleet.goodput == top.goodput == pytest.approx(7200 * 32 / (7200 * 32 + 87 * 24 + DOWN * 24))
    JobFigures(lambda: NOW).set_status(("ns", "llama"), job.status)
    labels = {"namespace": "ns", "job_name": "llama"}
    assert REGISTRY.get_sample_value("muster_job_ettr_ratio", labels) == 0.166
    held = REGISTRY.get_sample_value("muster_job_gpu_seconds", {**labels, "bucket": "requeued"})
    assert held == timedelta(hours=240).total_seconds()


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        pytest.param({"compute": 100_000, "starting": 500_000}, "16.7%", id="rounded"),
        pytest.param({"compute": 1400, "starting": 700}, "50.0%", id="of the seconds that are shown"),
    ],
)
def test_every_surface_rounds_the_same_ettr(
    milliseconds: dict[str, int], shown: str, printed: Callable[..., str]
) -> None:
    account = Account(creation_time=NOW, counted_until=NOW, milliseconds=milliseconds)
    goodput = account_figures(account, None, None, KeptWork(is_known=True))
    job = TrainingJob.model_validate(a_job(state="Running", goodput=goodput.to_json()))
    life = AccountedJob(ended_job_record(job, None, goodput, Ending.DELETED), "Running", running=True)
    top = overview([job], "", NOW)
    shares = [report(job, goodput).ettr, job_status(job, None, None, None, NOW).ettr, top.jobs[0].ettr]
    assert [percent(each) for each in (*shares, top.ettr, fleet_report([life], NOW).ettr)] == [shown] * 5
    JobFigures(lambda: NOW).set_status(("ns", "llama"), job.status)
    assert REGISTRY.get_sample_value("muster_job_ettr_ratio", {"namespace": "ns", "job_name": "llama"}) == shares[0]
    for render in (
        lambda console: render_report(console, report(job, goodput)),
        lambda console: render_status(console, job_status(job, None, None, None, NOW), NOW),
        lambda console: console.print(screen(top, NOW, 200)),
    ):
        assert shown in printed(render)


def test_unsaved_work_stands_apart_on_every_surface(printed: Callable[..., str]) -> None:
    """Two hours on 32 accelerators, of which half an hour is not saved."""
    goodput = {
        "creationTime": ago(7200),
        "countedUntil": ago(0),
        "seconds": {"compute": 7200},
        "gpuSeconds": {"compute": 7200 * 32},
        "ettrPermille": 1000,
        "unsavedSeconds": 1800,
    }
    job = TrainingJob.model_validate(a_job(state="Running", goodput=goodput))
    assert job.status.goodput is not None
    made = report(job, job.status.goodput)
    assert "  not saved yet            30m" in printed(lambda console: render_report(console, made))
    assert "100.0%, 30m of it not saved yet" in printed(
        lambda console: render_status(console, job_status(job, None, None, None, NOW), NOW)
    )
    assert overview([job], "", NOW).jobs[0].unsaved_seconds == 1800
    life = AccountedJob(
        ended_job_record(job, None, job.status.goodput, Ending.DELETED), "Running", running=True, unsaved_seconds=1800
    )
    assert fleet_report([life], NOW).unsaved_gpu_hours == 16
    assert ("GPU-hours not saved yet", "16.0") in fleet_figures(fleet_report([life], NOW))
    JobFigures(lambda: NOW).set_status(("ns", "llama"), job.status)
    labels = {"namespace": "ns", "job_name": "llama"}
    assert REGISTRY.get_sample_value("muster_job_unsaved_seconds", labels) == 1800


def test_tokens_mfu_and_cost_are_the_reports_on_prometheus_too() -> None:
    """7,200 steps of a second on 32 GPUs, then half an hour of a wait with the nodes held, which costs as well."""
    spent = {"compute": 7200, "starting": 600}
    goodput = {
        "creationTime": ago(9600),
        "countedUntil": ago(1800),
        "seconds": spent,
        "gpuSeconds": {bucket: 32 * seconds for bucket, seconds in spent.items()},
        "steps": 7200,
        "gpuModel": "NVIDIA-H200",
        "openPhase": {"bucket": "restarting", "since": ago(1800), "gpus": 32},
    }
    body = a_job(state="Recovering", goodput=goodput)
    throughput = {"tokensPerStep": 400_000, "parameters": 7_000_000_000}
    body["spec"] = {**body["spec"], "throughput": throughput}
    job = TrainingJob.model_validate(body)
    assert job.status.goodput is not None
    prices = Prices(models={"NVIDIA-H200": 2.5}, currency="EUR")
    found = report(job, job.status.goodput, prices, NOW)
    assert found.throughput is not None
    assert found.cost is not None
    labels = {"namespace": "ns", "job_name": "llama"}
    JobFigures(lambda: NOW, lambda: prices).set_status(("ns", "llama"), job.status, job.spec.throughput)
    shown = {
        name: REGISTRY.get_sample_value(f"muster_job_{name}", labels)
        for name in ("tokens", "tokens_per_second", "mfu_ratio", "mfu_overall_ratio")
    }
    assert shown == {
        "tokens": found.throughput.tokens,
        "tokens_per_second": found.throughput.tokens_per_second,
        "mfu_ratio": found.throughput.mfu,
        "mfu_overall_ratio": found.throughput.mfu_overall,
    }
    assert shown["tokens"] == 7200 * 400_000
    assert (found.throughput.mfu or 0) > (found.throughput.mfu_overall or 1)
    cost = REGISTRY.get_sample_value("muster_job_cost", {**labels, "currency": "EUR"})
    assert cost == found.cost.total == pytest.approx(32 * (7200 + 600 + 1800) / 3600 * 2.5)


@pytest.mark.parametrize(
    ("throughput", "goodput"),
    [
        pytest.param({}, {"steps": 100}, id="the job does not say what a step is worth"),
        pytest.param({"tokensPerStep": 400}, {}, id="nobody knows which steps count"),
        pytest.param({"tokensPerStep": 400}, None, id="nothing is counted yet"),
    ],
)
def test_what_is_not_known_of_tokens_and_cost_has_no_row(
    throughput: dict[str, int], goodput: dict[str, int] | None
) -> None:
    spent = {
        "creationTime": ago(100),
        "countedUntil": ago(0),
        "seconds": {"compute": 100},
        "gpuSeconds": {"compute": 3200},
    }
    body = a_job(state="Running", goodput=None if goodput is None else {**spent, **goodput})
    job = TrainingJob.model_validate(body)
    JobFigures(lambda: NOW).set_status(("ns", "llama"), job.status, Throughput.model_validate(throughput))
    names = ("tokens", "tokens_per_second", "mfu_ratio", "mfu_overall_ratio", "cost")
    rows = [
        sample
        for family in REGISTRY.collect()
        for sample in family.samples
        if sample.name in {f"muster_job_{name}" for name in names}
    ]
    assert rows == []


def test_progress_that_nobody_knows_is_unknown_on_every_surface(printed: Callable[..., str]) -> None:
    """A job without a checkpoint directory that has not succeeded, beside one of which all is known."""
    spent = {
        "seconds": {"compute": 7200},
        "gpuSeconds": {"compute": 7200 * 32},
        "creationTime": ago(7200),
        "countedUntil": ago(0),
    }
    unknown = TrainingJob.model_validate(a_job(state="Running", goodput={**spent, "progressUnknown": True}))
    half = {
        "seconds": {"compute": 50, "lostWork": 50},
        "gpuSeconds": {"compute": 50, "lostWork": 50},
        "ettrPermille": 500,
    }
    known = TrainingJob.model_validate(a_job(state="Running", goodput={**spent, **half}))
    assert unknown.status.goodput is not None
    made = report(unknown, unknown.status.goodput, Prices(flat=1.0), NOW)
    assert made.ettr is None
    assert "unknown until the job succeeds" in printed(lambda console: render_report(console, made))
    assert "unknown until the job succeeds" in printed(
        lambda console: render_status(console, job_status(unknown, None, None, None, NOW), NOW)
    )
    top = overview([unknown, known], "", NOW)
    lives = [
        AccountedJob(ended_job_record(job, None, goodput, Ending.DELETED), "Running", running=True)
        for job in (unknown, known)
        if (goodput := job.status.goodput) is not None
    ]
    fleet = fleet_report(lives, NOW)
    assert top.goodput == fleet.goodput == 0.5
    assert top.ettr == fleet.ettr == 0.5
    assert (fleet.progress_unknown_jobs, fleet.progress_unknown_gpu_hours) == (1, 64)
    assert any("leave out 1 job with 64.0 GPU-hours" in line for line in remarks(fleet))
    rows = {each.gpu_hours: each.goodput for each in fleet.job_details}
    assert rows[64.0] is None
    JobFigures(lambda: NOW).set_status(("ns", "llama"), unknown.status)
    assert REGISTRY.get_sample_value("muster_job_ettr_ratio", {"namespace": "ns", "job_name": "llama"}) is None


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(24.0, "24.0 h"), (1.0, "1.0 h"), (0.5, "30m"), (0.02, "1m12s"), (0.4 / 3600, "0.4s"), (1e-7, "0.00036s")],
)
def test_hours_are_shown_in_units_that_fit(amount: float, shown: str) -> None:
    assert hours(amount) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (56 * 73, ("Failures in a node-hour", "49.32")),
        (56 * 7300, ("Failures in a node-day", "11.84")),
        (56 * 7_300_000, ("Failures in 1,000 node-days", "11.84")),
    ],
)
def test_failures_are_counted_in_units_that_fit(seconds: int, shown: tuple[str, str]) -> None:
    """56 failures, one in 73 seconds of a node at first."""
    spent = {
        "creationTime": ago(seconds),
        "countedUntil": ago(0),
        "seconds": {"compute": seconds},
        "gpuSeconds": {"compute": seconds},
    }
    job = TrainingJob.model_validate(a_job(state="Running", goodput={**spent, "failures": 56}))
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"nodes": 1})})
    assert job.status.goodput is not None
    life = AccountedJob(ended_job_record(job, None, job.status.goodput, Ending.DELETED), "Running", running=True)
    found = dict(fleet_figures(fleet_report([life], NOW)))
    assert found[shown[0]] == shown[1]
    if seconds < 3600 * 56:
        assert found["Time between a job's failures"].startswith(f"{duration(seconds / 56)} (56 failures; 95 %: ")

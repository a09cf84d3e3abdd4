"""`report` and `report --incidents`: what is made of the figures in a job's status, and how it is printed."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from muster.answers.job_text import figures
from muster.answers.reported import report
from muster.api.trainingjob import TrainingJob
from muster.cli.report import BAR_WIDTH, bar, render
from muster.goodput.figures import rounded_seconds
from muster.goodput.prices import Prices
from muster.whatif.formula import ettr

PATH = "/apis/muster.dev/v1alpha1/namespaces/team-a/trainingjobs/llama"
HOUR = 3600
END = datetime(2026, 1, 5, 4, tzinfo=UTC)
SECONDS = {"compute": 90 * HOUR, "lostWork": 5 * HOUR, "queued": 1 * HOUR, "restarting": 3 * HOUR, "undetected": HOUR}
INCIDENT = {
    "attempt": 1,
    "time": "2026-01-02T12:00:20Z",
    "faultTime": "2026-01-02T12:00:00Z",
    "resumedTime": "2026-01-02T12:03:00Z",
    "level": "R2",
    "faultClass": "Hardware",
    "reason": "NodeLost",
    "node": "gpu-7",
    "message": "node gpu-7 is \x1b[31mgone",
    "lostSteps": 40,
    "lostSeconds": 600,
}


def a_job(incidents: list[dict[str, Any]] | None = None, **goodput: Any) -> dict[str, Any]:
    figures = {
        "creationTime": "2026-01-01T00:00:00Z",
        "countedUntil": "2026-01-05T04:00:00Z",
        "seconds": SECONDS,
        "gpuSeconds": {name: 16 * seconds for name, seconds in SECONDS.items() if name != "queued"},
        "ettrPermille": 900,
        "ettrAfterQueuePermille": 909,
        "failures": 4,
        "lostSteps": 120,
        "firstCheckpointSeconds": 900,
        "stepMilliseconds": 6000,
        "stepP90Milliseconds": 6450,
        "checkpointSteps": 1000,
        "checkpointStallMilliseconds": 30_000,
    }
    template = {"spec": {"containers": [{"name": "main", "image": "trainer:1"}]}}
    return {
        "metadata": {"name": "llama", "namespace": "team-a", "uid": "u", "resourceVersion": "7"},
        "spec": {"nodes": 2, "template": template},
        "status": {
            "state": "Running",
            "incidents": [INCIDENT] if incidents is None else incidents,
            "goodput": {name: value for name, value in (figures | goodput).items() if value is not None},
        },
    }


def reported(**goodput: Any) -> Any:
    job = TrainingJob.model_validate(a_job(**goodput))
    assert job.status.goodput is not None
    return report(job, job.status.goodput)


def test_the_buckets_are_the_wall_clock_and_are_weighed_by_accelerators() -> None:
    found = reported()
    assert sum(each.seconds for each in found.buckets) == found.wall_seconds == 100 * HOUR
    assert sum(each.share for each in found.buckets) == pytest.approx(1.0)
    assert found.gpu_hours == 99 * 16
    assert found.buckets[0].bucket == "compute"


def test_each_incident_has_what_it_took_and_with_a_price_what_that_cost() -> None:
    """Three minutes until the first step and ten of lost work, of 16 accelerators; the second one lasts until the
    next."""
    later = {**INCIDENT, "attempt": 2, "faultTime": "2026-01-05T00:00:00Z", "time": "2026-01-05T00:00:05Z"}
    unknown = {key: value for key, value in later.items() if key not in ("resumedTime", "lostSeconds")}
    last = {**unknown, "attempt": 3, "faultTime": "2026-01-05T01:00:00Z", "time": "2026-01-05T01:00:05Z"}
    job = TrainingJob.model_validate(a_job([INCIDENT, unknown, last]))
    assert job.status.goodput is not None
    found = report(job, job.status.goodput, Prices(2.0)).incident_costs
    assert [(each.attempt, each.gpu_hours) for each in found[:2]] == [(1, pytest.approx(13 / 60 * 16)), (2, 16.0)]
    assert found[2].gpu_hours == pytest.approx(3 * 16)  # the job has not trained since
    assert [each.cost for each in found] == [pytest.approx(2 * each.gpu_hours) for each in found]
    assert report(job, job.status.goodput).incident_costs[0].cost is None


def test_an_incident_costs_no_more_than_the_job_has_held() -> None:
    """Fails, is suspended by its owner for ten days, and goes on: with one more that was over in a minute."""
    first = {**INCIDENT, "faultTime": "2026-01-01T01:00:00Z", "time": "2026-01-01T01:00:10Z", "lostSeconds": 0}
    suspended = {**first, "resumedTime": "2026-01-11T01:01:00Z"}
    second = {**first, "attempt": 2, "faultTime": "2026-01-11T02:00:00Z", "time": "2026-01-11T02:00:10Z"}
    seconds = {"compute": 7200, "undetected": 20, "suspended": 10 * 24 * HOUR - 10, "restarting": 110}
    gpu_seconds = {name: 16 * amount for name, amount in seconds.items() if name != "suspended"}
    incidents = [suspended, {**second, "resumedTime": "2026-01-11T02:01:00Z"}]
    job = TrainingJob.model_validate(
        a_job(incidents, seconds=seconds, gpuSeconds=gpu_seconds, countedUntil="2026-01-11T02:02:10Z")
    )
    assert job.status.goodput is not None
    found = report(job, job.status.goodput)
    assert [each.gpu_hours * HOUR for each in found.incident_costs] == pytest.approx([70 * 16, 60 * 16])
    assert found.recovery_seconds == pytest.approx(65)


def test_a_job_that_never_failed_is_reported() -> None:
    job = TrainingJob.model_validate(a_job([], failures=0))
    assert job.status.goodput is not None
    assert report(job, job.status.goodput).incident_costs == []


def test_a_wait_that_lasts_counts_and_a_clock_that_is_ahead_makes_none(
    api: Any, command: Callable[..., Result]
) -> None:
    waits = a_job()
    waits["status"] |= {"state": "Recovering", "reason": "InsufficientNodes"}
    waits["status"]["goodput"] |= {
        "openPhase": {"bucket": "requeued", "since": waits["status"]["goodput"]["countedUntil"], "gpus": 0}
    }
    api.put(PATH, waits)
    api.is_at(END + timedelta(hours=25))
    found = json.loads(command("report", "llama", "-o", "json").stdout)
    assert (found["ettr"], found["wallSeconds"]) == (0.72, 125 * HOUR)
    assert {each["bucket"]: each["seconds"] for each in found["buckets"]}["requeued"] == 25 * HOUR
    api.put(PATH, a_job())
    api.is_at(END + timedelta(seconds=5))  # this machine's clock is months away from that
    text = command("report", "llama").stdout
    assert "no step" not in text
    assert "ETTR                       90.0%" in text


def test_energy_is_told_where_a_driver_has_told_it(printed: Callable[..., str]) -> None:
    """95 hours of 99 in which ranks ran or may have, of 16 GPUs: 500 W each."""
    seconds = 95 * 3600 * 16
    body = a_job(steps=54_000, joules=500 * seconds, meteredGpuSeconds=seconds)
    body["spec"]["throughput"] = {"tokensPerStep": 400_000}
    job = TrainingJob.model_validate(body)
    assert job.status.goodput is not None
    found = report(job, job.status.goodput)
    assert found.energy is not None
    assert found.energy.joules_per_token == pytest.approx(500 * seconds / (54_000 * 400_000))
    text = printed(lambda console: render(console, found), width=120)
    assert "760 kWh (500 W for each GPU, metered for 96% of the time)" in text
    assert "0.127 J" in text
    assert found.energy.source == "launchers"
    assert reported().energy is None
    assert "unknown: no launcher has read the drivers' counters" in printed(
        lambda console: render(console, reported()), width=120
    )


def test_what_the_program_has_printed_is_shown_as_it_was(printed: Callable[..., str]) -> None:
    seen = {
        "startMilliseconds": 0,
        "firstStepMilliseconds": 1,
        "lastStepMilliseconds": 2,
        "firstStep": 1,
        "step": 2,
        "loss": "2.31",
        "tokensPerGpuSecond": 7104,
    }
    seen |= {"gflopsPerGpu": 411_200, "mfuPermille": 416}
    text = printed(lambda console: render(console, reported(progress=seen)), width=120)
    assert "Loss, as printed" in text
    assert "2.31" in text
    assert "7,104 for each GPU" in text
    assert "411.2 for each GPU" in text
    assert "41.6%" in text
    assert not any("the loss is printed" in line for line in reported(progress=seen).advice)
    assert any("the loss is printed as nan" in line for line in reported(progress={**seen, "loss": "nan"}).advice)
    assert "as printed" not in printed(lambda console: render(console, reported()), width=120)


def test_what_the_burn_in_measured_is_said_beside_mfu(printed: Callable[..., str]) -> None:
    body = a_job(steps=54_000, measuredTflops=700, gpuModel="NVIDIA-H200")
    body["spec"]["throughput"] = {"tokensPerStep": 400_000, "parameters": 7_000_000_000}
    job = TrainingJob.model_validate(body)
    assert job.status.goodput is not None
    found = report(job, job.status.goodput)
    assert found.throughput is not None
    assert found.throughput.delivered == pytest.approx(54_000 * 400_000 * 42e9 / (90 * 3600 * 16 * 700e12))
    text = printed(lambda console: render(console, found), width=120)
    # An H200 reaches 989 TFLOP/s by its data sheet.
    assert re.search(r"Of what burn-in measured +\d+\.\d% of 700 TFLOP/s, which is 70\.8% of the peak", text)


def test_the_mean_time_between_failures_counts_the_time_in_which_ranks_ran() -> None:
    assert reported().mttf_hours == 96 / 4
    assert reported().recovery_seconds == 180, "from each failure to the first step after it"
    starts = reported(failures=20, failedStarts=16)
    assert (starts.mttf_hours, starts.mttf_failures, starts.failures) == (96 / 4, 4, 20), "time of starts is not in it"
    assert starts.checkpoints == reported().checkpoints
    assert reported(failures=20, failedStarts=20).mttf_at_least_hours == pytest.approx(96 / 2.9957, rel=1e-4)
    unharmed = reported(failures=0)
    assert unharmed.mttf_hours is None
    assert unharmed.mttf_at_least_hours == pytest.approx(96 / 2.9957, rel=1e-4)


def test_how_often_it_fails_has_its_bounds_and_is_told_by_class(printed: Callable[..., str]) -> None:
    found = reported(failuresByClass={"Application": 1, "Hardware": 3})
    assert (found.mttf_low_hours, found.mttf_high_hours) == (
        pytest.approx(9.37, abs=0.01),
        pytest.approx(88.1, abs=0.1),
    )
    assert [(each.fault_class, each.failures, each.mttf_hours) for each in found.mttf_by_class] == [
        ("Hardware", 3, 32),
        ("Application", 1, 96),
    ]
    text = " ".join(printed(lambda console: render(console, found), width=120).split())
    assert "Time between failures 24.0 h (4 failures; 95 %: 9.4 h to 88.1 h)" in text
    assert "Hardware 32.0 h (3 failures; 95 %: 10.9 h to 155.2 h)" in text
    assert "Application 96.0 h (1 failure; 95 %: 17.2 h to 3,791.8 h)" in text


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [
        ({"queued": 100 * HOUR}, "no rank was seen to train yet"),
        (
            {"compute": 10 * HOUR, "unknown": 90 * HOUR},
            "more than a tenth of the time in which ranks may have run is unknown",
        ),
    ],
    ids=["in the queue", "mostly unknown"],
)
def test_an_unknown_time_between_failures_has_its_reason(seconds: dict[str, int], reason: str) -> None:
    rows = dict(figures(reported(seconds=seconds)))
    assert rows["Time between failures"] == f"unknown: {reason}"


def test_an_unknown_ettr_is_not_at_least_anything() -> None:
    found = reported(seconds={"unknown": 100 * HOUR}, ettrPermille=None, progressUnknown=True)
    assert "100.0% of the time is unknown: docs/goodput.md says why" in found.advice


def test_the_interval_by_young_and_daly_is_advised_with_what_it_gains() -> None:
    """M = 24 h, w = 30 s: sqrt(2 * 30 * 86400) - 30 = 2247 s, in place of 6000 s."""
    saved = reported().checkpoints
    assert saved.interval_seconds == 6000
    assert saved.best_interval_seconds == pytest.approx(2246.8, abs=0.1)
    gain = ettr(86400, saved.best_interval_seconds, 30, 0, 180) - ettr(86400, 6000, 30, 0, 180)
    assert saved.gain == pytest.approx(gain)
    assert 0.01 < saved.gain < 0.02
    assert any("checkpoint every 37m26s in place of 1h40m would gain 1." in line for line in reported().advice)


def test_no_interval_is_advised_in_which_a_save_would_not_be_complete() -> None:
    """What launchers saw of the saves: complete after 50 minutes, so that one before is not lost to the next."""
    body = a_job()
    saves = [
        {"step": step, "saveSeconds": 60, "durableSeconds": took} for step, took in ((1, 2900), (2, 3000), (3, 4000))
    ]
    body["status"]["checkpoint"] = {"step": 3, "path": "/c/3", "time": "2026-01-05T04:00:00Z", "saves": saves}
    job = TrainingJob.model_validate(body)
    assert job.status.goodput is not None
    saved = report(job, job.status.goodput).checkpoints
    assert saved is not None
    assert (saved.durable_seconds, saved.best_interval_seconds) == (3000, 3000)
    assert saved.gain == pytest.approx(ettr(86400, 3000, 30, 3000, 180) - ettr(86400, 6000, 30, 3000, 180))


@pytest.mark.parametrize(
    ("printed", "throughput", "said"),
    [
        pytest.param({"tokensPerGpuSecond": 4166}, {}, None, id="the same"),
        pytest.param({"tokensPerGpuSecond": 4500}, {}, None, id="within a tenth"),
        pytest.param({}, {}, None, id="nothing is printed"),
        pytest.param({"tokensPerGpuSecond": 8333}, {"tokensPerStep": None}, None, id="nothing is said"),
        pytest.param(
            {"tokensPerGpuSecond": 8333, "gflopsPerGpu": 350_000},
            {},
            "the program prints 8,333 and spec.throughput says 4,167 tokens per second and GPU: check tokensPerStep",
            id="half a batch",
        ),
        pytest.param(
            {"tokensPerGpuSecond": 4166, "gflopsPerGpu": 200_000},
            {},
            "the program prints 200 and spec.throughput says 175 TFLOP/s for each GPU: check parameters or "
            "flopsPerToken",
            id="attention",
        ),
        pytest.param(
            {"gflopsPerGpu": 175_000, "mfuPermille": 177},
            {"peakTflopsPerGpu": 1979},
            "the program prints 17.7 and spec.throughput says 8.843 % MFU: check peakTflopsPerGpu",
            id="another peak",
        ),
    ],
)
def test_what_the_program_prints_of_its_speed_checks_what_the_job_says(
    printed: dict[str, int], throughput: dict[str, int | None], said: str | None
) -> None:
    """A step of 6 s on 16 GPUs has 400,000 tokens: 4,167 a second on each, and 6 N = 42 GFLOP for each of them."""
    seen = {
        "startMilliseconds": 0,
        "firstStepMilliseconds": 1,
        "lastStepMilliseconds": 2,
        "firstStep": 1,
        "step": 2,
        "stepMilliseconds": 6000,
        **printed,
    }
    body = a_job(gpuModel="NVIDIA-H200", progress=seen)
    body["spec"]["throughput"] = {"tokensPerStep": 400_000, "parameters": 7_000_000_000, **throughput}
    job = TrainingJob.model_validate(body)
    assert job.status.goodput is not None
    advice = [line for line in report(job, job.status.goodput).advice if "the program prints" in line]
    assert advice == ([said] if said else [])


def test_nobody_gains_more_than_there_is_to_gain() -> None:
    assert reported(ettrPermille=1000).checkpoints.gain == 0
    assert not any("Young/Daly" in line for line in reported(ettrPermille=1000).advice)
    assert reported(ettrPermille=998).checkpoints.gain == pytest.approx(0.002)


def test_where_much_of_the_time_is_unknown_nothing_is_told_of_how_often_it_fails() -> None:
    seen = reported(seconds={"compute": 90 * HOUR, "unknown": 10 * HOUR})
    assert seen.mttf_hours == 90 / 4
    blind = reported(seconds={"compute": 80 * HOUR, "unknown": 20 * HOUR})
    assert (blind.mttf_hours, blind.mttf_at_least_hours, blind.failures) == (None, None, 4)


def test_without_a_measured_stall_nothing_is_advised_but_to_tell_it() -> None:
    found = reported(checkpointStallMilliseconds=None)
    assert found.checkpoints.best_interval_seconds is None
    assert any("checkpointSeconds" in line for line in found.advice)


def test_unknown_time_is_said_to_be_so() -> None:
    assert not any("unknown" in line for line in reported().advice)
    found = reported(seconds={**SECONDS, "unknown": 10 * HOUR})
    assert any("ETTR is at least" in line for line in found.advice)


def test_a_shorter_step_limit_is_advised_for_unseen_hangs_not_for_nodes() -> None:
    hang = INCIDENT | {"reason": "StepTimeout", "faultTime": "2026-01-02T11:30:00Z"}
    assert not any("stepTimeoutSeconds" in line for line in reported().advice)
    assert any("stepTimeoutSeconds" in line for line in reported(incidents=[INCIDENT, hang]).advice)


def test_failures_that_come_within_the_hour_are_told_in_minutes(printed: Callable[..., str]) -> None:
    short = reported(seconds={"compute": 600})
    assert "2m30s (4 failures; 95 %: 58s to 9m10s)" in printed(lambda console: render(console, short))


def test_the_page_shows_bar_numbers_incidents_and_advice(printed: Callable[..., str]) -> None:
    text = printed(lambda console: render(console, reported()), width=120)
    assert "team-a/llama is Running, 4d4h from 2026-01-01 00:00:00 UTC" in text
    assert "█" * 40 in text
    assert "compute" in text
    assert "90.0%" in text
    assert "ETTR" in text
    assert "24.0 h (4 failures; 95 %: 9.4 h to 88.1 h)" in text
    assert "gpu-7" in text
    assert "3m" in text
    assert "ADVICE" in text


def test_the_bar_is_as_wide_as_ever_and_shows_whatever_took_time() -> None:
    drawn = bar(reported(seconds={"compute": 100_000, "queued": 1, "lostWork": 1}).buckets).plain
    assert len(drawn) == BAR_WIDTH
    assert set(drawn) == {"█", "q", "x"}


def test_seconds_add_up_though_each_is_rounded() -> None:
    found = rounded_seconds({"compute": 1_600, "queued": 1_600, "lostWork": 800, "unknown": 0})
    assert found == {"compute": 2, "lostWork": 1, "queued": 1}
    assert rounded_seconds({}) == {}


def test_programs_get_the_same(api: Any, command: Callable[..., Result]) -> None:
    api.put(PATH, a_job())
    api.is_at(END)
    found = json.loads(command("report", "llama", "-o", "json").stdout)
    assert (found["kind"], found["ettr"], found["failures"]) == ("JobReport", 0.9, 4)
    assert found["time"].startswith("2026-01-05T04:00:00")
    assert yaml.safe_load(command("-o", "yaml", "report", "team-a/llama").stdout) == found
    listed = json.loads(command("report", "llama", "--incidents", "--output", "json").stdout)
    assert listed["kind"] == "JobIncidents"
    assert listed["incidents"][0]["lostSeconds"] == 600


def test_a_move_is_listed_with_what_it_waited(api: Any, command: Callable[..., Result]) -> None:
    planned = {**INCIDENT, "faultClass": "Planned", "reason": "NodeCordoned", "askedTime": "2026-01-02T11:59:50Z"}
    del planned["faultTime"]
    api.put(PATH, a_job(incidents=[INCIDENT, {**planned, "attempt": 2}]))
    lines = command("report", "llama", "--incidents").stdout.splitlines()
    head = next(line for line in lines if "WAITED" in line)
    row = next(line for line in lines if "NodeCordoned" in line)
    assert row[: head.index("WAITED") + len("WAITED")].endswith("   30s")
    api.put(PATH, a_job())
    assert "WAITED" not in command("report", "llama", "--incidents").stdout


def test_incidents_are_listed_with_what_they_took(api: Any, command: Callable[..., Result]) -> None:
    api.put(PATH, a_job())
    said = command("report", "llama", "--incidents")
    assert said.exit_code == 0
    row = next(line for line in said.stdout.splitlines() if "gpu-7" in line)
    assert row.split() == [
        "1",
        "2026-01-02",
        "12:00:20",
        "UTC",
        "20s",
        "Hardware",
        "NodeLost",
        "gpu-7",
        "by",
        "a",
        "new",
        "node",
        "3m",
        "40",
        "10m",
    ]
    assert "\x1b[31m" not in said.stdout
    api.put(PATH, a_job(incidents=[]))
    assert command("report", "llama", "--incidents").stdout == "team-a/llama has had no incident\n"


def test_a_job_of_which_nothing_was_counted_is_an_error_that_says_so(api: Any, command: Callable[..., Result]) -> None:
    job = a_job()
    del job["status"]["goodput"]
    api.put(PATH, job)
    said = command("report", "llama")
    assert said.exit_code == 1
    assert "has no figures yet" in said.stderr


def test_a_job_that_ended_without_nodes_is_an_error_that_says_so(api: Any, command: Callable[..., Result]) -> None:
    job = a_job()
    del job["status"]["goodput"]
    ended = {
        "result": "Failed",
        "reason": "DeadlineExceeded",
        "message": "",
        "time": "2026-11-21T09:00:00Z",
        "attempt": 0,
    }
    job["status"].update(attempt=0, completion=ended)
    api.put(PATH, job)
    said = command("report", "llama")
    assert said.exit_code == 1
    assert "ended without ever having had nodes" in said.stderr


def test_a_job_that_never_had_nodes_shows_its_waiting(api: Any, command: Callable[..., Result]) -> None:
    job = a_job()
    job["metadata"]["creationTimestamp"] = "2026-01-05T00:00:00Z"
    job["status"] = {"state": "Pending"}
    api.put(PATH, job)
    api.is_at(END)
    found = json.loads(command("report", "llama", "-o", "json").stdout)
    assert (found["buckets"][0]["bucket"], found["wallSeconds"], found["gpuHours"]) == ("queued", 4 * HOUR, 0)
    job["status"] = {"state": "Suspended"}
    api.put(PATH, job)
    found = json.loads(command("report", "llama", "-o", "json").stdout)
    assert found["buckets"][0]["bucket"] == "suspended"


def an_incident(number: int, seen: str, **values: Any) -> dict[str, Any]:
    return {"attempt": number, "time": f"2026-01-{seen}Z", "message": "", **values}


EXAMPLE = [
    an_incident(1, "01T18:40:20", faultTime="2026-01-01T18:40:00Z", resumedTime="2026-01-01T19:30:00Z", level="R2",
                faultClass="Hardware", reason="NodeLost", node="gpu-7", lostSteps=700, lostSeconds=4200),
    an_incident(2, "02T12:00:05", faultTime="2026-01-02T12:00:00Z", resumedTime="2026-01-02T12:30:00Z", level="R0",
                faultClass="Application", reason="RankFailed", node="gpu-3", lostSteps=400, lostSeconds=2400),
    an_incident(3, "03T09:59:15", faultTime="2026-01-03T09:00:00Z", resumedTime="2026-01-03T10:50:00Z", level="R2",
                faultClass="Hardware", reason="StepTimeout", node="gpu-5", lostSteps=1000, lostSeconds=6000),
    an_incident(4, "04T20:10:20", faultTime="2026-01-04T20:10:00Z", resumedTime="2026-01-04T21:00:00Z", level="R2",
                faultClass="Hardware", reason="NodeLost", node="gpu-9", lostSteps=900, lostSeconds=5400),
]  # fmt: skip


def the_example() -> Any:
    """Sixteen H200 of 520 W, metered for 97 of the 99 hours in which ranks ran or may have; 54,000 steps of 2^20
    tokens."""
    metered = 97 * HOUR * 16
    body = a_job(
        incidents=EXAMPLE,
        lostSteps=3000,
        failuresByClass={"Hardware": 3, "Application": 1},
        steps=54_000,
        reportedBuckets=["inputWait"],
        gpuModel="NVIDIA-H200",
        measuredTflops=790,
        joules=520 * metered,
        meteredGpuSeconds=metered,
    )
    body["spec"]["throughput"] = {"tokensPerStep": 2**20, "parameters": 7_000_000_000}
    job = TrainingJob.model_validate(body)
    assert job.status.goodput is not None
    return report(job, job.status.goodput, Prices(2.5, currency="EUR"))


def test_the_example_of_the_documentation_is_what_is_printed_and_its_sums_hold(printed: Callable[..., str]) -> None:
    found = the_example()
    seconds = {each.bucket: each.seconds for each in found.buckets}
    assert seconds["compute"] == found.steps * found.step_seconds
    assert (
        seconds["lostWork"]
        == found.lost_steps * found.step_seconds
        == sum(each.lost_seconds or 0 for each in found.incidents)
    )
    assert found.lost_steps == sum(each.lost_steps or 0 for each in found.incidents)
    assert seconds["undetected"] == sum((each.time - each.fault_time).total_seconds() for each in found.incidents)
    away = sum((each.resumed_time - each.fault_time).total_seconds() for each in found.incidents)
    assert seconds["undetected"] + seconds["restarting"] == away == 4 * found.recovery_seconds
    page = (Path(__file__).parents[3] / "docs" / "goodput.md").read_text()
    block = page.partition("$ kubectl muster report team-a/llama\n")[2].partition("\nEvery moment")[0]
    text = printed(lambda console: render(console, found), width=150)
    assert [line.split() for line in block.splitlines()] == [line.split() for line in text.splitlines()], text
    # By hand: 54,000 * 2^20 tokens in 90 hours, and in 1,440 of 1,584 GPU-hours; 2.50 EUR and 1,000 steps to a
    # checkpoint.
    tokens = 56_623_104_000
    assert found.throughput.tokens_per_second == pytest.approx(tokens / 324_000)
    assert found.throughput.mfu == pytest.approx(tokens * 42e9 / (1440 * 3600 * 989e12))
    assert found.cost.total == pytest.approx(3960)
    assert found.cost.per_million_tokens == pytest.approx(3960 / 56_623.104)
    assert found.cost.per_checkpoint == pytest.approx(3960 / 54)
    assert found.energy.joules_per_token == pytest.approx(520 * 97 * 16 * 3600 / tokens)


def test_the_answers_to_the_questions_are_those_of_the_example(printed: Callable[..., str]) -> None:
    """docs/goodput.md begins with questions; what one job answers stands in the example below them."""
    page = (Path(__file__).parents[3] / "docs" / "goodput.md").read_text()
    rows = [
        line.split(" | ") for line in page.partition("\n## ")[0].splitlines() if "report " in line and "| `" in line
    ]
    shown = " ".join(printed(lambda console: render(console, the_example()), width=150).split())
    answers = [answer for _, command, answer, *_ in rows if "`report JOB`" in command]
    assert len(answers) >= 10
    for answer in answers:
        for words in re.findall(r"`([^`]+)`", answer):
            assert " ".join(words.split()) in shown, words


def facts(body: dict[str, Any], printed: Callable[..., str], price: float | None = 2.0) -> dict[str, str]:
    """What is printed of a job, by name."""
    job = TrainingJob.model_validate(body)
    assert job.status.goodput is not None
    made = report(job, job.status.goodput, Prices(price))
    lines = printed(lambda console: render(console, made), width=150).splitlines()
    return {name: answer.strip() for name, _, answer in (line.strip().partition("  ") for line in lines) if answer}


def test_where_time_is_unknown_ettr_and_its_cost_have_bounds(printed: Callable[..., str]) -> None:
    """Of 80 hours that were not suspended 30 are unknown, as of a job in mode Plain all are."""
    seconds = {"compute": 40 * HOUR, "unknown": 30 * HOUR, "queued": 10 * HOUR, "suspended": 20 * HOUR}
    held = {name: 16 * seconds[name] for name in ("compute", "unknown")}
    found = facts(a_job(seconds=seconds, gpuSeconds=held, ettrPermille=500), printed)
    assert found["ETTR"] == "50.0% at least; at most 87.5%, by what is unknown"
    assert found["no steps that count"] == "960.00 at most"
    plain = {"unknown": 100 * HOUR}
    found = facts(a_job(seconds=plain, gpuSeconds={"unknown": 1600 * HOUR}, ettrPermille=0), printed)
    assert found["ETTR"] == "0.0% at least; at most 100.0%, by what is unknown"
    little = {"compute": 99 * HOUR + 1800, "unknown": 1800}
    assert facts(a_job(seconds=little, gpuSeconds={}, ettrPermille=995), printed)["ETTR"] == "99.5%"


def test_without_a_directory_nothing_is_said_of_checkpoints_and_of_what_is_kept(printed: Callable[..., str]) -> None:
    nothing = {"firstCheckpointSeconds": None, "checkpointSteps": None, "ettrPermille": None, "progressUnknown": True}
    body = a_job(**nothing, steps=10)
    body["spec"]["throughput"] = {"tokensPerStep": 5}
    found = facts(body, printed)
    assert found["First checkpoint after"] == "unknown: without spec.checkpoint.directory Muster sees no checkpoints"
    assert found["no steps that count"] == "unknown: it is not known which steps count"
    assert found["ETTR"].startswith("unknown until the job succeeds")
    assert found["Tokens"] == "unknown until the job succeeds"
    body["status"]["state"] = "Failed"
    found = facts(body, printed)
    assert found["ETTR"] == "unknown: the job had no spec.checkpoint.directory, so Muster cannot know what it has kept"
    assert found["Tokens"] == "unknown", "it will not succeed any more"


def test_a_job_that_has_ended_waits_for_no_checkpoint(printed: Callable[..., str]) -> None:
    body = a_job(firstCheckpointSeconds=None, checkpointSteps=None)
    body["spec"]["checkpoint"] = {"directory": "/checkpoints"}
    assert facts(body, printed)["First checkpoint after"] == "none seen yet"
    body["status"]["state"] = "Failed"
    assert facts(body, printed)["First checkpoint after"] == "none was seen until its end"


def test_what_one_job_cannot_answer_is_unknown_with_its_reason(printed: Callable[..., str]) -> None:
    def told(throughput: dict[str, int], price: float | None = None, **goodput: Any) -> dict[str, str]:
        body = a_job(**goodput)
        body["spec"]["throughput"] = throughput
        job = TrainingJob.model_validate(body)
        assert job.status.goodput is not None
        made = report(job, job.status.goodput, Prices(price))
        lines = printed(lambda console: render(console, made), width=150).splitlines()
        found = (line.strip().partition("  ") for line in lines if "unknown: " in line)
        return {name: answer.strip() for name, _, answer in found}

    assert told({})["Tokens per second, MFU"] == (
        "unknown: the job does not say what a step is worth (spec.throughput.tokensPerStep)"
    )
    assert told({})["Cost"].startswith("unknown: some GPUs, or all, have no known price")
    assert told({})["Energy"].startswith("unknown: no launcher has read the drivers' counters")
    assert told({"tokensPerStep": 5}, 2.0, steps=10)["MFU"].startswith("unknown: spec.throughput has neither")
    few = told({"tokensPerStep": 5}, 2.0, steps=10, checkpointSteps=None, progressUnknown=True)
    assert few["a million tokens"] == "unknown: its tokens are unknown"
    assert few["a trained checkpoint"] == "unknown: fewer than two complete ones have been seen"
    known = {"tokensPerStep": 5, "parameters": 5, "peakTflopsPerGpu": 5}
    assert "not of all of its nodes" in told(known, steps=10)["Of what burn-in measured"]
    new = told(known, steps=1, seconds={"compute": 5}, gpuSeconds={"compute": 80})
    assert new["Tokens per second"] == "unknown: it has made steps that count for less than 10 s"


def test_a_told_wait_of_nothing_is_nothing() -> None:
    assert reported(reportedBuckets=["inputWait"]).input_wait == 0
    assert reported().input_wait is None


def test_that_nobody_tells_of_a_wait_for_data_is_not_taken_for_none(printed: Callable[..., str]) -> None:
    silent = reported()
    assert silent.input_wait is None
    assert "inputWait" not in json.loads(silent.model_dump_json(by_alias=True, exclude_none=True))
    assert "unknown: the program does not report it" in printed(lambda console: render(console, silent))
    told = reported(seconds={**SECONDS, "compute": 81 * HOUR, "inputWait": 9 * HOUR})
    assert told.input_wait == pytest.approx(0.1)
    text = printed(lambda console: render(console, told))
    assert "unknown" not in text.partition("Steps wait for data")[2].partition("\n")[0]
    assert "10.0%" in text.partition("Steps wait for data")[2].partition("\n")[0]

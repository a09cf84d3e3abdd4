"""The figures of jobs: what their status tells and nothing else, an end to how many have them, and a scrape that stays
cheap."""

from datetime import timedelta

import pytest
from prometheus_client import REGISTRY
from tests.unit.controller.scrapes import GOODPUT, TIME, a_scrape_is_bounded_in_rows_and_work, status

from muster.api.goodput import Bucket, OpenPhase
from muster.api.trainingjob import (
    CheckpointConcern,
    CheckpointSave,
    CheckpointStatus,
    CheckpointTrouble,
    CompletionRecord,
    CompletionResult,
    Condition,
    ConditionStatus,
    TrainingJobStatus,
)
from muster.controller import jobfigures
from muster.controller.jobfigures import JobFigures

JOB = ("ns", "llama")


def ended(state: str = "Succeeded") -> TrainingJobStatus:
    end = CompletionRecord(result=CompletionResult(state), reason="Completed", time=TIME, attempt=1)
    return status(state, "Completed", completion=end)


def shown(name: str, job: tuple[str, str] = JOB, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"muster_{name}", {"namespace": job[0], "job_name": job[1], **labels})


def rows(name: str) -> dict[tuple[str, ...], float]:
    """All rows of a metric by the values of their labels."""
    families = [family for family in REGISTRY.collect() for sample in family.samples if sample.name == f"muster_{name}"]
    return {tuple(sample.labels.values()): sample.value for family in families for sample in family.samples}


def test_a_job_has_the_figures_of_its_status_and_none_for_what_is_not_known() -> None:
    figures = JobFigures(lambda: TIME)
    saved = CheckpointStatus(step=20, path="/c/20", time=TIME)
    figures.set_status(JOB, status(step=25, checkpoint=saved))
    assert rows("job_state") == {(*JOB, "Running", "Training"): 1}
    assert rows("job_time_seconds") == {(*JOB, "compute"): 900, (*JOB, "lostWork"): 100}
    assert rows("job_gpu_seconds") == {(*JOB, "compute"): 7200}
    assert (shown("job_ettr_ratio"), shown("job_ettr_after_queue_ratio")) == (0.9, None)
    assert (shown("job_failures_total"), shown("job_lost_steps_total")) == (3, 40)
    assert (shown("job_step"), shown("job_step_seconds"), shown("job_step_p90_seconds")) == (25, 1.5, 1.75)
    assert (shown("checkpoint_step"), shown("checkpoint_timestamp_seconds")) == (20, TIME.timestamp())

    figures.set_status(JOB, status("Recovering", "NodeLost", goodput=None))
    assert rows("job_state") == {(*JOB, "Recovering", "NodeLost"): 1}
    assert rows("job_time_seconds") == {}
    assert shown("checkpoint_step") is None


def test_each_node_that_a_job_holds_has_a_row_or_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = JobFigures(lambda: TIME)
    figures.set_status(JOB, status(nodes=["a", "", "b", "a"]))
    assert rows("job_node") == {(*JOB, "a"): 1, (*JOB, "b"): 1}
    figures.set_status(("ns", "other"), status(nodes=["c", "d"]))
    monkeypatch.setattr(jobfigures, "MAX_NODES", 3)
    assert rows("job_node") == {(*JOB, "a"): 1, (*JOB, "b"): 1}
    figures.set_status(JOB, ended())
    assert rows("job_node") == {("ns", "other", "c"): 1, ("ns", "other", "d"): 1}


def test_time_that_no_account_has_yet_is_shown_as_the_command_line_shows_it() -> None:
    """A first start that has held its nodes for six hours: MusterJobNotTraining goes by this."""
    phase = OpenPhase(bucket=Bucket.STARTING, since=TIME, gpus=16)
    changes = {"seconds": {"queued": 50}, "gpu_seconds": {}, "ettr_permille": None, "open_phase": phase}
    goodput = GOODPUT.model_copy(update=changes)
    figures = JobFigures(lambda: TIME + timedelta(hours=6))
    figures.set_status(JOB, status("Starting", "ImagePullBackOff", goodput=goodput, nodes=["a", "b"]))
    assert rows("job_time_seconds") == {(*JOB, "queued"): 50, (*JOB, "starting"): 6 * 3600}
    assert rows("job_gpu_seconds") == {(*JOB, "starting"): 16 * 6 * 3600}
    assert shown("job_ettr_ratio") == 0


@pytest.mark.parametrize(
    ("state", "running", "since"),
    [
        pytest.param("Pending", ConditionStatus.FALSE, TIME.timestamp(), id="waits for nodes"),
        pytest.param("Stalled", ConditionStatus.FALSE, TIME.timestamp(), id="cannot go on"),
        pytest.param("Suspended", ConditionStatus.FALSE, None, id="stopped because somebody requested it"),
        pytest.param("Running", ConditionStatus.TRUE, None, id="runs"),
    ],
)
def test_who_ought_to_run_and_does_not_tells_since_when(
    state: str, running: ConditionStatus, since: float | None
) -> None:
    condition = Condition(type="Running", status=running, reason="R", message="", last_transition_time=TIME)
    JobFigures(lambda: TIME).set_status(JOB, status(state, conditions=[condition]))
    assert shown("job_waiting_since_timestamp_seconds") == since


def test_jobs_are_counted_by_state_and_one_that_has_ended_has_no_rows() -> None:
    figures = JobFigures(lambda: TIME)
    figures.set_status(JOB, status())
    figures.set_status(("ns", "other"), status("Pending", "InsufficientNodes"))
    figures.set_status(JOB, ended())
    assert rows("jobs") == {("Pending",): 1, ("Running",): 0, ("Succeeded",): 1}
    assert set(rows("job_state")) == {("ns", "other", "Pending", "InsufficientNodes")}
    figures.forget(JOB)
    figures.forget(JOB)
    assert rows("jobs") == {("Pending",): 1, ("Running",): 0, ("Succeeded",): 0}


@pytest.mark.parametrize("state", ["Running", "Stalled"])
def test_an_ejected_job_has_no_rows_so_that_no_alert_is_about_it(state: str) -> None:
    figures = JobFigures(lambda: TIME)
    figures.set_status(JOB, status(nodes=["a"]))
    ejected = Condition(type="Ejected", status=ConditionStatus.FALSE, reason="Ejecting", last_transition_time=TIME)
    figures.set_status(JOB, status(state, "Ejected", conditions=[ejected], nodes=["a"]))
    assert not any(rows(family.name.removeprefix("muster_")) for family in jobfigures._OF_JOBS)
    assert rows("jobs_without_metrics") == {(): 0}
    assert rows("jobs")[(state,)] == 1


def test_rows_are_limited_and_jobs_with_nodes_come_before_waiting_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobfigures, "MAX_JOBS", 2)
    figures = JobFigures(lambda: TIME)
    queued = status("Pending", "BehindInQueue", goodput=None)
    for name, told in (("a", queued), ("b", status()), ("c", queued), ("d", status()), ("e", status())):
        figures.set_status(("ns", name), told)
    assert {key[1] for key in rows("job_state")} == {"b", "d"}
    assert rows("jobs_without_metrics") == {(): 3}
    figures.set_status(("ns", "b"), ended())
    figures.set_status(("ns", "e"), status())
    assert {key[1] for key in rows("job_state")} == {"d", "e"}
    assert rows("jobs_without_metrics") == {(): 2}


def test_a_namespace_with_hundreds_of_suspended_jobs_hides_no_other_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobfigures, "MAX_JOBS", 6)
    figures = JobFigures(lambda: TIME)
    suspended, trains = status("Suspended", "Suspended"), status(nodes=["n0"])
    for number in range(20):
        figures.set_status(("many", f"j{number}"), suspended)
    figures.set_status(("prod", "llama"), trains)
    figures.set_status(("lab", "held"), suspended)
    assert {("prod", "llama"), ("lab", "held")} < {key[:2] for key in rows("job_state")}
    for number in range(20):
        figures.set_status(("many", f"k{number}"), trains)
    for name in ("a", "b", "c"):
        figures.set_status(("lab", name), trains)
    shares = [key[0] for key in rows("job_state")]
    assert (len(shares), shares.count("prod"), shares.count("lab")) == (6, 1, 2)
    before = set(rows("job_state"))
    for number in range(20):
        figures.set_status(("many", f"k{number}"), trains)
        figures.set_status(("lab", "c"), trains)
    assert set(rows("job_state")) == before, "nobody's row goes back and forth"


def test_reasons_and_numbers_have_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobfigures, "MAX_REASONS", len(jobfigures.ALERTED) + 2)
    figures = JobFigures(lambda: TIME)
    for reason in ("Training", "Strange1", "Strange2", "Strange3", "Training"):
        figures.set_status(("ns", reason.lower()), status(reason=reason, step=2**53 - 1))
    assert {key[3] for key in rows("job_state")} == {"Training", "Strange1", "Other"}
    for reason in jobfigures.ALERTED:
        figures.set_status(("ns", "late"), status(reason=reason))
        assert reason in {key[3] for key in rows("job_state")}, "an alert asks for it"
    assert shown("job_step", ("ns", "training")) == 2**53 - 1


def test_who_does_not_lead_shows_nothing_of_jobs() -> None:
    JobFigures(lambda: TIME)
    assert rows("job_state") == rows("jobs") == {}


def test_a_scrape_of_as_many_jobs_as_have_rows_is_bounded_in_rows_and_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are shipped: tests/unit/nightly/controller/test_jobfigures.py."""
    monkeypatch.setattr(jobfigures, "MAX_JOBS", 30)
    a_scrape_is_bounded_in_rows_and_work()


def test_a_job_that_ended_as_failed_is_shown_for_a_day_or_until_it_is_deleted() -> None:
    now = [TIME]
    figures = JobFigures(lambda: now[0])
    other = ("ns", "other")
    figures.set_status(JOB, ended("Failed"))
    figures.set_status(other, ended("Failed"))
    figures.set_status(("ns", "done"), ended())
    assert rows("job_failed_timestamp_seconds") == {JOB: TIME.timestamp(), other: TIME.timestamp()}
    figures.forget(other)
    assert rows("job_failed_timestamp_seconds") == {JOB: TIME.timestamp()}
    now[0] += timedelta(days=1)
    assert rows("job_failed_timestamp_seconds") == {}


def failed_after(minutes: int) -> TrainingJobStatus:
    time = TIME + timedelta(minutes=minutes)
    end = CompletionRecord(result=CompletionResult.FAILED, reason="Failed", time=time, attempt=1)
    return status("Failed", "Failed", completion=end)


def test_of_jobs_that_failed_the_latest_are_shown_and_the_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobfigures, "MAX_FAILED", 2)
    figures = JobFigures(lambda: TIME + timedelta(hours=1))
    for number in (2, 0, 3, 1):
        figures.set_status(("ns", f"job-{number}"), failed_after(number))
    assert {name for _, name in rows("job_failed_timestamp_seconds")} == {"job-2", "job-3"}
    assert rows("jobs_without_metrics") == {(): 2}


def test_a_namespace_in_which_hundreds_fail_hides_no_failure_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobfigures, "MAX_FAILED", 3)
    figures = JobFigures(lambda: TIME + timedelta(hours=1))
    figures.set_status(("lab", "first"), failed_after(0))
    for number in range(5):
        figures.set_status(("many", f"job-{number}"), failed_after(number + 1))
    assert set(rows("job_failed_timestamp_seconds")) == {("lab", "first"), ("many", "job-4"), ("many", "job-3")}


def saved(*concerns: CheckpointTrouble, **save: int) -> CheckpointStatus:
    return CheckpointStatus(
        step=20,
        path="/c/20",
        time=TIME,
        saves=[CheckpointSave(step=10, bytes=1), CheckpointSave(step=20, **save)],
        concerns=[CheckpointConcern(reason=reason, message="look", since=TIME) for reason in concerns],
    )


def test_the_newest_save_has_rows_for_what_is_known_of_it() -> None:
    figures = JobFigures(lambda: TIME)
    known = saved(CheckpointTrouble.SPACE_LOW, bytes=96, stall_seconds=0, save_seconds=12)
    figures.set_status(JOB, status(checkpoint=known))
    assert (shown("checkpoint_bytes"), shown("checkpoint_stall_seconds"), shown("checkpoint_save_seconds")) == (
        96,
        0,
        12,
    )
    assert shown("checkpoint_durable_seconds") is None
    assert rows("checkpoint_concern") == {(*JOB, "CheckpointSpaceLow"): 1}

    figures.set_status(JOB, status(checkpoint=saved(CheckpointTrouble.NO_NEW_CHECKPOINT, bytes=97)))
    assert (shown("checkpoint_bytes"), shown("checkpoint_stall_seconds")) == (97, None)
    assert rows("checkpoint_concern") == {(*JOB, "NoNewCheckpoint"): 1}
    figures.set_status(JOB, ended())
    assert rows("checkpoint_bytes") == rows("checkpoint_concern") == {}

"""Work that no complete checkpoint holds when a job ends: each surface counts it alike. Surfaces are the report, the
account in the history, the fleet's report and metrics.

In each case three nodes of eight accelerators get their go after 50 s in the queue. The first step is finished at 60 s
and each further one a second later, so that step 101 is finished at 160 s. The first step takes as long as the others:
9 s are the start, 101 s the steps. Step 60 is saved, or nothing is: then the steps from 61 on (41 s, 41 x 24 = 984
GPU-seconds), or all of them (101 s, 2,424 GPU-seconds), are lost at an end without success.
"""

from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client import REGISTRY
from tests.unit.goodput.test_account import broken, trains
from tests.unit.lifecycle.builders import Scene, a_job, at

from muster.answers.fleetreported import AccountedJob, fleet_report
from muster.answers.job_text import figures as figures_in_words
from muster.answers.reported import report
from muster.api.base import ObjectMeta
from muster.api.endedjob import EndedJobSpec, Ending
from muster.api.gang import Gang, GangSpec
from muster.api.goodput import Goodput
from muster.api.trainingjob import CheckpointStatus, CompletionRecord, CompletionResult, Incident, TrainingJob
from muster.controller.jobfigures import JobFigures
from muster.decision.accounted import plan_with_goodput
from muster.goodput.account import with_account
from muster.goodput.history import NOT_SAVED, ended_job_record, last_known
from muster.goodput.status_goodput import goodput_of_status
from muster.lifecycle import step as lifecycle_step
from muster.lifecycle.plan import Plan
from muster.status.report import State, StatusReport

WALL, STEPS, SAVED = 160, 101, 60
LABELS = {"namespace": "ns", "job_name": "job"}


@dataclass(frozen=True)
class End:
    """What is known of a job when it has ended.

    Attributes:
        job: with its status; figures: those that its account in the history is made of.
    """

    job: TrainingJob
    figures: Goodput
    gang: Gang | None

    def account(self) -> EndedJobSpec:
        return ended_job_record(self.job, self.gang, self.figures, Ending.DELETED)


def a_gang(spec: GangSpec) -> Gang:
    return Gang(metadata=ObjectMeta(name="job", namespace="ns"), spec=spec)


def training(saved: int | None, directory: bool) -> Scene:
    """At step 101, with a checkpoint of this step and the status that says so."""
    scene = trains(now=WALL, step=STEPS)
    if not directory:
        scene.job = scene.job.model_copy(update={"spec": a_job(checkpoint={}).spec})
    with_status(scene, step=STEPS, attempt=1, state="Running")
    if saved is not None:
        with_status(scene, checkpoint=CheckpointStatus(step=saved, path=f"/ckpt/{saved}", time=at(saved + 59)))
    with_status(scene, goodput=goodput_of_status(scene.world(), step=STEPS, saved=saved, ended=False, succeeded=False))
    return scene


def with_status(scene: Scene, **changes: Any) -> None:
    scene.job = scene.job.model_copy(update={"status": scene.job.status.model_copy(update=changes)})


def ended(scene: Scene, saved: int | None, result: CompletionResult) -> End:
    succeeded = result is CompletionResult.SUCCEEDED
    found = goodput_of_status(scene.world(), step=STEPS, saved=saved, ended=True, succeeded=succeeded)
    completion = CompletionRecord(result=result, reason="X", message="", time=at(WALL), attempt=1)
    with_status(scene, goodput=found, completion=completion, state=str(result))
    assert scene.record is not None
    gang = a_gang(scene.record)
    kept = last_known(scene.job, gang)
    assert kept is not None
    assert kept == found
    return End(scene.job, kept, gang)


def failed(saved: int | None, directory: bool) -> End:
    scene = training(saved, directory)
    scene.record = broken(scene)
    return ended(scene, saved, CompletionResult.FAILED)


def succeeded(saved: int | None, directory: bool) -> End:
    return ended(training(saved, directory), saved, CompletionResult.SUCCEEDED)


def deleted(saved: int | None, directory: bool) -> End:
    """A leader sees it go while it trains."""
    scene = training(saved, directory)
    assert scene.record is not None
    found = goodput_of_status(scene.world(), step=STEPS, saved=saved, ended=True, succeeded=False)
    assert found is not None
    return End(scene.job, found, a_gang(scene.record))


def suspended_then_deleted(saved: int | None, directory: bool) -> End:
    """The record has ended the attempt; a leader sees the job go at that moment."""
    scene = training(saved, directory)
    assert scene.record is not None
    changes = {"attempt": 2, "start": None, "reason": "Suspended", "time": at(WALL)}
    scene.record = with_account(scene.world(), scene.record.model_copy(update=changes))
    found = goodput_of_status(scene.world(), step=STEPS, saved=saved, ended=True, succeeded=False)
    assert found is not None
    return End(scene.job, found, a_gang(scene.record))


def deleted_unseen(saved: int | None, directory: bool) -> End:
    """Nobody saw it go: its last status is all that is known."""
    scene = training(saved, directory)
    found = last_known(scene.job, None)
    assert found is not None
    return End(scene.job, found, None)


WITHOUT_SUCCESS = (failed, deleted, suspended_then_deleted, deleted_unseen)


@pytest.mark.parametrize(
    ("end", "saved", "directory", "lost"),
    [
        *(pytest.param(end, None, True, 101, id=f"{end.__name__}, never saved") for end in WITHOUT_SUCCESS),
        *(pytest.param(end, SAVED, True, 41, id=f"{end.__name__}, saved, then steps") for end in WITHOUT_SUCCESS),
        *(pytest.param(end, STEPS, True, 0, id=f"{end.__name__}, all saved") for end in WITHOUT_SUCCESS),
        *(pytest.param(end, None, False, None, id=f"{end.__name__}, no directory") for end in WITHOUT_SUCCESS),
        pytest.param(succeeded, None, True, 0, id="succeeded, never saved"),
        pytest.param(succeeded, SAVED, True, 0, id="succeeded, saved, then steps"),
        pytest.param(succeeded, None, False, 0, id="succeeded, no directory"),
    ],
)
def test_each_surface_counts_the_same_steps_as_lost(
    end: Any, saved: int | None, directory: bool, lost: int | None
) -> None:
    found = end(saved, directory)
    gone, kept = lost or 0, STEPS - (lost or 0)
    wanted = {"queued": 50, "starting": 9, "compute": kept, "lostWork": gone}
    seconds = {bucket: amount for bucket, amount in wanted.items() if amount}
    ettr = None if lost is None else kept * 1000 // WALL

    shown = report(found.job, found.figures)
    assert {each.bucket: each.seconds for each in shown.buckets} == seconds
    assert (shown.lost_steps, shown.lost_at_end_seconds, shown.steps) == (gone, gone, kept)
    assert shown.ettr == (None if ettr is None else ettr / 1000)
    assert shown.unsaved_seconds is None
    words = dict(figures_in_words(shown))
    assert words["Steps lost"] == str(gone)
    assert words.get("  not saved at the end") == {0: None, 41: "41s", 101: "1m41s"}[gone]

    account = found.account()
    assert (account.seconds, account.lost_steps, account.steps) == (seconds, gone, kept)
    assert account.gpu_seconds.get("lostWork", 0) == gone * 24
    assert account.ettr_permille == ettr

    fleet = fleet_report([AccountedJob(account, str(account.state), running=False)], at(WALL))
    assert {each.bucket: each.gpu_hours * 3600 for each in fleet.buckets}.get("lostWork", 0) == pytest.approx(gone * 24)
    # Of 110 s in which the gang held its nodes.
    assert fleet.goodput == (None if lost is None else pytest.approx(kept / 110))

    JobFigures(lambda: at(WALL)).set_status(("ns", "job"), found.job.status)
    rows = REGISTRY.get_sample_value("muster_job_lost_steps_total", LABELS)
    assert rows is None if found.job.status.completion else rows == 0, "a job that has ended has no rows"


@pytest.mark.parametrize("end", [suspended_then_deleted, deleted, deleted_unseen])
def test_work_that_nobody_saved_is_laid_to_no_suspension_and_to_no_failure(end: Any) -> None:
    """All of the 984 GPU-seconds are those of steps 61 to 101."""
    (cause,) = end(SAVED, True).account().causes
    assert (cause.reason, cause.fault_class, cause.incidents, cause.gpu_seconds) == (NOT_SAVED, "Unknown", 0, 984)


def test_the_failure_before_a_failed_end_takes_its_own_time_alone() -> None:
    """It took no time and counts as one second; NotSaved has 41 of the 42: 960.6 of 984."""
    found = failed(SAVED, True)
    causes = {each.reason: each.gpu_seconds for each in found.account().causes}
    assert causes == {NOT_SAVED: 961, "RankFailed": 23}


def test_an_incident_of_the_report_takes_none_of_the_work_that_the_end_lost() -> None:
    """It broke the job at 200 s. Restarts took 50 s; then the user suspended the job for an hour and deleted it, and
    with it 1,000 s of work: 50 s x 24 = 1,200 GPU-seconds are the incident's, and no more."""
    spent = {"lostWork": 1000, "restarting": 50}
    goodput = Goodput(
        creation_time=at(-850),
        counted_until=at(3800),
        seconds={**spent, "suspended": 3600},
        gpu_seconds={bucket: 24 * seconds for bucket, seconds in spent.items()},
        lost_at_end_seconds=1000,
    )
    incident = {"attempt": 1, "time": at(200), "level": "R2", "faultClass": "Hardware", "reason": "NodeLost"}
    job = a_job()
    job = job.model_copy(
        update={"status": job.status.model_copy(update={"incidents": [Incident.model_validate(incident)]})}
    )
    (took,) = report(job, goodput).incident_costs
    assert took.gpu_hours * 3600 == pytest.approx(1200)


def test_a_job_that_is_there_and_its_account_have_the_same_causes() -> None:
    found = failed(SAVED, True)
    there = ended_job_record(found.job, None, found.figures, Ending.DELETED)
    assert [each.gpu_seconds for each in there.causes if each.reason == NOT_SAVED] == [984]


@pytest.mark.parametrize(
    ("saved", "directory", "steps", "seconds"), [(SAVED, True, 41, 41), (STEPS, True, 0, 0), (None, False, None, 0)]
)
def test_the_incident_by_which_a_job_failed_has_what_no_checkpoint_holds(
    saved: int | None, directory: bool, steps: int | None, seconds: int
) -> None:
    scene = training(saved, directory)
    scene.record = broken(scene)
    end = CompletionRecord(result=CompletionResult.FAILED, reason="X", message="", time=at(WALL), attempt=1)
    plan = Plan((), StatusReport(State.COMPLETED, completion=end))
    written = plan_with_goodput(scene.world(), lifecycle_step.with_status(scene.world(), plan)).status
    assert written is not None
    (incident,) = written.incidents
    assert (incident.lost_steps, incident.lost_seconds) == (steps, seconds)
    with_status(scene, **{name: getattr(written, name) for name in ("completion", "goodput", "incidents")})
    again = plan_with_goodput(scene.world(), lifecycle_step.with_status(scene.world(), plan)).status
    assert (again or written).incidents == [incident], "and no later status takes it back"

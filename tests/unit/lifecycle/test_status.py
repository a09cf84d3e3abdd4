"""What people are told is consistent in itself, and says what threatens the job."""

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_incident, at, running

from muster.api.gang import Resume
from muster.api.trainingjob import CheckpointStatus, TrainingJobStatus
from muster.lifecycle import status
from muster.lifecycle.step import decide


def shown(scene: Scene) -> TrainingJobStatus:
    found = decide(scene.world(), SETTINGS).status
    assert found is not None
    return found


def before(scene: Scene, **values: object) -> Scene:
    scene.job = scene.job.model_copy(update={"status": TrainingJobStatus(**values)})  # type: ignore[arg-type]
    return scene


@pytest.mark.parametrize(
    ("step", "resumed", "expected"),
    [(None, 40, 40), (None, None, 0), (45, 40, 45)],
    ids=["resumed", "scratch", "stepping"],
)
def test_the_step_shown_belongs_to_this_attempt(step: int | None, resumed: int | None, expected: int) -> None:
    scene = Scene(a_job()).fleet().gang(2, resume=resumed).pods().all(running(2, step=step))
    assert shown(before(scene, step=57)).step == expected


def test_a_suspended_job_shows_no_step_below_its_checkpoint() -> None:
    scene = Scene(a_job(suspend=True)).fleet().gang(2, go=False, members=[], checkpoint=Resume(step=60, path="/c/60"))
    now = shown(before(scene, step=43, checkpoint=CheckpointStatus(step=20, path="/c/20", time=at(0))))
    assert now.checkpoint is not None
    assert (now.step, now.checkpoint.step) == (60, 60)


def test_ranks_that_have_not_reported_a_step_are_not_called_training() -> None:
    assert shown(Scene(a_job()).fleet().gang().pods().all(running(1))).reason == "RanksStarted"
    assert shown(Scene(a_job()).fleet().gang().pods().all(running(1, step=1))).reason == "Training"


def test_steps_that_nobody_counts_any_more_are_said() -> None:
    scene = Scene(a_job()).fleet().gang().pods().all(running(1, step=7))
    now = shown(scene.launcher(2, running(1, step=7, progress_error="progress.stepPattern takes for ever")))
    assert (now.state, now.reason, now.step) == ("Running", "StepsNotCounted", 7)
    told = next(condition.message for condition in now.conditions if condition.type == "Running")
    assert "worker 2" in told
    assert "progress.stepPattern takes for ever" in told


def test_training_without_a_checkpoint_that_anybody_sees_is_said() -> None:
    def after(seconds: float, **changes: object) -> TrainingJobStatus:
        scene = Scene(a_job(), seconds=seconds).fleet().gang(**changes).pods().all(running(1, step=900))
        assert scene.record is not None
        assert scene.record.go is not None
        scene.record = scene.record.model_copy(update={"go": scene.record.go.model_copy(update={"time": at(0)})})
        return shown(scene)

    assert after(status.UNSAVED_SECONDS - 1).reason == "Training"
    late = after(status.UNSAVED_SECONDS + 1)
    assert late.reason == "NoCheckpointSeen"
    told = next(condition.message for condition in late.conditions if condition.type == "Running")
    assert "/checkpoints" in told
    assert after(status.UNSAVED_SECONDS + 1, checkpoint=Resume(step=40, path="/c/40")).reason == "Training"


def test_restarts_are_those_that_came_about() -> None:
    incidents = [an_incident(1, resumed_step=0, settled=True), an_incident(2, settled=True)]
    scene = Scene(a_job()).fleet().gang(3, incidents=incidents).pods().all(running(3, step=5))
    assert shown(scene).restarts == 1

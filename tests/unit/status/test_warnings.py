"""What people are warned of about a job: in its status, by one Event each, and by a start that waits for their word."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import (
    CHECKPOINTS_MOUNT,
    CHECKPOINTS_VOLUME,
    SETTINGS,
    Scene,
    a_job,
    an_incident,
    running,
)

from muster.api.gang import FaultClass
from muster.api.trainingjob import MAX_WARNINGS, CompletionRecord, CompletionResult, TrainingJob, TrainingJobStatus
from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.queue_needs import request_of
from muster.lifecycle.step import decide
from muster.pods.launching import start_warnings
from muster.pods.warned import Warned
from muster.status.warnings import as_status

STANDALONE = ["torchrun", "--nproc-per-node=8", "--standalone", "train.py"]


def started_with(*command: str, **spec: Any) -> TrainingJob:
    container = {"name": "main", "image": "i", **spec.pop("container", {}), "command": list(command)}
    container["volumeMounts"] = [*container.get("volumeMounts", []), CHECKPOINTS_MOUNT]
    return a_job(**{"template": {"spec": {"containers": [container], "volumes": [CHECKPOINTS_VOLUME]}}, **spec})


def reasons(plan: Plan) -> list[str]:
    assert plan.status is not None
    return [warning.reason for warning in plan.status.warnings]


def is_placed(plan: Plan) -> bool:
    return any(isinstance(action, CommitGang) for action in plan.actions)


@pytest.mark.parametrize(
    ("job", "reason", "holds"),
    [
        (started_with(*STANDALONE), "NodesTrainAlone", True),
        (started_with("bash", "-c", " ".join(STANDALONE)), "NodesTrainAlone", True),
        (started_with("torchrun", "--nproc-per-node=8", "--nnodes=1", "t.py"), "NodesTrainAlone", True),
        (started_with("fabric", "run", "train.py"), "NodesTrainAlone", True),
        (started_with("deepspeed", "train.py"), "NodesTrainAlone", True),
        (
            started_with("deepspeed", "t.py", container={"volumeMounts": [{"name": "h", "mountPath": "/job"}]}),
            "NodesTrainAlone",
            False,
        ),
        (started_with("accelerate", "launch", "--cpu", "train.py"), "NodesTrainAlone", False),  # its file may say more
        (
            started_with("bash", "-c", "if [ $NNODES = 1 ]; then torchrun --standalone t.py; else torchrun t.py; fi"),
            "NodesTrainAlone",
            False,
        ),
        (started_with("torchrun", "--nproc-per-node=8", "--nnodes=2", "t.py"), "NodesCannotMeet", False),
        (started_with("srun", "python3", "t.py"), "LauncherUnfit", False),
        (started_with("torchrun", "--nproc-per-node=8", "--max-restarts=3", "t.py"), "StarterRestartsRanks", False),
        (started_with("torchrun", "train.py", "--backend=gloo"), "ProcessesUnclear", False),
        (started_with("torchrun", "train.py", "--device", "cpu"), "ProcessesUnclear", False),
        (started_with("python3", "train.py"), "ProcessesUnclear", False),
    ],
)
def test_what_a_manifest_shows_has_a_reason(job: TrainingJob, reason: str, holds: bool) -> None:
    assert (reason, holds) in [(warned.reason, warned.holds) for warned in start_warnings(job)]
    assert is_placed(decide(Scene(job).fleet().world(), SETTINGS)) is not holds


def test_a_job_whose_nodes_would_train_alone_waits_for_a_persons_word() -> None:
    scene = Scene(started_with(*STANDALONE)).fleet()
    plan = decide(scene.world(), SETTINGS)
    assert plan.status is not None
    assert (plan.status.state, plan.status.reason) == ("Stalled", "NodesTrainAlone")
    assert request_of(scene.world()) is None, "it takes no place in the queue"
    (event,) = plan.announcements
    assert event.warning
    assert "each train alone: take it out" in event.note
    assert event.note.endswith("To start it all the same, add NodesTrainAlone to spec.acceptedWarnings")
    scene.job = started_with(*STANDALONE, acceptedWarnings=["NodesTrainAlone"])
    plan = decide(scene.world(), SETTINGS)
    assert is_placed(plan)


def test_a_job_that_has_had_nodes_is_not_stopped_by_a_newer_version() -> None:
    scene = Scene(started_with(*STANDALONE)).fleet().gang(1, go=False, members=[])
    assert is_placed(decide(scene.world(), SETTINGS))


def test_a_job_waits_for_those_that_come_first_in_its_directory() -> None:
    scene = Scene(a_job()).fleet().but(sharing=("a", "b"), sharing_first=("a",))
    plan = decide(scene.world(), SETTINGS)
    assert plan.status is not None
    assert (plan.status.state, plan.status.reason) == ("Pending", "DirectoryInUse")
    assert "is that of a, too" in plan.announcements[0].note
    assert plan.wake_in_seconds is not None, "nothing announces that the other job has ended"
    scene.job = a_job(acceptedWarnings=["DirectoryInUse"])
    assert is_placed(decide(scene.world(), SETTINGS))


def test_a_job_that_has_nodes_is_only_warned_of_others_in_its_directory() -> None:
    scene = Scene(a_job()).fleet().gang().pods().all(running(1, step=3))
    plan = decide(scene.but(sharing=("a", "b"), sharing_first=("a",)).world(), SETTINGS)
    assert plan.status is not None
    assert (plan.status.state, reasons(plan)) == ("Running", ["DirectoryShared"])


def test_a_warning_has_one_event_and_keeps_its_time() -> None:
    scene = Scene(started_with("python3", "train.py")).fleet().gang().pods().all(running(1, step=3))
    plan = decide(scene.world(), SETTINGS)
    assert [event.reason for event in plan.announcements if event.warning] == ["ProcessesUnclear"]
    assert plan.status is not None
    scene.job = scene.job.model_copy(update={"status": plan.status})
    scene.seconds += 60
    again = decide(scene.world(), SETTINGS)
    assert again.announcements == ()
    assert again.status is not None
    assert again.status.warnings == plan.status.warnings


def test_all_warnings_of_a_job_that_trains_are_there_and_one_is_its_reason() -> None:
    doubt = "checkpoint 24 (/c/24) is not complete: there are weights only"
    scene = Scene(started_with("python3", "train.py")).fleet().gang().pods()
    view = running(1, checkpoint_warning=doubt, progress_error="the file has no end")
    plan = decide(scene.all(view).world(), SETTINGS)
    assert plan.status is not None
    assert plan.status.reason == "StepsNotCounted"
    assert reasons(plan) == ["ProcessesUnclear", "StepsNotCounted", "CheckpointsIncomplete"]
    assert [event.reason for event in plan.announcements if event.warning] == [
        "StepsNotCounted",
        "ProcessesUnclear",
        "CheckpointsIncomplete",
    ]


@pytest.mark.parametrize(
    ("steps", "now", "is_said"),
    [([49, 49], None, True), ([49, 49], 49, True), ([49, 49], 50, False), ([49, 48], None, False), ([49], None, False)],
)
def test_failures_at_the_same_step_are_said_until_the_job_is_beyond_it(
    steps: list[int], now: int | None, is_said: bool
) -> None:
    incidents = [an_incident(number, step=step, trained=True, settled=True) for number, step in enumerate(steps, 1)]
    scene = Scene(a_job()).fleet().gang(3, incidents=incidents).pods().all(running(3, step=now))
    found = decide(scene.world(), SETTINGS).status
    assert found is not None
    said = [warning.message for warning in found.warnings if warning.reason == "FailsAtSameStep"]
    assert bool(said) is is_said
    assert not is_said or said[0].startswith("failed twice at step 49: the program, not a node, is the likely cause. ")


def test_hangs_at_one_step_are_reported_with_the_command_for_their_stacks() -> None:
    hang = an_incident(1, FaultClass.UNKNOWN, reason="StepTimeout", step=49, trained=True, settled=True)
    scene = Scene(a_job()).fleet().gang(3, incidents=[hang, hang.model_copy(update={"attempt": 2})]).pods()
    found = decide(scene.all(running(3)).world(), SETTINGS).status
    assert found is not None
    (said,) = [warning.message for warning in found.warnings if warning.reason == "FailsAtSameStep"]
    assert said.startswith("failed twice at step 49: ")
    assert said.endswith("to see where its ranks stood: kubectl muster report default/job --incident")


def test_the_warnings_of_a_job_that_has_ended_stay_as_they_were() -> None:
    job = started_with("python3", "train.py")
    plan = decide(Scene(job).fleet().gang().pods().all(running(1, step=3)).world(), SETTINGS)
    assert plan.status is not None
    end = CompletionRecord(
        result=CompletionResult.SUCCEEDED, reason="Completed", time=plan.status.warnings[0].since, attempt=1
    )
    ended = job.model_copy(update={"status": plan.status.model_copy(update={"completion": end})})
    later = decide(Scene(ended).but(sharing=("a",)).world(), SETTINGS)
    assert later.status is None or later.status.warnings == plan.status.warnings


def test_as_many_warnings_are_shown_as_the_status_has_room_for_each_reason_once() -> None:
    world = Scene(a_job(acceptedWarnings=["R3"])).fleet().world()
    found = [Warned(f"R{number}", f"about {number}") for number in range(40)] + [Warned("R0", "more")]
    shown = as_status(world, [Warned("", "a note"), *found])
    assert [warning.reason for warning in shown] == [f"R{number}" for number in range(MAX_WARNINGS + 1) if number != 3]
    assert shown[0].message == "about 0; more"
    assert TrainingJobStatus(warnings=shown).warnings == shown

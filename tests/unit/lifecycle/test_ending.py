"""The end of a job: what one that has Succeeded says where that looks wrong, and what is done before and after it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_incident, at, running, succeeded
from tests.unit.status.test_warnings import reasons, started_with

from muster.api.gang import Corruption
from muster.api.trainingjob import CompletionRecord, CompletionResult, TrainingJob
from muster.lifecycle.ending import EXIT_GRACE_SECONDS, clean_up
from muster.lifecycle.plan import DeletePod, Plan
from muster.lifecycle.situation import Leaving, Starting, situation_of
from muster.lifecycle.step import decide

RAISED = 'Traceback (most recent call last):\n  File "t.py", line 7, in <module>\n    main()\nRuntimeError: no\n'


def ended(job: TrainingJob, step: int | None = None, tail: str = "", **gang: Any) -> Plan:
    """The plan as every rank has ended with code 0; rank 1 printed this last."""
    scene = Scene(job).fleet().gang(**gang).pods()
    attempt = scene.record.attempt if scene.record else 1
    scene.all(succeeded(attempt, step=step)).launcher(1, succeeded(attempt, 1, step, tail))
    return decide(scene.world(), SETTINGS)


def message_of(plan: Plan) -> str:
    assert plan.status is not None
    assert plan.status.completion is not None
    assert plan.status.completion.result is CompletionResult.SUCCEEDED
    return plan.status.completion.message


def test_a_success_behind_a_traceback_is_told_with_a_warning() -> None:
    plan = ended(a_job(), step=3, tail=RAISED)
    assert message_of(plan) == (
        "every rank exited with code 0 in attempt 1 after step 3; the last lines of rank 1 (worker 1) are a traceback: "
        "RuntimeError: no"
    )
    assert plan.status is not None
    assert plan.status.state == "Succeeded"
    (warning,) = plan.status.warnings
    assert warning.reason == "SucceededAfterTraceback"
    assert warning.message.startswith(
        "rank 1 (worker 1) ended with exit code 0, but its last lines are a traceback: RuntimeError: no. Does the "
        "command hide the exit code, as `| tee` does without `set -o pipefail`?"
    )
    assert warning.message.endswith("it continues from its newest complete checkpoint")
    assert [(event.reason, event.warning) for event in plan.announcements] == [
        ("Completed", False),
        ("SucceededAfterTraceback", True),
    ]


def test_of_several_tracebacks_that_of_a_rank_that_lost_no_peer_is_told() -> None:
    lost = RAISED.replace(
        "RuntimeError: no", "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer"
    )
    scene = Scene(a_job()).fleet().gang().pods().all(succeeded(1, 0, 3, lost))
    scene.launcher(1, succeeded(1, 1, 3, RAISED.replace("RuntimeError: no", "KeyError: 'zebra'")))
    assert message_of(decide(scene.world(), SETTINGS)).endswith(
        "the last lines of rank 1 (worker 1) are a traceback: KeyError: 'zebra'"
    )


def test_secrets_in_the_exception_are_taken_out() -> None:
    container = {"env": [{"name": "API_TOKEN", "value": "abcdefghij"}]}
    job = started_with("torchrun", "t.py", container=container)
    plan = ended(job, tail=RAISED.replace(": no", ": no abcdefghij"))
    assert plan.status is not None
    assert "RuntimeError: no" in message_of(plan)
    assert "abcdefghij" not in plan.status.model_dump_json() + "".join(event.note for event in plan.announcements)


@pytest.mark.parametrize(
    ("job", "expects"),
    [
        (a_job(), True),
        (a_job(checkpoint={}, progress={"stepPattern": "step ([0-9]+)"}), True),
        (a_job(checkpoint={}, progress={"preset": "Lightning"}), True),
        (a_job(checkpoint={}, progress={"stepTimeoutSeconds": 60}), True),
        (started_with("bash", "-c", "python3 train.py | tee log", checkpoint={}), True),
        (started_with("echo", "hi", checkpoint={}), False),
    ],
)
def test_a_job_that_should_train_is_warned_of_where_no_step_was_seen(job: TrainingJob, expects: bool) -> None:
    plan = ended(job)
    assert message_of(plan) == "every rank exited with code 0 in attempt 1; no finished step was seen"
    assert ("SucceededWithoutStep" in reasons(plan)) is expects
    assert ("SucceededWithoutStep" in [event.reason for event in plan.announcements if event.warning]) is expects


@pytest.mark.parametrize(
    ("job", "seen"),
    [
        (a_job(), {"step": 3}),
        (a_job(), {"resume": 40}),
        (a_job(progress={"preset": "Off"}), {}),
        (a_job(launch={"mode": "Plain"}), {}),
    ],
)
def test_a_success_with_a_step_or_without_a_look_for_steps_is_told_as_one(
    job: TrainingJob, seen: dict[str, Any]
) -> None:
    if job.spec.launch.mode == "Plain":
        scene = Scene(job).fleet().gang().pods()
        for index in range(job.spec.nodes):
            scene.pod(index, phase="Succeeded")
        plan = decide(scene.world(), SETTINGS)
    else:
        plan = ended(job, **seen)
    assert "no finished step" not in message_of(plan)
    assert reasons(plan) == []


def test_warnings_from_before_the_end_stay_behind_those_of_the_end() -> None:
    job = started_with("bash", "-c", "python3 train.py | tee log", checkpoint={})
    before = decide(Scene(job).fleet().gang().pods().all(running(1)).world(), SETTINGS)
    assert reasons(before) == ["ExitCodeHidden"]
    assert before.status is not None
    job = job.model_copy(update={"status": before.status})
    plan = ended(job, tail=RAISED)
    assert reasons(plan) == ["SucceededAfterTraceback", "SucceededWithoutStep", "ExitCodeHidden"]
    assert plan.status is not None
    later = decide(Scene(job.model_copy(update={"status": plan.status})).fleet().gang().pods().world(), SETTINGS)
    assert later.status is None or later.status.warnings == plan.status.warnings


def test_a_warning_of_the_end_that_is_accepted_is_not_shown() -> None:
    plan = ended(a_job(acceptedWarnings=["SucceededAfterTraceback"]), step=3, tail=RAISED)
    assert reasons(plan) == []
    assert [event.reason for event in plan.announcements] == ["Completed"]


def test_a_failure_of_no_known_worker_names_none_at_the_end() -> None:
    hang = an_incident(reason="StepTimeout", index=None, node="", message="no step finished for 21 s", settled=True)
    job = a_job(recovery={"applicationRestartsPerDay": 0})
    plan = decide(Scene(job).fleet().gang(2, go=False, incidents=[hang]).pods().world(), SETTINGS)
    assert plan.status is not None
    assert plan.status.completion is not None
    assert plan.status.completion.message.endswith(" is the budget. Last: attempt 1: no step finished for 21 s.")


@pytest.mark.parametrize("are_wrong", [False, True], ids=["failed", "wrong-results"])
def test_before_its_end_a_job_leaves_nodes_only_while_they_are_tested(are_wrong: bool) -> None:
    """A test may take an hour."""
    found = Corruption(attempt=1, time=at(99), reason="ReplayMismatch", found_at=5, suspect_beyond_step=0)
    scene = Scene(a_job(suspend=True, recovery={"applicationRestartsPerDay": 0})).fleet().but(leader_age_seconds=1.0)
    scene.gang(2, go=False, incidents=[an_incident(time=at(99))], corruption=found if are_wrong else None).pods()
    assert isinstance(situation_of(scene.world()), Leaving if are_wrong else Starting)


END = CompletionRecord(result=CompletionResult.SUCCEEDED, reason="Completed", attempt=1, time=at(100))


@pytest.mark.parametrize(
    ("mode", "age", "deleted", "wakes"),
    [
        ("Managed", EXIT_GRACE_SECONDS - 1, [], 1.0),
        ("Managed", EXIT_GRACE_SECONDS, [0], None),
        ("Managed", -3600.0, [0], None),
        ("Plain", 0.0, [0], EXIT_GRACE_SECONDS),
    ],
)
def test_after_its_end_a_job_deletes_the_pods_that_do_not_leave(
    mode: str, age: float, deleted: list[int], wakes: float | None
) -> None:
    """Launchers have a while to exit by themselves. A pod that is over keeps its log, one is deleted once."""
    scene = Scene(a_job(launch={"mode": mode}), seconds=100 + age).fleet().gang().pods()
    scene.pod(1, phase="Succeeded").pod(2, deleting=True)
    plan = clean_up(scene.world(), END)
    assert plan.actions == tuple(DeletePod(scene.world().names[index], scene.uid(index)) for index in deleted)
    assert plan.wake_in_seconds == wakes

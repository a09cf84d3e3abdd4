"""What people are told is consistent in itself, and says what threatens the job."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_incident, at, idle, running, succeeded

from muster.api.gang import Branch, Evacuation, Level, Resume
from muster.api.trainingjob import CheckpointStatus, TrainingJob, TrainingJobStatus
from muster.checkpoints.resume import Start
from muster.lifecycle.plan import Plan
from muster.lifecycle.step import decide, with_status
from muster.protocol.checkpoints import UNVERIFIED
from muster.protocol.messages import CheckpointReport, RankReport
from muster.record import incidents
from muster.status import job_status
from muster.status.report import State, StatusReport
from muster.world.fleet import Exclusion
from muster.world.queuedecision import Nearest, NotPlaced, QueueDecision, Shortfall


def shown(scene: Scene) -> TrainingJobStatus:
    found = decide(scene.world(), SETTINGS).status
    assert found is not None
    return found


def before(scene: Scene, **values: object) -> Scene:
    scene.job = scene.job.model_copy(update={"status": TrainingJobStatus(**values)})  # type: ignore[arg-type]
    return scene


@pytest.mark.parametrize(
    ("step", "resumed", "expected"),
    [(None, 40, 40), (None, None, None), (45, 40, 45)],
    ids=["resumed", "scratch", "stepping"],
)
def test_the_step_shown_belongs_to_this_attempt(step: int | None, resumed: int | None, expected: int | None) -> None:
    scene = Scene(a_job()).fleet().gang(2, resume=resumed).pods().all(running(2, step=step))
    assert shown(before(scene, step=57)).step == expected


def test_the_end_waits_for_a_last_listing_and_is_told_by_what_was_last_known() -> None:
    """An attempt that went on from step 910 ends after step 4,000, which it has saved; then its launchers leave."""
    job = a_job(checkpoint={"directory": "/ckpt"})
    scene = before(Scene(job).fleet().gang(2, resume=910).pods(), attempt=2, step=3990)
    over = replace(succeeded(2, step=4000), checkpoints=(CheckpointReport(3970, "/ckpt/3970", verified=True),))
    assert shown(scene.all(replace(over, lists_after_end=True))).state == "Running"
    over = replace(over, checkpoints=(CheckpointReport(4000, "/ckpt/4000", verified=True), *over.checkpoints))
    ended = shown(scene.all(over))
    assert ended.checkpoint is not None
    assert (ended.state, ended.step, ended.checkpoint.step) == ("Succeeded", 4000, 4000)
    scene.job = scene.job.model_copy(update={"status": ended})
    left = shown(scene.all(idle(2)))
    assert left.checkpoint is not None
    assert (left.state, left.step, left.checkpoint.step) == ("Succeeded", 4000, 4000)


def test_a_job_that_fails_shows_the_last_step_and_the_attempt_that_had_it() -> None:
    """Its status was half a minute old: step 41 of attempt 4, which failed at step 49. Attempt 5 never ran."""
    budget = {"applicationRestartsPerDay": 0}
    failed = an_incident(4, step=49, checkpoint_step=40, settled=True)
    kept = Resume(step=40, path="/c/40")
    scene = Scene(a_job(recovery=budget)).fleet().gang(5, go=False, incidents=[failed], checkpoint=kept)
    ended = shown(before(scene, attempt=4, step=41, checkpoint=CheckpointStatus(step=40, path="/c/40", time=at(0))))
    assert (ended.state, ended.attempt, ended.step) == ("Failed", 4, 49)
    assert ended.completion is not None
    assert ended.completion.message.startswith("1 failure within 24 hours")
    scene.job = scene.job.model_copy(update={"status": ended})
    again = shown(scene)
    assert (again.state, again.attempt, again.step) == ("Failed", 4, 49)


def test_a_suspended_job_shows_no_step_below_its_checkpoint() -> None:
    scene = Scene(a_job(suspend=True)).fleet().gang(2, go=False, members=[], checkpoint=Resume(step=60, path="/c/60"))
    now = shown(before(scene, step=43, checkpoint=CheckpointStatus(step=20, path="/c/20", time=at(0))))
    assert now.checkpoint is not None
    assert (now.step, now.checkpoint.step) == (60, 60)


def test_ranks_that_have_not_reported_a_step_are_not_called_training() -> None:
    assert shown(Scene(a_job()).fleet().gang().pods().all(running(1))).reason == "RanksStarted"
    assert shown(Scene(a_job()).fleet().gang().pods().all(running(1, step=1))).reason == "Training"


def test_a_node_that_is_the_last_choice_for_its_health_is_named() -> None:
    scene = Scene(a_job(nodes=2)).fleet(2).gang().pods().all(running(1, step=1))
    world = scene.world()
    world.fleet.exclude("n1", Exclusion("IbPortDown", last_choice=True))
    status = decide(world, SETTINGS).status
    assert status is not None
    placed = next(condition for condition in status.conditions if condition.type == "Placed")
    assert "; n1 is unhealthy (IbPortDown): the breaker holds it back" in placed.message
    world.fleet.exclude("n1", Exclusion("IbPortDown"))
    status = decide(world, SETTINGS).status
    assert status is not None
    assert "unhealthy" not in next(each.message for each in status.conditions if each.type == "Placed")


def test_steps_that_nobody_counts_any_more_are_said() -> None:
    scene = Scene(a_job()).fleet().gang().pods().all(running(1, step=7))
    now = shown(scene.launcher(2, running(1, step=7, progress_error="progress.stepPattern takes for ever")))
    assert (now.state, now.reason, now.step) == ("Running", "StepsNotCounted", 7)
    told = next(condition.message for condition in now.conditions if condition.type == "Running")
    assert "worker 2" in told
    assert "progress.stepPattern takes for ever" in told


def unseen(
    progress: dict[str, object], seconds: float = job_status.UNSEEN_SECONDS + 1, **views: object
) -> tuple[str, str]:
    """The reason, and what the condition says, after so long."""
    scene = Scene(a_job(progress=progress), seconds=seconds).fleet().gang().pods().all(running(1, **views))
    assert scene.record is not None
    assert scene.record.start is not None
    scene.record = scene.record.model_copy(update={"start": scene.record.start.model_copy(update={"time": at(0)})})
    now = shown(scene)
    return now.reason, next(condition.message for condition in now.conditions if condition.type == "Running")


@pytest.mark.parametrize(
    ("progress", "says"),
    [
        ({}, "prints none that a preset reads (docs/reference/progress.md)"),
        ({"preset": "Auto"}, "prints none that a preset reads"),
        ({"preset": "TorchTitan"}, "no line is printed that preset TorchTitan reads, such as `[titan] "),
        ({"stepPattern": "step ([0-9]+)"}, "progress.stepPattern finds no step"),
    ],
)
def test_that_no_step_is_seen_is_said_with_what_to_change(progress: dict[str, object], says: str) -> None:
    assert unseen(progress, job_status.UNSEEN_SECONDS - 1)[0] == "RanksStarted"
    reason, message = unseen(progress)
    assert reason == "StepsNotSeen"
    assert says in message
    assert "MUSTER_PROGRESS" in message
    assert len(message) < 1024
    assert unseen(progress, 3 * job_status.UNSEEN_SECONDS) == (reason, message)


LIKELY = {"likely_pattern": r"^\s*step\s+([0-9]+)", "likely_line": "step 12 of block 3"}


@pytest.mark.parametrize(
    ("progress", "views", "says"),
    [
        ({}, {"likely_preset": "Lightning"}, "set progress.preset: Lightning (suspend the job for that; it prints"),
        ({}, LIKELY, r"lines such as `step 12 of block 3`"),
        ({}, LIKELY, r"set progress.stepPattern: '^\s*step\s+([0-9]+)' (suspend the job for that)"),
        ({"stepPattern": "Step ([0-9]+)"}, LIKELY, "set progress.stepPattern: '^"),
        ({"preset": "Megatron"}, LIKELY, "set progress.stepPattern: '^"),
        ({}, {**LIKELY, "likely_line": "step 12 PASSWORD=hunter2"}, "`step 12 PASSWORD="),
    ],
)
def test_lines_that_look_like_steps_are_said_after_a_minute(
    progress: dict[str, object], views: dict[str, object], says: str
) -> None:
    assert unseen(progress, job_status.LIKELY_SECONDS - 1, **views)[0] == "RanksStarted"
    reason, message = unseen(progress, job_status.LIKELY_SECONDS, **views)
    assert reason == "StepsNotSeen"
    assert says in message
    assert "hunter2" not in message
    assert len(message) < 1024
    assert unseen(progress, 3 * job_status.UNSEEN_SECONDS, **views) == (reason, message)
    assert unseen({"preset": "Off"}, **views)[0] == "RanksStarted"
    assert unseen(progress, step=7, **views)[0] != "StepsNotSeen"


def test_a_pattern_that_holds_a_secret_is_not_proposed() -> None:
    views = {"likely_pattern": "PASSWORD=hunter2 step ([0-9]+)", "likely_line": "PASSWORD=hunter2 step 5"}
    assert unseen({}, job_status.LIKELY_SECONDS, **views)[0] == "RanksStarted"


def test_a_loss_that_is_no_number_is_warned_of_until_it_is_one_again() -> None:
    def told(**changes: object) -> dict[str, str]:
        saved = [(30, "/c/30"), (40, "/c/40"), (50, "/c/50")]
        scene = Scene(a_job()).fleet().gang().pods().all(running(1, step=57, checkpoints=saved))
        found = shown(scene.launcher(1, running(1, step=57, checkpoints=saved, **changes)))
        return {warning.reason: warning.message for warning in found.warnings}

    assert told() == {}
    (message,) = told(loss_not_finite_since=50).values()
    assert message.startswith("the loss is printed as NaN or infinite since step 50. Checkpoints that were saved from ")
    assert message.endswith("kubectl muster fork default/job --from-step 40")
    assert told(loss_not_finite_since=50).keys() == {"LossNotFinite"}
    assert "--from-step STEP, a checkpoint before step 20" in told(loss_not_finite_since=20)["LossNotFinite"]


def test_a_nan_loss_from_the_first_step_makes_its_checkpoint_suspect() -> None:
    """A restart goes on from a checkpoint that the NaN is in: what is before its first step is no better."""
    scene = Scene(a_job()).fleet().gang(2, resume=40).pods()
    view = running(2, step=57, first_step=41, loss_not_finite_since=41, checkpoints=((40, "/c/40"),))
    (warning,) = shown(scene.all(view)).warnings
    assert (
        "since the first step of attempt 2, 41: the checkpoint from which it resumed, 40, is suspect, too"
        in warning.message
    )
    assert warning.message.endswith("kubectl muster fork default/job --from-step STEP")
    (warning,) = shown(scene.all(replace(view, loss_not_finite_since=50))).warnings
    assert warning.message.endswith("kubectl muster fork default/job --from-step 40")


def test_the_way_back_from_a_loss_that_is_no_number_stays_while_the_job_is_suspended() -> None:
    scene = Scene(a_job()).fleet().gang().pods().all(running(1, step=57, loss_not_finite_since=50))
    before = shown(scene)
    suspended = Scene(a_job(suspend=True)).fleet().gang(members=[])
    suspended.job = suspended.job.model_copy(update={"status": before})
    after = shown(suspended)
    assert (after.state, after.warnings) == ("Suspended", before.warnings)


def test_a_loss_that_is_a_number_now_and_then_changes_what_is_told_once_a_minute() -> None:
    scene = Scene(a_job()).fleet().gang().pods().all(running(1, step=57, loss_not_finite_since=50))
    first = shown(scene)
    (told,) = first.warnings
    scene.job = scene.job.model_copy(update={"status": first})
    for since in (None, 55, None):
        assert shown(scene.all(running(1, step=57, loss_not_finite_since=since))) == first
    scene.seconds += job_status.STEADY_SECONDS
    assert shown(scene).warnings == []
    (again,) = shown(scene.all(running(1, step=57, loss_not_finite_since=55))).warnings
    assert "since step 55" in again.message
    scene.job = scene.job.model_copy(update={"status": first})
    assert scene.record is not None
    assert scene.record.start is not None
    scene.seconds = (told.since - at(0)).total_seconds() + 1.0
    later = scene.record.start.model_copy(update={"time": at(scene.seconds)})
    scene.record = scene.record.model_copy(update={"start": later})
    assert shown(scene.all(running(1, step=57))).warnings == [], "another attempt"


def test_what_is_amiss_with_steps_and_with_checkpoints_is_warned_of_at_once() -> None:
    """Neither stands in the place of the other."""
    uncounted = "/c/latest.pt is of no format that Muster knows"
    views = {**LIKELY, "checkpoint_warning": uncounted}
    scene = Scene(a_job(), seconds=job_status.LIKELY_SECONDS).fleet().gang().pods().all(running(1, **views))
    assert scene.record is not None
    assert scene.record.start is not None
    scene.record = scene.record.model_copy(update={"start": scene.record.start.model_copy(update={"time": at(0)})})
    warnings = {warning.reason: warning.message for warning in shown(scene).warnings}
    assert warnings.keys() == {"StepsNotSeen", "CheckpointsIncomplete"}
    assert warnings["CheckpointsIncomplete"] == uncounted
    # What a person has accepted is no reason of the job either.
    assert shown(scene).reason == "StepsNotSeen"
    scene.job = a_job(acceptedWarnings=["StepsNotSeen"])
    assert shown(scene).reason == "CheckpointsIncomplete"
    assert [warning.reason for warning in shown(scene).warnings] == ["CheckpointsIncomplete"]


def test_nobody_is_told_of_steps_that_are_seen_or_that_nobody_wants() -> None:
    assert unseen({"preset": "Off"})[0] == "RanksStarted"
    reason, message = unseen({}, step=7, progress_preset="Megatron", checkpoints=[(5, "/checkpoints/5")])
    assert (reason, message.endswith("; steps as Megatron prints them")) == ("Training", True)


def test_that_no_rank_prints_or_writes_anything_is_said() -> None:
    late = job_status.QUIET_SECONDS + 1

    def told(quiet: float | None, **changes: object) -> tuple[str, str]:
        return unseen({}, late, quiet_age_seconds=quiet, **changes)

    reason, message = told(late)
    assert reason == "RanksQuiet"
    assert "for more than 10 min, before the first step" in message
    assert "py-spy" in message
    assert "after step 7" in told(late, step=7)[1]
    assert told(late - 2)[0] == "StepsNotSeen"
    assert told(None)[0] == "StepsNotSeen"


def test_one_rank_that_prints_speaks_for_all_and_so_does_a_new_checkpoint() -> None:
    late = job_status.QUIET_SECONDS + 1
    scene = Scene(a_job(), seconds=late).fleet().gang().pods().all(running(1, step=7, quiet_age_seconds=late))
    assert shown(scene).reason == "RanksQuiet"
    assert shown(scene.launcher(2, running(1, step=7, quiet_age_seconds=3.0))).reason == "Training"
    scene.launcher(2, running(1, step=7, quiet_age_seconds=late, checkpoints=[(5, "/checkpoints/5")]))
    assert shown(scene).reason == "Training"


class TestStepsThatStopped:
    def told(self, age: float, longest: float | None = 3.0, progress: Any = None, **changes: Any) -> TrainingJobStatus:
        scene = Scene(a_job(progress=progress or {}), seconds=9000.0).fleet().gang().pods()
        seen = {"step_seconds": 1.0, "longest_wait_seconds": longest, "quiet_age_seconds": 1.0, **changes}
        return shown(scene.all(running(1, step=79, step_age_seconds=age, **seen)))

    def warned(self, *arguments: Any, **changes: Any) -> list[str]:
        return [warning.reason for warning in self.told(*arguments, **changes).warnings]

    def test_after_ten_minutes_it_is_said_with_the_usual_time_and_the_remedy(self) -> None:
        (warning,) = self.told(601.0).warnings
        assert warning.reason == "StepsStopped"
        assert warning.message.startswith(
            "no step was finished for more than 10 min after step 79. A step takes 1 s, and the longest wait for one "
            "in this attempt was 3 s."
        )
        assert all(word in warning.message for word in ("py-spy", "delete the pod", "progress.stepTimeoutSeconds"))
        assert self.told(901.0).warnings[0].message == warning.message, "a status that changes is a write"
        assert self.warned(599.0) == []

    def test_a_long_wait_is_written_without_an_exponent(self) -> None:
        (warning,) = self.told(8000.0, longest=1300.0).warnings
        assert "the longest wait for one in this attempt was 1,300 s." in warning.message

    def test_it_is_in_place_of_that_no_rank_prints(self) -> None:
        assert self.warned(700.0, quiet_age_seconds=700.0) == ["StepsStopped"]
        assert self.warned(700.0, None, quiet_age_seconds=700.0) == ["RanksQuiet"]

    def test_evaluations_and_saves_of_this_attempt_make_it_wait_for_longer(self) -> None:
        assert self.warned(1499.0, 300.0) == []
        assert self.warned(1502.0, 300.0) == ["StepsStopped"]

    def test_a_save_of_late_makes_it_wait(self) -> None:
        assert self.warned(700.0, checkpoints=[(79, "/checkpoints/79")]) == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"longest": None},
            {"progress": {"stepTimeoutSeconds": 3600}},
            {"standstill_seconds": 200.0},
            {"ranks": (RankReport(0, 0, alive=False, exit_code=0),)},
            {"progress_error": "the pattern takes for ever"},
        ],
        ids=[
            "too few steps",
            "a limit of its own",
            "a frozen node",
            "ranks that have ended",
            "steps that are not read",
        ],
    )
    def test_what_is_no_hang_is_not_said(self, changes: dict[str, Any]) -> None:
        assert "StepsStopped" not in self.warned(700.0, **changes)

    def test_one_worker_that_makes_steps_speaks_for_all(self) -> None:
        scene = Scene(a_job(), seconds=9000.0).fleet().gang().pods()
        scene.all(running(1, step=79, step_age_seconds=700.0, longest_wait_seconds=3.0))
        scene.launcher(2, running(1, step=80, step_age_seconds=1.0, longest_wait_seconds=3.0))
        assert shown(scene).warnings == []


def test_training_without_a_checkpoint_that_anybody_sees_is_said() -> None:
    def after(seconds: float, job: TrainingJob | None = None, **changes: object) -> TrainingJobStatus:
        scene = Scene(job or a_job(), seconds=seconds).fleet().gang(**changes).pods().all(running(1, step=900))
        assert scene.record is not None
        assert scene.record.start is not None
        scene.record = scene.record.model_copy(update={"start": scene.record.start.model_copy(update={"time": at(0)})})
        return shown(scene)

    assert after(job_status.UNSAVED_SECONDS - 1).reason == "Training"
    late = after(job_status.UNSAVED_SECONDS + 1)
    assert late.reason == "NoCheckpointSeen"
    told = next(condition.message for condition in late.conditions if condition.type == "Running")
    assert "/checkpoints" in told
    assert "on a volume that the worker container mounts?" in told
    late = after(job_status.UNSAVED_SECONDS + 1, a_job(checkpoint={"directory": "s3://b/run"}))
    told = next(condition.message for condition in late.conditions if condition.type == "Running")
    assert told.endswith("Is it the directory that the trainer writes to?")
    assert after(job_status.UNSAVED_SECONDS + 1, checkpoint=Resume(step=40, path="/c/40")).reason == "Training"


def test_the_format_of_the_newest_checkpoint_is_named() -> None:
    there = (CheckpointReport(10, "/c/10", format="Lightning"), CheckpointReport(20, "/c/20", format="TorchDCP"))
    now = shown(Scene(a_job()).fleet().gang().pods().all(running(1, step=25, checkpoints=there)))
    assert now.checkpoint is not None
    assert (now.checkpoint.step, now.checkpoint.format) == (20, "TorchDCP")


def test_what_is_doubtful_about_the_checkpoints_is_said() -> None:
    scene = Scene(a_job()).fleet().gang().pods().all(running(1, step=25, checkpoints=((20, "/c/20"),)))
    doubt = "checkpoint 24 (/c/24) is not complete: there are weights only"
    now = shown(scene.launcher(1, running(1, step=25, checkpoint_warning=doubt)))
    assert (now.state, now.reason) == ("Running", "CheckpointsIncomplete")
    assert doubt in next(condition.message for condition in now.conditions if condition.type == "Running")


def test_an_evacuation_without_a_place_says_so_and_no_deadline() -> None:
    def leaving(nodes: int) -> Plan:
        leave = Evacuation(reason="NodeCordoned", nodes=["n1"], since=at(0), deadline=at(300), after_step=6)
        scene = Scene(a_job(), 200.0).fleet(nodes).node("n1", unschedulable=True).gang(evacuation=leave).pods()
        return decide(scene.all(running(1, step=7)).world(), SETTINGS)

    plan, free = leaving(3), leaving(4).status
    assert plan.status is not None
    assert free is not None
    stuck = plan.status
    assert (stuck.state, stuck.reason) == ("Saving", "NoNodeToMoveTo")
    assert [each.reason for each in plan.announcements] == ["NoNodeToMoveTo"]
    told = next(condition.message for condition in stuck.conditions if condition.type == "Running")
    assert told.startswith("The job should leave n1 (NodeCordoned), but no other suitable node is free.")
    assert (free.state, free.reason) == ("Saving", "NodeCordoned")


def plain_with(age: float, **recovery: object) -> Plan:
    """What is reported of a Plain job whose n1 is not ready, with a heartbeat of this age; 0: it is ready."""
    job = a_job(launch={"mode": "Plain"}, checkpoint={}, recovery=recovery)
    scene = Scene(job).fleet().gang().pods().node("n1", ready=age == 0, ready_reason="NodeStatusUnknown")
    return decide(scene.lease("n1", age).world(), SETTINGS)


def test_a_plain_job_names_its_silent_node_and_the_way_on_until_it_is_back() -> None:
    plan = plain_with(45.0)
    assert plan.status is not None
    assert (plan.status.state, plan.status.reason) == ("Running", "NodeSilent")
    (event,) = plan.announcements
    assert (event.reason, event.warning) == ("NodeSilent", True)
    assert event.note.startswith("no heartbeat of n1, not ready.")
    assert event.note.endswith("run: kubectl muster lost n1, or set spec.recovery.unfencedTimeoutSeconds")
    for heard in (0.0, 5.0):
        now = plain_with(heard).status
        assert now is not None
        assert (now.reason, now.warnings) == ("RanksStarted", [])


def test_a_plain_job_with_a_limit_says_for_how_long_it_waits_for_its_silent_node() -> None:
    (event,) = plain_with(45.0, unfencedTimeoutSeconds=120).announcements
    assert "does not restart the job until they have been silent for 120 s." in event.note
    assert event.note.endswith("kubectl muster lost n1")


def test_a_gang_that_misses_a_node_says_what_it_waits_for_in_its_event() -> None:
    scene = Scene(a_job(), seconds=400.0).fleet(3).node("n1", unschedulable=True).gang()
    assert scene.record is not None
    members = [
        member.model_copy(update={"node": "" if member.index == 1 else member.node}) for member in scene.record.members
    ]
    scene.record = scene.record.model_copy(
        update={"members": members, "start": None, "attempt": 2, "level": Level.REPLACE}
    )
    world = scene.world()
    assert world.queue_decision is not None
    answer = world.queue_decision.answer
    assert isinstance(answer, NotPlaced)
    plan = with_status(world, Plan(status_report=StatusReport(State.STARTING, answer=answer)))
    assert plan.status is not None
    assert plan.status.state == "Recovering"
    (event,) = plan.announcements
    assert event.reason == "InsufficientNodes"
    assert event.note.startswith("needs 1 more node")


@pytest.mark.parametrize(
    ("holder", "reason", "events"),
    [
        ("pod default/llama-11b2f-0-1", "FormerPodsEnding", []),
        ("pod default/llama-11b2f-0-1 (ResourceClaim imex)", "FormerPodsEnding", []),
        ("pod default/llama-2-11b2f-0-1", "InsufficientNodes", ["InsufficientNodes"]),
        ("pod team-b/llama-11b2f-0-1", "InsufficientNodes", ["InsufficientNodes"]),
        ("default/llama", "InsufficientNodes", ["InsufficientNodes"]),
    ],
    ids=["of the job before", "with a claim", "of another name", "of another namespace", "a job"],
)
def test_a_job_that_is_created_again_waits_for_its_former_pods_without_an_event(
    holder: str, reason: str, events: list[str]
) -> None:
    nearest = Nearest(None, (), {holder: 1}, 0, 0)
    lacks = Shortfall(3, None, 1, 4, 4, 3, (), {holder: 1}, (), nearest, ever=True, fewer=0)
    answer = NotPlaced("InsufficientNodes", "needs 3 nodes", lacks)
    scene = Scene(a_job("llama")).fleet(4).but(queue_decision=QueueDecision(1, 1, answer))
    plan = decide(scene.world(), SETTINGS)
    assert plan.status is not None
    assert (plan.status.state, plan.status.reason) == ("Pending", reason)
    assert [event.reason for event in plan.announcements] == events


@pytest.mark.parametrize(
    ("job", "step", "saved", "says"),
    [
        ({}, None, (), "; no finished step was seen"),
        ({}, 7, (), "after step 7"),
        ({}, None, (CheckpointReport(9, "/checkpoints/9", verified=True),), "in attempt 1"),
    ],
    ids=["nothing was seen", "a step", "a checkpoint"],
)
def test_a_success_without_a_step_is_not_told_as_training(
    job: dict[str, object], step: int | None, saved: tuple[CheckpointReport, ...], says: str
) -> None:
    scene = Scene(a_job("llama", **job)).fleet().gang().pods()
    now = shown(scene.all(replace(succeeded(1, step=step), checkpoints=saved)))
    assert now.completion is not None
    assert now.completion.message.startswith("every rank exited with code 0 in attempt 1")
    assert now.completion.message.endswith(says)


def test_a_store_that_nobody_sees_is_told_with_what_is_known() -> None:
    unseen = "unverified: s3://b/run: the store refuses the worker container's credentials. Give it some"
    scene = (
        Scene(a_job(checkpoint={"directory": "s3://b/run"}))
        .fleet()
        .gang(checkpoint=Resume(step=20, path="s3://b/run/20"))
    )
    scene = scene.pods().all(running(1, step=25, checkpoint_error=unseen, checkpoint_error_kind=UNVERIFIED))
    now = shown(scene)
    assert (now.state, now.reason) == ("Running", "CheckpointStoreUnreachable")
    message = next(condition.message for condition in now.conditions if condition.type == "Running")
    assert (
        message
        == f"{unseen}. The newest that is known is 20 (s3://b/run/20); a fault now waits until the store is seen again"
    )
    assert shown(scene.launcher(0, running(1, step=25))).reason == "Training"  # one of those who judge sees it
    assert shown(scene.all(running(1, step=25, checkpoint_error=unseen))).reason == "Training"


def test_restarts_are_those_that_came_about() -> None:
    incidents = [an_incident(1, resumed_step=0, settled=True), an_incident(2, settled=True)]
    scene = Scene(a_job()).fleet().gang(3, incidents=incidents).pods().all(running(3, step=5))
    assert shown(scene).restarts == 1


def test_an_applied_fleet_limit_is_in_the_condition_and_in_one_event() -> None:
    scene = Scene(a_job()).fleet(1)  # it waits for nodes

    def tell(lowered: str) -> list[str]:
        plan = decide(scene.but(lowered=lowered).world(), SETTINGS)
        assert plan.status is not None
        (accepted,) = (each for each in plan.status.conditions if each.type == "TemplateAccepted")
        assert (lowered in accepted.message) is True
        scene.job = scene.job.model_copy(update={"status": plan.status})
        return [each.note for each in plan.announcements if each.reason == "JobLimitApplied" and each.warning]

    assert tell("") == []
    assert tell("a is 5, and 3 is applied") == ["a is 5, and 3 is applied."]
    assert tell("a is 5, and 3 is applied") == []
    assert tell("a is 5, and 2 is applied") == ["a is 5, and 2 is applied."], "the limit has changed"
    assert tell("") == []


def test_words_of_a_template_that_a_condition_quotes_steer_no_terminal() -> None:
    command = ["accelerate", "launch", "--machine_rank=0\x1b[2J\u202e", "train.py"]
    container = {"name": "t", "image": "i", "command": command}
    now = shown(Scene(a_job(template={"spec": {"containers": [container]}})).fleet(1))
    message = next(each.message for each in now.conditions if each.type == "TemplateAccepted")
    assert "--machine-rank=0\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER} is the same on each of" in message


def test_another_history_leaves_what_earlier_incidents_have_cost() -> None:
    """A failure at step 1,000 went on from 900; then a person asks to go on from step 100."""
    earlier = an_incident(step=1000, checkpoint_step=900, resumed_step=900)
    record = Scene(a_job()).fleet().gang(2, incidents=[earlier]).record
    assert record is not None
    branch = Branch(step=100, resume_from="100", time=at(0))
    start = Start(resume=Resume(step=100, path="/c/100"), branch=branch)
    (cut,) = incidents.with_resume_step(record, start)
    assert (cut.step, cut.resumed_step) == (100, 100), "budgets go by these"
    assert incidents.steps_made_again(cut) == incidents.steps_made_again(earlier) == 100
    (again,) = incidents.with_resume_step(record.model_copy(update={"incidents": [cut]}), start)
    assert incidents.steps_made_again(again) == 100

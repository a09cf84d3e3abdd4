"""Ranks that are asked to save and leave: what they have trained is kept, and their end is no end of the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.lifecycle.builders import Scene, a_job, at, failed, running, succeeded
from tests.unit.lifecycle.lives import saving
from tests.unit.lifecycle.testbed import PLAIN, OneJob, steps

from muster.api.gang import Evacuation, FaultClass
from muster.api.trainingjob import CheckpointSave, CheckpointStatus, TrainingJobStatus
from muster.lifecycle import leavers
from muster.lifecycle.directive import directive_for
from muster.lifecycle.evacuation_step import (
    EndEvacuation,
    EvacuationStep,
    FollowLateAnswer,
    NothingDue,
    StartAgain,
    next_step,
)
from muster.lifecycle.situation import Ending, Failing, Leaving, Training, situation_of
from muster.protocol.messages import LEAVE
from muster.record.evacuation import LEAVE_WITHDRAWN, with_evacuation_begun, with_late_answer
from simulate.training import OnRequest, Script

Jobs = Callable[..., OneJob]
SUSPEND = {"suspend": True}
SELDOM = 1000  # steps between the saves that the program makes of itself
WAYS = (OnRequest.ENDS_WELL, OnRequest.ENDS_BADLY, OnRequest.WAITS)


def trains(training: Jobs, answer: OnRequest | None, total: int = 30, **settings: Any) -> OneJob:
    return training(script=steps(total, every=SELDOM, answers=answer), **settings)


def suspends(job: OneJob, late_by: float = 0.0) -> None:
    job.edit("job", {"suspend": True})
    job.until(lambda: job.status.state == "Suspended" and not job.pods, 30 + late_by)
    job.edit("job", {"suspend": False})


def is_cordoned(job: OneJob) -> None:
    job.cordon("n1")
    job.until_go(2, 30)
    assert job.nodes == ["n0", "n2"]


def is_taken_away(job: OneJob) -> None:
    job.take("n1", 120)
    job.until_go(2, 30)


@pytest.mark.parametrize("leaves", [suspends, is_cordoned, is_taken_away])
@pytest.mark.parametrize("answer", WAYS)
def test_no_step_is_lost(training: Jobs, answer: OnRequest, leaves: Callable[[OneJob], None]) -> None:
    job = trains(training, answer)
    leaves(job)
    job.succeeds()
    assert job.trainers[job.uid].made == 30
    assert job.paid == (0, 0)
    assert len(job.trainers[job.uid].leaves) == 1


def test_it_is_said_what_was_saved(training: Jobs) -> None:
    job = trains(training, OnRequest.ENDS_WELL)
    is_cordoned(job)
    ((_, step),) = job.trainers[job.uid].leaves
    (incident,) = job.record.incidents
    assert (incident.fault_class, incident.resumed_step) == (FaultClass.PLANNED, step)
    assert incident.message == f"left n1 after checkpoint {step}, which it saved when asked"
    assert incident.asked_time is not None
    assert 0 < (incident.time - incident.asked_time).total_seconds() < 10
    assert job.status.incidents[-1].asked_time == incident.asked_time


@pytest.mark.parametrize("writes", range(1, 13))
@pytest.mark.parametrize("answer", WAYS)
def test_the_operator_may_die_after_any_write(training: Jobs, answer: OnRequest, writes: int) -> None:
    job = trains(training, answer)
    job.operator_dies_after(writes)
    job.edit("job", {"suspend": True})
    job.until(lambda: job.status.state == "Suspended" and not job.pods, 60)
    job.edit("job", {"suspend": False})
    job.succeeds()
    assert job.trainers[job.uid].made == 30


@pytest.mark.parametrize("answer", WAYS)
def test_several_reasons_at_once_are_one_save(training: Jobs, answer: OnRequest) -> None:
    job = trains(training, answer)
    job.cordon("n1")
    job.until(lambda: job.record.evacuation is not None)
    suspends(job)
    job.succeeds()
    assert len(job.trainers[job.uid].leaves) == 1
    assert job.trainers[job.uid].made == 30


@pytest.mark.parametrize("late", [False, True], ids=["followed", "not-yet"])
@pytest.mark.parametrize("answer", WAYS)
def test_ranks_that_follow_a_request_that_is_withdrawn_start_again(
    training: Jobs, answer: OnRequest, late: bool
) -> None:
    """Nothing calls them back, and their end with code 0 is no success."""
    job = trains(training, answer)
    job.cordon("n1")
    follows = job.trainers[job.uid].attempts[1].ranks[0]
    job.until(lambda: bool(follows.asked[0] if late else follows.answered_request), 30)
    job.cordon("n1", on=False)
    job.succeeds()
    assert job.trainers[job.uid].made == 30
    assert job.nodes == ["n0", "n1"]
    assert job.levels == (["Start", "R0"] if job.trainers[job.uid].leaves else ["Start"])


@pytest.mark.parametrize("answer", WAYS)
def test_a_request_may_be_withdrawn_while_nobody_leads(training: Jobs, answer: OnRequest) -> None:
    """The next leader knows who follows it only once it has heard all workers, which have saved and ended by then."""
    job = training(script=Script(30, 1.0, SELDOM, save_seconds=20.0, answers=answer), until_step=5)
    job.edit("job", {"suspend": True})
    job.until(lambda: job.record.evacuation is not None)
    job.operator_dies()
    job.edit("job", {"suspend": False})
    job.succeeds()
    assert (job.trainers[job.uid].made, job.paid) == (30, (0, 0))


def test_a_leader_that_has_heard_nobody_waits_for_the_save(training: Jobs) -> None:
    script = Script(900, 1.0, 100, save_seconds=50.0, answers=OnRequest.ENDS_WELL)
    job = training(until_step=255, script=script, **saving(80))
    job.cordon("n1")
    job.until(lambda: bool(job.trainers[job.uid].leaves))
    job.operator_dies(away=15.0)
    job.until_attempt(2, 100)
    ((_, step),) = job.trainers[job.uid].leaves
    (incident,) = job.record.incidents
    assert incident.message == f"left n1 after checkpoint {step}, which it saved when asked"


@pytest.mark.parametrize("until_step", [10, 11])
@pytest.mark.parametrize("answer", WAYS)
def test_a_save_that_was_under_way_is_not_the_last(training: Jobs, answer: OnRequest, until_step: int) -> None:
    """Of step 10: later ones are saved, too, once the ranks have agreed."""
    job = training(script=Script(30, 1.0, 10, save_seconds=3.0, answers=answer), until_step=until_step)
    job.cordon("n1")
    job.succeeds()
    assert job.trainers[job.uid].made == 30


def test_a_save_that_breaks_is_a_failure(training: Jobs) -> None:
    job = trains(training, OnRequest.SAVES_HALF)
    job.cordon("n1")
    job.until_attempt(2, 60)
    (incident,) = job.record.incidents
    assert (incident.reason, incident.fault_class) == ("RankFailed", FaultClass.APPLICATION)


def test_a_program_that_was_done_ends_at_its_next_start(training: Jobs) -> None:
    job = trains(training, OnRequest.ENDS_WELL, total=8)
    job.edit("job", {"suspend": True})
    job.until(lambda: job.status.state in ("Suspended", "Succeeded"), 60)
    job.edit("job", {"suspend": False})
    job.succeeds()


def test_who_does_not_answer_and_saves_seldom_is_not_waited_for(training: Jobs) -> None:
    job = training(190, script=steps(900, every=60, seconds=1.0), **saving(40))
    began = job.age_seconds
    job.cordon("n1")
    job.until_attempt(2, 300)
    assert 30 <= job.age_seconds - began < 36
    (incident,) = job.record.incidents
    assert incident.message == (
        "left n1 without a new checkpoint: the program did not answer the request to save, and saves too seldom"
    )


def test_who_does_not_answer_is_waited_for_where_a_save_is_due(training: Jobs) -> None:
    job = training(190, script=steps(900, every=60, seconds=1.0), **saving(120))
    job.cordon("n1")
    job.until_attempt(2, 300)
    (incident,) = job.record.incidents
    assert incident.resumed_step is None or incident.resumed_step == 240
    assert incident.message == "left n1 after checkpoint 240"


@pytest.mark.parametrize("spec", [PLAIN, {"checkpoint": {}}])
def test_who_saves_nothing_that_is_seen_is_asked_for_nothing(spec: dict[str, Any]) -> None:
    scene = Scene(a_job(**spec)).fleet(6).gang().pods().all(running(1, step=7))
    world = scene.world()
    assert world.gang is not None
    record = with_evacuation_begun(world, world.gang.spec, "NodeCordoned", ["n1"], at(400))
    gang = world.gang.model_copy(update={"spec": record})
    (name,) = [pod.name for pod in world.pods.values() if pod.index == 0]
    assert directive_for(world.job, gang, name, scene.uid(0), lambda _: None).request is None


# What follows is about single decisions.

EVACUATION = Evacuation(reason="NodeCordoned", nodes=["n1"], since=at(80), deadline=at(380), after_step=6)


def a_scene(*, cordoned: bool = True, seconds: float = 100.0, requests: int = 1, **changes: Any) -> Scene:
    scene = Scene(a_job(), seconds=seconds).fleet(6)
    if cordoned:
        scene.node("n1", unschedulable=True)
    asked = {"requests": requests, "evacuation_requests": [*range(1, requests + 1)]}
    scene.gang(**{"evacuation": EVACUATION, **asked, **changes}).pods()
    return scene


def test_the_request_is_in_the_directive() -> None:
    scene = a_scene(requests=3).all(running(1, step=7))
    world = scene.world()
    (name,) = [pod.name for pod in world.pods.values() if pod.index == 0]
    directive = directive_for(world.job, world.gang, name, scene.uid(0), lambda _: None)
    assert (directive.request, directive.request_kind, directive.request_reason) == (3, LEAVE, "NodeCordoned")
    assert directive.request_seconds == 300


SAVED = [(7, "/checkpoints/7")]


@pytest.mark.parametrize("end", [succeeded, failed])
def test_an_end_after_the_save_is_a_leave(end: Any) -> None:
    ended = end(1)
    scene = a_scene().all(running(1, step=7, checkpoints=SAVED, request_answered=1, ranks=ended.ranks))
    situation = situation_of(scene.world())
    assert isinstance(situation, Leaving)
    assert isinstance(situation.step, EndEvacuation)
    assert situation.step.is_saved


@pytest.mark.parametrize("end", [succeeded, failed])
@pytest.mark.parametrize(("saved", "is_leave"), [(7, True), (6, False)])
def test_who_has_saved_its_last_step_before_it_was_asked_leaves(end: Any, saved: int, is_leave: bool) -> None:
    """As a program that evaluates after a periodic save, and then looks for a request."""
    view = {"step": 7, "checkpoints": [(saved, f"/checkpoints/{saved}")], "request_answered": 1}
    asked_later = EVACUATION.model_copy(update={"after_step": 7})
    scene = a_scene(evacuation=asked_later).all(running(1, ranks=end(1).ranks, state="Exited", **view))
    assert isinstance(situation_of(scene.world()), Leaving) is is_leave


@pytest.mark.parametrize(("saved", "age", "is_over"), [(7, 30.0, True), (7, 29.0, False), (6, 60.0, False)])
def test_who_saved_before_it_was_asked_and_waits_leaves(saved: int, age: float, is_over: bool) -> None:
    view = {"step": 7, "step_age_seconds": age, "checkpoints": [(saved, f"/checkpoints/{saved}")]}
    asked_later = EVACUATION.model_copy(update={"after_step": 7})
    world = a_scene(evacuation=asked_later).all(running(1, request_answered=1, **view)).world()
    assert world.gang is not None
    assert isinstance(next_step(world, world.gang.spec), EndEvacuation) is is_over


@pytest.mark.parametrize(("end", "then", "unasked"), [(succeeded, Training, Ending), (failed, Failing, Failing)])
def test_without_a_save_only_a_failure_is_what_it_looks_like(end: Any, then: type, unasked: type) -> None:
    ended = end(1)
    view = {"step": 7, "request_answered": 1, "ranks": ended.ranks, "state": "Exited"}
    listing = a_scene().all(running(1, lists_after_end=True, **view)).world()
    assert isinstance(situation_of(listing), Training), "its checkpoint may be seen in a moment"
    assert isinstance(situation_of(a_scene().all(running(1, **view)).world()), then)
    silent = view | {"request_answered": 0}
    assert isinstance(situation_of(a_scene().all(running(1, checkpoints=SAVED, **silent)).world()), unasked)


def test_an_end_with_0_is_no_success_at_the_deadline() -> None:
    ended = running(1, step=7, request_answered=1, ranks=succeeded(1).ranks, state="Exited")
    situation = situation_of(a_scene(seconds=380.0).all(ended).world())
    assert isinstance(situation, Leaving)
    assert isinstance(situation.step, EndEvacuation)
    assert not situation.step.is_saved


@pytest.mark.parametrize("late_by", [5.0, 40.0])
@pytest.mark.parametrize("answer", [OnRequest.ENDS_WELL, OnRequest.ENDS_BADLY])
def test_storage_that_shows_the_save_late_ends_no_job(training: Jobs, answer: OnRequest, late_by: float) -> None:
    job = trains(training, answer)
    job.directories[job.uid].lag_seconds.update(dict.fromkeys(job.nodes, late_by))
    suspends(job, late_by)
    job.directories[job.uid].lag_seconds.clear()
    job.succeeds()
    assert (job.trainers[job.uid].made, job.paid) == (30, (0, 0))


@pytest.mark.parametrize(
    ("end", "seconds"),
    [
        ({"tail": "ValueError: no"}, leavers.SEEN_SECONDS),
        ({"code": None, "signal": 11, "tail": ""}, leavers.SEEN_SECONDS),
        ({"code": 3, "tail": "done"}, leavers.SHOWN_SECONDS),
    ],
    ids=["an exception", "a crash", "a code of its own"],
)
def test_a_rank_that_ends_is_waited_for(end: Any, seconds: float) -> None:
    """Another one may hang in a collective."""
    early, late = (
        a_scene()
        .all(running(1, step=7, request_answered=1))
        .launcher(0, failed(1, age=age, request_answered=1, **end))
        .world()
        for age in (seconds - 1, seconds)
    )
    assert isinstance(situation_of(early), Training)
    assert isinstance(situation_of(late), Failing)


def test_another_fault_is_not_hidden() -> None:
    scene = a_scene().all(failed(1, request_answered=1))
    del scene.nodes["n0"]
    assert isinstance(situation_of(scene.world()), Failing)


@pytest.mark.parametrize(
    ("attempt", "requests", "answered", "follows"),
    [(1, 1, 1, True), (1, 2, 1, True), (2, 1, 1, False), (1, 1, 2, False), (1, 0, 0, False)],
)
def test_only_an_answer_to_what_was_asked_counts(attempt: int, requests: int, answered: int, follows: bool) -> None:
    """A program can write any number, whether it was asked or not."""
    world = a_scene(attempt=attempt, requests=requests).all(failed(1, request_answered=answered)).world()
    assert world.gang is not None
    assert leavers.follow(world, world.gang.spec) is follows


@pytest.mark.parametrize(
    ("step", "now", "ended", "age", "is_over"),
    [
        (7, 100, False, 0.5, True),
        (8, 100, False, 29.5, False),
        (8, 100, False, 30.0, True),  # it is called by one less
        (9, 100, False, 30.0, False),
        (9, 380, False, 0.5, True),
        (9, 100, True, 0.5, True),
    ],
)
def test_ranks_that_follow_may_save_later_steps_yet(
    step: int, now: float, ended: bool, age: float, is_over: bool
) -> None:
    view = {"step": step, "step_age_seconds": age, "checkpoints": SAVED, "request_answered": 1}
    ranks = {"ranks": succeeded(1).ranks} if ended else {}
    world = a_scene(seconds=now).all(running(1, **view, **ranks)).world()
    assert world.gang is not None
    due = next_step(world, world.gang.spec)
    assert (isinstance(due, EndEvacuation) and due.is_saved) is is_over


def test_who_follows_and_never_saves_is_stopped_at_the_deadline() -> None:
    for seconds, stops in ((379, False), (380, True)):
        world = a_scene(seconds=seconds).all(running(1, step=7, request_answered=1)).world()
        assert world.gang is not None
        assert isinstance(next_step(world, world.gang.spec), EndEvacuation) is stops


def test_who_suspends_and_resumes_all_the_time_holds_up_no_drain(training: Jobs) -> None:
    job = trains(training, None, total=1000, nodes=4, checkpoint={"directory": "/ckpt", "saveTimeoutSeconds": 60})
    job.cordon("n1")
    for turn in range(25):
        job.edit("job", {"suspend": turn % 2 == 1})
        job.run(3)
    assert "n1" not in job.nodes


def test_who_fails_while_it_is_to_leave_starts_elsewhere(training: Jobs) -> None:
    """Else each failure would begin the evacuation anew, and a drain would wait for as many as the budget allows."""
    job = trains(training, None, total=1000, nodes=4, checkpoint={"directory": "/ckpt", "saveTimeoutSeconds": 60})
    job.cordon("n1")
    job.run(30)
    assert (job.attempt, job.nodes) == (1, ["n0", "n1"])
    job.rank(0).exit(1)
    job.until_go(2)
    assert (job.levels, job.nodes, job.paid) == (["Start", "R2"], ["n0", "n2"], (1, 0))


def test_who_fails_does_not_start_where_maintenance_is_about_to_begin(training: Jobs) -> None:
    job = trains(training, None, total=1000, nodes=2)
    job.plan_window("n1", 300)
    job.until(lambda: job.record.evacuation is not None)
    job.rank(0).exit(1)
    job.until(lambda: job.nodes == ["n0", ""], 60)


@pytest.mark.parametrize("step", [55, 145], ids=["in time", "out of time"])
@pytest.mark.parametrize("leaves", [lambda job: job.cordon("n2", on=False), lambda job: job.edit("job", SUSPEND)])
def test_who_had_no_place_to_go_to_leaves_after_a_new_save(
    training: Jobs, step: int, leaves: Callable[[OneJob], None]
) -> None:
    """It saves every 30 steps, and has trained on since the save that the evacuation waited for."""
    job = training(script=steps(900, every=30), checkpoint={"directory": "/ckpt", "saveTimeoutSeconds": 100})
    job.cordon("n1")
    job.until(lambda: job.record.evacuation is not None)
    job.cordon("n2")
    job.until_step(step)
    assert job.status.reason == "NoNodeToMoveTo"
    leaves(job)
    job.until_attempt(2, 30)
    assert job.trainers[job.uid].made - job.saved <= 5


def test_a_suspension_joins_an_evacuation_that_is_just_out_of_time() -> None:
    for seconds, joins in ((380, True), (439, True), (440, False)):
        scene = a_scene(seconds=seconds)
        scene.job = a_job(suspend=True)
        world = scene.all(running(1, step=7)).world()
        assert world.gang is not None
        assert isinstance(next_step(world, world.gang.spec), EndEvacuation) is joins


@pytest.mark.parametrize(
    ("seconds", "checkpoints", "expected"),
    [(100, SAVED, StartAgain(True)), (100, [], FollowLateAnswer(at(400))), (380, [], StartAgain(False))],
)
def test_who_follows_is_not_called_back(seconds: float, checkpoints: Any, expected: EvacuationStep) -> None:
    view = running(1, step=7, checkpoints=checkpoints, request_answered=1)
    world = a_scene(cordoned=False, seconds=seconds).all(view).world()
    assert world.gang is not None
    assert next_step(world, world.gang.spec) == expected


def test_that_a_request_was_withdrawn_is_recorded_once() -> None:
    world = a_scene(cordoned=False).all(running(1, step=7, request_answered=1)).world()
    assert world.gang is not None
    record = with_late_answer(world, world.gang.spec, at(400))
    assert record == world.gang.spec.model_copy(
        update={"evacuation": EVACUATION.model_copy(update={"reason": LEAVE_WITHDRAWN, "nodes": []})}
    )
    assert next_step(world, record) == NothingDue()


def started(seconds: float, scene: Scene) -> Scene:
    """The scene, with ranks that started then."""
    assert scene.record is not None
    assert scene.record.start is not None
    start = scene.record.start.model_copy(update={"time": at(seconds)})
    scene.record = scene.record.model_copy(update={"start": start})
    return scene


def saves_every(seconds: float, last: float) -> TrainingJobStatus:
    times = [at(last - n * seconds) for n in range(3)][::-1]
    saves = [CheckpointSave(step=n, time=time) for n, time in enumerate(times)]
    return TrainingJobStatus(checkpoint=CheckpointStatus(step=2, path="/checkpoints/2", time=at(last), saves=saves))


@pytest.mark.parametrize(
    ("every", "now", "answered", "in_vain"),
    [
        (900, 110, 0, True),
        (900, 109, 0, False),  # a step may take that long
        (900, 110, 1, False),
        (300, 110, 0, False),  # the next one comes at 350
    ],
)
def test_a_wait_in_vain(every: float, now: float, answered: int, in_vain: bool) -> None:
    job = a_job().model_copy(update={"status": saves_every(every, 50)})
    scene = Scene(job, seconds=now).fleet(6).gang(requests=1, evacuation_requests=[1], evacuation=EVACUATION).pods()
    world = started(-9000, scene).all(running(1, step=7, request_answered=answered)).world()
    assert world.gang is not None
    assert leavers.wait_in_vain(world, world.gang.spec, EVACUATION, EVACUATION.deadline) is in_vain


@pytest.mark.parametrize(("leader_age", "in_vain"), [(14.0, False), (15.0, True)])
def test_no_wait_is_in_vain_before_all_are_heard(leader_age: float, in_vain: bool) -> None:
    job = a_job().model_copy(update={"status": saves_every(900, 50)})
    scene = Scene(job, seconds=200.0).fleet(6).gang(requests=1, evacuation=EVACUATION).pods()
    world = started(-9000, scene).but(leader_age_seconds=leader_age).world()
    assert world.gang is not None
    assert leavers.wait_in_vain(world, world.gang.spec, EVACUATION, EVACUATION.deadline) is in_vain


def test_a_long_step_is_waited_for() -> None:
    job = a_job().model_copy(update={"status": saves_every(900, 50)})
    for now, in_vain in ((169, False), (170, True)):
        scene = Scene(job, seconds=now).fleet(6).gang(requests=1, evacuation_requests=[1], evacuation=EVACUATION).pods()
        world = started(-9000, scene).all(running(1, step=7, longest_wait_seconds=60.0)).world()
        assert world.gang is not None
        assert leavers.wait_in_vain(world, world.gang.spec, EVACUATION, EVACUATION.deadline) is in_vain


@pytest.mark.parametrize(
    ("start", "every", "expected"),
    [(-9000, 60, 110), (-70, 60, 110), (-9, 60, None), (51, 60, None)],
    ids=["long ago", "three saves ago", "one save ago", "since the last one"],
)
def test_the_next_save_is_expected_by_those_since_the_start(start: float, every: float, expected: float | None) -> None:
    """Between those before there may be a suspension of days."""
    job = a_job().model_copy(update={"status": saves_every(every, 50)})
    world = started(start, Scene(job).fleet(6).gang().pods()).world()
    assert world.gang is not None
    assert leavers.next_save(world, world.gang.spec) == (None if expected is None else at(expected))


def test_nothing_is_expected_of_a_program_whose_saves_are_not_known() -> None:
    world = Scene(a_job()).fleet(6).gang().pods().world()
    assert world.gang is not None
    assert leavers.next_save(world, world.gang.spec) is None


def test_further_reasons_join_with_the_earliest_deadline() -> None:
    world = a_scene().all(running(1, step=9)).world()
    assert world.gang is not None
    for reason, nodes, deadline, expected in (
        ("NodeRemoval", ["n1", "n2"], at(200), at(200)),
        ("Suspended", [], at(900), at(380)),
        ("NodeCordoned", ["n0"], at(200), at(380)),
    ):
        record = with_evacuation_begun(world, world.gang.spec, reason, nodes, deadline)
        assert record.requests == 1
        joined = EVACUATION.model_copy(update={"reason": reason, "nodes": nodes, "deadline": expected})
        assert record.evacuation == joined


def test_after_a_deadline_that_has_passed_the_ranks_are_asked_again() -> None:
    """The first reason had no place to go to; the job is suspended later."""
    world = a_scene(seconds=400.0).all(running(1, step=9)).world()
    assert world.gang is not None
    record = with_evacuation_begun(world, world.gang.spec, "Suspended", [], at(700))
    assert record.evacuation is not None
    assert (record.requests, record.evacuation.since, record.evacuation.deadline) == (2, at(400), at(700))

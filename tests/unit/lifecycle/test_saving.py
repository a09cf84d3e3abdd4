"""A request to save and go on (`kubectl muster save`): asked once, saved, or said to be unanswered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, at, failed, running, succeeded
from tests.unit.lifecycle.testbed import JOB, OneJob, steps

from muster.api.gang import MAX_EVACUATION_REQUESTS, Evacuation, GangSpec, SaveRequest
from muster.lifecycle.directive import directive_for
from muster.lifecycle.evacuation_step import NothingDue, next_step
from muster.lifecycle.plan import CommitGang
from muster.lifecycle.situation import Ending, Failing, situation_of
from muster.lifecycle.step import decide
from muster.protocol.messages import LEAVE, SAVE, Directive
from muster.record.attempts import without_nodes
from muster.record.evacuation import with_evacuation_begun, without_evacuation
from simulate.training import OnRequest, Script

Jobs = Callable[..., OneJob]
SELDOM = 1000


def trains(training: Jobs, answer: OnRequest | None = OnRequest.ENDS_WELL, total: int = 40, **settings: Any) -> OneJob:
    return training(script=steps(total, every=SELDOM, answers=answer), **settings)


def saves(job: OneJob, name: str = "first") -> None:
    job.edit(JOB, {"checkpoint": {"saveRequest": name}})


def saving_within(seconds: int) -> dict[str, Any]:
    return {"checkpoint": {"directory": f"/ckpt/{JOB}", "saveTimeoutSeconds": seconds}}


def is_over(job: OneJob, name: str = "first") -> bool:
    request = job.record.save_request
    return request is not None and request.name == name and request.over


# Lives.


def test_it_saves_once_and_goes_on(training: Jobs) -> None:
    job = trains(training)
    saves(job)
    job.until(lambda: is_over(job), 30)
    request = job.record.save_request
    assert request is not None
    ((attempt, step),) = job.trainers[job.uid].asked_saves
    assert (attempt, step) == (1, request.saved_step)
    assert job.saved == step
    assert [len(job.notes(reason)) for reason in ("SaveRequested", "SavedOnRequest")] == [1, 1]
    job.succeeds()
    assert (job.levels, job.paid, job.trainers[job.uid].made) == (["Start"], (0, 0), 40)
    assert len(job.trainers[job.uid].asked_saves) == 1


def test_each_new_name_asks_once(training: Jobs) -> None:
    job = trains(training)
    for name in ("first", "second", "second"):
        saves(job, name)
        job.until(lambda name=name: is_over(job, name), 30)  # type: ignore[misc]
        job.run(5)
    assert len(job.trainers[job.uid].asked_saves) == 2
    assert job.record.requests == 2


def test_one_request_at_a_time(training: Jobs) -> None:
    """Whoever changes the field all the time has one save after the other, and one record for each."""
    job = trains(training, None, total=90, checkpoint={"directory": f"/ckpt/{JOB}", "saveTimeoutSeconds": 20})
    for number in range(9):
        saves(job, f"n{number}")
        job.run(1)
    request = job.record.save_request
    assert request is not None
    assert (request.name, job.record.requests) == ("n0", 1)
    job.until(lambda: is_over(job, "n8"), 60)
    assert job.record.requests == 2


@pytest.mark.parametrize("writes", range(1, 9))
def test_the_operator_may_die_after_any_write(training: Jobs, writes: int) -> None:
    job = trains(training)
    job.operator_dies_after(writes)
    saves(job)
    job.until(lambda: is_over(job), 60)
    assert len(job.trainers[job.uid].asked_saves) == 1
    job.succeeds()
    assert job.levels == ["Start"]


def test_who_does_not_answer_is_said_to_and_trains_on(training: Jobs) -> None:
    job = trains(training, None, total=120, checkpoint={"directory": f"/ckpt/{JOB}", "saveTimeoutSeconds": 20})
    saves(job)
    job.until(lambda: job.status.reason == "SaveRequestUnanswered", 40)
    assert job.status.state == "Running"
    assert len(job.notes("SaveRequestUnanswered")) == 1
    assert "SaveRequestUnanswered" in [warning.reason for warning in job.status.warnings]
    job.edit(JOB, {"checkpoint": {"saveRequest": None}})
    job.until(lambda: job.status.reason == "Training", 40)
    job.succeeds()
    assert (job.levels, job.record.incidents) == (["Start"], [])


def test_a_later_save_of_its_own_ends_the_warning(training: Jobs) -> None:
    settings = {"directory": f"/ckpt/{JOB}", "saveTimeoutSeconds": 10}
    job = training(script=steps(90, every=40), checkpoint=settings)
    saves(job)
    job.until(lambda: job.status.reason == "SaveRequestUnanswered", 30)
    job.until(lambda: job.saved == 40 and job.status.reason == "Training", 60)


def test_ranks_that_were_started_since_are_asked_again(training: Jobs) -> None:
    job = trains(training, total=60)
    rank = job.rank(1)
    saves(job)
    job.until(lambda: job.record.save_request is not None)
    rank.kill()
    job.until(lambda: is_over(job), 60)
    request = job.record.save_request
    assert request is not None
    assert job.trainers[job.uid].asked_saves[-1] == (2, request.saved_step)
    job.succeeds()


@pytest.mark.parametrize("first", [True, False], ids=["save-first", "leave-first"])
def test_one_save_serves_a_leave_and_a_request_to_save(training: Jobs, first: bool) -> None:
    job = trains(training)
    acts: list[Callable[[], object]] = [lambda: saves(job), lambda: job.edit(JOB, {"suspend": True})]
    for act in acts if first else acts[::-1]:
        act()
    job.until(lambda: job.status.state == "Suspended" and not job.pods, 60)
    ((_, step),) = job.trainers[job.uid].leaves
    assert is_over(job)
    request = job.record.save_request
    assert request is not None
    assert request.saved_step == step
    assert len(job.notes("SaveRequested")) == first, "it is not said to be asked for what it is not asked for"
    job.edit(JOB, {"suspend": False})
    job.succeeds()
    assert (job.trainers[job.uid].made, job.trainers[job.uid].asked_saves) == (40, [])


def test_a_leave_without_a_save_leaves_the_request_to_the_next_attempt(training: Jobs) -> None:
    """The time to save is too short for a save, and longer in the next attempt."""
    job = training(script=Script(60, 1.0, SELDOM, save_seconds=20, answers=OnRequest.ENDS_WELL), **saving_within(10))
    job.edit(JOB, {"suspend": True})
    job.until(lambda: job.record.evacuation is not None)
    saves(job)
    job.until(lambda: job.status.state == "Suspended", 30)
    assert job.record.save_request is None
    job.edit(JOB, {"suspend": False, **saving_within(60)})
    job.until(lambda: is_over(job), 90)
    request = job.record.save_request
    assert request is not None
    assert job.trainers[job.uid].asked_saves == [(job.attempt, request.saved_step)]


def test_an_end_after_a_save_is_a_success(training: Jobs) -> None:
    job = trains(training, total=20)
    saves(job)
    job.until(lambda: is_over(job), 30)
    job.succeeds()
    assert job.levels == ["Start"]


# Single decisions.

SAVED = [(7, "/checkpoints/7")]


def a_request(**changes: Any) -> SaveRequest:
    values = {"name": "first", "attempt": 1, "number": 1, "since": at(80), "deadline": at(380), "after_step": 6}
    return SaveRequest.model_validate(values | changes)


def a_scene(request: SaveRequest | None, *, seconds: float = 100.0, **changes: Any) -> Scene:
    job = a_job(checkpoint={"directory": "/checkpoints", "saveRequest": "first"})
    return Scene(job, seconds=seconds).fleet(6).gang(save_request=request, **{"requests": 1, **changes}).pods()


def directive(scene: Scene) -> Directive:
    world = scene.world()
    (name,) = [pod.name for pod in world.pods.values() if pod.index == 0]
    return directive_for(world.job, world.gang, name, scene.uid(0), lambda _: None)


def committed(scene: Scene) -> GangSpec | None:
    commits = [action for action in decide(scene.world(), SETTINGS).actions if isinstance(action, CommitGang)]
    return commits[0].spec if commits else None


def test_the_request_is_in_the_directive() -> None:
    asked = directive(a_scene(a_request(number=3)).all(running(1, step=7)))
    assert (asked.request, asked.request_kind, asked.request_reason) == (3, SAVE, "SaveRequested")
    assert asked.request_seconds == 300
    for gone in (a_request(over=True), a_request(attempt=4), None):
        assert directive(a_scene(gone).all(running(1, step=7))).request is None


def test_to_leave_comes_first_and_then_the_save_again() -> None:
    scene = a_scene(a_request()).all(running(1, step=7))
    world = scene.world()
    assert world.gang is not None
    leaving = with_evacuation_begun(world, world.gang.spec, "NodeCordoned", ["n1"], at(400))
    scene.record = leaving
    assert (directive(scene).request, directive(scene).request_kind) == (2, LEAVE)
    scene.record = without_evacuation(leaving)
    assert (directive(scene).request, directive(scene).request_kind) == (1, SAVE)


@pytest.mark.parametrize("last", [None, a_request(attempt=3)], ids=["first", "again"])
def test_who_is_to_leave_is_asked_for_no_save(last: SaveRequest | None) -> None:
    leaving = Evacuation(reason="NodeCordoned", nodes=["n1"], since=at(80), deadline=at(380), after_step=6)
    scene = a_scene(last, evacuation_requests=[1], evacuation=leaving).node("n1", unschedulable=True)
    assert committed(scene.all(running(1, step=7))) is None


@pytest.mark.parametrize(
    ("last", "newest", "expected"),
    [
        (None, 7, a_request(over=True, saved_step=7)),
        (None, 6, None),
        (a_request(name="before", over=True), 7, a_request(over=True, saved_step=7)),
        (a_request(name="before", after_step=9), 7, a_request(name="before", after_step=9)),
    ],
    ids=["saved", "not-saved", "another-is-over", "another-stands"],
)
def test_the_save_of_a_leave_serves_a_request_that_came_meanwhile(
    last: SaveRequest | None, newest: int, expected: SaveRequest | None
) -> None:
    leaving = Evacuation(reason="Suspended", since=at(80), deadline=at(380), after_step=6)
    scene = a_scene(last, evacuation_requests=[1], evacuation=leaving)
    world = scene.all(running(1, step=7, checkpoints=[(newest, f"/checkpoints/{newest}")])).world()
    assert world.gang is not None
    assert without_nodes(world, world.gang.spec).save_request == expected


def test_a_late_answer_is_to_the_number_of_the_leave() -> None:
    late = Evacuation(reason="LeaveWithdrawn", since=at(80), deadline=at(380))
    scene = a_scene(a_request(number=2), requests=2, evacuation_requests=[1], evacuation=late).all(running(1, step=7))
    assert (directive(scene).request, directive(scene).request_kind) == (1, LEAVE)


@pytest.mark.parametrize(("end", "then"), [(succeeded, Ending), (failed, Failing)])
def test_who_was_asked_to_save_alone_does_not_leave(end: Any, then: type) -> None:
    """Its end is what its exit code says, whatever it has saved and answered."""
    ended = end(1)
    view = {"step": 7, "request_answered": 1, "ranks": ended.ranks, "state": "Exited", "checkpoints": SAVED}
    for answered in (1, 2):
        scene = a_scene(a_request(number=2), requests=2).all(running(1, **(view | {"request_answered": answered})))
        assert isinstance(situation_of(scene.world()), then)


def test_saves_and_leaves_are_told_apart_by_their_numbers() -> None:
    for answered, follows in ((1, False), (2, True), (3, False)):
        scene = a_scene(a_request(number=3), requests=3, evacuation_requests=[2])
        world = scene.all(running(1, step=7, request_answered=answered)).world()
        assert world.gang is not None
        assert isinstance(next_step(world, world.gang.spec), NothingDue) is not follows


def test_of_many_leaves_the_newest_are_remembered() -> None:
    world = a_scene(None, requests=0).all(running(1, step=7)).world()
    assert world.gang is not None
    record = world.gang.spec
    for _ in range(MAX_EVACUATION_REQUESTS + 3):
        record = without_evacuation(with_evacuation_begun(world, record, "NodeCordoned", ["n1"], at(400)))
    assert record.evacuation_requests == [*range(4, MAX_EVACUATION_REQUESTS + 4)]


@pytest.mark.parametrize(
    ("seconds", "checkpoints", "saved_step"), [(100, SAVED, 7), (380, SAVED, 7), (380, [(6, "/checkpoints/6")], None)]
)
def test_it_is_over_when_it_is_saved_or_out_of_time(seconds: float, checkpoints: Any, saved_step: int | None) -> None:
    record = committed(a_scene(a_request(), seconds=seconds).all(running(1, step=7, checkpoints=checkpoints)))
    assert record is not None
    assert record.save_request == a_request(over=True, saved_step=saved_step)


def test_until_then_it_stands() -> None:
    record = committed(a_scene(a_request(), seconds=379).all(running(1, step=7, request_answered=1)))
    assert record is None or record.save_request == a_request()


def test_a_new_leader_asks_once_it_has_heard_all_workers() -> None:
    """What is new follows from what there is."""
    scene = a_scene(None, requests=0).all(running(1, step=7))
    scene.but(leader_age_seconds=1.0)
    record = committed(scene)
    assert record is not None
    assert record.save_request is not None
    scene.launchers.popitem()
    record = committed(scene)
    assert record is None or record.save_request is None

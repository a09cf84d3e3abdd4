"""When incomplete checkpoints are moved aside: on record first, by one worker, and the go waits for its word."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, at, idle

from muster.api.gang import GangSpec, Resume
from muster.lifecycle import moves
from muster.lifecycle.directive import directive_for
from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.step import decide
from muster.protocol.messages import WAIT
from muster.recovery import verification

WHOLE = (100, "/checkpoints/step-100")
ORDER = Resume(step=100, path="/checkpoints/step-100")


def scene(seen: Any = (WHOLE,), done: int | None = 0, asks: bool = True, **changes: Any) -> Scene:
    told = changes.pop("told", {})
    job = a_job(checkpoint={"directory": changes.pop("directory", "/checkpoints"), "moveIncomplete": asks})
    here = Scene(job).fleet().gang(2, go=False, **({"time": at(0.0)} | changes)).pods()
    for index in range(3):
        here.launcher(index, idle(2, rank=index, checkpoints=seen, stamps="", moved_attempt=done, **told))
    return here


def committed(plan: Plan) -> GangSpec | None:
    return next((action.spec for action in plan.actions if isinstance(action, CommitGang)), None)


def after(here: Scene) -> GangSpec:
    spec = committed(decide(here.world(), SETTINGS))
    assert spec is not None
    return spec


def test_the_order_is_put_on_record_before_the_go() -> None:
    spec = after(scene())
    assert (spec.move_incomplete_beyond, spec.start, spec.attempt) == (ORDER, None, 2)


def test_the_go_waits_until_the_first_worker_says_that_it_is_done() -> None:
    plan = decide(scene(move_incomplete_beyond=ORDER).world(), SETTINGS)
    assert committed(plan) is None
    spec = after(scene(move_incomplete_beyond=ORDER, done=2))
    assert spec.start is not None
    assert spec.start.resume == ORDER


def test_the_word_of_an_attempt_before_does_not_count() -> None:
    assert committed(decide(scene(move_incomplete_beyond=ORDER, done=1).world(), SETTINGS)) is None


def test_a_start_that_waits_for_it_too_long_is_told_as_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    world = scene(move_incomplete_beyond=ORDER).world()
    early = decide(world, SETTINGS).status
    monkeypatch.setattr(verification, "_waited_seconds", lambda *_: verification.STALLED_SECONDS)
    late = decide(world, SETTINGS).status
    assert early is not None
    assert late is not None
    assert (early.state, late.state) == ("Starting", "Stalled")
    waits = "The start waits for worker 0 on n0 to move what is beyond checkpoint 100 and incomplete. See whether"
    assert waits in str(late.conditions)


@pytest.mark.parametrize(
    "changes",
    [
        {"asks": False},
        {"seen": ()},
    ],
    ids=["not asked for", "from scratch"],
)
def test_no_order_where_there_is_nothing_to_do(changes: dict[str, Any]) -> None:
    spec = after(scene(**changes))
    assert spec.move_incomplete_beyond is None
    assert spec.start is not None


def test_what_was_done_is_an_event_and_what_could_not_be_a_warning() -> None:
    told = {"moved": "step-200 moved to .muster-incomplete", "moved_error": "Read-only file system"}
    plan = decide(scene(move_incomplete_beyond=ORDER, done=2, told=told).world(), SETTINGS)
    found = {announcement.reason: announcement for announcement in plan.announcements}
    assert found["IncompleteMoved"].note == "in /checkpoints: step-200 moved to .muster-incomplete"
    assert found["IncompleteNotMoved"].warning
    assert "Read-only file system" in found["IncompleteNotMoved"].note


def test_the_next_attempt_asks_anew() -> None:
    world = scene(move_incomplete_beyond=ORDER, done=2).world()
    assert world.gang is not None
    other = moves.with_members_moved(world, world.gang.spec, [0], "NodeNotUsable")
    assert (other.attempt, other.move_incomplete_beyond) == (3, None)


def test_only_the_first_worker_is_asked_and_only_before_the_go() -> None:
    world = scene(move_incomplete_beyond=ORDER).world()
    assert world.gang is not None
    asked = [
        directive_for(world.job, world.gang, worker_view.pod.name, worker_view.pod.uid, lambda _: None)
        for worker_view in world.worker_views
        if worker_view.pod
    ]
    assert [(one.kind, one.move_incomplete_beyond) for one in asked] == [(WAIT, ORDER.path), (WAIT, None), (WAIT, None)]

"""Starts from the nodes' own disks: only where every node holds its whole share of one and the same save."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, at, idle, running

from muster.api.gang import GangSpec, Resume
from muster.api.trainingjob import TrainingJobStatus
from muster.checkpoints import node_local
from muster.checkpoints.resume import Missing, Start
from muster.lifecycle import moves
from muster.lifecycle.directive import directive_for
from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.step import decide
from muster.protocol.messages import LocalReport
from muster.record.attempts import with_new_placement
from muster.world.queuedecision import Placed

SHARED = Resume(step=100, path="/checkpoints/step-100")
OURS = LocalReport(140, "/local/step-140", 1, "Manifest")
NEWER = LocalReport(150, "/local/step-150", 1, "Manifest")
CHECKPOINT = {"directory": "/checkpoints", "localDirectory": "/local"}


def scene(
    *held: Any, seen: Any = ((100, "/checkpoints/step-100"),), checkpoint: Any = (), listed: float = 1.0, **changes: Any
) -> Scene:
    """Attempt 2 waits for its start; what the node of each worker holds, or its view's other fields."""
    job = a_job(checkpoint=CHECKPOINT | dict(checkpoint))
    here = Scene(job).fleet().gang(2, go=False, **({"time": at(0.0), "local_since_attempt": 1} | changes)).pods()
    for index, found in enumerate(held):
        told = found if isinstance(found, dict) else {"local": tuple(found)}
        view = {"checkpoints": seen, "stamps": "", "local_attempt": 2, "scanned_age_seconds": listed, **told}
        here.launcher(index, idle(2, rank=index, **view))
    return here


def where(here: Scene) -> Start | Missing:
    world = here.world()
    assert world.gang is not None
    return node_local.local_start(world, world.gang.spec)


def begun(here: Scene) -> tuple[GangSpec, str]:
    """The record with its go, and the Event of the start."""
    plan: Plan = decide(here.world(), SETTINGS)
    spec = next(action.spec for action in plan.actions if isinstance(action, CommitGang))
    assert spec.start is not None
    return spec, next(told.note for told in plan.announcements if told.reason == "Started")


def test_what_every_node_holds_is_gone_on_from() -> None:
    spec, told = begun(scene((OURS,), (OURS,), (OURS,)))
    assert spec.start is not None
    assert spec.start.resume == Resume(step=140, path="/local/step-140")
    assert spec.checkpoint == SHARED, "a lost node must not leave a start without one"
    assert spec.local_since_attempt == 1, "it may be gone on from once more"
    assert told == (
        "attempt 2 starts from checkpoint 140 (/local/step-140), which every node holds on its own disk (the newest in "
        "spec.checkpoint.directory is 100)"
    )


def test_also_where_nothing_is_shared_yet() -> None:
    spec, told = begun(scene((OURS,), (OURS,), (OURS,), seen=()))
    assert spec.start is not None
    assert (spec.start.resume, spec.checkpoint) == (Resume(step=140, path="/local/step-140"), None)
    assert "(the only one)" in told


def test_the_newest_that_all_hold_and_that_others_hold_more_is_told() -> None:
    found = where(scene((NEWER, OURS), (OURS,), (NEWER, OURS)))
    assert isinstance(found, Start)
    assert found.resume == Resume(step=140, path="/local/step-140")
    assert found.warning == (
        "the parts of checkpoint 150 on the nodes' own disks (/local/step-150) are not used: worker 1 on n1 does not "
        "hold its whole part of that save; 10 steps are trained again"
    )


@pytest.mark.parametrize(
    "third",
    [
        (),
        (NEWER,),
        (LocalReport(140, "/local/step-140", 0),),
        (LocalReport(140, "/elsewhere/step-140", 1),),
        {"local": (OURS,), "local_attempt": 1, "local_error": "no answer from /local"},
    ],
    ids=["nothing", "another step", "another attempt's", "another path", "a disk that hangs"],
)
def test_what_one_node_lacks_does_not_count(third: Any) -> None:
    spec, told = begun(scene((OURS,), (OURS,), third))
    assert spec.start is not None
    assert spec.start.resume == spec.checkpoint == SHARED
    assert "are not used: worker" in told
    assert spec.local_since_attempt >= 2, "what was left behind is left behind for good"


def test_after_the_gang_was_deleted_no_save_of_before_counts() -> None:
    """Which of them a start had passed over was in its record alone."""
    job = a_job(checkpoint=CHECKPOINT).model_copy(update={"status": TrainingJobStatus(attempt=1)})
    record = with_new_placement(Scene(job).fleet().world(), Placed(("n0", "n1", "n2")), "Started")
    assert record.attempt == 2
    spec, _ = begun(scene((OURS,), (OURS,), (OURS,), local_since_attempt=record.local_since_attempt))
    assert spec.start is not None
    assert spec.start.resume == SHARED


def test_why_and_how_much_is_told() -> None:
    _, told = begun(scene((OURS,), (OURS,), {"local_attempt": 1, "local_error": "no answer from /local"}))
    assert told == (
        "attempt 2 starts from checkpoint 100 (/checkpoints/step-100), found in spec.checkpoint.directory; the parts "
        "of checkpoint 140 on the nodes' own disks (/local/step-140) are not used: worker 2 on n2: no answer from "
        "/local; 40 steps are trained again"
    )


def test_where_nobody_else_holds_more_a_disk_that_could_not_be_looked_at_is_named() -> None:
    _, told = begun(scene({"local_attempt": 1, "local_error": "no answer from /local"}, (), ()))
    assert told == (
        "attempt 2 starts from checkpoint 100 (/checkpoints/step-100), found in spec.checkpoint.directory; what "
        "worker 0 on n0 holds on its node's own disk does not count: no answer from /local"
    )


def test_a_node_that_was_replaced_holds_none() -> None:
    here = scene((OURS,), (OURS,), ())
    world = here.world()
    assert world.gang is not None
    members = [member.model_copy(update={"is_replacement": member.index == 2}) for member in world.gang.spec.members]
    found = where(scene((OURS,), (OURS,), (), members=members))
    assert isinstance(found, Start)
    assert "worker 2 on n2 moved to its node after that save, and holds none" in found.warning


def test_what_is_older_than_the_shared_one_is_not_worth_a_word() -> None:
    found = where(scene((OURS,), (OURS,), (), seen=((140, "/checkpoints/step-140"),)))
    assert found == Start(Resume(step=140, path="/checkpoints/step-140"), None)


def test_what_a_later_start_left_behind_does_not_count() -> None:
    found = where(scene((OURS,), (OURS,), (OURS,), local_since_attempt=2))
    assert found == Start(SHARED, None)


def test_a_node_that_has_not_looked_is_waited_for_and_not_for_ever() -> None:
    late = {"local": (OURS,), "local_attempt": 1}
    found = where(scene((OURS,), (OURS,), late))
    assert isinstance(found, Missing)
    assert (found.reason, found.stalled, "worker 2 on n2" in found.message) == (node_local.NOT_LOOKED, False, True)
    after = where(scene((OURS,), (OURS,), late, listed=node_local.WAIT_SECONDS))
    assert isinstance(after, Start)
    assert after.resume == SHARED


def test_a_look_from_before_the_last_unfenced_worker_died_does_not_count() -> None:
    told = {"local": (OURS,), "listing_round": 1}
    assert isinstance(where(scene(told, told, told, listing_round=1)), Missing)
    told["local_listing_round"] = 1
    found = where(scene(told, told, told, listing_round=1))
    assert isinstance(found, Start)
    assert found.local_attempt == 1


def test_where_an_attempt_could_not_be_written_down_what_it_saves_does_not_count() -> None:
    spec, _ = begun(scene({"local_error": "No space left on device"}, (), ()))
    assert spec.local_since_attempt == 3
    spec, _ = begun(scene((), (), ()))
    assert spec.local_since_attempt == 2


def test_a_persons_word_is_done_to_the_letter() -> None:
    found = where(scene((OURS,), (OURS,), (OURS,), checkpoint={"resumeFrom": 100}))
    assert isinstance(found, Start)
    assert (found.resume, found.local_attempt) == (SHARED, 0)
    assert where(scene((OURS,), (OURS,), (OURS,), checkpoint={"localDirectory": None})) == Start(SHARED, None)


def test_a_shared_checkpoint_that_one_does_not_see_holds_the_start_all_the_same() -> None:
    found = where(scene((OURS,), (OURS,), {"local": (OURS,), "checkpoints": ()}))
    assert isinstance(found, Missing)
    assert found.reason == "CheckpointNotVisible"


def test_a_program_that_cannot_be_told_of_it_goes_on_from_the_shared_one() -> None:
    held = (LocalReport(140, "/local/global_step140", 1, "DeepSpeed"),)
    spec, told = begun(scene(held, held, held, checkpoint={"resumePreset": "DeepSpeed"}))
    assert spec.start is not None
    assert (spec.start.resume, spec.local_since_attempt) == (SHARED, 2)
    assert (
        "checkpoint 140 on the nodes' own disks (/local/global_step140) is not used: spec.checkpoint.resumePreset"
        in told
    )
    assert told.endswith("; 40 steps are trained again")


@pytest.mark.parametrize(("step", "since"), [(None, 2), (140, 2), (141, 1)])
def test_one_from_which_no_step_was_made_is_not_tried_again(step: int | None, since: int) -> None:
    """A copy may be spoilt, or the program may not take it."""
    here = (
        Scene(a_job(checkpoint=CHECKPOINT))
        .fleet()
        .gang(2, time=at(0.0), local_since_attempt=1, checkpoint=SHARED)
        .pods()
    )
    for index in range(3):
        here.launcher(index, running(2, step, rank=index))
    world = here.world()
    assert world.gang is not None
    assert world.gang.spec.start is not None
    go = world.gang.spec.start.model_copy(update={"resume": Resume(step=140, path="/local/step-140")})
    spec = world.gang.spec.model_copy(update={"start": go})
    assert moves.with_members_moved(world, spec, [0], "NodeNotUsable").local_since_attempt == since
    other = spec.model_copy(update={"start": go.model_copy(update={"resume": SHARED})})
    assert moves.with_members_moved(world, other, [0], "NodeNotUsable").local_since_attempt == 1


def test_launchers_are_told_which_share_they_look_for() -> None:
    world = scene((), (), ()).world()
    assert world.gang is not None
    asked = [
        directive_for(world.job, world.gang, worker_view.pod.name, worker_view.pod.uid, lambda _: None).local_share
        for worker_view in world.worker_views
        if worker_view.pod
    ]
    assert asked == ["0/3x1", "1/3x1", "2/3x1"]
    job = world.job.model_copy(update={"spec": a_job().spec})
    pod = world.worker_views[0].pod
    assert pod is not None
    assert directive_for(job, world.gang, pod.name, pod.uid, lambda _: None).local_share is None

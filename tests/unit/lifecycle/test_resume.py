"""Where a start resumes: never behind what anybody has seen, never from scratch unasked, elsewhere only where a person asks."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, at, idle, running

from muster.api.gang import GangSpec, Lineage, Resume
from muster.api.trainingjob import CheckpointStatus
from muster.lifecycle import resume
from muster.lifecycle.plan import CommitGang, Plan, State
from muster.lifecycle.resume import NOT_VISIBLE_SECONDS, Missing, Start
from muster.lifecycle.step import decide
from muster.protocol.messages import CheckpointReport

OLD, NEW = (100, "/c/100"), (1000, "/c/1000")


def scene(*seen: Any, listed: float = 1.0, **changes: Any) -> Scene:
    """Attempt 2 waits for its start; what each worker sees, listed so long ago."""
    job = changes.pop("job", a_job())
    here = Scene(job).fleet().gang(2, go=False, **({"time": at(0.0)} | changes)).pods()
    for index, checkpoints in enumerate(seen):
        here.launcher(index, idle(2, checkpoints=checkpoints, scanned_age_seconds=listed))
    return here


def where(here: Scene) -> Start | Missing:
    world = here.world()
    assert world.gang is not None
    return resume.start(world, world.gang.spec)


def asking(wish: int | str) -> dict[str, Any]:
    return {"job": a_job(checkpoint={"directory": "/c", "resumeFrom": wish})}


class TestUnasked:
    def test_the_newest_that_all_see(self) -> None:
        found = where(scene((NEW, OLD), (NEW, OLD), (NEW, OLD)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=1000, path="/c/1000")

    def test_from_scratch_only_where_nothing_was_ever_seen(self) -> None:
        assert where(scene((), (), ())) == Start(None, None)

    @pytest.mark.parametrize("blind", [(), (OLD,)], ids=["sees nothing", "sees an older one"])
    def test_a_worker_that_does_not_see_the_newest_stops_the_start(self, blind: Any) -> None:
        """Also the first start, of which the record knows nothing."""
        early = where(scene((NEW, OLD), (NEW, OLD), blind))
        late = where(scene((NEW, OLD), (NEW, OLD), blind, listed=NOT_VISIBLE_SECONDS))
        assert isinstance(early, Missing)
        assert isinstance(late, Missing)
        assert "worker 2 on n2 does not see checkpoint 1000 (/c/1000), worker 0 on n0 does" in early.message
        assert (early.stalled, late.stalled) == (False, True)
        assert "resumeFrom" in late.message

    def test_the_grace_runs_from_the_last_listing(self) -> None:
        here = scene((NEW,), (NEW,), (), listed=3600.0)
        here.launcher(1, idle(2, checkpoints=(NEW,), scanned_age_seconds=2.0))
        found = where(here)
        assert isinstance(found, Missing)
        assert not found.stalled

    def test_what_is_gone_for_everybody_was_removed_by_somebody(self) -> None:
        known = Resume(step=1000, path="/c/1000")
        early = where(scene((OLD,), (OLD,), (OLD,), checkpoint=known))
        assert isinstance(early, Missing)
        found = where(scene((OLD,), (OLD,), (OLD,), checkpoint=known, listed=NOT_VISIBLE_SECONDS))
        assert isinstance(found, Start)
        assert (found.resume, "is gone" in found.warning) == (Resume(step=100, path="/c/100"), True)

    def test_but_an_empty_directory_is_no_reason_to_start_from_scratch(self) -> None:
        found = where(scene((), (), (), checkpoint=Resume(step=1000, path="/c/1000"), listed=3600.0))
        assert isinstance(found, Missing)
        assert found.stalled
        assert "set spec.checkpoint.resumeFrom to Scratch" in found.message

    def test_what_is_still_being_judged_is_waited_for(self) -> None:
        pending = (CheckpointReport(1000, "/c/1000", judged=False), CheckpointReport(100, "/c/100"))
        known = Resume(step=1000, path="/c/1000")
        found = where(scene(pending, pending, pending, checkpoint=known, listed=3600.0))
        assert isinstance(found, Missing)
        assert (found.reason, found.stalled) == ("CheckpointsNotJudged", False)

    def test_judges_that_see_nothing_do_not_send_everybody_back_to_the_beginning(self) -> None:
        """Workers 0, 1 and 2 judge; on their nodes the mount is an empty directory."""
        unjudged = (CheckpointReport(1000, "/c/1000", judged=False),)
        job = a_job(nodes=4)
        early = where(scene((), (), unjudged, unjudged, job=job))
        late = where(scene((), (), unjudged, unjudged, job=job, listed=NOT_VISIBLE_SECONDS))
        assert isinstance(early, Missing)
        assert isinstance(late, Missing)
        assert "worker 0 on n0 does not see checkpoint 1000 (/c/1000), worker 2 on n2 does" in early.message
        assert (early.stalled, late.stalled) == (False, True)

    def test_what_only_the_judges_do_not_see_is_not_gone(self) -> None:
        unjudged = (CheckpointReport(1000, "/c/1000", judged=False), CheckpointReport(100, "/c/100", judged=False))
        known = Resume(step=1000, path="/c/1000")
        views = ((OLD,), (OLD,), (OLD,), unjudged)  # workers 0, 1 and 2 judge
        found = where(scene(*views, job=a_job(nodes=4), checkpoint=known, listed=NOT_VISIBLE_SECONDS))
        assert isinstance(found, Missing)
        assert found.stalled
        assert "worker 0 on n0 does not see checkpoint 1000 (/c/1000), worker 3 on n3 does" in found.message

    def test_a_leader_that_has_heard_nobody_knows_what_people_were_told(self) -> None:
        """The record is not written while all goes well, and on the new nodes the mount is missing."""
        told = CheckpointStatus(step=48000, path="/c/48000", time=at(0.0))
        job = a_job()
        job = job.model_copy(update={"status": job.status.model_copy(update={"checkpoint": told})})
        found = where(scene((), (), (), job=job, listed=3600.0))
        assert isinstance(found, Missing)
        assert (found.stalled, "48000" in found.message) == (True, True)
        scratch = Lineage(asked="Scratch", step=-1, since_ns=9)
        assert isinstance(where(scene((), (), (), job=job, lineage=scratch)), Start), "that was another history"

    def test_a_torn_one_is_nobodys_blindness(self) -> None:
        torn = (CheckpointReport(1000, "/c/1000", judged=False, torn=True), CheckpointReport(100, "/c/100"))
        there = (CheckpointReport(1000, "/c/1000", judged=False), CheckpointReport(100, "/c/100", judged=False))
        found = where(scene(torn, torn, torn, there, job=a_job(nodes=4)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=100, path="/c/100")

    def test_a_stalled_job_goes_on_by_itself_once_the_mount_is_mended(self) -> None:
        here = scene((NEW,), (NEW,), (), listed=NOT_VISIBLE_SECONDS)
        plan = decide(here.world(), SETTINGS)
        assert plan.telling is not None
        assert (plan.telling.state, plan.wake_in_seconds) == (State.STALLED, 1.0)
        assert committed(decide(here.launcher(2, idle(2, checkpoints=(NEW,))).world(), SETTINGS)).go is not None


class TestAsked:
    @pytest.mark.parametrize("wish", [100, "100", "/c/100", "/c/100/"])
    def test_a_step_or_a_path(self, wish: int | str) -> None:
        found = where(scene((NEW, OLD), (NEW, OLD), (NEW, OLD), **asking(wish)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=100, path="/c/100")

    def test_scratch(self) -> None:
        found = where(scene((NEW,), (NEW,), (), **asking("Scratch")))
        assert isinstance(found, Start)
        assert (found.resume, found.lineage) == (None, Lineage(asked="Scratch", step=-1))

    def test_what_lies_beyond_does_not_count_afterwards(self) -> None:
        written = (CheckpointReport(1000, "/c/1000", 50), CheckpointReport(100, "/c/100", 10))
        first = committed(decide(scene(written, written, written, **asking(100)).world(), SETTINGS))
        assert first.go is not None
        assert first.go.resume == Resume(step=100, path="/c/100")
        assert first.lineage == Lineage(asked="100", step=100, since_ns=50)
        again = scene(written, written, written, lineage=first.lineage, checkpoint=first.checkpoint, **asking(100))
        found = where(again)
        assert isinstance(found, Start)
        assert found.resume == Resume(step=100, path="/c/100"), "asked once, and 1000 belongs to another history"
        newer = (CheckpointReport(200, "/c/200", 60), *written)
        found = where(scene(newer, newer, newer, lineage=first.lineage, checkpoint=first.checkpoint, **asking(100)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=200, path="/c/200")

    def test_one_that_is_not_there_stalls_and_says_which_are(self) -> None:
        found = where(scene((NEW, OLD), (NEW, OLD), (OLD,), **asking(1000)))
        assert isinstance(found, Missing)
        assert (found.reason, found.stalled) == ("ResumeFromNotFound", True)
        assert "steps that they see: 100." in found.message

    def test_a_path_elsewhere_is_taken_as_it_is(self) -> None:
        found = where(scene((NEW,), (NEW,), (NEW,), **asking("/pretrained/step_7")))
        assert isinstance(found, Start)
        assert (found.resume, "nobody has looked at it" in found.warning) == (
            Resume(step=7, path="/pretrained/step_7"),
            True,
        )

    def test_who_asks_the_same_again_means_it(self) -> None:
        done = Lineage(asked="100", step=100, since_ns=50)
        plain = where(scene((OLD,), (OLD,), (OLD,), lineage=done))
        assert isinstance(plain, Start)
        assert plain.lineage is not None
        assert plain.lineage.asked == ""
        again = where(scene((NEW, OLD), (NEW, OLD), (NEW, OLD), lineage=plain.lineage, **asking(100)))
        assert isinstance(again, Start)
        assert again.lineage is not None
        assert again.lineage.asked == "100"

    def test_a_wish_that_comes_while_ranks_run_is_passed_over_and_does_not_wait_for_a_fault(self) -> None:
        newest = (CheckpointReport(50000, "/c/50000", 60), CheckpointReport(100, "/c/100", 10))
        here = Scene(a_job(checkpoint={"directory": "/c", "resumeFrom": 100})).fleet().gang().pods()
        plan = decide(here.all(running(1, step=50001, checkpoints=newest)).world(), SETTINGS)
        record = committed(plan)
        assert [event.reason for event in plan.announcements] == ["ResumeFromIgnored"]
        here.record = record
        assert not any(isinstance(action, CommitGang) for action in decide(here.world(), SETTINGS).actions)
        found = where(scene(newest, newest, newest, lineage=record.lineage, **asking(100)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=50000, path="/c/50000")

    def test_another_history_has_its_own_newest_checkpoint(self) -> None:
        known = Resume(step=1000, path="/c/1000")
        spec = committed(decide(scene((OLD,), (OLD,), (OLD,), checkpoint=known, **asking(100)).world(), SETTINGS))
        assert spec.checkpoint == Resume(step=100, path="/c/100")


class TestBehind:
    """The first step after a resume is compared with the checkpoint."""

    def begun(self, first_step: int, **changes: Any) -> Scene:
        here = Scene(a_job()).fleet().gang(resume=1000, **changes).pods()
        return here.all(running(1, step=first_step, first_step=first_step))

    def test_one_that_starts_from_zero_is_stopped_once(self) -> None:
        plan = decide(self.begun(1).world(), SETTINGS)
        (incident,) = committed(plan).incidents
        assert incident.reason == "ResumedBehind"
        assert "its first step is 1, though the ranks were told to go on from step 1000" in incident.message

    @pytest.mark.parametrize("first", [1000, 1001, 1010])
    def test_one_that_goes_on_is_left_alone(self, first: int) -> None:
        assert not any(isinstance(action, CommitGang) for action in decide(self.begun(first).world(), SETTINGS).actions)

    def test_the_second_time_it_is_only_told(self) -> None:
        first = committed(decide(self.begun(1).world(), SETTINGS)).incidents
        plan = decide(self.begun(1, incidents=first).world(), SETTINGS)
        assert not any(isinstance(action, CommitGang) for action in plan.actions)
        assert plan.status is not None
        assert plan.status.reason == "ResumedBehind"


def committed(plan: Plan) -> GangSpec:
    (action,) = plan.actions
    assert isinstance(action, CommitGang)
    return action.spec

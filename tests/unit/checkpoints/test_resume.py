"""Where a start resumes: never behind what anybody has seen, never from scratch unasked, elsewhere only where a person
asks."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_incident, at, idle, running

from muster.api.gang import Branch, GangSpec, Resume
from muster.api.trainingjob import CheckpointStatus
from muster.checkpoints import resume
from muster.checkpoints.resume import NOT_VISIBLE_SECONDS, Missing, Start
from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.step import decide
from muster.protocol.checkpoints import UNVERIFIED, UNVERIFIED_FOR_NOW, write_stamps
from muster.protocol.messages import CheckpointReport
from muster.status.report import State
from muster.world.job import OtherJob

OLD, NEW = (100, "/checkpoints/100"), (1000, "/checkpoints/1000")
SECOND = 1_000_000_000  # in nanoseconds


def scene(*seen: Any, listed: float = 1.0, stamps: str | None = "", **changes: Any) -> Scene:
    """Attempt 2 waits for its start; what each worker sees, listed so long ago, and of which others some know."""
    job = changes.pop("job", a_job())
    here = Scene(job).fleet().gang(2, go=False, **({"time": at(0.0)} | changes)).pods()
    for index, checkpoints in enumerate(seen):
        here.launcher(index, idle(2, checkpoints=checkpoints, scanned_age_seconds=listed, stamps=stamps))
    return here


def where(here: Scene) -> Start | Missing:
    world = here.world()
    assert world.gang is not None
    return resume.start_of_next_attempt(world, world.gang.spec)


def asking(requested: int | str) -> dict[str, Any]:
    return {"job": a_job(checkpoint={"directory": "/checkpoints", "resumeFrom": requested})}


class TestUnasked:
    def test_the_newest_that_all_see(self) -> None:
        found = where(scene((NEW, OLD), (NEW, OLD), (NEW, OLD)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=1000, path="/checkpoints/1000")

    def test_from_scratch_only_where_nothing_was_ever_seen(self) -> None:
        assert where(scene((), (), ())) == Start(None, None)

    @pytest.mark.parametrize("blind", [(), (OLD,)], ids=["sees nothing", "sees an older one"])
    def test_a_worker_that_does_not_see_the_newest_stops_the_start(self, blind: Any) -> None:
        """Also the first start, of which the record knows nothing."""
        early = where(scene((NEW, OLD), (NEW, OLD), blind))
        late = where(scene((NEW, OLD), (NEW, OLD), blind, listed=NOT_VISIBLE_SECONDS))
        assert isinstance(early, Missing)
        assert isinstance(late, Missing)
        assert "worker 2 on n2 does not see checkpoint 1000 (/checkpoints/1000), worker 0 on n0 does" in early.message
        assert (early.stalled, late.stalled) == (False, True)
        assert "resumeFrom" in late.message

    def test_in_a_store_the_remedy_is_no_mount(self) -> None:
        there = (CheckpointReport(1000, "s3://b/run/1000"),)
        job = a_job(checkpoint={"directory": "s3://b/run"})
        late = where(scene(there, there, (), listed=NOT_VISIBLE_SECONDS, job=job))
        assert isinstance(late, Missing)
        assert "See what that pod's credentials and endpoint show of spec.checkpoint.directory, or set" in late.message

    def test_a_listing_that_is_full_of_torn_ones_hides_nothing(self) -> None:
        """Who does not judge cannot tell them from whole ones, and lists eight: the mount is well."""
        steps = range(2000, 1200, -100)
        incomplete = tuple(
            CheckpointReport(step, f"/checkpoints/{step}", verified=False, incomplete=True) for step in steps
        )
        unjudged = tuple(CheckpointReport(step, f"/checkpoints/{step}", verified=False) for step in steps)
        here = Scene(a_job(nodes=4)).fleet(4).gang(2, go=False, time=at(0.0)).pods()
        for index, seen in enumerate(((NEW, *incomplete), (NEW, *incomplete), (NEW, *incomplete), unjudged)):
            here.launcher(index, idle(2, checkpoints=seen, scanned_age_seconds=NOT_VISIBLE_SECONDS, stamps=""))
        found = where(here)
        assert isinstance(found, Start)
        assert found.resume == Resume(step=1000, path="/checkpoints/1000")
        here.launcher(3, idle(2, checkpoints=unjudged[1:], scanned_age_seconds=NOT_VISIBLE_SECONDS, stamps=""))
        assert isinstance(where(here), Missing), "there was room for it"

    def test_nor_the_older_one_that_is_whole_once_the_newest_was_torn(self) -> None:
        """Found by a life: the advice was to begin from scratch."""
        steps = range(2000, 1200, -100)
        incomplete = tuple(
            CheckpointReport(step, f"/checkpoints/{step}", verified=False, incomplete=True) for step in steps
        )
        unjudged = tuple(CheckpointReport(step, f"/checkpoints/{step}", verified=False) for step in steps)
        known = Resume(step=2000, path="/checkpoints/2000")
        here = Scene(a_job(nodes=4)).fleet(4).gang(2, go=False, time=at(0.0), checkpoint=known).pods()
        for index, seen in enumerate(((NEW, *incomplete), (NEW, *incomplete), (NEW, *incomplete), unjudged)):
            here.launcher(index, idle(2, checkpoints=seen, scanned_age_seconds=NOT_VISIBLE_SECONDS, stamps=""))
        found = where(here)
        assert isinstance(found, Start)
        assert (found.resume, "is gone, or no longer complete" in found.warning) == (
            Resume(step=1000, path="/checkpoints/1000"),
            True,
        )
        here.launcher(3, idle(2, checkpoints=unjudged[1:], scanned_age_seconds=NOT_VISIBLE_SECONDS, stamps=""))
        assert isinstance(where(here), Missing), "there was room for it"

    def test_what_is_newer_and_not_complete_is_named_at_the_start(self) -> None:
        bad = tuple(
            CheckpointReport(step, f"/checkpoints/{step}", verified=False, incomplete=True, problem=problem)
            for step, problem in (
                (2000, ".metadata names a, which does not exist"),
                (1500, "a has only zeros"),
                (900, ""),
            )
        )
        here = scene((*bad, NEW), (*bad, NEW), (*bad, NEW))
        assert here.record is not None
        told = resume.passed_over_text(here.world(), here.record, Resume(step=1000, path="/checkpoints/1000"))
        assert told == (
            "checkpoint 2000 (/checkpoints/2000) is newer and not complete: .metadata names a, which does not exist; "
            "nor is 1 more before it"
        )
        here = scene((*bad, NEW), (*bad, NEW), (*bad, NEW), incidents=[an_incident(1, trained=False)])
        assert here.record is not None
        told = resume.passed_over_text(here.world(), here.record, Resume(step=1000, path="/checkpoints/1000"))
        assert "finds its newest checkpoint itself loads that one: a job with spec.checkpoint.moveIncomplete" in told
        whole = (CheckpointReport(2000, "/checkpoints/2000"), NEW)
        here = scene((*bad, NEW), whole, whole)
        assert resume.passed_over_text(here.world(), here.record, Resume(step=2000, path="/checkpoints/2000")) == ""

    def test_the_grace_runs_from_the_last_listing(self) -> None:
        here = scene((NEW,), (NEW,), (), listed=3600.0)
        here.launcher(1, idle(2, checkpoints=(NEW,), scanned_age_seconds=2.0))
        found = where(here)
        assert isinstance(found, Missing)
        assert not found.stalled

    def test_what_is_gone_for_everybody_was_removed_by_somebody(self) -> None:
        known = Resume(step=1000, path="/checkpoints/1000")
        early = where(scene((OLD,), (OLD,), (OLD,), checkpoint=known))
        assert isinstance(early, Missing)
        found = where(scene((OLD,), (OLD,), (OLD,), checkpoint=known, listed=NOT_VISIBLE_SECONDS))
        assert isinstance(found, Start)
        assert (found.resume, "is gone" in found.warning) == (Resume(step=100, path="/checkpoints/100"), True)

    def test_but_an_empty_directory_is_no_reason_to_start_from_scratch(self) -> None:
        found = where(scene((), (), (), checkpoint=Resume(step=1000, path="/checkpoints/1000"), listed=3600.0))
        assert isinstance(found, Missing)
        assert found.stalled
        assert "set spec.checkpoint.resumeFrom to Scratch" in found.message

    def test_what_is_still_being_judged_is_waited_for(self) -> None:
        pending = (
            CheckpointReport(1000, "/checkpoints/1000", verified=False),
            CheckpointReport(100, "/checkpoints/100"),
        )
        known = Resume(step=1000, path="/checkpoints/1000")
        found = where(scene(pending, pending, pending, checkpoint=known, listed=3600.0))
        assert isinstance(found, Missing)
        assert (found.reason, found.stalled) == ("CheckpointsNotVerified", False)

    def test_judges_that_see_nothing_do_not_send_everybody_back_to_the_beginning(self) -> None:
        """Workers 0, 1 and 2 judge; on their nodes the mount is an empty directory."""
        unjudged = (CheckpointReport(1000, "/checkpoints/1000", verified=False),)
        job = a_job(nodes=4)
        early = where(scene((), (), unjudged, unjudged, job=job))
        late = where(scene((), (), unjudged, unjudged, job=job, listed=NOT_VISIBLE_SECONDS))
        assert isinstance(early, Missing)
        assert isinstance(late, Missing)
        assert "worker 0 on n0 does not see checkpoint 1000 (/checkpoints/1000), worker 2 on n2 does" in early.message
        assert (early.stalled, late.stalled) == (False, True)

    def test_what_only_the_judges_do_not_see_is_not_gone(self) -> None:
        unjudged = (
            CheckpointReport(1000, "/checkpoints/1000", verified=False),
            CheckpointReport(100, "/checkpoints/100", verified=False),
        )
        known = Resume(step=1000, path="/checkpoints/1000")
        views = ((OLD,), (OLD,), (OLD,), unjudged)  # workers 0, 1 and 2 judge
        found = where(scene(*views, job=a_job(nodes=4), checkpoint=known, listed=NOT_VISIBLE_SECONDS))
        assert isinstance(found, Missing)
        assert found.stalled
        assert "worker 0 on n0 does not see checkpoint 1000 (/checkpoints/1000), worker 3 on n3 does" in found.message

    def test_what_all_judges_find_torn_is_gone_though_others_see_its_marker(self) -> None:
        """A clean-up took one of its files: found by a life of the simulator."""
        incomplete = (CheckpointReport(1000, "/checkpoints/1000", verified=False, incomplete=True), OLD)
        unjudged = (
            CheckpointReport(1000, "/checkpoints/1000", verified=False),
            CheckpointReport(100, "/checkpoints/100", verified=False),
        )
        known = Resume(step=1000, path="/checkpoints/1000")

        def found(*views: Any, seconds: float = NOT_VISIBLE_SECONDS) -> Start | Missing:
            return where(scene(*views, job=a_job(nodes=4), checkpoint=known, listed=seconds))

        early = found(incomplete, incomplete, incomplete, unjudged, seconds=0.0)
        assert isinstance(early, Missing)
        assert not early.stalled, "its files may show late"
        late = found(incomplete, incomplete, incomplete, unjudged)
        assert isinstance(late, Start)
        assert (late.resume, "no longer complete" in late.warning) == (Resume(step=100, path="/checkpoints/100"), True)
        assert isinstance(found(incomplete, incomplete, (OLD,), unjudged), Missing), "one of them does not see it"

    def test_a_leader_that_has_heard_nobody_knows_what_people_were_told(self) -> None:
        """The record is not written while all goes well, and on the new nodes the mount is missing."""
        told = CheckpointStatus(step=48000, path="/checkpoints/48000", time=at(0.0))
        job = a_job()
        job = job.model_copy(update={"status": job.status.model_copy(update={"checkpoint": told})})
        found = where(scene((), (), (), job=job, listed=3600.0))
        assert isinstance(found, Missing)
        assert (found.stalled, "48000" in found.message) == (True, True)
        scratch = Branch(resume_from="Scratch", step=-1)
        assert isinstance(where(scene((), (), (), job=job, branch=scratch)), Start), "that was another history"

    def test_a_torn_one_is_nobodys_blindness(self) -> None:
        incomplete = (
            CheckpointReport(1000, "/checkpoints/1000", verified=False, incomplete=True),
            CheckpointReport(100, "/checkpoints/100"),
        )
        there = (
            CheckpointReport(1000, "/checkpoints/1000", verified=False),
            CheckpointReport(100, "/checkpoints/100", verified=False),
        )
        found = where(scene(incomplete, incomplete, incomplete, there, job=a_job(nodes=4)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=100, path="/checkpoints/100")

    def test_a_stalled_job_goes_on_by_itself_once_the_mount_is_mended(self) -> None:
        here = scene((NEW,), (NEW,), (), listed=NOT_VISIBLE_SECONDS)
        plan = decide(here.world(), SETTINGS)
        assert plan.status_report is not None
        assert (plan.status_report.state, plan.wake_in_seconds) == (State.STALLED, 1.0)
        assert committed(decide(here.launcher(2, idle(2, checkpoints=(NEW,))).world(), SETTINGS)).start is not None


class TestAsked:
    @pytest.mark.parametrize("requested", [100, "100", "/checkpoints/100", "/checkpoints/100/"])
    def test_a_step_or_a_path(self, requested: int | str) -> None:
        found = where(scene((NEW, OLD), (NEW, OLD), (NEW, OLD), **asking(requested)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=100, path="/checkpoints/100")

    def test_scratch(self) -> None:
        found = where(scene((NEW,), (NEW,), (), **asking("Scratch")))
        assert isinstance(found, Start)
        assert (found.resume, found.branch) == (None, Branch(resume_from="Scratch", step=-1))

    def test_what_lies_beyond_does_not_count_afterwards(self) -> None:
        written = (CheckpointReport(1000, "/checkpoints/1000", 50), CheckpointReport(100, "/checkpoints/100", 10))
        first = committed(decide(scene(written, written, written, **asking(100)).world(), SETTINGS))
        assert first.start is not None
        assert first.start.resume == Resume(step=100, path="/checkpoints/100")
        assert first.branch == Branch(resume_from="100", step=100, excluded_checkpoints="1000:50")
        again = scene(written, written, written, branch=first.branch, checkpoint=first.checkpoint, **asking(100))
        found = where(again)
        assert isinstance(found, Start)
        assert found.resume == Resume(step=100, path="/checkpoints/100"), (
            "asked once, and 1000 belongs to another history"
        )
        newer = (CheckpointReport(200, "/checkpoints/200", 60 * SECOND), *written)
        found = where(scene(newer, newer, newer, branch=first.branch, checkpoint=first.checkpoint, **asking(100)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=200, path="/checkpoints/200")

    def test_one_that_is_not_there_stalls_and_says_which_are(self) -> None:
        found = where(scene((NEW, OLD), (NEW, OLD), (OLD,), **asking(1000)))
        assert isinstance(found, Missing)
        assert (found.reason, found.stalled) == ("ResumeFromNotFound", True)
        assert "steps that they see: 100." in found.message

    @pytest.mark.parametrize(
        ("requested", "outside"), [("s3://b/run/100/", False), ("s3://b/run/7", None), ("s3://b/other/step-9", True)]
    )
    def test_a_url(self, requested: str, outside: bool | None) -> None:
        there = (CheckpointReport(100, "s3://b/run/100"),)
        job = a_job(checkpoint={"directory": "s3://b/run/", "resumeFrom": requested})
        found = where(scene(there, there, there, job=job))
        if outside is None:
            assert isinstance(found, Missing)
            assert "there is no complete checkpoint s3://b/run/7" in found.message
            return
        assert isinstance(found, Start)
        assert found.resume == Resume(step=9 if outside else 100, path=requested.rstrip("/"))
        assert bool(found.warning) == outside

    def test_a_path_elsewhere_is_taken_as_it_is(self) -> None:
        found = where(scene((NEW,), (NEW,), (NEW,), **asking("/pretrained/step_7")))
        assert isinstance(found, Start)
        assert (found.resume, "no launcher has found it complete" in found.warning) == (
            Resume(step=7, path="/pretrained/step_7"),
            True,
        )

    @pytest.mark.parametrize("phase", ["starts", "trains", "is suspended"])
    def test_who_takes_a_wish_away_and_asks_the_same_again_means_it(self, phase: str) -> None:
        done = Branch(resume_from="100", step=100)
        here = scene((OLD,), (OLD,), (OLD,), branch=done, job=a_job(checkpoint={"directory": "/checkpoints"}))
        if phase == "trains":
            here.gang(2, branch=done).all(running(2, 160, checkpoints=(OLD,)))
        elif phase == "is suspended":
            here.job = a_job(checkpoint={"directory": "/checkpoints"}, suspend=True)
            here.gang(2, go=False, branch=done, members=[])
        record = committed(decide(here.world(), SETTINGS))
        assert record.branch == Branch(resume_from="", step=100)
        again = where(scene((NEW, OLD), (NEW, OLD), (NEW, OLD), branch=record.branch, **asking(100)))
        assert isinstance(again, Start)
        assert again.resume == Resume(step=100, path="/checkpoints/100")
        assert again.branch is not None
        assert again.branch.resume_from == "100"

    def test_what_has_been_done_already_is_offered_with_how_to_ask_for_it_once_more(self) -> None:
        done = Branch(resume_from="Scratch", step=10**6)
        found = where(
            scene((), (), (), checkpoint=Resume(step=1000, path="/checkpoints/1000"), listed=60.0, branch=done)
        )
        assert isinstance(found, Missing)
        assert found.message.endswith(
            "resumeFrom to Scratch (Scratch was already applied: to apply it again, clear the field first)."
        )

    def test_a_resume_requested_while_ranks_run_is_ignored(self) -> None:
        """It does not wait for a fault."""
        newest = (CheckpointReport(50000, "/checkpoints/50000", 60), CheckpointReport(100, "/checkpoints/100", 10))
        here = Scene(a_job(checkpoint={"directory": "/checkpoints", "resumeFrom": 100})).fleet().gang().pods()
        plan = decide(here.all(running(1, step=50001, checkpoints=newest)).world(), SETTINGS)
        record = committed(plan)
        assert [event.reason for event in plan.announcements] == ["ResumeFromIgnored"]
        here.record = record
        assert not any(isinstance(action, CommitGang) for action in decide(here.world(), SETTINGS).actions)
        found = where(scene(newest, newest, newest, branch=record.branch, **asking(100)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=50000, path="/checkpoints/50000")

    def test_another_history_has_its_own_newest_checkpoint(self) -> None:
        known = Resume(step=1000, path="/checkpoints/1000")
        spec = committed(decide(scene((OLD,), (OLD,), (OLD,), checkpoint=known, **asking(100)).world(), SETTINGS))
        assert spec.checkpoint == Resume(step=100, path="/checkpoints/100")


BASE = OtherJob("base", exists=True, directory="/base")


STORED = OtherJob("base", exists=True, directory="s3://b/base/")


def forked(
    requested: str,
    *seen: Any,
    other: OtherJob | None = BASE,
    listed: float = 1.0,
    error: str = "",
    kind: str = "",
    directory: str = "/checkpoints",
) -> Start | Missing:
    """What each worker sees in the directory of the other job, and nothing in its own."""
    job = a_job(checkpoint={"directory": directory, "resumeFrom": requested})
    here = scene((), (), (), listed=listed, job=job)
    for index, elsewhere in enumerate(seen):
        why = {"other_directory_error": error, "other_directory_error_kind": kind}
        here.launcher(index, idle(2, other_directory=elsewhere, scanned_age_seconds=listed, stamps="", **why))
    world = replace(here.world(), other=other)
    assert world.gang is not None
    return resume.start_of_next_attempt(world, world.gang.spec)


def there(*steps: int, judged: bool = True, base: str = "/base") -> tuple[CheckpointReport, ...]:
    return tuple(CheckpointReport(step, f"{base}/step-{step}", verified=judged, format="TorchDCP") for step in steps)


class TestAnotherJob:
    @pytest.mark.parametrize(("requested", "step"), [("job/base", 900), ("job/base@500", 500)])
    def test_the_newest_or_a_step(self, requested: str, step: int) -> None:
        found = forked(requested, there(900, 500), there(900, 500, judged=False), there(900, 500, judged=False))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=step, path=f"/base/step-{step}")
        assert found.branch == Branch(resume_from=requested, step=step)
        assert found.warning == ""

    @pytest.mark.parametrize(
        ("requested", "other", "says"),
        [
            ("job/base", OtherJob("base"), "there is no job base in this namespace"),
            ("job/base", None, "there is no job base in this namespace"),
            ("job/base", OtherJob("base", exists=True), "job base has no spec.checkpoint.directory"),
            (
                "job/base",
                OtherJob("base", exists=True, directory="/checkpoints/"),
                "two jobs must not share a directory",
            ),
        ],
    )
    def test_a_job_that_cannot_be_gone_on_from(self, requested: str, other: OtherJob | None, says: str) -> None:
        found = forked(requested, there(500), there(500), there(500), other=other)
        assert isinstance(found, Missing)
        assert (found.reason, found.stalled) == ("ResumeFromNotFound", True)
        assert f"spec.checkpoint.resumeFrom: {requested}: " in found.message
        assert says in found.message
        assert ". Or " not in found.message, "there is nothing before it"

    @pytest.mark.parametrize("other", [None, BASE], ids=["the base is gone", "the base has no such checkpoint"])
    def test_a_fork_that_is_created_again_can_go_on_from_its_own_checkpoint(self, other: OtherJob | None) -> None:
        job = a_job(checkpoint={"directory": "/checkpoints", "resumeFrom": "job/base@50"})
        own = (CheckpointReport(725, "/checkpoints/step-725", verified=True),)
        here = scene(own, own, own, listed=NOT_VISIBLE_SECONDS, job=job)
        world = replace(here.world(), other=other)
        assert world.gang is not None
        found = resume.start_of_next_attempt(world, world.gang.spec)
        assert isinstance(found, Missing)
        assert found.stalled
        assert (
            ". Remove resumeFrom to go on from this job's own newest checkpoint, 725 (/checkpoints/step-725). Or set "
            "resumeFrom to the absolute path or the URL of the checkpoint, or to Scratch" in found.message
        )

    @pytest.mark.parametrize(
        ("requested", "path", "says"),
        [
            (None, "/checkpoints/step-500", ", found in spec.checkpoint.directory"),
            ("job/base", "/base/step-500", ", found in /base, as spec.checkpoint.resumeFrom asks"),
        ],
        ids=["its own", "a fork's"],
    )
    def test_the_start_names_the_directory_of_the_checkpoint(self, requested: str | None, path: str, says: str) -> None:
        job = a_job(checkpoint={"directory": "/checkpoints", "resumeFrom": requested})
        seen = (CheckpointReport(500, path, verified=True),)
        here = scene((), (), (), job=job)
        for index in range(3):
            listed = {"checkpoints": seen} if requested is None else {"other_directory": seen}
            here.launcher(index, idle(2, scanned_age_seconds=1.0, stamps="", **listed))
        plan = decide(replace(here.world(), other=BASE), SETTINGS)
        assert [event.note for event in plan.announcements if event.reason == "Started"] == [
            f"attempt 2 starts from checkpoint 500 ({path}){says}"
        ]

    def test_who_does_not_see_the_directory_is_named_with_the_remedy(self) -> None:
        for listed, stalled in ((1.0, False), (NOT_VISIBLE_SECONDS, True)):
            found = forked("job/base@500", (), (), (), listed=listed, error="/base does not exist")
            assert isinstance(found, Missing)
            assert found.stalled == stalled
            assert (
                "no complete checkpoint 500 of job base in /base that every worker sees (they see none)"
                in found.message
            )
            assert "worker 0 on n0: /base does not exist" in found.message
            assert "has to be mounted in this job's workers, at the same path" in found.message

    def test_one_that_a_worker_does_not_see_or_nobody_finds_complete_is_not_gone_on_from(self) -> None:
        assert isinstance(forked("job/base@500", there(500), there(500), ()), Missing)
        unjudged = there(500, judged=False)
        assert isinstance(forked("job/base@500", unjudged, unjudged, unjudged), Missing)

    @pytest.mark.parametrize("directory", ["/checkpoints", "s3://b/run"])
    @pytest.mark.parametrize("requested", ["job/base@500", "s3://b/base/step-500"])
    def test_in_a_store_it_is_the_same_and_nothing_has_to_be_mounted(self, requested: str, directory: str) -> None:
        seen = there(500, base="s3://b/base")
        found = forked(requested, seen, seen, seen, other=STORED, directory=directory)
        assert isinstance(found, Start)
        assert found.resume == Resume(step=500, path="s3://b/base/step-500")
        assert (found.branch, found.warning) == (Branch(resume_from=requested, step=500), "")
        done = {"branch": found.branch, "checkpoint": found.resume}
        again = where(
            scene((), (), (), job=a_job(checkpoint={"directory": directory, "resumeFrom": requested}), **done)
        )
        assert isinstance(again, Start)
        assert again.resume == found.resume, "until it has saved"

    def test_a_store_that_does_not_show_it_is_told_from_one_that_nobody_can_see(self) -> None:
        for error, kind, says in (
            (
                "s3://b/base does not exist",
                "",
                "there is no complete checkpoint 500 of job base in s3://b/base/ that every",
            ),
            (
                "unverified: s3://b/base: the store refuses. Mend it",
                UNVERIFIED,
                "in s3://b/base/ is not known: worker 0 on n0: unver",
            ),
            (
                "unverified for now: s3://b/base: throttling",
                UNVERIFIED_FOR_NOW,
                "whether there is a complete checkpoint 500 of job base in",
            ),
        ):
            for listed, stalled in ((1.0, False), (NOT_VISIBLE_SECONDS, True)):
                found = forked("job/base@500", (), (), (), other=STORED, error=error, kind=kind, listed=listed)
                assert isinstance(found, Missing)
                assert (found.reason, found.stalled) == ("ResumeFromNotFound", stalled)
                assert says in found.message
                assert error in found.message
                assert "mounted" not in found.message
        assert "Credentials and endpoint of this job's" in self.message_without_error()

    def message_without_error(self) -> str:
        found = forked("job/base", (), (), (), other=STORED)
        assert isinstance(found, Missing)
        return found.message

    def test_two_jobs_do_not_share_a_prefix_either(self) -> None:
        found = forked("job/base", (), (), (), other=STORED, directory="s3://b/base")
        assert isinstance(found, Missing)
        assert "two jobs must not share a directory" in found.message

    def test_a_url_that_nobody_could_see_is_gone_on_from_with_the_reason(self) -> None:
        error = "unverified: s3://b/base: the store refuses"
        found = forked("s3://b/base/step-9", (), (), (), error=error)
        assert isinstance(found, Start)
        assert found.resume == Resume(step=9, path="s3://b/base/step-9")
        assert f"no launcher has found it complete: worker 0 on n0: {error}" in found.warning

    def test_a_path_that_was_found_complete_needs_no_warning(self) -> None:
        found = forked("/base/step-500", there(500), there(500), there(500), other=None)
        assert isinstance(found, Start)
        assert (found.resume, found.warning) == (Resume(step=500, path="/base/step-500"), "")

    def test_until_it_has_saved_each_start_begins_there(self) -> None:
        done = {
            "branch": Branch(resume_from="job/base@500", step=500),
            "checkpoint": Resume(step=500, path="/base/step-500"),
        }
        found = where(scene((), (), (), **done, **asking("job/base@500")))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=500, path="/base/step-500")
        own = (CheckpointReport(600, "/checkpoints/600", 50),)
        found = where(scene(own, own, own, **done, **asking("job/base@500")))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=600, path="/checkpoints/600")

    def test_where_its_steps_have_begun_anew_a_person_says_which_counts(self) -> None:
        done = {
            "branch": Branch(resume_from="job/base@500", step=500),
            "checkpoint": Resume(step=500, path="/base/step-500"),
        }
        own = (CheckpointReport(60, "/checkpoints/60", 50),)
        found = where(scene(own, own, own, **done, **asking("job/base@500")))
        assert isinstance(found, Missing)
        assert (found.reason, found.stalled) == ("CheckpointsBehindResumeFrom", True)
        assert "Set resumeFrom to /checkpoints/60, or to /base/step-500" in found.message


class TestWhatPeopleWereToldOf:
    """The status remembers for a leader that has heard nobody; a start has weighed what it told, and that is over
    then."""

    def told(self, step: int, here: Scene) -> Scene:
        told = CheckpointStatus(step=step, path=f"/checkpoints/{step}", time=at(0.0))
        here.job = here.job.model_copy(update={"status": here.job.status.model_copy(update={"checkpoint": told})})
        return here

    def trained_on(self, record: GangSpec, told: int, *seen: Any) -> Scene:
        here = self.told(told, Scene(a_job()).fleet().gang(2).pods().all(running(2, 160, checkpoints=seen)))
        here.record = record
        return here

    def test_what_a_start_found_gone_is_not_missed_again(self) -> None:
        lost = self.told(1000, scene((OLD,), (OLD,), (OLD,), listed=NOT_VISIBLE_SECONDS))
        record = committed(decide(lost.world(), SETTINGS))
        here = self.trained_on(record, 1000, OLD)
        assert resume.newest_checkpoint(here.world(), record) == Resume(step=100, path="/checkpoints/100")
        status = decide(here.world(), SETTINGS).status
        assert status is not None
        assert status.checkpoint is not None
        assert status.checkpoint.step == 100

    def test_what_is_told_after_it_is(self) -> None:
        lost = self.told(1000, scene((OLD,), (OLD,), (OLD,), listed=NOT_VISIBLE_SECONDS))
        record = committed(decide(lost.world(), SETTINGS))
        assert resume.newest_checkpoint(self.trained_on(record, 500).world(), record) == Resume(
            step=500, path="/checkpoints/500"
        )

    def test_also_in_a_history_that_a_person_asked_for(self) -> None:
        """A leader that has heard nobody must not go on behind it, as if the requested had come only now."""
        back = self.told(1000, scene((OLD,), (OLD,), (OLD,), **asking(100)))
        record = committed(decide(back.world(), SETTINGS))
        assert resume.newest_checkpoint(self.trained_on(record, 1000).world(), record) == Resume(
            step=100, path="/checkpoints/100"
        )
        assert resume.newest_checkpoint(self.trained_on(record, 500).world(), record) == Resume(
            step=500, path="/checkpoints/500"
        )

    def test_from_scratch_there_is_none_to_tell_of(self) -> None:
        back = self.told(1000, scene((), (), (), **asking("Scratch")))
        record = committed(decide(back.world(), SETTINGS))
        here = self.trained_on(record, 1000)
        here.record = committed(decide(here.world(), SETTINGS))  # the requested does not stand in the job any more
        status = decide(here.world(), SETTINGS).status
        assert status is not None
        assert status.checkpoint is None


class TestAnotherHistory:
    """What was there beyond the step that a person asked for is known by step and time of writing, not by time
    alone."""

    HOUR = 3600 * SECOND
    FUTURE = 10 * HOUR

    def back_to_100(self, *beyond: int, stamps: str = "") -> GangSpec:
        """The record after somebody went back to 100; the others were written by a clock that was ahead."""
        seen = (
            *(CheckpointReport(step, f"/checkpoints/{step}", self.FUTURE) for step in beyond),
            CheckpointReport(100, "/checkpoints/100", 1),
        )
        return committed(decide(scene(seen, seen, seen, stamps=stamps, **asking(100)).world(), SETTINGS))

    def resumed(self, record: GangSpec, *seen: CheckpointReport) -> int | None:
        found = where(scene(seen, seen, seen, branch=record.branch, checkpoint=record.checkpoint, **asking(100)))
        assert isinstance(found, Start)
        return found.resume.step if found.resume else None

    def test_a_clock_that_was_ahead_hides_nothing_that_comes(self) -> None:
        record = self.back_to_100(1000)
        old = (CheckpointReport(1000, "/checkpoints/1000", self.FUTURE), CheckpointReport(100, "/checkpoints/100", 1))
        assert self.resumed(record, *old) == 100
        assert self.resumed(record, *old, CheckpointReport(200, "/checkpoints/200", self.HOUR)) == 200

    def test_what_is_written_anew_at_the_same_place_counts(self) -> None:
        record = self.back_to_100(1000)
        assert self.resumed(record, CheckpointReport(1000, "/checkpoints/1000", self.HOUR)) == 1000

    def test_a_mount_that_keeps_no_fractions_of_a_second_shows_the_same(self) -> None:
        record = self.back_to_100(1000)
        cut = CheckpointReport(1000, "/checkpoints/1000", self.FUTURE - SECOND + 1)
        assert self.resumed(record, cut, CheckpointReport(100, "/checkpoints/100", 1)) == 100

    def test_what_only_the_long_listing_tells_does_not_count_either(self) -> None:
        record = self.back_to_100(1000, stamps=write_stamps([(900, self.FUTURE), (50, 5)]))
        assert record.branch is not None
        assert record.branch.excluded_checkpoints == f"1000:{self.FUTURE},900:{self.FUTURE}"
        old = (CheckpointReport(900, "/checkpoints/900", self.FUTURE), CheckpointReport(100, "/checkpoints/100", 1))
        assert self.resumed(record, *old) == 100

    def test_the_long_listing_is_waited_for(self) -> None:
        early = where(scene((NEW, OLD), (NEW, OLD), (NEW, OLD), stamps=None, **asking(100)))
        assert isinstance(early, Missing)
        assert (early.reason, early.stalled) == ("CheckpointsNotListed", False)

    def test_and_is_never_done_without(self) -> None:
        late = where(scene((NEW, OLD), (NEW, OLD), (NEW, OLD), stamps=None, listed=60.0, **asking(100)))
        assert isinstance(late, Missing)
        assert (late.reason, late.stalled) == ("CheckpointsNotListed", True)

    def test_one_that_cannot_make_it_says_why(self) -> None:
        here = scene((NEW, OLD), (NEW, OLD), (), listed=60.0, **asking("Scratch"))
        why = {
            "stamps": None,
            "checkpoint_error": "/checkpoints/7 cannot be read: Permission denied",
            "scanned_age_seconds": 60.0,
        }
        found = where(here.launcher(1, idle(2, **why)))
        assert isinstance(found, Missing)
        assert (found.stalled, "worker 1 on n1" in found.message, "/checkpoints/7 cannot" in found.message) == (
            True,
            True,
            True,
        )

    def test_more_than_can_be_told_are_refused_in_words(self) -> None:
        stamps = write_stamps((step, step * SECOND) for step in range(1001, 1258))
        found = where(scene((OLD,), (OLD,), (OLD,), stamps=stamps, **asking(100)))
        assert isinstance(found, Missing)
        assert (found.reason, found.stalled) == ("TooManyCheckpoints", True)

    def test_an_earlier_wish_is_still_in_force_after_a_later_one(self) -> None:
        record = self.back_to_100(1000, 900)
        own = CheckpointReport(1500, "/checkpoints/1500", self.HOUR)
        seen = (own, *(CheckpointReport(step, f"/checkpoints/{step}", self.FUTURE) for step in (1000, 900)))
        later = scene(seen, seen, seen, branch=record.branch, **asking(1500))
        again = committed(decide(later.world(), SETTINGS))
        assert again.branch is not None
        assert again.branch.excluded_checkpoints == f"1000:{self.FUTURE},900:{self.FUTURE}"

    def test_which_is_over_when_that_history_is_asked_for_itself(self) -> None:
        record = self.back_to_100(1000, 900)
        seen = tuple(CheckpointReport(step, f"/checkpoints/{step}", self.FUTURE) for step in (1000, 900))
        again = committed(decide(scene(seen, seen, seen, branch=record.branch, **asking(900)).world(), SETTINGS))
        assert again.branch is not None
        assert again.branch.excluded_checkpoints == f"1000:{self.FUTURE}"


class TestAnOrderThatContradictsItself:
    """The highest step is gone on from, and people are told."""

    def seen(self, seconds: int) -> tuple[CheckpointReport, ...]:
        return (
            CheckpointReport(1000, "/checkpoints/1000", SECOND),
            CheckpointReport(200, "/checkpoints/200", (1 + seconds) * SECOND),
        )

    def test_a_lower_step_that_was_written_later_is_told_before_a_fault(self) -> None:
        here = Scene(a_job()).fleet().gang().pods().all(running(1, step=201, checkpoints=self.seen(600)))
        plan = decide(here.world(), SETTINGS)
        assert plan.status is not None
        assert plan.status.reason == "CheckpointOrderUnclear"
        (event,) = plan.announcements
        assert event.warning
        assert (
            "checkpoint 200 (/checkpoints/200) was written 10 min after checkpoint 1000 (/checkpoints/1000)"
            in event.note
        )

    def test_and_at_the_start_that_goes_on_from_the_higher_one(self) -> None:
        found = where(scene(self.seen(600), self.seen(600), self.seen(600)))
        assert isinstance(found, Start)
        assert found.resume == Resume(step=1000, path="/checkpoints/1000")
        assert "set spec.checkpoint.resumeFrom to /checkpoints/200" in found.warning

    def test_clocks_that_differ_say_nothing(self) -> None:
        found = where(scene(self.seen(59), self.seen(59), self.seen(59)))
        assert isinstance(found, Start)
        assert found.warning == ""

    def test_nor_does_what_belongs_to_another_history(self) -> None:
        branch = Branch(resume_from="100", step=100, excluded_checkpoints=f"1000:{SECOND}")
        found = where(scene(self.seen(600), self.seen(600), self.seen(600), branch=branch))
        assert isinstance(found, Start)
        assert (found.resume, found.warning) == (Resume(step=200, path="/checkpoints/200"), "")


class TestBehind:
    """The first step after a resume is compared with the checkpoint."""

    def begun(self, first_step: int, **changes: Any) -> Scene:
        here = Scene(a_job()).fleet().gang(resume=1000, **changes).pods()
        return here.all(running(1, step=first_step, first_step=first_step))

    def test_one_that_starts_from_zero_is_stopped_once(self) -> None:
        plan = decide(self.begun(1).world(), SETTINGS)
        (incident,) = committed(plan).incidents
        assert incident.reason == "ResumedBehind"
        assert "its first step was 1, but the ranks were given the checkpoint of step 1000" in incident.message

    @pytest.mark.parametrize("first", [0, 1000, 1001, 1010])
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


@pytest.mark.parametrize(("frozen", "step"), [(True, 100), (False, 200)])
def test_of_a_branch_that_is_frozen_nothing_beyond_its_step_counts_again(frozen: bool, step: int) -> None:
    world = scene((OLD,), (OLD,), (OLD,), branch=Branch(resume_from="", step=100, frozen=frozen)).world()
    assert world.gang is not None
    branch = resume.with_frozen_branch(world, world.gang.spec, 200).branch
    assert branch is not None
    assert (branch.step, branch.frozen) == (step, True)

"""Starts that die before their first step, each from the same checkpoint: when the next older one is tried."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import EPOCH, SETTINGS, Scene, a_job, an_incident, failed, idle, running
from tests.unit.lifecycle.burning_in import spec_of
from tests.unit.record.test_corruption import seen, settled

from muster.api.gang import Branch, FaultClass, GangSpec, Resume
from muster.checkpoints import resume, unloadable
from muster.checkpoints.resume import Missing, Start
from muster.lifecycle.plan import Plan
from muster.lifecycle.step import decide
from muster.protocol.checkpoints import write_stamps
from muster.protocol.messages import CheckpointReport
from muster.recovery.verification import NOT_VERIFIED
from muster.world.views import LauncherView


def path(step: int) -> Resume:
    return Resume(step=step, path=f"/checkpoints/step-{step}")


class Life:
    """A gang of two, attempt after attempt."""

    def __init__(self, *steps: int, resumed: int = 30, job: dict[str, Any] | None = None, **record: Any) -> None:
        self.checkpoints = seen(*steps)
        self.here = Scene(a_job(nodes=2, **(job or {}))).fleet(6).gang(3, resume=resumed, **record).pods()
        assert self.record.start is not None
        start = self.record.start.model_copy(update={"resume": path(resumed)})
        self.here.record = self.record.model_copy(update={"start": start, "checkpoint": path(resumed)})
        self.plans: list[Plan] = []

    @property
    def record(self) -> GangSpec:
        assert self.here.record is not None
        return self.here.record

    def fails(self, step: int | None = None, *, after: float = 10.0, **changes: Any) -> Life:
        """The attempt ends by its own exception."""
        go = self.record.start
        assert go is not None
        self.here.seconds = (go.time - EPOCH).total_seconds() + after
        for index in range(2):
            self._hear(index, failed(self.record.attempt, index, step=step, checkpoints=self._listed(), **changes))
        self._commit()
        return self

    def is_blamed(self, fault_class: FaultClass | None = None) -> Life:
        """The blame is final, and maybe another one."""
        spec = settled(self.record)
        if fault_class is not None:
            last = spec.incidents[-1].model_copy(update={"fault_class": fault_class})
            spec = spec.model_copy(update={"incidents": [*spec.incidents[:-1], last]})
        self.here.record = spec
        return self

    def lists(self, ago: float = 5.0) -> Life:
        """Everybody has listed what belongs to the branch, so many seconds ago."""
        told = write_stamps((c.step, c.written_ns) for c in self.checkpoints)
        for index in range(2):
            view = idle(self.record.attempt, index, scanned_age_seconds=ago, checkpoints=self._listed(), stamps=told)
            if self.record.move_incomplete_beyond is not None:
                view = replace(view, moved_attempt=self.record.attempt, moved="step-30 moved to .muster-incomplete")
            self._hear(index, view)
        return self

    def starts(self) -> Resume | None:
        """The next attempt starts; where it resumes."""
        self.lists()
        self.here.seconds += 400.0  # whatever back-off there is
        self._commit()
        if self.record.move_incomplete_beyond is not None:
            self.lists()._commit()
        assert self.record.start is not None, self.plans[-1]
        return self.record.start.resume

    def died(self, times: int = 2) -> Life:
        """So many attempts have failed from where they resumed, each before its first step."""
        for number in range(times):
            if number:
                self.starts()
            self.fails().is_blamed()
        return self

    def _listed(self) -> tuple[CheckpointReport, ...]:
        return tuple(c for c in self.checkpoints if resume.is_of_present_branch(self.record, c))

    def _hear(self, index: int, view: LauncherView) -> None:
        self.here.launcher(index, view)

    def _commit(self) -> None:
        self.plans.append(decide(self.here.world(), SETTINGS))
        self.here.record = spec_of(self.plans[-1])


class TestTheNextOlderCheckpoint:
    def test_is_resumed_after_two_starts_that_died_before_a_step(self) -> None:
        life = Life(30, 20, 10).fails().is_blamed()
        assert life.starts() == path(30), "one failure says nothing"
        life.fails().is_blamed()
        assert life.starts() == path(20)
        assert life.record.branch == Branch(
            resume_from="", step=20, excluded_checkpoints=write_stamps([(30, 30 * 10**9)])
        )
        assert life.record.checkpoint == path(20)
        (event,) = [one for one in life.plans[-1].announcements if one.reason == "Started"]
        assert event.warning
        assert "attempt 5 starts from checkpoint 20 (/checkpoints/step-20); attempts 3 and 4 resumed from" in event.note
        assert "checkpoint 30 (/checkpoints/step-30) and failed before the first step" in event.note
        life.here.all(running(5, step=None))
        status = decide(life.here.world(), SETTINGS).status
        assert status is not None
        (warning,) = status.warnings
        assert warning.reason == "CheckpointSuspect"
        assert (
            "attempt 5 resumed from checkpoint 20 (/checkpoints/step-20), since 2 starts from the newest"
            in warning.message
        )
        assert (
            life.record.incidents[-1]
            .message.partition("; its last lines")[0]
            .endswith("; the next attempt resumes from 20 (/checkpoints/step-20) instead of 30 (/checkpoints/step-30)")
        )

    def test_stays_the_newest_once_it_has_trained_until_another_is_saved(self) -> None:
        life = Life(30, 20, 10).died()
        life.starts()
        life.fails(step=25).is_blamed()
        assert life.record.suspect_checkpoint is None
        assert life.starts() == path(20)
        life.checkpoints = (CheckpointReport(30, "/checkpoints/step-30", 99 * 10**9), *seen(20, 10))
        life.fails(step=35).is_blamed()
        assert life.starts() == path(30), "saved again"

    def test_that_fails_too_shows_a_program_fault_and_the_newest_counts_again(self) -> None:
        life = Life(30, 20, 10, job={"recovery": {"applicationRestartsPerDay": 9}}).died()
        assert life.starts() == path(20)
        life.fails().is_blamed()
        assert life.starts() == path(30)
        for _ in range(4):
            life.fails().is_blamed()
            assert life.starts() == path(30), "it goes back once"

    def test_goes_before_what_people_excluded_earlier(self) -> None:
        old = write_stamps([(40, 40 * 10**9)])
        branch = Branch(resume_from="10", step=10, excluded_checkpoints=old)
        life = Life(40, 30, 20, 10, branch=branch, job={"checkpoint": {"directory": "/checkpoints", "resumeFrom": 10}})
        assert life.died().starts() == path(20)
        life.fails().is_blamed()
        assert life.record.branch is not None
        assert life.record.branch.excluded_checkpoints == old
        assert life.starts() == path(30)

    def test_waits_until_the_blame_is_final(self) -> None:
        life = Life(30, 20).fails().is_blamed()
        life.starts()
        life.fails().lists()
        life.here.seconds += 1.0
        waits = unloadable.start_of_next_attempt(life.here.world(), life.record)
        text = "waiting to know why the last start from checkpoint 30 (/checkpoints/step-30) failed"
        assert waits == Missing("CheckpointSuspect", text)
        assert decide(life.here.world(), SETTINGS).actions == ()


MOVES = {"checkpoint": {"directory": "/checkpoints", "moveIncomplete": True}}


class TestAProgramThatFindsItsNewestItself:
    def ordered(self, **recovery: int) -> Life:
        """The suspect checkpoint is to be moved before the start from the older one."""
        life = Life(30, 20, 10, job={**MOVES, "recovery": recovery}).died().lists()
        life.here.seconds += 400.0
        life._commit()
        return life

    def moved(self, life: Life) -> Life:
        """The first worker has moved it, and the ranks start."""
        life.checkpoints = seen(20, 10)
        life.lists()._commit()
        return life

    def test_has_the_suspect_checkpoint_moved_away_before_its_ranks_start(self) -> None:
        """The job allows it."""
        life = self.ordered()
        assert (life.record.start, life.record.move_incomplete_beyond) == (None, path(20))
        assert life.record.branch is not None
        assert life.record.branch.excluded_checkpoints == write_stamps([(30, 30 * 10**9)]), "only that is moved"
        self.moved(life)
        assert life.record.start is not None
        assert life.record.start.resume == path(20)
        told = {one.reason: one.note for one in life.plans[-1].announcements}
        assert told["IncompleteMoved"] == "in /checkpoints: step-30 moved to .muster-incomplete"
        assert "attempts 3 and 4 resumed from checkpoint 30 (/checkpoints/step-30) and failed" in told["Started"]
        assert "moveIncomplete" not in told["Started"]
        warning = unloadable.fallback_warning(life.here.job, life.record)
        assert warning is not None
        assert "suspend the job, move it back from .muster-incomplete and set" in warning.message

    def test_goes_on_from_the_older_one_where_that_fails_too_since_the_newest_is_gone(self) -> None:
        life = self.moved(self.ordered(applicationRestartsPerDay=2)).fails().is_blamed().lists()
        end = decide(life.here.world(), SETTINGS).status
        assert end is not None
        assert end.completion is not None
        assert "Move 30 (/checkpoints/step-30) back from .muster-incomplete before" in end.completion.message
        life = self.moved(self.ordered(applicationRestartsPerDay=9)).fails().is_blamed().lists()
        world = life.here.world()
        assert unloadable.start_of_next_attempt(world, life.record) == Start(path(20), life.record.branch)

    def test_keeps_the_reason_why_it_goes_back_in_the_attempt_that_follows(self) -> None:
        """Another attempt replaces the one that moved the suspect checkpoint."""
        life = self.ordered()
        life.here.record = life.record.model_copy(update={"attempt": 6, "move_incomplete_beyond": None})
        life.lists()
        found = unloadable.start_of_next_attempt(life.here.world(), life.record)
        assert isinstance(found, Start)
        assert found.instead_of == path(30)

    def test_is_told_of_the_field_where_nothing_is_moved(self) -> None:
        life = Life(30, 20, 10).died()
        life.starts()
        (event,) = [one for one in life.plans[-1].announcements if one.reason == "Started"]
        text = (
            "A program that finds its newest checkpoint itself loads 30 again: a job with "
            "spec.checkpoint.moveIncomplete has it moved away first."
        )
        warning = unloadable.fallback_warning(life.here.job, life.record)
        assert warning is not None
        assert text in event.note
        assert text in warning.message


STAYS: dict[str, tuple[tuple[int, ...], dict[str, Any], list[dict[str, Any]], list[FaultClass | None]]] = {
    "there is no older one": ((30,), {}, [{}, {}], [None, None]),
    "the job forbids it": ((30, 20), {"recovery": {"fallBackFromUnloadable": False}}, [{}, {}], [None, None]),
    "a step was made": ((30, 20), {}, [{}, {"step": 31}], [None, None]),
    "a step was made between": ((30, 20), {}, [{"step": 31}, {}], [None, None]),
    "a node was at fault": ((30, 20), {}, [{}, {}], [None, FaultClass.HARDWARE]),
    "a node was at fault before": ((30, 20), {}, [{}, {}], [FaultClass.INFRASTRUCTURE, None]),
    "a signal ended it": ((30, 20), {}, [{}, {"code": None, "signal": 9}], [None, None]),
    "it ran for long and its steps are not seen": ((30, 20), {}, [{}, {"after": 301.0}], [None, None]),
}


@pytest.mark.parametrize("why", STAYS)
def test_the_newest_is_resumed_where(why: str) -> None:
    steps, job, failures, blames = STAYS[why]
    life = Life(*steps, job=job)
    for number, (failure, blame) in enumerate(zip(failures, blames, strict=True)):
        if number:
            life.starts()
        life.fails(**failure).is_blamed(blame)
    assert life.starts() == path(30)


def test_a_start_that_has_saved_has_loaded_though_its_steps_are_not_seen() -> None:
    life = Life(30, 20, 10, job={"recovery": {"applicationRestartsPerDay": 9}}).died()
    assert life.starts() == path(20)
    life.checkpoints = (CheckpointReport(25, "/checkpoints/step-25", 99 * 10**9), *life.checkpoints)
    life.fails().is_blamed()
    assert life.record.suspect_checkpoint is None
    assert life.starts() == path(25)


@pytest.mark.parametrize(("seconds", "resumed"), [(1, 30), (-1, 20)], ids=["by the second start", "before it"])
def test_a_save_that_began_beyond_the_newest_shows_that_it_was_loaded(seconds: int, resumed: int) -> None:
    life = Life(30, 20, 10).died()
    written_ns = int((life.record.incidents[0].time.timestamp() + seconds) * 1e9)
    begun = CheckpointReport(35, "/checkpoints/step-35", written_ns, verified=False, incomplete=True)
    life.checkpoints = (begun, *life.checkpoints)
    assert life.starts() == path(resumed)


def test_a_start_that_lived_for_more_than_an_hour_did_not_die_on_its_checkpoint() -> None:
    incidents = [an_incident(attempt=2, step=35, resumed_step=30, trained=True, settled=True)]
    life = Life(30, 20, incidents=incidents, job={"recovery": {"applicationRestartsPerDay": 9}})
    life.fails(after=3601.0).is_blamed()
    life.starts()
    life.fails(after=3601.0).is_blamed()
    assert life.starts() == path(30)


def test_steps_that_were_seen_before_show_that_none_was_made() -> None:
    incidents = [an_incident(attempt=2, step=35, resumed_step=30, trained=True, settled=True)]
    life = Life(30, 20, incidents=incidents, job={"recovery": {"applicationRestartsPerDay": 9}})
    life.fails(after=2000.0).is_blamed()
    life.starts()
    life.fails(after=2000.0).is_blamed()
    assert life.starts() == path(20)


def test_it_does_not_go_back_behind_what_a_person_asked_for() -> None:
    branch = Branch(resume_from="30", step=30)
    asked = {"checkpoint": {"directory": "/checkpoints", "resumeFrom": 30}}
    assert Life(30, 20, branch=branch, job=asked).died().starts() == path(30)


def test_one_failure_of_a_node_on_the_older_one_says_nothing_of_the_program() -> None:
    life = Life(30, 20, 10, job={"recovery": {"applicationRestartsPerDay": 9}}).died()
    life.starts()
    life.fails().is_blamed(FaultClass.HARDWARE)
    assert life.starts() == path(20)


def test_a_planned_move_after_some_steps_ends_the_suspicion() -> None:
    life = Life(30, 20, 10).died()
    life.starts()
    life.here.all(running(life.record.attempt, 24))
    assert unloadable.after_attempt(life.here.world(), life.record) is None


def test_one_that_no_worker_has_verified_holds_the_start_for_a_minute_at_most() -> None:
    life = Life(30, 20).died()
    life.checkpoints = (seen(30)[0], CheckpointReport(20, "/checkpoints/step-20", 20 * 10**9, verified=False))
    life.lists()
    waits = unloadable.start_of_next_attempt(life.here.world(), life.record)
    assert isinstance(waits, Missing)
    assert waits.reason == NOT_VERIFIED
    found = unloadable.start_of_next_attempt(life.lists(ago=61.0).here.world(), life.record)
    assert found == Start(path(30), None)


class TestTheEnd:
    def ended(self, life: Life) -> str:
        life.lists()
        end = decide(life.here.world(), SETTINGS).status
        assert end is not None
        assert end.completion is not None, end
        return end.completion.message

    def test_names_the_checkpoint_and_the_way_to_the_older_one(self) -> None:
        off = {"recovery": {"fallBackFromUnloadable": False, "applicationRestartsPerDay": 1}}
        told = self.ended(Life(30, 20, 10, job=off).died())
        assert (
            "Attempts 3 and 4 resumed from checkpoint 30 (/checkpoints/step-30) and failed before a step. If the "
            "checkpoint cannot be loaded, create the job again with spec.checkpoint.resumeFrom: 20, or"
        ) in told

    def test_names_both_where_the_older_one_failed_too(self) -> None:
        life = Life(30, 20, 10, job={"recovery": {"applicationRestartsPerDay": 2}}).died()
        life.starts()
        told = self.ended(life.fails().is_blamed())
        assert "and so did attempt 5 from 20 (/checkpoints/step-20): the program is the likelier cause" in told
        assert "spec.checkpoint.resumeFrom: 10" in told

    def test_says_nothing_of_a_checkpoint_that_failed_once(self) -> None:
        life = Life(30, 20, job={"recovery": {"applicationRestartsPerDay": 0}}).fails().is_blamed()
        assert "resumed from checkpoint" not in self.ended(life)

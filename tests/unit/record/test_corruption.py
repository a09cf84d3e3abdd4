"""A trainer that finds its own results wrong: what becomes suspect, who is tested, and where the training goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_incident, at, idle, running, succeeded
from tests.unit.lifecycle.burning_in import spec_of
from tests.unit.lifecycle.checkers import Play

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.gang import Branch, Corruption, Examination, FaultClass, GangSpec, Resume
from muster.api.preflight import Profile
from muster.api.trainingjob import CheckpointStatus, TrainingJobStatus
from muster.burnin import progress as burnin
from muster.checkpoints import resume
from muster.checkpoints.resume import Missing, Start
from muster.lifecycle.plan import CommitGang
from muster.lifecycle.step import decide
from muster.protocol.checkpoints import write_stamps
from muster.protocol.messages import CORRUPTION_EXIT_CODE, EXITED, NON_FINITE_LOSS, CheckpointReport, RankReport
from muster.world.views import LauncherView


def wrong(
    attempt: int = 1, rank: int = 1, step: int | None = 24, good: int | None = None, **changes: Any
) -> LauncherView:
    """A launcher whose rank has said that its results are wrong, and still runs."""
    said = RankReport(rank, 0, alive=True, corruption=NON_FINITE_LOSS, found_at=step, last_good=good)
    return running(attempt, 24, rank, ranks=(said,), **changes)


def seen(*steps: int) -> tuple[CheckpointReport, ...]:
    """Complete checkpoints, the newest first."""
    return tuple(CheckpointReport(step, f"/checkpoints/step-{step}", step * 10**9) for step in steps)


def scene(*views: LauncherView, steps: tuple[int, ...] = (20, 10), nodes: int = 3, **record: Any) -> Scene:
    """A gang that runs, in which some say what these views say."""
    here = Scene(a_job(nodes=nodes)).fleet(6).gang(1, **record).pods()
    for index in range(nodes):
        here.launcher(index, running(1, 24, index, checkpoints=seen(*steps)))
    for view in views:
        here.launcher(view.ranks[0].rank, replace(view, checkpoints=seen(*steps)))
    return here


def settled(spec: GangSpec) -> GangSpec:
    """The blame is final."""
    return spec.model_copy(update={"incidents": [i.model_copy(update={"settled": True}) for i in spec.incidents]})


def stopped(here: Scene, *steps: int, stamps: tuple[int, ...] | None = None) -> Scene:
    """The same after the commit of its plan: the ranks have ended, and everybody has listed what counts."""
    here.record = settled(spec_of(decide(here.world(), SETTINGS)))
    attempt, listed = here.record.attempt, seen(*(stamps or steps))
    for member in here.record.members:
        told = write_stamps((c.step, c.written_ns) for c in listed)
        here.launcher(member.index, idle(attempt, member.rank, checkpoints=seen(*steps), stamps=told))
    return here


OPEN = Corruption(attempt=1, time=at(0), reason=NON_FINITE_LOSS, found_at=24, suspect_beyond_step=23)
"""A report of attempt 1 after which no rank has started yet."""
SPENT = [an_incident(step=24, resumed_step=20, settled=True) for _ in range(3)]


def with_checkers(here: Scene, preflight: dict[str, Any] | None = None, **faults: Any) -> Play:
    here.fleet_changes["policy"] = FleetPolicySpec.model_validate({"preflight": preflight or {"profile": "Disabled"}})
    return Play.of(here, **faults)


class TestTheWord:
    def test_it_ends_the_attempt_and_is_charged_to_the_job(self) -> None:
        plan = decide(scene(wrong()).world(), SETTINGS)
        spec = spec_of(plan)
        assert (spec.attempt, spec.reason, spec.level) == (2, "CorruptionFound", "R0")
        (incident,) = spec.incidents
        assert (incident.fault_class, incident.index, incident.rank) == (FaultClass.APPLICATION, 1, 1)
        found = spec.corruption
        assert found is not None
        assert (found.attempt, found.reason, found.node, found.found_at, found.suspect_beyond_step) == (
            1,
            NON_FINITE_LOSS,
            "n1",
            24,
            23,
        )
        assert (found.open, found.occurrences, found.newest_checkpoint) == (
            True,
            1,
            Resume(step=20, path="/checkpoints/step-20"),
        )
        (event,) = plan.announcements
        assert event.reason == "CorruptionFound"
        assert "worker 1 on n1: rank 1 has found NonFiniteLoss at step 24" in event.note
        assert "checkpoints beyond step 23 are suspect" in event.note

    def test_the_exit_code_alone_makes_the_newest_finished_step_suspect(self) -> None:
        dead = RankReport(1, 0, alive=False, exit_code=CORRUPTION_EXIT_CODE, exited_age_seconds=0.3)
        spec = spec_of(decide(scene(running(1, 24, 1, ranks=(dead,), state=EXITED)).world(), SETTINGS))
        assert spec.corruption is not None
        assert (spec.corruption.reason, spec.corruption.found_at, spec.corruption.suspect_beyond_step) == (
            "ExitCode",
            24,
            23,
        )

    @pytest.mark.parametrize("resumed", [500, None])
    def test_of_who_tells_no_steps_the_newest_checkpoint_is_the_newest_finished_step(self, resumed: int | None) -> None:
        """Not what the ranks went on from, or all that they have saved since would be suspect."""
        dead = RankReport(1, 0, alive=False, exit_code=CORRUPTION_EXIT_CODE, exited_age_seconds=0.3)
        here = scene(steps=(900, 800, 500), resume=resumed)
        for index in range(3):
            here.launcher(index, running(1, None, index, checkpoints=seen(900, 800, 500)))
        view = running(1, None, 1, ranks=(dead,), state=EXITED, checkpoints=seen(900, 800, 500))
        spec = spec_of(decide(here.launcher(1, view).world(), SETTINGS))
        assert spec.corruption is not None
        assert (spec.corruption.found_at, spec.corruption.suspect_beyond_step) == (900, 899)
        assert spec.checkpoint == Resume(step=800, path="/checkpoints/step-800")

    def test_on_an_unhealthy_node_blames_the_node_and_moves_its_worker(self) -> None:
        both = (RankReport(rank, 0, alive=True, corruption=NON_FINITE_LOSS, found_at=24) for rank in (0, 1))
        here = scene(*(running(1, 24, rank.rank, ranks=(rank,)) for rank in both))
        world = here.world()
        world.fleet.set_node_fault("n1", "12 uncorrectable ECC errors within an hour")
        spec = spec_of(decide(world, SETTINGS))
        (incident,) = spec.incidents
        assert (incident.fault_class, incident.node, spec.level) == (FaultClass.HARDWARE, "n1", "R2")
        assert "on an unhealthy node (12 uncorrectable ECC errors within an hour)" in incident.message
        assert [member.node for member in spec.members] == ["n0", "n3", "n2"]
        assert "n1" in spec.excluded_nodes
        assert spec.corruption is not None

    def test_of_what_its_launcher_has_ended_no_code_counts(self) -> None:
        dead = RankReport(1, 0, alive=False, exit_code=CORRUPTION_EXIT_CODE, ended_by_launcher=True)
        assert not [
            a
            for a in decide(scene(running(1, 24, 1, ranks=(dead,))).world(), SETTINGS).actions
            if isinstance(a, CommitGang)
        ]

    def test_the_last_good_step_goes_before_the_one_at_which_it_was_found(self) -> None:
        spec = spec_of(decide(scene(wrong(good=12)).world(), SETTINGS))
        assert spec.corruption is not None
        assert (spec.corruption.suspect_beyond_step, spec.corruption.last_good) == (12, 12)
        assert spec.checkpoint == Resume(step=10, path="/checkpoints/step-10")

    def test_who_is_lost_meanwhile_hides_no_word(self) -> None:
        here = scene(wrong())
        del here.nodes["n0"]
        spec = spec_of(decide(here.world(), SETTINGS))
        assert spec.reason == "NodeGone"
        assert spec.corruption is not None

    def test_a_word_that_comes_after_the_ranks_were_ended_counts(self) -> None:
        """The others fell first, and their launchers were faster."""
        here = scene()
        here.gang(
            2,
            go=False,
            incidents=[an_incident(step=24, settled=True)],
            checkpoint=Resume(step=20, path="/checkpoints/step-20"),
        )
        here.record = here.record.model_copy(  # type: ignore[union-attr]
            update={("members"): [m.model_copy(update={("pod_uid"): here.uid(m.index)}) for m in here.record.members]}  # type: ignore[union-attr]
        )
        said = RankReport(1, 0, alive=False, exit_code=1, corruption=NON_FINITE_LOSS, found_at=15)
        here.all(idle(2, checkpoints=seen(20, 10))).launcher(
            1, idle(2, checkpoints=seen(20, 10), previous_attempt=1, previous_ranks=(said,))
        )
        spec = spec_of(decide(here.world(), SETTINGS))
        assert spec.corruption is not None
        assert (spec.corruption.attempt, spec.corruption.suspect_beyond_step, spec.attempt) == (1, 14, 3)
        assert spec.checkpoint == Resume(step=10, path="/checkpoints/step-10")
        # It is told again with every report, and counts once.
        here.record = settled(spec)
        here.all(idle(3)).launcher(1, idle(3, previous_attempt=1, previous_ranks=(said,)))
        plan = decide(here.but(leader_age_seconds=1.0).world(), SETTINGS)
        assert not [action for action in plan.actions if isinstance(action, CommitGang)]

    def test_a_later_word_may_reach_further_back(self) -> None:
        here = stopped(scene(wrong()), 20, 10)
        assert here.record is not None
        said = RankReport(2, 0, alive=False, exit_code=1, corruption=NON_FINITE_LOSS, found_at=24, last_good=11)
        here.launcher(2, idle(2, 2, previous_attempt=1, previous_ranks=(said,), checkpoints=seen(10)))
        spec = spec_of(decide(here.world(), SETTINGS))
        assert spec.corruption is not None
        found = spec.corruption
        assert (found.suspect_beyond_step, found.last_good, found.found_at, found.node) == (11, 11, 24, "n2")
        assert found.message == (
            "worker 1 on n1: rank 1 has found NonFiniteLoss at step 24; "
            "worker 2 on n2: rank 2 has found NonFiniteLoss at step 24, and is sure of step 11"
        )
        assert spec.branch is not None
        assert spec.branch.step == 11

    def test_words_of_one_attempt_are_paid_once_however_late_they_are_heard(self) -> None:
        here = stopped(scene(wrong()), 20, 10)
        assert here.record is not None
        for step in (22, 21, 20):
            here.seconds += 60.0
            said = RankReport(2, 0, alive=False, exit_code=1, corruption=NON_FINITE_LOSS, found_at=step)
            attempt = here.record.attempt
            here.launcher(2, idle(attempt, 2, previous_attempt=1, previous_ranks=(said,), checkpoints=seen(20, 10)))
            here.record = settled(spec_of(decide(here.world(), SETTINGS)))
            assert here.record.corruption is not None
            assert (here.record.attempt, here.record.corruption.suspect_beyond_step) == (attempt + 1, step - 1)
            assert [incident.fault_class for incident in here.record.incidents] == [FaultClass.APPLICATION]
            assert here.record.hold_until is None

    @pytest.mark.parametrize(("good", "beyond"), [(None, 23), (12, 12)], ids=["names no step", "reaches further back"])
    def test_a_report_of_a_later_attempt_only_ever_reaches_further_back(self, good: int | None, beyond: int) -> None:
        """No rank has run since the report on record, so that it is one that a launcher makes up."""
        here = scene().gang(3, go=False, incidents=[an_incident(step=24, settled=True)], corruption=OPEN)
        assert here.record is not None
        members = [m.model_copy(update={"pod_uid": here.uid(m.index)}) for m in here.record.members]
        here.record = here.record.model_copy(update={"members": members})
        code = None if good is not None else CORRUPTION_EXIT_CODE
        reason = NON_FINITE_LOSS if good is not None else ""
        said = RankReport(1, 0, alive=False, exit_code=code, corruption=reason, last_good=good)
        here.all(idle(3)).launcher(1, idle(3, previous_attempt=2, previous_ranks=(said,)))
        for _ in range(3):
            plan = decide(here.but(leader_age_seconds=1.0).world(), SETTINGS)
            here.record = settled(spec_of(plan)) if plan.commits else here.record
            assert here.record is not None
        assert here.record.corruption is not None
        assert here.record.corruption.suspect_beyond_step == beyond
        assert here.record.attempt == (3 if good is None else 4)

    @pytest.mark.parametrize(
        ("fell", "count"),
        [(FaultClass.UNKNOWN, 1), (FaultClass.INFRASTRUCTURE, 2)],
        ids=["the others fell because of it", "something else was lost"],
    )
    def test_a_word_long_after_its_attempt_has_failed_is_paid_for_once(self, fell: FaultClass, count: int) -> None:
        here = scene().gang(2, go=False, incidents=[an_incident(step=24, fault_class=fell, settled=True)])
        assert here.record is not None
        members = [m.model_copy(update={"pod_uid": here.uid(m.index)}) for m in here.record.members]
        here.record = here.record.model_copy(update={"members": members})
        said = RankReport(1, 0, alive=False, exit_code=1, corruption=NON_FINITE_LOSS, found_at=15)
        here.all(idle(2)).launcher(1, idle(2, previous_attempt=1, previous_ranks=(said,)))
        spec = spec_of(decide(here.world(), SETTINGS))
        assert len(spec.incidents) == count
        assert spec.incidents[-1].fault_class in (FaultClass.APPLICATION, FaultClass.UNKNOWN)

    def test_a_word_of_a_job_that_was_suspended_meanwhile_counts(self) -> None:
        """Its checkpoint was there, its nodes were given back; then the ranks that were told to end have found it
        wrong."""
        here = scene()
        here.job = a_job(suspend=True)
        here.record = spec_of(decide(here.world(), SETTINGS))
        here.seconds += 1.0
        here.all(running(1, 26, 0, checkpoints=seen(26, 20, 10)))
        here.record = spec_of(decide(here.world(), SETTINGS))
        assert (here.record.members, here.record.checkpoint) == ([], Resume(step=26, path="/checkpoints/step-26"))
        here.seconds += 1.0
        here.launcher(1, wrong(step=25, good=12))
        plan = decide(here.world(), SETTINGS)
        here.record = spec_of(plan)
        found = here.record.corruption
        assert found is not None
        assert (found.suspect_beyond_step, found.node, here.record.branch) == (
            12,
            "n1",
            Branch(resume_from="", step=12, frozen=True),
        )
        assert (here.record.members, here.record.checkpoint, here.record.reason) == ([], None, "Suspended")
        (event,) = plan.announcements
        assert "pod job-5b6d5-1-1 on n1: rank 1 has found NonFiniteLoss at step 25" in event.note
        assert "; its nodes are given back; checkpoints beyond step 12 are suspect" in event.note
        # It is told again with every report, and counts once.
        plan = decide(here.world(), SETTINGS)
        assert not plan.commits
        assert plan.status is not None
        assert plan.status.state == "Suspended"
        # The resume does not go on from what is suspect.
        here.job = a_job()
        here.record = spec_of(decide(here.world(), SETTINGS))
        here.pod_views.clear()
        here.launchers.clear()
        there = write_stamps((c.step, c.written_ns) for c in seen(26, 20, 10))
        for member in here.record.members:
            here.pod(member.index, member.incarnation, node=member.node)
            view = idle(here.record.attempt, member.rank, checkpoints=seen(10), stamps=there)
            here.launcher(member.index, view, member.incarnation)
        here.record = here.record.model_copy(update={"unfenced_workers": []})
        where = resume.start_of_next_attempt(here.world(), here.record)
        assert isinstance(where, Start)
        assert (where.resume, where.suspect) == (Resume(step=10, path="/checkpoints/step-10"), (26, 20))

    def test_a_word_of_who_was_replaced_meanwhile_counts(self) -> None:
        here = scene()
        del here.nodes["n1"]
        here.record = settled(spec_of(decide(here.world(), SETTINGS)))
        assert [member.node for member in here.record.members] == ["n0", "n3", "n2"]
        here.launcher(1, wrong(step=15))
        spec = spec_of(decide(here.world(), SETTINGS))
        assert spec.corruption is not None
        assert (spec.attempt, spec.level, spec.corruption.node, spec.corruption.suspect_beyond_step) == (
            3,
            "R0",
            "n1",
            14,
        )
        assert [member.node for member in spec.members] == ["n0", "n3", "n2"]

    def test_who_says_so_and_exits_well_has_not_succeeded(self) -> None:
        here = scene()
        for index in range(3):
            here.launcher(index, succeeded(1, index, 30))
        said = RankReport(1, 0, alive=False, exit_code=0, corruption=NON_FINITE_LOSS, found_at=30)
        here.launcher(1, replace(succeeded(1, 1, 30), ranks=(said,)))
        assert spec_of(decide(here.world(), SETTINGS)).corruption is not None

    def test_no_word_that_nobody_knows_comes_into_the_record(self) -> None:
        here = scene(running(1, 24, 1, ranks=(RankReport(1, 0, alive=True, corruption="<b>Bad</b>"),)))
        assert not [a for a in decide(here.world(), SETTINGS).actions if isinstance(a, CommitGang)]


class TestSuspectCheckpoints:
    def test_none_beyond_counts_until_the_next_go_whatever_people_were_told(self) -> None:
        here = scene(wrong(step=15))
        told = CheckpointStatus(step=20, path="/checkpoints/step-20", time=at(0))
        here.job = here.job.model_copy(update={"status": TrainingJobStatus(checkpoint=told)})
        spec = spec_of(decide(here.world(), SETTINGS))
        assert spec.branch == Branch(resume_from="", step=14, frozen=True)
        assert spec.checkpoint == Resume(step=10, path="/checkpoints/step-10")
        here.record = spec
        assert resume.newest_checkpoint(here.world(), spec) == Resume(step=10, path="/checkpoints/step-10")

    def test_the_go_names_those_that_are_there(self) -> None:
        here = stopped(scene(wrong(step=15)), 10, stamps=(20, 10))
        found = resume.start_of_next_attempt(here.world(), here.record)  # type: ignore[arg-type]
        assert isinstance(found, Start)
        assert found.resume == Resume(step=10, path="/checkpoints/step-10")
        assert found.branch == Branch(resume_from="", step=14, excluded_checkpoints=write_stamps([(20, 20 * 10**9)]))
        assert found.suspect == (20,)
        spec = spec_of(decide(here.world(), SETTINGS))
        assert spec.corruption is not None
        assert (spec.corruption.open, spec.corruption.suspect_steps, spec.corruption.resumed_step) == (False, [20], 10)
        assert spec.corruption.examination is Examination.NOT_TESTED
        # What the training writes anew at the same place counts; the old one does not.
        assert not resume.is_of_present_branch(spec, seen(20)[0])
        assert resume.is_of_present_branch(spec, CheckpointReport(20, "/checkpoints/step-20", 99 * 10**9))

    def test_people_are_told(self) -> None:
        here = stopped(scene(wrong(step=15)), 10, stamps=(20, 10))
        plan = decide(here.world(), SETTINGS)
        started, examined = plan.announcements
        assert "attempt 2 starts from checkpoint 10 (/checkpoints/step-10)" in started.note
        assert "checkpoint 20 is suspect and does not count until it is saved again" in started.note
        assert examined.reason == "CorruptionExamined"
        assert "no checker there reports" in examined.note
        here.record = spec_of(plan)
        here.all(running(2, 11))
        status = decide(here.world(), SETTINGS).status
        assert status is not None
        assert status.corruption is not None
        assert (status.corruption.suspect_steps, status.corruption.resumed_step, status.corruption.examination) == (
            [20],
            10,
            Examination.NOT_TESTED,
        )
        assert "went on from step 10" in status.corruption.message

    def test_without_a_good_one_only_a_person_can_say_where_to_go_on(self) -> None:
        here = stopped(scene(wrong(step=5)), stamps=(20, 10))
        found = resume.start_of_next_attempt(here.world(), here.record)  # type: ignore[arg-type]
        assert isinstance(found, Missing)
        assert (found.reason, found.stalled) == ("EveryCheckpointSuspect", True)
        assert "spec.checkpoint.resumeFrom" in found.message
        here.job = a_job(checkpoint={"directory": "/checkpoints", "resumeFrom": 20})
        here.all(idle(2, checkpoints=seen(20, 10), stamps=write_stamps((c.step, c.written_ns) for c in seen(20, 10))))
        found = resume.start_of_next_attempt(here.world(), here.record)  # type: ignore[arg-type]
        assert isinstance(found, Start)
        assert found.resume == Resume(step=20, path="/checkpoints/step-20")

    def test_scratch_can_be_asked_for_a_second_time(self) -> None:
        """The first time it was done at the start of this history, and still stands in the job."""
        here = stopped(scene(wrong(step=5), branch=Branch(resume_from="Scratch", step=-1)), stamps=(20, 10))
        here.job = a_job(checkpoint={"directory": "/checkpoints", "resumeFrom": "Scratch"})
        found = resume.start_of_next_attempt(here.world(), here.record)  # type: ignore[arg-type]
        assert isinstance(found, Missing)
        assert found.message.endswith("Scratch was already applied: to apply it again, clear the field first)")
        here.job = a_job()
        here.record = spec_of(decide(here.world(), SETTINGS))
        here.job = a_job(checkpoint={"directory": "/checkpoints", "resumeFrom": "Scratch"})
        found = resume.start_of_next_attempt(here.world(), here.record)
        assert isinstance(found, Start)
        assert found.resume is None

    def test_where_nothing_was_ever_saved_it_begins_anew(self) -> None:
        here = stopped(scene(wrong(step=5), steps=()), stamps=())
        found = resume.start_of_next_attempt(here.world(), here.record)  # type: ignore[arg-type]
        assert isinstance(found, Start)
        assert found.resume is None

    def test_what_a_person_has_left_behind_stays_behind(self) -> None:
        """A requested has excluded 30 before; now 20 is found wrong."""
        old = Branch(resume_from="10", step=10, excluded_checkpoints=write_stamps([(30, 30 * 10**9)]))
        here = stopped(scene(wrong(step=15), branch=old), 10, stamps=(30, 20, 10))
        here.job = a_job(checkpoint={"directory": "/checkpoints", "resumeFrom": 10})
        found = resume.start_of_next_attempt(here.world(), here.record)  # type: ignore[arg-type]
        assert isinstance(found, Start)
        assert found.branch is not None
        assert (found.branch.resume_from, found.suspect) == ("10", (20,))
        assert found.branch.excluded_checkpoints == write_stamps([(30, 30 * 10**9), (20, 20 * 10**9)])
        plan = decide(here.world(), SETTINGS)
        assert "resumeFrom asks" not in plan.announcements[0].note
        assert spec_of(plan).incidents[-1].step == 24, "what failed is not refunded by a history that goes on"

    def test_at_the_same_place_again_it_goes_one_further_back(self) -> None:
        before = Corruption(
            attempt=0,
            time=at(0),
            reason=NON_FINITE_LOSS,
            found_at=24,
            suspect_beyond_step=23,
            open=False,
            resumed_step=20,
        )
        spec = spec_of(decide(scene(wrong(), corruption=before).world(), SETTINGS))
        assert spec.corruption is not None
        assert (spec.corruption.suspect_beyond_step, spec.corruption.occurrences, spec.least_profile) == (
            19,
            2,
            Profile.DEEP,
        )
        assert spec.checkpoint == Resume(step=10, path="/checkpoints/step-10")

    @pytest.mark.parametrize(
        ("steps", "step", "beyond", "row"),
        [((20,), 24, 23, 2), ((30, 20), 34, 33, 1)],
        ids=["nothing is further back", "a step was won"],
    )
    def test_it_goes_no_further_back_where(self, steps: tuple[int, ...], step: int, beyond: int, row: int) -> None:
        before = Corruption(
            attempt=0,
            time=at(0),
            reason=NON_FINITE_LOSS,
            found_at=24,
            suspect_beyond_step=23,
            open=False,
            resumed_step=20,
        )
        spec = spec_of(decide(scene(wrong(step=step), corruption=before, steps=steps).world(), SETTINGS))
        assert spec.corruption is not None
        assert (spec.corruption.suspect_beyond_step, spec.corruption.occurrences) == (beyond, row)


class TestNodes:
    def test_all_are_tested_though_they_have_trained_and_the_policy_says_no(self) -> None:
        play = with_checkers(stopped(scene(wrong()), 20, 10))
        plan = play.until_commit()
        spec = spec_of(plan)
        assert spec.start is not None
        assert spec.corruption is not None
        assert spec.corruption.examination is Examination.NOTHING_FOUND
        assert [checker.runs[0] for checker in (play.checkers["n0"], play.checkers["n1"], play.checkers["n2"])] == [
            "uid-of-job.s/2/node"
        ] * 3
        assert "no culprit was found" in plan.announcements[-1].note
        # Once the ranks have started their training proves them again.
        play.scene.record = spec.model_copy(update={"start": None, "attempt": 3})
        play.scene.all(idle(3, checkpoints=seen(20, 10)))
        assert burnin.burn_in_state(play.world()) is None

    def test_the_culprit_leaves_and_the_job_gets_its_restart_back(self) -> None:
        play = with_checkers(stopped(scene(wrong()), 20, 10), n2={"wrong": True})
        plan = play.until_commit()
        spec = spec_of(plan)
        assert (spec.attempt, spec.reason, spec.start) == (3, "BurnInFailed", None)
        assert [member.node for member in spec.members] == ["n0", "n1", "n3"]
        assert [member.incarnation for member in spec.members] == [1, 1, 2]
        (incident,) = spec.incidents
        assert (incident.fault_class, incident.node) == (FaultClass.HARDWARE, "n2")
        assert "GPU 3: bits differ" in incident.message
        assert spec.corruption is not None
        assert (spec.corruption.culprits, spec.corruption.open) == (["n2"], True)
        play.take(plan)
        for index, incarnation in ((0, 1), (1, 1), (2, 2)):
            told = idle(
                3, index, checkpoints=seen(20, 10), stamps=write_stamps((c.step, c.written_ns) for c in seen(20, 10))
            )
            play.scene.launcher(index, told, incarnation)
        plan = play.until_commit()
        spec = spec_of(plan)
        assert spec.start is not None
        assert spec.start.resume == Resume(step=20, path="/checkpoints/step-20")
        assert spec.corruption is not None
        assert (spec.corruption.examination, spec.corruption.open) == (Examination.CULPRIT_FOUND, False)
        assert "n2 gave wrong results in the burn-in and left the gang" in plan.announcements[-1].note

    def test_who_errs_always_alike_is_found_beside_the_others(self) -> None:
        play = with_checkers(stopped(scene(wrong()), 20, 10))
        for node, checker in play.checkers.items():
            checker.fingerprint = "kind:other" if node == "n0" else "kind:bits"
        spec = spec_of(play.until_commit())
        assert spec.corruption is not None
        assert spec.corruption.culprits == ["n0"]
        assert "other bits than 2 of 3 nodes of its kind" in spec.incidents[0].message

    def test_who_is_only_slow_leaves_and_is_no_culprit(self) -> None:
        play = with_checkers(stopped(scene(wrong(), nodes=4), 20, 10), n2={"bad_pairs": True})
        spec = spec_of(play.until_commit())
        assert spec.reason == "BurnInFailed"
        assert "n2" not in [member.node for member in spec.members]
        assert spec.incidents[0].fault_class is FaultClass.APPLICATION
        assert spec.corruption is not None
        assert (spec.corruption.culprits, spec.corruption.examination) == ([], None)

    def test_new_nodes_are_no_culprits_and_old_ones_cannot_clear_those_gone(self) -> None:
        play = with_checkers(stopped(scene(wrong()), 20, 10), n2={"starved": True})
        for node in ("n3", "n4"):  # one replacement after the other
            spec = self._next(play)
            assert [(m.node, m.is_replacement) for m in spec.members] == [("n0", False), ("n1", False), (node, True)]
            assert spec.corruption is not None
            assert (spec.corruption.culprits, spec.corruption.examination) == ([], None)
            assert spec.incidents[0].fault_class is FaultClass.APPLICATION
            play.checkers["n3"].wrong = True
        spec = self._next(play)
        assert spec.start is not None
        assert not any(member.is_replacement for member in spec.members)
        assert spec.corruption is not None
        assert spec.corruption.examination is Examination.INCONCLUSIVE

    def _next(self, play: Play) -> GangSpec:
        """What is committed next, and everybody has listed what counts."""
        plan = play.until_commit()
        spec = spec_of(plan)
        play.take(plan)
        for member in spec.members:
            stamps = write_stamps((c.step, c.written_ns) for c in seen(20, 10))
            view = idle(spec.attempt, member.rank, checkpoints=seen(20, 10), stamps=stamps)
            play.scene.launcher(member.index, view, member.incarnation)
        return spec

    def test_wrong_sums_of_the_whole_gang_clear_nobody(self) -> None:
        play = with_checkers(stopped(scene(wrong()), 20, 10))
        play.whole_is_wrong = True
        plan = play.until_commit()
        spec = spec_of(plan)
        assert spec.start is not None
        assert spec.corruption is not None
        assert spec.corruption.examination is Examination.INCONCLUSIVE
        notes = [each.note for each in plan.announcements if each.reason == "BurnInWarning"]
        assert notes == ["the all-reduce of the whole gang gave wrong sums: n1: 8 words of the sums are wrong"]

    def test_the_last_restart_is_not_lost_before_the_nodes_are_tested(self) -> None:
        here = scene(wrong(), incidents=SPENT)
        (event,) = decide(here.world(), SETTINGS).announcements
        assert event.note.endswith(
            "checkpoints beyond step 23 are suspect; no restart is left unless the tests find a bad node"
        )
        play = with_checkers(stopped(here, 20, 10), n2={"wrong": True})
        status = play.decide().status
        assert status is not None
        assert status.corruption is not None
        assert status.corruption.message.endswith("no restart is left unless the tests find a bad node")
        spec = spec_of(play.until_commit())
        assert spec.corruption is not None
        assert (spec.corruption.culprits, spec.reason) == (["n2"], "BurnInFailed")

    @pytest.mark.parametrize(
        ("checkers", "shown", "words"),
        [
            (True, Examination.NOTHING_FOUND, "all nodes have passed the burn-in, and no culprit was found"),
            (
                False,
                Examination.NOT_TESTED,
                "were not tested: no checker there reports, or the gang has moved off them",
            ),
        ],
        ids=["all pass", "no checkers"],
    )
    def test_who_ends_by_the_last_restart_is_told_what_the_tests_have_shown(
        self, checkers: bool, shown: Examination, words: str
    ) -> None:
        here = stopped(scene(wrong(), incidents=SPENT), 20, 10)
        play = with_checkers(here) if checkers else Play(here, {})
        plan = play.until_commit()
        (event,) = plan.announcements
        assert event.reason == "CorruptionExamined"
        assert event.note.endswith(words)
        here.record = spec_of(plan)
        assert here.record.corruption is not None
        assert (here.record.corruption.examination, here.record.corruption.open) == (shown, True)
        for checker in play.checkers.values():
            checker.state = "Starting"  # what was shown stands
        status = play.decide().status
        assert status is not None
        assert status.completion is not None
        assert (status.state, status.reason) == ("Failed", "ApplicationRestartsExhausted")
        assert f"{words}." in status.completion.message
        assert status.corruption is not None
        assert status.corruption.examination is shown
        assert status.corruption.message.endswith(
            f"checkpoints beyond step 23 are suspect; {'' if checkers else 'the nodes on which that happened '}{words}"
        )

    def test_while_nothing_can_be_said_and_the_policy_waits_the_last_restart_is_not_lost(self) -> None:
        here = stopped(scene(wrong(), incidents=SPENT), 20, 10)
        play = with_checkers(
            here, {"profile": "Quick", "onInconclusive": "Wait"}, n1={"environment": "GPU 0 is in use"}
        )
        for _ in range(20):
            plan = play.decide()
            play.answer()
        assert plan.status is not None
        assert (plan.status.state, plan.status.reason) == ("Recovering", "BurnInInconclusive")
        play.checkers["n1"].environment, play.checkers["n1"].wrong = "", True
        spec = spec_of(play.until_commit())
        assert spec.corruption is not None
        assert spec.corruption.culprits == ["n1"]

    def test_without_checkers_it_goes_on_and_a_new_leader_listens_first(self) -> None:
        here = stopped(scene(wrong()), 20, 10)
        plan = decide(here.but(leader_age_seconds=5.0).world(), SETTINGS)
        assert not plan.actions
        plan = decide(here.but(leader_age_seconds=20.0).world(), SETTINGS)
        spec = spec_of(plan)
        assert spec.start is not None
        assert spec.corruption is not None
        assert spec.corruption.examination is Examination.NOT_TESTED

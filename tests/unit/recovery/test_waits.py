"""No wait is endless: what keeps a gang waiting has a deadline and a next step. And what hides behind a pod that still
runs."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, an_incident, at, failed, idle, running

from muster.api.gang import FaultClass, GangSpec, Level
from muster.api.trainingjob import TrainingJob
from muster.fencing.proofs import WHOLE_GANG_SECONDS
from muster.lifecycle.plan import CommitGang, DeletePod
from muster.lifecycle.step import decide
from muster.protocol.checkpoints import UNVERIFIED, UNVERIFIED_FOR_NOW
from muster.protocol.messages import CheckpointReport
from muster.recovery import blame
from muster.recovery.failure import Failure, Kind
from muster.recovery.failures import find
from muster.recovery.verification import is_verifier
from muster.status.report import State
from muster.world.fleet import SilentShare
from muster.world.job import PodAges
from muster.world.views import ContainerView

INFRASTRUCTURE = FaultClass.INFRASTRUCTURE
RUNNING = ContainerView("main", running=True)


def one(here: Scene) -> Failure:
    (failure,) = find(here.world())
    return failure


def waiting(job: TrainingJob | None = None, **changes: Any) -> Scene:
    """Attempt 2 has waited for its start for an hour."""
    return (
        Scene(job or a_job(), seconds=4000.0).fleet(6).gang(2, go=False, time=at(400.0), **changes).pods().all(idle(2))
    )


class TestALauncherThatWasNeverHeard:
    def here(self, seconds: float) -> Scene:
        here = waiting()
        del here.launchers[here.uid(1)]
        return here.pod(1, containers=(RUNNING,)).aged(1, PodAges(4000.0, seconds))

    def test_costs_its_pod_two_minutes_after_its_container_began(self) -> None:
        assert find(self.here(119.0).world()) == []
        failure = one(self.here(120.0))
        assert (failure.kind, failure.level, failure.index) == (Kind.LAUNCHER_SILENT, Level.POD, 1)

    def test_and_then_its_node(self) -> None:
        here = self.here(120.0)
        assert here.record is not None
        before = an_incident(2, reason="LauncherSilent", node="n1")
        here.record = here.record.model_copy(update={"incidents": [before]})
        assert one(here).level is Level.REPLACE

    def test_but_nobody_is_blamed_while_no_other_is_heard(self) -> None:
        here = self.here(3600.0)
        here.launchers.clear()
        assert find(here.world()) == []


class TestASupervisorThatIsStuck:
    """Its other threads go on reporting."""

    @pytest.mark.parametrize(("seconds", "stuck"), [(44.0, False), (50.0, True)])
    def test_before_the_start(self, seconds: float, stuck: bool) -> None:
        here = waiting().launcher(1, idle(2, loop_age_seconds=seconds))
        assert [f.kind for f in find(here.world())] == ([Kind.LAUNCHER_STUCK] if stuck else [])

    def test_after_the_go(self) -> None:
        """It has its go, does not start, and others have."""
        here = Scene(a_job(), seconds=4000.0).fleet().gang().pods().all(running(1))
        assert here.record is not None
        assert here.record.start is not None
        here.launcher(1, idle(0))
        begun = here.record.start
        here.record = here.record.model_copy(update={"start": begun.model_copy(update={"time": at(4000.0 - 119.0)})})
        assert find(here.world()) == []
        here.record = here.record.model_copy(update={"start": begun.model_copy(update={"time": at(4000.0 - 121.0)})})
        assert (one(here).kind, one(here).index) == (Kind.LAUNCHER_STUCK, 1)


class TestAListingThatFails:
    def test_on_one_worker_costs_its_pod(self) -> None:
        here = waiting().launcher(1, idle(2, scanned=False, checkpoint_error="stalled for 60 s"))
        assert (one(here).kind, one(here).level) == (Kind.LISTING_STUCK, Level.POD)
        assert "stalled for 60 s" in one(here).message

    def test_everywhere_is_the_storage(self) -> None:
        here = waiting().all(idle(2, scanned=False, checkpoint_error="stalled for 60 s"))
        assert find(here.world()) == []

    def test_that_comes_to_no_end_does_too_after_ten_minutes(self) -> None:
        here = waiting().launcher(1, idle(2, scanned=False))
        assert (one(here).kind, one(here).index) == (Kind.LISTING_STUCK, 1)
        here.seconds = 400.0 + 599.0
        assert find(here.world()) == []

    @pytest.mark.parametrize(("slowest", "limit"), [(2.0, 120.0), (30.0, 300.0), (200.0, 600.0)])
    def test_that_comes_to_no_end_is_compared_with_the_slowest_of_the_others(
        self, slowest: float, limit: float
    ) -> None:
        def here(seconds: float) -> Scene:
            here = waiting().launcher(1, idle(2, scanned=False))
            here.seconds = 400.0 + seconds
            here.but(listing_age_seconds=seconds).launcher(0, idle(2, scanned_age_seconds=seconds - 1.0))
            for index in (2, 3):
                here.launcher(index, idle(2, scanned_age_seconds=seconds - slowest))
            return here

        assert find(here(limit - 1.0).world()) == []
        assert (one(here(limit)).kind, one(here(limit)).level) == (Kind.LISTING_STUCK, Level.POD)
        assert f"others can: its listing has not ended within {limit:.0f} s" in one(here(limit)).message

    @pytest.mark.parametrize("heard_seconds", [1.0, 16.0, 59.0])
    def test_of_a_launcher_that_is_heard_now_and_then_only(self, heard_seconds: float) -> None:
        """A node that is much too slow reports with gaps: neither silent for long nor heard without a break."""

        def here(seconds: float) -> Scene:
            here = waiting().launcher(
                1, idle(2, scanned=False, heard_age_seconds=heard_seconds, talking_age_seconds=heard_seconds)
            )
            here.seconds = 400.0 + seconds
            return here.aged(1, PodAges(4000.0, 4000.0))

        assert find(here(599.0).world()) == []
        assert (one(here(600.0)).kind, one(here(600.0)).index) == (Kind.LISTING_STUCK, 1)

        assert find(here(600.0).aged(1, PodAges(4000.0, 599.0)).world()) == []
        assert find(here(600.0).all(idle(2, scanned=False, heard_age_seconds=heard_seconds)).world()) == []

    @pytest.mark.parametrize("before", ["CheckpointsUnreadable", "LauncherStuck", "LauncherSilent"])
    def test_after_a_new_pod_has_not_helped_the_node_is_left(self, before: str) -> None:
        here = waiting(incidents=[an_incident(2, INFRASTRUCTURE, reason=before, node="n1", settled=True)])
        here.launcher(1, idle(2, scanned=False, checkpoint_error="stalled for 60 s"))
        record = commits(here)
        assert record is not None
        assert record.level is Level.REPLACE
        assert [member.node for member in record.members] == ["n0", "n3", "n2"]
        assert "n1" in record.excluded_nodes
        assert [member.incarnation for member in record.members] == [1, 2, 1]

    def test_of_one_who_judges_is_compared_with_others_who_judge(self) -> None:
        """Who only looks which there are reads next to nothing."""
        here = waiting(job=a_job(nodes=6))
        for index in (0, 2, 4):
            here.launcher(index, idle(2, scanned=False, checkpoint_error="stalled"))
        assert find(here.world()) == []
        here.launcher(4, idle(2))
        assert [failure.index for failure in find(here.world())] == [0, 2]


class TestJudgesThatComeToNoVerdict:
    """The others have listed; whether any checkpoint is complete nobody can say."""

    def here(self, seconds: float, **changes: Any) -> Scene:
        here = waiting(job=a_job(nodes=6), **changes)
        here.seconds = 400.0 + seconds
        for index, view in enumerate([idle(2, scanned=False, checkpoint_error="stalled"), idle(2)] * 3):
            here.launcher(index, view)
        return here

    def test_are_replaced_by_others(self) -> None:
        assert not commits(self.here(179.0))
        here = self.here(180.0)
        plan = decide(here.world(), SETTINGS)
        assert [event.reason for event in plan.announcements] == ["VerifiersChanged"]
        (action,) = plan.actions
        assert isinstance(action, CommitGang)
        record = action.spec
        assert (record.attempt, record.start) == (2, None)
        assert [place for place in range(6) if is_verifier(place, record)] == [1, 3, 5]
        here.record = record
        assert not commits(here), "who need not judge any more may be able to list"
        here.seconds += 120.0
        assert [failure.index for failure in find(here.world())] == [0, 2, 4], (
            "for they cannot even list, and others judge"
        )

    def test_in_the_end_people_are_told(self) -> None:
        here = self.here(600.0)
        for index in range(6):
            here.launcher(index, idle(2, scanned=False, checkpoint_error="stalled"))
        plan = decide(here.world(), SETTINGS)
        assert (plan.actions, plan.wake_in_seconds) == ((), 1.0)
        assert plan.status_report is not None
        assert (plan.status_report.state, plan.status_report.reason) == (State.STALLED, "CheckpointsNotListed")
        assert "storage behind spec.checkpoint.directory" in plan.status_report.message

    @pytest.mark.parametrize(("seconds", "state"), [(599.0, State.STARTING), (600.0, State.STALLED)])
    def test_also_of_a_checkpoint_that_all_see_and_nobody_judges(self, seconds: float, state: State) -> None:
        there = CheckpointReport(1000, "/checkpoints/1000", verified=False)
        here = self.here(seconds, verifier_round_time=at(400.0 + seconds - 1.0))
        for index in range(6):
            here.launcher(index, idle(2, checkpoints=(there,)))
        plan = decide(here.world(), SETTINGS)
        assert plan.status_report is not None
        assert (plan.status_report.state, plan.status_report.reason) == (state, "CheckpointsNotVerified")

    def test_nothing_is_begun_from_scratch_because_those_chosen_now_have_not_judged_yet(self) -> None:
        there = CheckpointReport(1000, "/checkpoints/1000", verified=False)
        here = self.here(200.0, verifier_round=1, verifier_round_time=at(599.0))
        for index in range(6):
            here.launcher(index, idle(2, checkpoints=(there,)))
        assert not commits(here)


class TestAGangOfOne:
    """It has nobody to compare with."""

    def alone(self, *before: tuple[str, str], seconds: float = 300.0, nodes: int = 2) -> Scene:
        incidents = [an_incident(2, INFRASTRUCTURE, reason=reason, node=node, settled=True) for reason, node in before]
        job = a_job(nodes=1)
        here = Scene(job, seconds=4000.0).fleet(nodes).gang(2, go=False, time=at(4000.0 - seconds), incidents=incidents)
        return here.pods().launcher(0, idle(2, scanned=False, checkpoint_error="Stale file handle"))

    def never_heard(self, *before: tuple[str, str], heard: int = 5, **changes: Any) -> Scene:
        here = self.alone(*before, **changes)
        here.launchers.clear()
        here.changes["silence"] = SilentShare(2, 2 + heard)
        return here

    def test_whose_listing_fails_gets_a_new_pod_and_then_another_node(self) -> None:
        assert find(self.alone(seconds=299.0).world()) == []
        assert one(self.alone()).level is Level.POD
        here = self.alone(("CheckpointsUnreadable", "n0"))
        record = commits(here)
        assert record is not None
        assert (record.level, record.members[0].node, list(record.excluded_nodes)) == (Level.REPLACE, "n1", ["n0"])
        assert record.incidents[-1].fault_class is FaultClass.INFRASTRUCTURE

    @pytest.mark.parametrize(("kind", "tried"), [(UNVERIFIED, False), (UNVERIFIED_FOR_NOW, True), ("", True)])
    def test_what_people_have_to_mend_in_a_store_is_no_matter_of_a_pod(self, kind: str, tried: bool) -> None:
        here = self.alone(seconds=3000.0)
        why = {"checkpoint_error": "s3://b/run: unverified: why", "checkpoint_error_kind": kind}
        here.launcher(0, idle(2, scanned=False, **why))
        assert bool(find(here.world())) == tried

    def test_stays_where_there_is_no_other_node(self) -> None:
        record = commits(self.alone(("CheckpointsUnreadable", "n0"), nodes=1))
        assert record is not None
        assert (record.members[0].node, record.excluded_nodes) == ("n0", {})

    @pytest.mark.parametrize("reason", ["CheckpointsUnreadable", "LauncherSilent"])
    def test_is_tried_four_times_and_then_people_are_told(self, reason: str) -> None:
        before = [(reason, node) for node in ("n1", "n1", "n0", "n0")]
        make = self.alone if reason == "CheckpointsUnreadable" else self.never_heard
        here = make(*before, seconds=600.0)
        assert find(here.world()) == []
        plan = decide(here.world(), SETTINGS)
        assert plan.status_report is not None
        assert plan.status_report.state is State.STALLED
        assert ("storage" in plan.status_report.message) or ("network policies" in plan.status_report.message)

    def test_whose_launcher_was_never_heard_moves_while_launchers_of_others_are(self) -> None:
        assert find(self.never_heard(seconds=299.0).world()) == []
        assert one(self.never_heard()).level is Level.POD
        record = commits(self.never_heard(("LauncherSilent", "n0")))
        assert record is not None
        assert (record.level, record.members[0].node) == (Level.REPLACE, "n1")

    def test_but_not_where_nobody_is_heard_at_all(self) -> None:
        here = self.never_heard(heard=0, seconds=599.0)
        assert find(here.world()) == []
        here.seconds += 1.0
        plan = decide(here.world(), SETTINGS)
        assert plan.status_report is not None
        assert (plan.status_report.state, plan.status_report.reason) == (State.STALLED, "LauncherSilent")


def commits(here: Scene) -> GangSpec | None:
    """The record that is committed now, if any."""
    found = [action.spec for action in decide(here.world(), SETTINGS).actions if isinstance(action, CommitGang)]
    return found[0] if found else None


class TestASidecar:
    """The pod still runs: what counts is the container that trains."""

    SIDE = ContainerView("proxy", running=True)

    def after(self, code: int, **spec: Any) -> Scene:
        here = Scene(a_job(**spec)).fleet().gang().pods().all(running(1, 7))
        end = ContainerView("main", terminated=True, exit_code=code, terminated_reason="Error" if code else "Completed")
        return here.pod(1, containers=(end, self.SIDE))

    def test_does_not_hide_a_death(self) -> None:
        failure = one(self.after(137))
        assert (failure.kind, failure.index, failure.exit_code) == (Kind.POD_ENDED, 1, 137)

    def test_also_not_in_mode_plain(self) -> None:
        assert one(self.after(3, launch={"mode": "Plain"}, checkpoint={})).kind is Kind.POD_ENDED

    def test_does_not_hide_the_end(self) -> None:
        here = self.after(0, launch={"mode": "Plain"}, checkpoint={})
        end = here.pod_views[here.world().names[1]].containers
        here.pod_views = {name: replace(pod, containers=end) for name, pod in here.pod_views.items()}
        plan = decide(here.world(), SETTINGS)
        assert plan.status is not None
        assert plan.status.state == "Succeeded"
        here.job = here.job.model_copy(update={"status": plan.status})
        assert decide(here.world(), SETTINGS).actions == (), "their logs are kept while they end by themselves"
        here.seconds += 31.0
        ended = decide(here.world(), SETTINGS).actions
        assert [type(action) for action in ended] == [DeletePod] * 3

    def test_the_container_that_trains_may_be_named(self) -> None:
        spec = {"launch": {"workerContainer": "trainer"}}
        here = Scene(a_job(**spec)).fleet().gang().pods().all(running(1, 7))
        side = ContainerView("main", terminated=True, exit_code=1, terminated_reason="Error")
        here.pod(1, containers=(side, ContainerView("trainer", running=True)))
        assert find(here.world()) == []


class TestARankOnASickNode:
    """The node is held by the breaker, degraded, or left to others: its crash is not the program's."""

    def record(self, free: int = 1) -> GangSpec:
        here = Scene(a_job()).fleet(3 + free).gang().pods().all(running(1, 7)).launcher(1, failed(1))
        world = here.world()
        world.fleet.set_node_fault("n1", "XID 79 (held by the breaker)")
        (action,) = decide(world, SETTINGS).actions
        assert isinstance(action, CommitGang)
        return action.spec

    def test_is_hardware_and_moves(self) -> None:
        record = self.record()
        assert (record.level, record.members[1].node) == (Level.REPLACE, "n3")
        assert record.incidents[-1].fault_class is FaultClass.HARDWARE
        assert "on an unhealthy node (XID 79" in record.incidents[-1].message

    def test_restarts_in_place_where_no_node_is_free(self) -> None:
        record = self.record(free=0)
        assert (record.level, [member.node for member in record.members]) == (Level.IN_PLACE, ["n0", "n1", "n2"])
        assert record.incidents[-1].fault_class is FaultClass.HARDWARE

    def test_on_a_healthy_one_it_is_the_programs(self) -> None:
        here = Scene(a_job()).fleet().gang().pods().all(running(1, 7)).launcher(1, failed(1))
        (failure,) = find(here.world())
        assert blame.fault_class(failure) is FaultClass.APPLICATION


class TestClocksThatDiffer:
    """The API server, the kubelets and the operator each have their own; only what this process has seen itself
    counts."""

    def late(self, seen: float) -> Scene:
        here = waiting().pod(1, phase="Pending", containers=(), created=at(0.0))
        return here.but(pod_ages={here.uid(1): PodAges(seen)})

    def test_a_pod_that_was_made_just_now_is_not_late_by_another_clock(self) -> None:
        assert find(self.late(5.0).world()) == []
        assert one(self.late(900.0)).kind is Kind.POD_START_TIMEOUT

    @pytest.mark.parametrize(("seen", "stuck"), [(59.0, False), (61.0, True)])
    def test_a_pod_that_is_being_deleted_has_its_grace_by_our_clock(self, seen: float, stuck: bool) -> None:
        here = waiting()
        assert here.record is not None
        moved = here.record.members[1].model_copy(update={"incarnation": 2})
        here.record = here.record.model_copy(
            update={"members": [here.record.members[0], moved, here.record.members[2]]}
        )
        here.pod(1, deleting=True, grace_seconds=30)
        here.pod(1, 2, phase="Pending", node="n1", containers=())
        here.but(pod_ages={here.uid(1): PodAges(4000.0, 4000.0, seen)})
        assert [failure.kind for failure in find(here.world())] == [Kind.POD_STUCK] * stuck

    def test_a_launcher_is_not_overdue_by_its_kubelets_clock(self) -> None:
        here = waiting()
        del here.launchers[here.uid(1)]
        here.pod(1, containers=(RUNNING,)).but(pod_ages={here.uid(1): PodAges(10.0, 5.0)})
        assert find(here.world()) == []

    def test_a_step_of_our_own_clock_makes_no_attempt_older(self) -> None:
        here = waiting().launcher(1, running(1))
        assert [failure.kind for failure in find(here.world())] == [Kind.RECLAIM_SLOW]
        assert find(here.but(attempt_age_seconds=10.0).world()) == []


class TestBeforeAStart:
    """Nobody trains: what ended nothing where it is ends nothing that is worth keeping."""

    def everybody_silent(self, seconds: float) -> Scene:
        here = waiting().all(replace(idle(2), heard_age_seconds=seconds))
        return here.lease("n0", seconds).lease("n1", seconds).lease("n2", seconds)

    def test_a_gang_that_is_silent_as_a_whole_is_not_given_longer(self) -> None:
        assert find(self.everybody_silent(19.0).world()) == []
        assert {failure.kind for failure in find(self.everybody_silent(20.0).world())} == {Kind.NODE_UNREACHABLE}

    def test_a_worker_of_whom_only_the_node_can_tell_is_waited_for_while_many_are_dark(self) -> None:
        here = waiting()
        del here.launchers[here.uid(1)]
        here.pod(1, containers=(RUNNING,)).aged(1, PodAges(4000.0, 61.0)).node("n1", ready=False).lease("n1", 61.0)
        assert one(here).kind is Kind.NODE_UNREACHABLE
        many = replace(here.world().dark, silent=90, total=100)
        assert find(here.but(dark=many).world()) == []
        assert one(here.lease("n1", WHOLE_GANG_SECONDS)).kind is Kind.NODE_UNREACHABLE

    def test_a_launcher_of_which_nothing_else_speaks_is_waited_for_while_many_are_silent(self) -> None:
        here = waiting().launcher(1, replace(idle(2), heard_age_seconds=130.0))
        assert one(here).kind is Kind.LAUNCHER_SILENT
        assert find(here.silence(30, 40).world()) == []
        here.launcher(1, replace(idle(2), heard_age_seconds=WHOLE_GANG_SECONDS))
        assert one(here).kind is Kind.LAUNCHER_SILENT


class TestTheControlPlaneWasAway:
    """A node that fell silent because nobody could hear it."""

    def test_not_ready_for_want_of_a_heartbeat_is_no_second_witness(self) -> None:
        here = Scene(a_job(), seconds=4000.0).fleet().gang().pods().all(running(1, 7, step_age_seconds=30.0))
        here.launcher(1, running(1, 7, heard_age_seconds=30.0, step_age_seconds=30.0))
        here.node("n1", ready=False, ready_reason="NodeStatusUnknown").lease("n1", 5.0)
        assert find(here.world()) == []
        assert one(here.node("n1", ready_reason="KubeletNotReady")).kind is Kind.NODE_UNREACHABLE

    def test_many_dark_nodes_at_once_get_five_minutes(self) -> None:
        def here(silent: float) -> Scene:
            here = Scene(a_job(), seconds=4000.0).fleet().gang().pods().all(running(1, 7, step_age_seconds=silent))
            here.launcher(1, running(1, 7, heard_age_seconds=silent, step_age_seconds=silent))
            return here.node("n1", ready=False).lease("n1", silent)

        def dark(here: Scene) -> Scene:
            return here.but(dark=replace(here.world().dark, silent=90, total=100))

        assert one(here(60.0)).kind is Kind.NODE_UNREACHABLE
        assert find(dark(here(299.0)).world()) == []
        assert one(dark(here(300.0))).kind is Kind.NODE_UNREACHABLE

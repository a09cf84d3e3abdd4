"""What becomes of a job, fault by fault: the level, the number of attempts, who is blamed and who pays."""

from collections.abc import Callable

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, running
from tests.unit.lifecycle.lives import (
    CHIEF_DEATHS,
    CHIEF_WRITES,
    lets_a_drain_go_after_the_save,
    nothing_is_moved_aside_under_ranks,
    operator_dies_after,
    plain_job_outwaits_a_pod_that_is_force_deleted_behind_a_cut,
    plain_job_waits_for_a_lost_node,
    saving,
    seconds_until_it_leaves,
    stops_in_time_saved_and_waits,
    trains_until_shortly_before_the_machine_goes,
    what_is_saved_behind_a_cut_counts,
)
from tests.unit.lifecycle.testbed import PLAIN, OneJob, steps

from muster.api.gang import FaultClass, Level
from muster.api.trainingjob import CompletionResult
from muster.lifecycle.plan import CommitGang
from muster.lifecycle.step import decide
from simulate.training import VICTIM_TAIL

APPLICATION, INFRASTRUCTURE, UNKNOWN = FaultClass.APPLICATION, FaultClass.INFRASTRUCTURE, FaultClass.UNKNOWN

Jobs = Callable[..., OneJob]


def test_rank_exits(training: Jobs) -> None:
    job = training()
    step = job.step
    job.rank(1).exit(3, "Traceback\nValueError: loss is NaN\n")
    job.succeeds()
    assert job.levels == ["Start", "R0"]
    (incident,) = job.record.incidents
    assert (incident.fault_class, incident.index, incident.exit_code) == (APPLICATION, 1, 3)
    assert (incident.step, incident.resumed_step) == (step, 5)
    assert job.paid == (1, 0)
    assert len({member.incarnation for member in job.record.members}) == 1


def test_rank_killed(training: Jobs) -> None:
    job = training()
    job.rank(1).kill()
    job.until_go(2)
    assert job.levels == ["Start", "R0"]
    (incident,) = job.record.incidents
    assert (incident.fault_class, incident.signal, incident.index) == (UNKNOWN, 9, 1)


def test_victims_seen_first_wait_for_the_culprit(training: Jobs) -> None:
    job = training()
    job.mute(1)
    job.rank(1).exit(7, "ZeroDivisionError")
    job.rank(0).exit(1, VICTIM_TAIL)
    job.run(0.5)
    assert job.attempt == 1
    job.mute(1, on=False)
    job.succeeds()
    assert job.levels == ["Start", "R0"]
    (incident,) = job.record.incidents
    assert (incident.index, incident.exit_code) == (1, 7)


@pytest.mark.parametrize("lag", [0.0, 4.0])
def test_pod_deleted(training: Jobs, lag: float) -> None:
    job = training(lag=lag)
    job.delete_pod(1)
    job.succeeds()
    assert job.levels == ["Start", "R0b"]
    (incident,) = job.record.incidents
    assert incident.fault_class is INFRASTRUCTURE
    assert [member.incarnation for member in job.record.members] == [1, 2]
    assert job.nodes == [member.node for member in job.history[0].members]
    assert job.paid == (0, 1)


def test_pod_deleted_after_its_victims_were_seen(training: Jobs) -> None:
    """The launcher's goodbye is lost and the watch is late: the class is put right afterwards."""
    job = training(lag=5.0)
    job.rank(0).exit(1, VICTIM_TAIL)
    job.mute(1)
    job.delete_pod(1)
    job.succeeds()
    assert job.levels[-1] == "R0b"
    assert {incident.fault_class for incident in job.record.incidents} == {INFRASTRUCTURE}
    assert job.paid[0] == 0


def test_pod_deleted_by_force_waits_for_the_fence(training: Jobs) -> None:
    job = training()
    job.delete_pod(1, by_force=True)
    job.until_go(2)
    assert job.levels == ["Start", "R0b"]


def test_container_out_of_memory(training: Jobs) -> None:
    job = training()
    job.worker(0).run_out_of_memory()
    job.until_go(2)
    assert job.levels == ["Start", "R0b"]
    (incident,) = job.record.incidents
    assert (incident.reason, incident.fault_class) == ("OutOfMemory", APPLICATION)


class TestPowerCut:
    def test_a_spare_node_takes_the_place(self, training: Jobs) -> None:
        """The node returns, and its old pod goes."""
        job = training()
        old = job.worker(1).name
        job.machines["n1"].cut_power()
        job.until_go(2, 45)
        job.machines["n1"].boot_up()
        job.until(lambda: old not in job.pods)
        job.succeeds()
        assert job.levels == ["Start", "R2"]
        assert job.nodes == ["n0", "n2"]
        (incident,) = job.record.incidents
        assert incident.node == "n1"
        assert job.paid == (0, 1)

    @pytest.mark.parametrize("restarts", [3, 0])
    def test_victims_first_is_refunded(self, training: Jobs, restarts: int) -> None:
        """It does not use up the last restart either."""
        job = training(recovery={"applicationRestartsPerDay": restarts})
        job.machines["n1"].cut_power()
        job.rank(0).exit(1, VICTIM_TAIL)
        job.succeeds()
        assert job.levels == ["Start", "R0", "R2"]
        assert {incident.fault_class for incident in job.record.incidents} == {INFRASTRUCTURE}
        assert job.paid[0] == 0

    def test_without_a_spare_it_waits_and_is_filled_later(self, training: Jobs) -> None:
        job = training(nodes=2)
        job.machines["n1"].cut_power()
        job.until_attempt(2)
        assert job.nodes[1] == ""
        job.run(30)
        assert job.status.reason == "InsufficientNodes"
        job.machines["n1"].boot_up()
        job.succeeds()
        assert job.nodes[1] == "n1"

    def test_required_topology_moves_the_whole_gang(self, training: Jobs) -> None:
        job = training(nodes=4, placement={"required": "rack"})
        assert job.nodes == ["n0", "n1"]
        job.machines["n1"].cut_power()
        job.until_go(2)
        assert job.levels == ["Start", "R4"]
        assert job.nodes == ["n2", "n3"]

    def test_leader_and_worker_lost_together(self, training: Jobs) -> None:
        job = training()
        job.machines["n1"].cut_power()
        job.operator_dies(away=20)
        job.succeeds()
        assert job.levels in (["Start", "R2"], ["Start", "R0", "R2"])  # the survivor may have fenced itself
        assert job.paid[0] == 0

    def test_two_nodes_at_once_are_one_operation_and_no_dead_spare_is_chosen(self) -> None:
        scene = Scene(a_job()).fleet(6).gang().pods().all(running(1, step=7, step_age_seconds=60.0))
        for index in (1, 2):
            scene.launcher(index, running(1, step=7, step_age_seconds=60.0, heard_age_seconds=60.0))
        for node in ("n1", "n2", "n3"):
            scene.node(node, ready=False).lease(node, 60.0)
        (record,) = (a.spec for a in decide(scene.world(), SETTINGS).actions if isinstance(a, CommitGang))
        assert (record.level, [member.node for member in record.members]) == (Level.REPLACE, ["n0", "n4", "n5"])

    def test_before_the_pods_have_started(self, submitted: Jobs) -> None:
        job = submitted()
        job.until_attempt(1)
        job.machines["n1"].cut_power()
        job.until_go(2)
        assert job.levels == ["Start", "R2"]


class TestPartition:
    def test_the_lost_worker_is_replaced_and_fences_itself_and_exits_when_it_comes_back(self, training: Jobs) -> None:
        job = training()
        rank, old = job.rank(1), job.worker(1)
        job.cut_off("n1")
        job.until_go(2)
        assert not rank.alive
        assert not old.is_over
        job.heal("n1")
        job.until(lambda: old.is_over)
        assert old.exit_code == 143
        job.until(lambda: old.name not in job.pods)
        job.succeeds()
        assert job.levels == ["Start", "R2"]

    def test_long_steps_have_a_long_fence_also_for_a_new_leader(self, training: Jobs) -> None:
        job = training(until_step=2, script=steps(5, every=1, seconds=20.0))
        job.cut_off("n1")
        job.operator_dies()
        job.succeeds()

    def test_the_coordinator_is_lost_long_before_the_neighbours(self, training: Jobs) -> None:
        """The fence counts from the later loss, and so must its end."""
        job = training(until_step=2, script=steps(8, every=1, seconds=10.0))
        job.mute(1)
        job.until_step(5)
        job.cut_off("n1")
        job.until_go(2)
        assert job.levels == ["Start", "R2"]

    def test_a_short_one_does_nothing(self, training: Jobs) -> None:
        job = training()
        job.cut_off("n1")
        job.run(10)
        job.heal("n1")
        job.succeeds()
        assert job.levels == ["Start"]

    @pytest.mark.parametrize("writes", [0, 2])
    def test_what_a_rank_of_before_saves_until_the_network_comes_back_counts(self, training: Jobs, writes: int) -> None:
        what_is_saved_behind_a_cut_counts(training, writes)

    def test_one_that_ends_just_after_the_fence_costs_a_restart_in_place(self, training: Jobs) -> None:
        job = training()
        rank = job.rank(1)
        job.cut_off("n1")
        job.until(lambda: not rank.alive)
        job.heal("n1")
        job.succeeds()
        assert job.levels == ["Start", "R0"]
        (incident,) = job.record.incidents
        # Of the rank beside it, whose connection was closed, or of the launcher that fenced: whoever is heard first.
        assert incident.fault_class is FaultClass.INFRASTRUCTURE
        assert job.paid == (0, 1)


def test_a_gang_that_nobody_hears_and_that_trains_on_is_told_by_the_fence_file(training: Jobs) -> None:
    """Cut off from the operator and the API server, not from each other and the storage: they miss nobody."""
    job = training(nodes=8, script=steps(1500, every=20, seconds=4.0))
    old = [job.rank(index) for index in range(2)]
    for index in range(2):
        job.mute(index)
        job.machine(index).kubelet_runs = False
    job.until_go(2, 900)
    assert job.directories[job.uid].fence_file[0] == job.attempt
    assert not any(rank.alive for rank in old)


def test_a_kubelet_that_stands_still_stops_nobody(training: Jobs) -> None:
    job = training()
    job.machine(1).kubelet_runs = False
    job.until_step(12)
    assert job.levels == ["Start"]


def test_a_machine_that_a_person_calls_lost_is_not_waited_for(training: Jobs) -> None:
    job = training(**PLAIN)
    job.machines["n1"].cut_power()
    job.run(60)
    assert job.levels == ["Start"], "nothing proves that its ranks have ended"
    job.say_lost("n1")
    job.until_go(2, 15)
    assert [incident.reason for incident in job.record.incidents] == ["NodeLost"]


def test_a_mute_launcher_does_not_block_the_next_start_for_ever(training: Jobs) -> None:
    job = training()
    job.mute(1)
    job.rank(0).exit(1, "ValueError")
    job.succeeds()
    assert job.levels[0] == "Start"
    assert "LauncherSilent" in {incident.reason for incident in job.record.incidents} | {s.reason for s in job.history}


def test_a_mute_launcher_disturbs_no_training_and_keeps_no_job_from_its_end(
    training: Jobs,
) -> None:
    job = training(script=steps(25))
    job.mute(1)
    job.until_step(25)
    assert job.levels == ["Start"]
    assert not job.has_ended("job")
    job.succeeds()
    assert job.levels == ["Start", "R0b"]


class TestStart:
    def test_a_rejected_pod_moves_to_another_node(self, submitted: Jobs) -> None:
        job = submitted()
        rejected = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "device lost"}
        job.machines["n1"].start_failure = rejected, {}
        job.until_go(2)
        assert job.levels == ["Start", "R2"]
        assert "n1" not in job.nodes
        assert job.paid == (0, 1)

    def test_without_python_it_fails_at_once_and_says_why(self, submitted: Jobs) -> None:
        job = submitted()
        message = 'exec: "python3": executable file not found in $PATH'
        state = {"terminated": {"exitCode": 128, "reason": "StartError", "message": message}}
        for machine in job.machines.values():
            machine.start_failure = {"phase": "Failed"}, state
        end = job.ends(30)
        assert (end.result, end.reason) == (CompletionResult.FAILED, "ContainerCannotStart")
        assert "python3" in end.message
        assert "Plain" in end.message

    def test_too_few_nodes_is_said_and_smaller_jobs_go_on(self, submitted: Jobs) -> None:
        job = submitted(nodes=1)
        job.run(20)
        assert (job.attempt, job.status.state, job.status.reason) == (0, "Pending", "NeverFits")
        job.submit("small", 1, steps(3))
        job.until(lambda: job.state_of("small") == "Succeeded")

    def test_a_launcher_that_falls_silent_before_the_first_start_costs_its_pod(self, submitted: Jobs) -> None:
        job = submitted()
        job.until_attempt(1)
        job.cut_off("n1")
        job.until(lambda: bool(job.machine(0).workers))
        job.run(1)
        job.mute(0)
        job.run(16)  # until its last report is too old for a start
        job.heal("n1")
        job.until_attempt(2)
        assert job.record.reason == "LauncherSilent"
        job.succeeds()

    def test_two_jobs_take_turns(self, submitted: Jobs) -> None:
        job = submitted(script=steps(5))
        second = job.submit("second", 2, steps(5))
        job.run(10)
        assert (job.attempt, job.attempt_of(second)) == (1, 0)
        job.succeeds()
        job.until(lambda: job.state_of("second") == "Succeeded")

    def test_slow_images_are_waited_for(self, submitted: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("simulate.machines.START_SECONDS", (90.0, 91.0))
        job = submitted(script=steps(5))
        job.succeeds()
        assert job.levels == ["Start"]


class TestAlwaysFails:
    def test_three_restarts_and_then_the_reason(self, submitted: Jobs) -> None:
        job = submitted(script=steps(crashes_after=0))
        end = job.ends()
        assert (end.result, end.reason) == (CompletionResult.FAILED, "ApplicationRestartsExhausted")
        assert job.levels == ["Start", "R0", "R0", "R0", "R0"]
        started = [incident for incident in job.record.incidents if incident.resumed_time is not None]
        assert len(started) == 3
        again = "It failed four times at step 1: the program, not a node, is the likely cause."
        for words in ("rank 0", "code 1", "IndexError: list index out of range", "worker 0 on n0", again):
            assert words in end.message
        job.run(60)
        assert all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in job.server.all("pods"))
        assert job.status.completion == end

    def test_also_when_it_fails_before_its_first_step_after_a_checkpoint(self, training: Jobs) -> None:
        """The checkpoint it resumes from is no progress: it must not refill the budget."""
        job = training()
        for attempt in range(1, 5):
            job.until_go(attempt)
            job.until(lambda: any(rank.alive for rank in job.worker(0).ranks))
            job.rank(0).exit(1, "KeyError")
        end = job.ends()
        assert end.result is CompletionResult.FAILED
        assert len(job.record.incidents) == 4
        assert "It failed three times, and no step was seen." in end.message

    def test_progress_between_failures_refills(self, training: Jobs) -> None:
        job = training(script=steps(35))
        for step in (7, 12, 17, 22, 27):
            job.until_step(step)
            job.rank(0).exit(1, "flaky")
            job.until_attempt(job.attempt + 1)
        job.succeeds()
        assert len(job.record.incidents) == 5

    def test_a_crash_loop_backs_off(self, submitted: Jobs) -> None:
        job = submitted(script=steps(crashes_after=0), recovery={"applicationRestartsPerDay": 20})
        job.until_go(6)
        gaps = [(b.time - a.time).total_seconds() for a, b in zip(job.history, job.history[1:], strict=False)]
        assert gaps[3] > 10
        assert gaps[4] > 20
        job.trainers[job.uid].is_broken, job.trainers[job.uid].script.crashes_after = False, None
        job.succeeds()

    def test_the_end_is_the_same_under_operator_restarts(self, submitted: Jobs) -> None:
        job = submitted(script=steps(crashes_after=0))
        for _ in range(4):
            job.run(25)
            job.operator_dies(1)
        assert job.ends().result is CompletionResult.FAILED
        assert len(job.record.incidents) == 4


class TestHang:
    def test_restart_in_place_then_a_new_pod(self, training: Jobs) -> None:
        job = training(progress={"stepTimeoutSeconds": 20})
        job.rank(1).hung = True
        job.until_go(2)
        assert job.levels == ["Start", "R0"]
        (note,) = job.notes("StepTimeout")
        assert note.endswith("; to see where its ranks stood: kubectl muster report team/job --incident 1")
        job.until_step(6)
        job.rank(1).hung = True
        job.until_attempt(3)
        assert job.levels == ["Start", "R0", "R0b"]
        job.succeeds()
        stood = [[group.ranks for group in incident.stacks] for incident in job.record.incidents]
        assert stood == [["0-1"], ["0-1"]], "the ranks of the pod that was replaced have printed theirs, too"

    def test_the_operator_away_is_none(self, training: Jobs) -> None:
        job = training(script=steps(45), progress={"stepTimeoutSeconds": 20})
        job.operator_dies(away=60)
        job.succeeds()
        assert job.levels == ["Start"]


class TestReclaim:
    def test_ranks_that_cannot_be_killed_cost_the_pod(self, training: Jobs) -> None:
        job = training()
        rank = job.rank(1)
        rank.hung = rank.unkillable = True
        job.rank(0).exit(1, "ValueError")
        job.until_attempt(3)
        assert job.levels == ["Start", "R0", "R0b"]
        rank.unkillable = False
        rank.kill()
        job.succeeds()
        assert len(job.levels) == 3

    def test_a_pod_that_does_not_terminate_costs_the_node(self, training: Jobs) -> None:
        job = training()
        worker, rank = job.worker(1), job.rank(1)
        rank.hung = rank.unkillable = True
        job.delete_pod(1)
        job.run(2)  # until its launcher has said goodbye
        worker.freeze()
        job.until_attempt(3)
        rank.unkillable = False
        worker.thaw()
        job.succeeds()
        assert job.levels == ["Start", "R0b", "R2"]
        assert job.nodes == ["n0", "n2"]


class TestLeave:
    def test_a_cordon_waits_for_a_new_checkpoint(self, training: Jobs) -> None:
        job = training()
        job.cordon("n1")
        job.until_attempt(2)
        assert job.history[1].checkpoint is None or job.history[1].checkpoint.step >= 5
        job.succeeds()
        assert job.levels == ["Start", "R2"]
        (incident,) = job.record.incidents
        assert (incident.fault_class, incident.resumed_step) == (FaultClass.PLANNED, 10)
        assert job.paid == (0, 0)

    def test_or_for_the_deadline(self, training: Jobs) -> None:
        job = training(script=steps(100, every=100), **saving(10))
        job.cordon("n1")
        began = job.age_seconds
        job.until_attempt(2)
        assert 10 <= job.age_seconds - began <= 15

    def test_without_a_replacement_training_goes_on(self, training: Jobs) -> None:
        job = training(nodes=2)
        job.cordon("n1")
        job.succeeds()
        assert job.levels == ["Start"]

    def test_an_uncordon_calls_it_off(self, training: Jobs) -> None:
        job = training(script=steps(30, every=25))
        job.cordon("n1")
        job.until(lambda: job.record.evacuation is not None)
        job.cordon("n1", on=False)
        job.succeeds()
        assert job.levels == ["Start"]
        assert job.record.evacuation is None

    def test_a_new_leader_does_not_take_an_old_checkpoint_for_a_new_one(self, training: Jobs) -> None:
        job = training(script=steps(60, every=10))
        job.operator_dies(1)
        job.cordon("n1")
        job.until(lambda: job.record.evacuation is not None)
        old = job.saved
        assert old
        job.until_go(2)
        (incident,) = job.record.incidents
        assert incident.resumed_step == old + 10

    def test_a_window_sends_its_workers_elsewhere_after_a_checkpoint(self, training: Jobs) -> None:
        job = training()
        job.plan_window("n1", 1800)
        job.until_attempt(2, 60)
        job.until_go(2)
        assert (job.levels, job.nodes) == (["Start", "R2"], ["n0", "n2"])
        (incident,) = job.record.incidents
        assert (incident.reason, incident.fault_class) == ("NodeMaintenance", FaultClass.PLANNED)
        assert (incident.resumed_step, job.paid) == (10, (0, 0))

    def test_without_another_node_the_job_stops_in_time_saved_and_waits(self, training: Jobs) -> None:
        stops_in_time_saved_and_waits(training, notice=140, away=30)

    def test_a_node_that_is_free_in_the_last_moment_is_taken_instead(self, training: Jobs) -> None:
        job = training(script=steps(900, every=30), **saving(60))
        job.cordon("n2")
        job.plan_window("n1", 130)
        job.until(lambda: job.record.evacuation is not None)
        assert job.record.evacuation is not None
        assert job.record.evacuation.reason == "MaintenanceStarts"
        job.cordon("n2", on=False)
        job.until_attempt(2)
        assert job.levels == ["Start", "R2"]
        assert [incident.reason for incident in job.record.incidents] == ["MaintenanceStarts"]

    def test_a_window_that_is_put_off_lets_training_go_on(self, training: Jobs) -> None:
        job = training(nodes=2, script=steps(30, every=50), **saving(60))
        job.plan_window("n1", 100)
        job.until(lambda: job.record.evacuation is not None)
        job.plan_window("n1", 9000)
        job.until(lambda: job.record.evacuation is None)
        job.succeeds()
        assert job.levels == ["Start"]

    def test_a_node_that_is_taken_away_is_left_after_a_checkpoint(self, training: Jobs) -> None:
        job = training()
        job.take("n1", 120)
        job.until_attempt(2, 15)
        job.until_go(2)
        assert (job.levels, job.nodes) == (["Start", "R2"], ["n0", "n2"])
        (incident,) = job.record.incidents
        assert (incident.reason, incident.fault_class) == ("NodeRemoval", FaultClass.PLANNED)
        assert (incident.resumed_step, job.paid) == (10, (0, 0))

    @pytest.mark.parametrize(("notice", "waits"), [(30, 15), (-10, 0)])
    def test_a_save_is_waited_for_until_15_seconds_before_the_machine_goes(
        self, training: Jobs, notice: float, waits: float
    ) -> None:
        assert waits <= seconds_until_it_leaves(training, lambda job: job.take("n1", notice)) <= waits + 5

    def test_a_drain_that_nobody_takes_back_is_let_go_after_the_save(self, training: Jobs) -> None:
        lets_a_drain_go_after_the_save(training, notice=None, away=30)

    def test_with_time_enough_training_goes_on_where_no_other_node_is_free(self, training: Jobs) -> None:
        trains_until_shortly_before_the_machine_goes(training, notice=100)

    def test_a_drain_that_may_give_up_is_answered_as_a_cordon_is(self, training: Jobs) -> None:
        job = training(nodes=2)
        job.take("n1", final=False)
        job.succeeds()
        assert job.levels == ["Start"]

    def test_no_gang_starts_on_a_node_that_nobody_gives_back(self, submitted: Jobs) -> None:
        job = submitted()
        job.until(lambda: bool(job.pods_on("n1")))
        assert job.record.start is None
        job.take("n1")
        job.until_go(1)
        assert "n1" not in job.nodes
        job.until(lambda: not job.pods_on("n1"))
        job.succeeds()
        assert (job.record.incidents, job.paid) == ([], (0, 0))

    def test_a_job_that_fails_again_and_again_lets_a_drain_go_before_its_next_start(self, submitted: Jobs) -> None:
        job = submitted(nodes=2, script=steps(crashes_after=1))
        job.until_attempt(3)  # before which it pauses
        job.take("n1")
        job.until(lambda: not job.pods_on("n1"), 30)
        assert job.nodes == ["n0", ""]
        job.give_back("n1")
        job.until_go(3)

    def test_only_the_node_that_is_taken_away_is_left_where_one_other_is_free(self, training: Jobs) -> None:
        job = training()
        job.cordon("n0")
        job.until(lambda: job.record.evacuation is not None)
        job.take("n1")
        job.until_go(2)
        assert (job.levels, job.nodes) == (["Start", "R2"], ["n0", "n2"])
        assert [incident.reason for incident in job.record.incidents] == ["NodeRemoval"]

    def test_a_drain_of_two_nodes_goes_on_one_after_the_other_where_one_is_free(self, training: Jobs) -> None:
        job = training(script=steps(45))
        job.cordon("n0")
        job.cordon("n1")
        job.until(lambda: job.status.reason == "NoNodeToMoveTo")
        assert len(job.history) == 2
        kept = next(node for node in ("n0", "n1") if node in job.nodes)
        assert "n2" in job.nodes
        left = "n1" if kept == "n0" else "n0"
        job.cordon(left, on=False)
        job.until_attempt(3)
        assert set(job.nodes) == {left, "n2"}
        job.succeeds()
        assert (job.levels, job.paid) == (["Start", "R2", "R2"], (0, 0))

    def test_suspend_and_resume(self, training: Jobs) -> None:
        job = training(script=steps(16))
        job.edit("job", {"suspend": True})
        job.until(lambda: job.status.state == "Suspended" and not job.pods)
        assert job.saved == 10
        job.run(60)
        job.edit("job", {"suspend": False})
        job.until_step(11)
        assert job.record.start is not None
        assert job.record.start.resume is not None
        assert job.record.start.resume.step == 10
        job.succeeds()

    def test_suspend_during_recovery_releases_at_once(self, training: Jobs) -> None:
        job = training(nodes=2)
        job.machines["n1"].cut_power()
        job.until_attempt(2)
        job.edit("job", {"suspend": True})
        job.until(lambda: job.status.state == "Suspended", 5)
        assert job.nodes == []
        job.edit("job", {"suspend": False})
        job.machines["n1"].boot_up()
        job.succeeds()


class TestPlain:
    def test_it_runs_through(self, training: Jobs) -> None:
        job = training(**PLAIN)
        job.succeeds()
        assert job.levels == ["Start"]

    def test_any_failure_rebuilds_the_gang(self, training: Jobs) -> None:
        job = training(**PLAIN)
        job.delete_pod(1)
        job.until_go(2)
        assert job.levels == ["Start", "R4"]
        assert {member.incarnation for member in job.record.members} == {2}

    def test_a_lost_node(self, training: Jobs) -> None:
        plain_job_waits_for_a_lost_node(training, away=320)

    def test_a_lost_node_is_given_up_after_the_time_that_the_job_allows(self, training: Jobs) -> None:
        job = training(recovery={"unfencedTimeoutSeconds": 120}, **PLAIN)
        job.machines["n1"].cut_power()
        job.until_go(2)
        assert "n1" not in job.nodes

    def test_a_pod_that_is_force_deleted_on_a_node_that_is_cut_off_is_outwaited(self, training: Jobs) -> None:
        plain_job_outwaits_a_pod_that_is_force_deleted_behind_a_cut(training, away=320)

    def test_it_gives_up_after_three_restarts(self, submitted: Jobs) -> None:
        job = submitted(script=steps(crashes_after=0), **PLAIN)
        end = job.ends()
        assert (end.result, end.reason) == (CompletionResult.FAILED, "ApplicationRestartsExhausted")
        assert len(job.record.incidents) == 4
        assert "ended with code" in end.message


class TestEnd:
    @pytest.mark.parametrize("lost", [False, True])
    def test_a_finished_job_is_deleted_after_its_time(self, training: Jobs, lost: bool) -> None:
        """Also when a pod of it is stuck on a lost node. Undisturbed it needs one attempt."""
        job = training(completion={"ttlSecondsAfterFinished": 60})
        if lost:
            job.machines["n1"].cut_power()
        job.succeeds()
        assert job.levels == (["Start", "R2"] if lost else ["Start"])
        assert len(job.record.incidents) == lost
        job.until(lambda: not list(job.server.all("trainingjobs")), 70)

    def test_a_record_that_somebody_deletes_does_not_make_two_gangs(self, training: Jobs) -> None:
        job = training()
        job.delete_record("job")
        job.history.clear()
        job.until_attempt(1)
        job.succeeds()
        assert job.history[0].attempt > 1


@pytest.mark.parametrize("writes", CHIEF_WRITES)
def test_the_operator_may_die_after_any_write(training: Jobs, writes: int) -> None:
    operator_dies_after(training, writes)


@pytest.mark.parametrize(("fault", "writes"), CHIEF_DEATHS)
def test_nothing_is_moved_aside_under_ranks_whenever_the_operator_dies(
    training: Jobs, fault: str, writes: int | None
) -> None:
    nothing_is_moved_aside_under_ranks(training, fault, writes)

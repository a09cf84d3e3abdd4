"""What becomes of a job, fault by fault: the level, the number of attempts, who is blamed and who pays."""

import pytest
from tests.unit.lifecycle.builders import a_job, at
from tests.unit.lifecycle.lives import (
    CHIEF_DEATHS,
    CHIEF_WRITES,
    a_plain_job,
    incidents,
    lets_a_drain_go_after_the_save,
    nothing_is_moved_aside_under_ranks,
    operator_dies_after,
    paid,
    plain_job_outwaits_a_pod_that_is_force_deleted_behind_a_cut,
    plain_job_waits_for_a_lost_node,
    seconds_until_it_leaves,
    stops_in_time_saved_and_waits,
    succeeded,
    taken,
    training,
    trains_until_shortly_before_the_machine_goes,
    window,
)
from tests.unit.lifecycle.theatre import BASE_FENCE_SECONDS, VICTIM_TAIL, Theatre

from muster.api.gang import FaultClass
from muster.api.trainingjob import CompletionResult
from muster.protocol.messages import EXIT

APPLICATION, INFRASTRUCTURE, UNKNOWN = FaultClass.APPLICATION, FaultClass.INFRASTRUCTURE, FaultClass.UNKNOWN


def test_undisturbed_it_needs_one_attempt() -> None:
    theatre, play = training()
    succeeded(theatre, play)
    assert (play.levels, incidents(play)) == (["Start"], [])


@pytest.mark.parametrize("lag", [0.0, 3.0])
def test_rank_exits(lag: float) -> None:
    theatre, play = training(lag_seconds=lag)
    theatre.end_rank(play, 1, code=3, tail="Traceback\nValueError: loss is NaN\n")
    succeeded(theatre, play)
    assert play.levels == ["Start", "R0"]
    (incident,) = incidents(play)
    assert (incident.fault_class, incident.index, incident.exit_code) == (APPLICATION, 1, 3)
    assert (incident.step, incident.resumed_step) == (7, 5)
    assert paid(play) == (1, 0)
    assert len({member.incarnation for member in play.record.members}) == 1


def test_rank_killed() -> None:
    theatre, play = training()
    theatre.end_rank(play, 2, signal=9)
    succeeded(theatre, play)
    assert play.levels == ["Start", "R0"]
    assert (incidents(play)[0].fault_class, incidents(play)[0].signal, incidents(play)[0].index) == (UNKNOWN, 9, 2)


def test_victims_seen_first_wait_for_the_culprit() -> None:
    theatre, play = training()
    theatre.end_rank(play, 2, code=7, tail="ZeroDivisionError")
    theatre.end_rank(play, 0, code=1, tail=VICTIM_TAIL)
    theatre.launcher_of(play, 2).mute = True
    theatre.tick()
    assert len(play.history) == 1
    theatre.launcher_of(play, 2).mute = False
    succeeded(theatre, play)
    assert play.levels == ["Start", "R0"]
    assert (incidents(play)[0].index, incidents(play)[0].exit_code) == (2, 7)


@pytest.mark.parametrize("lag", [0.0, 4.0])
def test_pod_deleted(lag: float) -> None:
    theatre, play = training(lag_seconds=lag)
    theatre.delete_pod(play, 1)
    succeeded(theatre, play)
    assert play.levels == ["Start", "R0b"], theatre.describe()
    assert incidents(play)[0].fault_class is INFRASTRUCTURE
    assert [member.incarnation for member in play.record.members] == [1, 2, 1]
    assert [member.node for member in play.record.members] == [m.node for m in play.history[0].members]
    assert paid(play) == (0, 1)


def test_pod_deleted_after_its_victims_were_seen() -> None:
    """The launcher's goodbye is lost and the watch is late: the class is put right afterwards."""
    theatre, play = training(lag_seconds=5.0)
    for index in (0, 2):
        theatre.end_rank(play, index, code=1, tail=VICTIM_TAIL)
    theatre.launcher_of(play, 1).mute = True
    theatre.delete_pod(play, 1)
    succeeded(theatre, play)
    assert play.levels[-1] == "R0b"
    assert {incident.fault_class for incident in incidents(play)} == {INFRASTRUCTURE}
    assert paid(play)[0] == 0


def test_pod_deleted_by_force_waits_for_the_fence() -> None:
    theatre, play = training()
    theatre.force_delete_pod(play, 1)
    succeeded(theatre, play)
    assert play.levels == ["Start", "R0b"]


def test_container_out_of_memory() -> None:
    theatre, play = training()
    theatre.out_of_memory(play, 0)
    succeeded(theatre, play)
    assert play.levels == ["Start", "R0b"]
    assert (incidents(play)[0].reason, incidents(play)[0].fault_class) == ("OutOfMemory", APPLICATION)


class TestPowerCut:
    def test_a_spare_node_takes_the_place(self) -> None:
        theatre, play = training()
        theatre.power_cut("n1")
        began = theatre.now
        theatre.until(lambda: play.record.attempt == 2 and play.record.start is not None)
        assert theatre.now - began <= 45
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]
        assert [member.node for member in play.record.members] == ["n0", "n3", "n2"]
        assert incidents(play)[0].node == "n1"
        assert paid(play) == (0, 1)

    def test_victims_first_is_refunded(self) -> None:
        theatre, play = training()
        theatre.power_cut("n1")
        for index in (0, 2):
            theatre.end_rank(play, index, code=1, tail=VICTIM_TAIL)
        succeeded(theatre, play)
        assert play.levels == ["Start", "R0", "R2"]
        assert [incident.fault_class for incident in incidents(play)] == [INFRASTRUCTURE, INFRASTRUCTURE]
        assert paid(play)[0] == 0

    def test_victims_first_do_not_use_up_the_last_restart(self) -> None:
        theatre, play = training(recovery={"applicationRestartsPerDay": 0})
        theatre.power_cut("n1")
        for index in (0, 2):
            theatre.end_rank(play, index, code=1, tail=VICTIM_TAIL)
        succeeded(theatre, play)
        assert paid(play)[0] == 0

    def test_without_a_spare_it_waits_and_is_filled_later(self) -> None:
        theatre, play = training(nodes=3)
        theatre.power_cut("n1")
        theatre.until(lambda: play.record.attempt == 2)
        assert play.record.members[1].node == ""
        theatre.play_on(30)
        assert play.job.status.reason == "InsufficientNodes"
        theatre.power_on("n1")
        succeeded(theatre, play)
        assert play.record.members[1].node == "n1"

    def test_required_topology_moves_the_whole_gang(self) -> None:
        theatre, play = training(nodes=7, per_rack=3, placement={"required": "rack"})
        assert {theatre.node_of(play, index).rack for index in range(3)} == {"r0"}
        theatre.power_cut("n1")
        succeeded(theatre, play)
        assert play.levels == ["Start", "R4"]
        assert {theatre.node_of(play, index).rack for index in range(3)} == {"r1"}

    def test_leader_and_worker_lost_together(self) -> None:
        theatre, play = training()
        theatre.power_cut("n1")
        theatre.kill_operator(down_seconds=20)
        succeeded(theatre, play)
        assert play.levels in (["Start", "R2"], ["Start", "R0", "R2"])  # the survivors may have fenced themselves
        assert paid(play)[0] == 0

    def test_the_node_returns_and_its_old_pod_goes(self) -> None:
        theatre, play = training()
        old = theatre.pod_of(play, 1).name
        theatre.power_cut("n1")
        theatre.until(lambda: play.record.attempt == 2)
        theatre.power_on("n1")
        theatre.until(lambda: old not in theatre.pods)
        succeeded(theatre, play)

    def test_two_nodes_at_once_are_one_operation(self) -> None:
        theatre, play = training(nodes=5)
        for index in (1, 2):
            theatre.power_cut(theatre.node_of(play, index).name)
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]

    def test_a_spare_that_died_with_it_is_not_chosen(self) -> None:
        theatre, play = training(nodes=6, per_rack=3)
        theatre.until(lambda: theatre.now % 10 == 0)
        theatre.power_cut(theatre.node_of(play, 2).name)
        theatre.power_cut("n3")
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]

    def test_before_the_pods_have_started(self) -> None:
        theatre = Theatre()
        play = theatre.submit(a_job())
        theatre.until(lambda: play.gang is not None)
        theatre.power_cut("n1")
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]


class TestPartition:
    def test_the_lost_worker_is_replaced_and_fences_itself(self) -> None:
        theatre, play = training()
        theatre.partition("n1")
        lost = theatre.launcher_of(play, 1)
        theatre.until(lambda: play.record.attempt == 2 and play.record.start is not None)
        assert lost.fenced
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]

    def test_the_old_launcher_is_told_to_exit_when_it_comes_back(self) -> None:
        theatre, play = training()
        old = theatre.pod_of(play, 1)
        lost = theatre.launcher_of(play, 1)
        theatre.partition("n1")
        theatre.until(lambda: play.record.attempt == 2)
        theatre.partition("n1", on=False)
        theatre.until(lambda: lost.exited is not None)
        assert lost.exited == 143 or (lost.directive and lost.directive.kind == EXIT)
        theatre.until(lambda: old.name not in theatre.pods)
        succeeded(theatre, play)

    def test_long_steps_have_a_long_fence_also_for_a_new_leader(self) -> None:
        theatre = Theatre()
        play = theatre.submit(a_job(), step_seconds=20.0, total_steps=6, checkpoint_every=1)
        theatre.until(lambda: play.step >= 2)
        theatre.play_on(1)
        theatre.partition("n1")
        theatre.kill_operator()
        succeeded(theatre, play)

    def test_the_coordinator_is_lost_long_before_the_neighbours(self) -> None:
        """The fence counts from the later loss, and so must its end."""
        theatre = Theatre()
        play = theatre.submit(a_job(), step_seconds=10.0, total_steps=12, checkpoint_every=1)
        theatre.until(lambda: play.step >= 2)
        theatre.launcher_of(play, 1).mute = True
        theatre.until(lambda: play.step >= 6)
        theatre.play_on(1)
        theatre.partition("n1")
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]

    def test_a_short_one_does_nothing(self) -> None:
        theatre, play = training()
        theatre.partition("n1")
        theatre.play_on(10)
        theatre.partition("n1", on=False)
        succeeded(theatre, play)
        assert play.levels == ["Start"]

    @pytest.mark.parametrize("writes", [None, 1, 2, 3])
    def test_what_a_rank_of_before_saves_until_the_network_comes_back_counts(self, writes: int | None) -> None:
        """Its successor has listed the checkpoints by then. The operator lives on, or dies after so many writes."""
        theatre = Theatre()
        play = theatre.submit(a_job(nodes=1), total_steps=60, checkpoint_every=1)
        theatre.until(lambda: play.step >= 7)
        node = theatre.node_of(play, 0).name
        theatre.partition(node, keeps_storage=True)
        theatre.until(lambda: play.record.attempt == 2)
        theatre.until(lambda: theatre.pod_of(play, 0).launcher is not None)
        theatre.until(lambda: theatre.launcher_of(play, 0).scanned_for == (2, 0))
        listed = max(play.checkpoints)
        theatre.until(lambda: max(play.checkpoints) > listed)
        assert play.record.unfenced_workers
        theatre.partition(node, on=False)
        if writes is not None:
            theatre.kill_operator_after_writes(writes)
        theatre.until(lambda: play.record.start is not None)
        go = play.record.start
        assert go is not None
        assert go.resume is not None
        assert (play.record.attempt, go.resume.step) == (2, max(play.checkpoints))
        succeeded(theatre, play)

    def test_one_that_ends_just_after_the_fence_costs_a_restart_in_place(self) -> None:
        theatre, play = training()
        theatre.partition("n1")
        theatre.play_on(17)
        theatre.partition("n1", on=False)
        succeeded(theatre, play)
        assert play.levels == ["Start", "R0"]
        assert incidents(play)[0].reason == "Fenced"
        assert paid(play) == (0, 1)


def test_a_gang_that_nobody_hears_and_that_trains_on_is_told_by_the_fence_file() -> None:
    """Cut off from the operator and the API server, not from each other and the storage: they miss nobody."""
    theatre, play = training(nodes=8)
    play.script.total_steps = 1500
    old = [theatre.launcher_of(play, index) for index in range(3)]
    for launcher in old:
        launcher.mute = True
        theatre.darken(launcher.pod.node)
    theatre.until(lambda: play.record.attempt == 2 and play.record.start is not None, 900)
    assert play.fence_file == 2
    assert all(launcher.fenced for launcher in old)
    play.script.total_steps = 60
    succeeded(theatre, play)


def test_a_kubelet_that_stands_still_stops_nobody() -> None:
    theatre, play = training()
    theatre.darken(play.record.members[1].node)
    succeeded(theatre, play)
    assert play.levels == ["Start"]


def test_a_machine_that_a_person_calls_lost_is_not_waited_for() -> None:
    theatre, play = training()
    theatre.lose(play.record.members[1].node)
    began = theatre.now
    theatre.until(lambda: play.record.attempt == 2 and play.record.start is not None)
    assert theatre.now - began < BASE_FENCE_SECONDS
    succeeded(theatre, play)


def test_a_mute_launcher_on_a_good_node_is_left_alone_while_training_goes_on() -> None:
    theatre, play = training()
    theatre.launcher_of(play, 1).mute = True
    theatre.until(lambda: play.step >= 25)
    assert play.levels == ["Start"]


def test_a_mute_launcher_does_not_block_the_next_start_for_ever() -> None:
    theatre, play = training()
    theatre.launcher_of(play, 1).mute = True
    theatre.end_rank(play, 0, code=1, tail="ValueError")
    succeeded(theatre, play)
    assert play.levels[0] == "Start"
    assert "LauncherSilent" in {incident.reason for incident in incidents(play)} | {s.reason for s in play.history}


def test_a_mute_launcher_does_not_keep_a_job_from_its_end() -> None:
    theatre, play = training()
    theatre.launcher_of(play, 1).mute = True
    theatre.until(lambda: play.step >= 30)
    assert play.completion is None
    succeeded(theatre, play)
    assert play.levels == ["Start", "R0b"]


class TestStart:
    def test_a_rejected_pod_moves_to_another_node(self) -> None:
        theatre = Theatre()
        theatre.machines["n1"].rejects = True
        play = theatre.submit(a_job())
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]
        assert "n1" not in {member.node for member in play.record.members}
        assert paid(play) == (0, 1)

    def test_without_python_it_fails_at_once_and_says_why(self) -> None:
        theatre = Theatre()
        play = theatre.submit(a_job(), has_python=False)
        end = theatre.finish(play, 30)
        assert (end.result, end.reason) == (CompletionResult.FAILED, "ContainerCannotStart")
        assert "python3" in end.message
        assert "Plain" in end.message

    def test_too_few_nodes_is_said_and_mended(self) -> None:
        theatre = Theatre(nodes=2)
        play = theatre.submit(a_job())
        theatre.play_on(20)
        assert (play.gang, play.job.status.state, play.job.status.reason) == (None, "Pending", "NeverFits")
        first = theatre.submit(a_job("small", nodes=2))
        theatre.until(lambda: first.completion is not None)
        assert first.completion

    def test_a_launcher_that_falls_silent_before_the_first_start_costs_its_pod(self) -> None:
        theatre = Theatre()
        theatre.machines["n2"].partitioned = True
        play = theatre.submit(a_job())
        theatre.until(lambda: len([pod for pod in theatre.pods.values() if pod.launcher]) == 2)
        theatre.tick()
        theatre.launcher_of(play, 1).mute = True
        theatre.play_on(15.5)  # until its last report is too old for a start
        theatre.partition("n2", on=False)
        theatre.until(lambda: play.record.attempt > 1)
        assert play.record.reason == "LauncherSilent"
        succeeded(theatre, play)

    def test_two_jobs_take_turns(self) -> None:
        theatre = Theatre(nodes=4)
        first, second = theatre.submit(a_job("a")), theatre.submit(a_job("b"))
        theatre.play_on(10)
        assert second.gang is None
        succeeded(theatre, first)
        succeeded(theatre, second)

    def test_slow_images_are_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tests.unit.lifecycle.theatre.POD_START_SECONDS", 90.0)
        theatre = Theatre()
        play = theatre.submit(a_job())
        succeeded(theatre, play)
        assert play.levels == ["Start"]


class TestAlwaysFails:
    def test_three_restarts_and_then_the_reason(self) -> None:
        theatre = Theatre()
        play = theatre.submit(
            a_job(), fails=lambda _attempt, step: (1, 3, "loading\nValueError: bad data") if step == 3 else None
        )
        end = theatre.finish(play)
        assert (end.result, end.reason) == (CompletionResult.FAILED, "ApplicationRestartsExhausted")
        assert sum(spec.level == "R0" for spec in play.history) == 4
        started = [i for i in incidents(play) if i.resumed_step is not None]
        assert len(started) == 3
        again = "It failed four times at step 2: the program, not a node, is the likely cause."
        for words in ("rank 1", "code 3", "ValueError: bad data", "worker 1 on n1", again):
            assert words in end.message
        theatre.play_on(60)
        assert all(pod.view.terminal for pod in theatre.pods.values())
        assert play.completion == end

    def test_also_when_it_fails_before_its_first_step_after_a_checkpoint(self) -> None:
        """The checkpoint it resumes from is no progress: it must not refill the budget."""
        theatre = Theatre()
        play = theatre.submit(
            a_job(), fails=lambda attempt, step: (0, 1, "KeyError") if attempt > 1 or step == 7 else None
        )
        end = theatre.finish(play)
        assert end.result is CompletionResult.FAILED
        assert len(incidents(play)) == 4
        assert "It failed three times, and no step was seen." in end.message

    def test_progress_between_failures_refills(self) -> None:
        theatre = Theatre()
        play = theatre.submit(
            a_job(), total_steps=60, fails=lambda attempt, step: (0, 1, "flaky") if step == 7 * attempt else None
        )
        succeeded(theatre, play)
        assert len(incidents(play)) == 8

    def test_a_crash_loop_backs_off(self) -> None:
        theatre = Theatre()
        job = a_job(recovery={"applicationRestartsPerDay": 20})
        play = theatre.submit(job, fails=lambda attempt, step: (0, 1, "no") if attempt < 6 else None)
        succeeded(theatre, play)
        gaps = [(b.time - a.time).total_seconds() for a, b in zip(play.history, play.history[1:], strict=False)]
        assert gaps[3] > 10
        assert gaps[4] > 20

    def test_the_end_is_the_same_under_operator_restarts(self) -> None:
        theatre = Theatre()
        play = theatre.submit(
            a_job(), fails=lambda _attempt, step: (1, 3, "ValueError: bad data") if step == 3 else None
        )
        while play.completion is None:
            theatre.play_on(7)
            theatre.kill_operator(1)
        assert play.completion.result is CompletionResult.FAILED


class TestHang:
    def test_restart_in_place_then_a_new_pod(self) -> None:
        theatre, play = training(progress={"stepTimeoutSeconds": 20})
        theatre.launcher_of(play, 1).ranks[0].hung = True
        theatre.until(lambda: play.record.attempt == 2 and play.record.start is not None)
        assert play.levels == ["Start", "R0"]
        (event,) = [event.note for event in play.events if event.reason == "StepTimeout"]
        assert event.endswith("; to see where its ranks stood: kubectl muster report default/job --incident 1")
        theatre.until(lambda: play.step >= 6)
        theatre.launcher_of(play, 1).ranks[0].hung = True
        theatre.until(lambda: play.record.attempt == 3)
        assert play.levels == ["Start", "R0", "R0b"]
        succeeded(theatre, play)
        stood = [[group.ranks for group in incident.stacks] for incident in incidents(play)]
        assert stood == [["0-2"], ["0-2"]], "the ranks of the pod that was replaced have printed theirs, too"

    def test_the_operator_away_is_none(self) -> None:
        theatre = Theatre()
        play = theatre.submit(a_job(progress={"stepTimeoutSeconds": 20}), total_steps=150)
        theatre.until(lambda: play.step >= 7)
        theatre.kill_operator(down_seconds=60)
        succeeded(theatre, play)
        assert play.levels == ["Start"]


class TestReclaim:
    def test_ranks_that_cannot_be_killed_cost_the_pod(self) -> None:
        theatre, play = training()
        theatre.launcher_of(play, 1).stubborn = True
        theatre.end_rank(play, 0, code=1, tail="ValueError")
        succeeded(theatre, play)
        assert play.levels == ["Start", "R0", "R0b"]

    def test_a_pod_that_does_not_terminate_costs_the_node(self) -> None:
        theatre, play = training()
        theatre.pod_of(play, 1).stuck = True
        theatre.delete_pod(play, 1)
        succeeded(theatre, play)
        assert play.levels == ["Start", "R0b", "R2"]
        assert play.record.members[1].node == "n3"


class TestLeave:
    def test_a_cordon_waits_for_a_new_checkpoint(self) -> None:
        theatre, play = training()
        theatre.machines["n1"].cordoned = True
        theatre.until(lambda: len(play.history) == 2)
        assert play.history[1].checkpoint is None or play.history[1].checkpoint.step >= 5
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]
        (incident,) = incidents(play)
        assert (incident.fault_class, incident.resumed_step) == (FaultClass.PLANNED, 10)
        assert paid(play) == (0, 0)

    def test_or_for_the_deadline(self) -> None:
        theatre = Theatre()
        job = a_job(checkpoint={"directory": "/checkpoints", "saveTimeoutSeconds": 10})
        play = theatre.submit(job, checkpoint_every=100, total_steps=60)
        theatre.until(lambda: play.step >= 7)
        theatre.machines["n1"].cordoned = True
        began = theatre.now
        theatre.until(lambda: len(play.history) == 2)
        assert 10 <= theatre.now - began <= 12
        succeeded(theatre, play)

    def test_without_a_replacement_training_goes_on(self) -> None:
        theatre, play = training(nodes=3)
        theatre.machines["n1"].cordoned = True
        succeeded(theatre, play)
        assert play.levels == ["Start"]

    def test_an_uncordon_calls_it_off(self) -> None:
        theatre, play = training(until_step=6)
        theatre.machines["n1"].cordoned = True
        theatre.play_on(1)
        assert play.record.evacuation is not None
        theatre.machines["n1"].cordoned = False
        succeeded(theatre, play)
        assert play.levels == ["Start"]
        assert play.record.evacuation is None

    def test_a_new_leader_does_not_take_an_old_checkpoint_for_a_new_one(self) -> None:
        theatre, play = training()
        theatre.kill_operator(1)
        theatre.machines["n1"].cordoned = True
        succeeded(theatre, play)
        assert incidents(play)[0].resumed_step == 10

    def test_a_window_sends_its_workers_elsewhere_after_a_checkpoint(self) -> None:
        theatre, play = training()
        theatre.excluded["n1"] = window(theatre, 1800)
        theatre.until(lambda: len(play.history) == 2)
        assert theatre.now < 60
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]
        assert "n1" not in [member.node for member in play.record.members]
        (incident,) = incidents(play)
        assert (incident.reason, incident.fault_class) == ("NodeMaintenance", FaultClass.PLANNED)
        assert (incident.resumed_step, paid(play)) == (10, (0, 0))

    def test_without_another_node_the_job_stops_in_time_saved_and_waits(self) -> None:
        stops_in_time_saved_and_waits(notice=140, away=30)

    def test_a_node_that_is_free_in_the_last_moment_is_taken_instead(self) -> None:
        theatre = Theatre(nodes=4)
        job = a_job(checkpoint={"directory": "/checkpoints", "saveTimeoutSeconds": 60})
        play = theatre.submit(job, checkpoint_every=30, total_steps=900)
        theatre.until(lambda: play.step >= 7)
        theatre.machines["n3"].cordoned = True
        theatre.excluded["n1"] = window(theatre, 130)
        theatre.until(lambda: play.record.evacuation is not None)
        assert play.record.evacuation is not None
        assert play.record.evacuation.reason == "MaintenanceStarts"
        theatre.machines["n3"].cordoned = False
        theatre.until(lambda: len(play.history) == 2)
        assert play.levels == ["Start", "R2"]
        assert incidents(play)[0].reason == "MaintenanceStarts"

    def test_a_window_that_is_put_off_lets_training_go_on(self) -> None:
        theatre = Theatre(nodes=3)
        job = a_job(checkpoint={"directory": "/checkpoints", "saveTimeoutSeconds": 60})
        play = theatre.submit(job, checkpoint_every=50, total_steps=90)
        theatre.until(lambda: play.step >= 7)
        theatre.excluded["n1"] = window(theatre, 100)
        theatre.until(lambda: play.record.evacuation is not None)
        theatre.excluded["n1"] = window(theatre, 9000)
        theatre.until(lambda: play.record.evacuation is None)
        succeeded(theatre, play)
        assert play.levels == ["Start"]

    def test_a_node_that_is_taken_away_is_left_after_a_checkpoint(self) -> None:
        theatre, play = training()
        theatre.excluded["n1"], began = taken(theatre, 120), theatre.now
        theatre.until(lambda: len(play.history) == 2)
        assert theatre.now - began < 15
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]
        assert "n1" not in [member.node for member in play.record.members]
        (incident,) = incidents(play)
        assert (incident.reason, incident.fault_class) == ("NodeRemoval", FaultClass.PLANNED)
        assert (incident.resumed_step, paid(play)) == (10, (0, 0))

    @pytest.mark.parametrize(("notice", "waits"), [(30, 15), (15, 0), (-10, 0)])
    def test_a_save_is_waited_for_until_15_seconds_before_the_machine_goes(self, notice: float, waits: float) -> None:
        assert waits <= seconds_until_it_leaves(lambda theatre: taken(theatre, notice)) <= waits + 3

    def test_a_drain_that_nobody_takes_back_is_let_go_after_the_save(self) -> None:
        lets_a_drain_go_after_the_save(notice=None, away=30)

    def test_with_time_enough_training_goes_on_where_no_other_node_is_free(self) -> None:
        trains_until_shortly_before_the_machine_goes(notice=100)

    def test_a_drain_that_may_give_up_is_answered_as_a_cordon_is(self) -> None:
        theatre = Theatre(nodes=3)
        play = theatre.submit(a_job())
        theatre.until(lambda: play.step >= 7)
        theatre.excluded["n1"] = taken(theatre, final=False)
        succeeded(theatre, play)
        assert play.levels == ["Start"]

    def test_no_gang_starts_on_a_node_that_nobody_gives_back(self) -> None:
        theatre = Theatre()
        play = theatre.submit(a_job())
        theatre.until(lambda: "n1" in {pod.view.node for pod in theatre.pods.values()})
        assert play.record.start is None
        theatre.excluded["n1"] = taken(theatre)
        theatre.until(lambda: play.record.start is not None)
        assert "n1" not in [member.node for member in play.record.members]
        assert "n1" not in {pod.view.node for pod in theatre.pods.values()}
        succeeded(theatre, play)
        assert (incidents(play), paid(play)) == ([], (0, 0))

    def test_a_job_that_fails_again_and_again_lets_a_drain_go_before_its_next_start(self) -> None:
        theatre = Theatre(nodes=3)
        play = theatre.submit(a_job(), fails=lambda attempt, step: (1, 1, "ValueError") if step >= 2 else None)
        theatre.until(lambda: len(play.history) >= 2)
        theatre.excluded["n1"] = taken(theatre)
        theatre.until(lambda: "n1" not in {pod.view.node for pod in theatre.pods.values()}, 30)
        assert [member.node for member in play.record.members] == ["n0", "", "n2"]
        del theatre.excluded["n1"]
        theatre.until(lambda: play.record.start is not None)

    def test_only_the_node_that_is_taken_away_is_left_where_one_other_is_free(self) -> None:
        theatre, play = training(nodes=4)
        theatre.machines["n0"].cordoned = True
        theatre.until(lambda: play.record.evacuation is not None)
        theatre.excluded["n1"] = taken(theatre)
        theatre.until(lambda: len(play.history) == 2)
        succeeded(theatre, play)
        assert play.levels == ["Start", "R2"]
        assert [member.node for member in play.record.members] == ["n0", "n3", "n2"]
        assert incidents(play)[0].reason == "NodeRemoval"

    def test_a_drain_of_two_nodes_goes_on_one_after_the_other_where_one_is_free(self) -> None:
        theatre = Theatre(nodes=4)
        play = theatre.submit(a_job(), total_steps=60)
        theatre.until(lambda: play.step >= 7)
        theatre.machines["n1"].cordoned = theatre.machines["n2"].cordoned = True
        theatre.until(lambda: play.job.status.reason == "NoNodeToMoveTo")
        assert [member.node for member in play.record.members] == ["n0", "n3", "n2"]
        theatre.machines["n1"].cordoned = False
        theatre.until(lambda: len(play.history) == 3)
        assert [member.node for member in play.record.members] == ["n0", "n3", "n1"]
        succeeded(theatre, play)
        assert (play.levels, paid(play)) == (["Start", "R2", "R2"], (0, 0))

    def test_suspend_and_resume(self) -> None:
        theatre, play = training()
        theatre.set_spec(play, suspend=True)
        theatre.until(lambda: play.job.status.state == "Suspended" and not theatre.pods)
        assert play.step == 0
        assert max(play.checkpoints) == 10
        theatre.play_on(60)
        theatre.set_spec(play, suspend=False)
        theatre.until(lambda: play.step >= 11)
        assert play.record.start is not None
        assert play.record.start.resume is not None
        assert play.record.start.resume.step == 10
        succeeded(theatre, play)

    def test_suspend_during_recovery_releases_at_once(self) -> None:
        theatre, play = training(nodes=3)
        theatre.power_cut("n1")
        theatre.until(lambda: play.record.attempt == 2)
        theatre.set_spec(play, suspend=True)
        theatre.until(lambda: play.job.status.state == "Suspended", 5)
        assert play.record.members == []
        theatre.set_spec(play, suspend=False)
        theatre.power_on("n1")
        succeeded(theatre, play)


class TestPlain:
    def test_it_runs_through(self) -> None:
        theatre = Theatre()
        play = theatre.submit(a_plain_job())
        succeeded(theatre, play)
        assert play.levels == ["Start"]

    def test_any_failure_rebuilds_the_gang(self) -> None:
        theatre = Theatre()
        play = theatre.submit(a_plain_job())
        theatre.until(lambda: play.step >= 7)
        theatre.delete_pod(play, 1)
        succeeded(theatre, play)
        assert play.levels == ["Start", "R4"]
        assert {member.incarnation for member in play.record.members} == {2}

    def test_a_lost_node(self) -> None:
        plain_job_waits_for_a_lost_node(away=320)

    def test_a_lost_node_is_given_up_after_the_time_that_the_job_allows(self) -> None:
        job = a_job(launch={"mode": "Plain"}, checkpoint={}, recovery={"unfencedTimeoutSeconds": 120})
        theatre = Theatre()
        play = theatre.submit(job)
        theatre.until(lambda: play.step >= 7)
        theatre.power_cut("n1")
        succeeded(theatre, play)
        assert "n1" not in {member.node for member in play.record.members}

    def test_a_pod_that_is_force_deleted_on_a_node_that_is_cut_off_is_outwaited(self) -> None:
        plain_job_outwaits_a_pod_that_is_force_deleted_behind_a_cut(away=320)

    def test_it_gives_up_after_three_restarts(self) -> None:
        theatre = Theatre()
        play = theatre.submit(a_plain_job(), fails=lambda _attempt, step: (1, 3, ("no")) if step == 3 else None)
        end = theatre.finish(play)
        assert (end.result, end.reason) == (CompletionResult.FAILED, "ApplicationRestartsExhausted")
        assert len(incidents(play)) == 4
        assert "ended with code" in end.message


class TestEnd:
    def test_a_finished_job_is_deleted_after_its_time(self) -> None:
        theatre, play = training(completion={"ttlSecondsAfterFinished": 60})
        succeeded(theatre, play)
        theatre.until(lambda: play.deleted, 70)

    def test_also_when_a_pod_of_it_is_stuck_on_a_lost_node(self) -> None:
        theatre, play = training(completion={"ttlSecondsAfterFinished": 60})
        theatre.power_cut("n1")
        succeeded(theatre, play)
        theatre.until(lambda: play.deleted, 70)

    def test_a_record_that_somebody_deletes_does_not_make_two_gangs(self) -> None:
        theatre, play = training()
        play.gang = None
        play.history.clear()
        theatre.until(lambda: play.gang is not None)
        succeeded(theatre, play)
        assert play.history[0].attempt > 1

    def test_deadlines_are_kept_in_the_record(self) -> None:
        theatre, play = training()
        assert play.record.time >= at(0)
        assert play.record.time <= at(theatre.now)


@pytest.mark.parametrize("writes", CHIEF_WRITES)
def test_the_operator_may_die_after_any_write(writes: int) -> None:
    operator_dies_after(writes)


@pytest.mark.parametrize(("fault", "writes"), CHIEF_DEATHS)
def test_nothing_is_moved_aside_under_ranks_whenever_the_operator_dies(fault: str, writes: int | None) -> None:
    nothing_is_moved_aside_under_ranks(fault, writes)

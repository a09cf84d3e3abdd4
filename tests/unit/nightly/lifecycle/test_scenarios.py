"""The lives that the gate has in short, in full, and those in which the operator dies after any other write."""

from collections.abc import Callable

import pytest
from tests.unit.lifecycle.lives import (
    ALL_DEATHS,
    ALL_WRITES,
    CHIEF_DEATHS,
    CHIEF_WRITES,
    lets_a_drain_go_after_the_save,
    nothing_is_moved_aside_under_ranks,
    operator_dies_after,
    plain_job_outwaits_a_pod_that_is_force_deleted_behind_a_cut,
    plain_job_waits_for_a_lost_node,
    seconds_until_it_leaves,
    stops_in_time_saved_and_waits,
    trains_until_shortly_before_the_machine_goes,
    what_is_saved_behind_a_cut_counts,
)
from tests.unit.lifecycle.testbed import OneJob

Jobs = Callable[..., OneJob]


@pytest.mark.parametrize("writes", sorted(set(ALL_WRITES) - set(CHIEF_WRITES)))
def test_the_operator_may_die_after_any_write(training: Jobs, writes: int) -> None:
    operator_dies_after(training, writes)


@pytest.mark.parametrize(("fault", "writes"), [death for death in ALL_DEATHS if death not in CHIEF_DEATHS])
def test_nothing_is_moved_aside_under_ranks_whenever_the_operator_dies(
    training: Jobs, fault: str, writes: int | None
) -> None:
    nothing_is_moved_aside_under_ranks(training, fault, writes)


@pytest.mark.parametrize("writes", [1, 3, 4, 5])
def test_what_a_rank_of_before_saves_until_the_network_comes_back_counts(training: Jobs, writes: int) -> None:
    what_is_saved_behind_a_cut_counts(training, writes)


class TestLeave:
    def test_no_window_is_waited_into_for_a_checkpoint(self, training: Jobs) -> None:
        # A minute is left for ranks to stop.
        assert 338 <= seconds_until_it_leaves(training, lambda job: job.plan_window("n1", 400)) <= 345

    def test_who_is_told_late_gets_a_while_to_save(self, training: Jobs) -> None:
        assert 300 <= seconds_until_it_leaves(training, lambda job: job.plan_window("n1", -10)) <= 305

    @pytest.mark.parametrize(("notice", "waits"), [(120, 105), (15, 0)])
    def test_a_save_is_waited_for_until_15_seconds_before_the_machine_goes(
        self, training: Jobs, notice: float, waits: float
    ) -> None:
        assert waits <= seconds_until_it_leaves(training, lambda job: job.take("n1", notice)) <= waits + 5

    def test_without_another_node_the_job_stops_in_time_saved_and_waits(self, training: Jobs) -> None:
        stops_in_time_saved_and_waits(training, notice=200, away=300)

    @pytest.mark.parametrize("notice", [None, 120.0])
    def test_a_drain_that_nobody_takes_back_is_let_go_after_the_save(
        self, training: Jobs, notice: float | None
    ) -> None:
        lets_a_drain_go_after_the_save(training, notice, away=300)

    def test_with_time_enough_training_goes_on_where_no_other_node_is_free(self, training: Jobs) -> None:
        trains_until_shortly_before_the_machine_goes(training, notice=600)


class TestHang:
    def test_it_is_seen_though_one_launcher_is_mute(self, training: Jobs) -> None:
        job = training(progress={"stepTimeoutSeconds": 20})
        job.mute(1)
        job.rank(1).hung = True
        job.succeeds()
        assert job.levels == ["Start", "R0", "R0b"]


class TestPlain:
    def test_a_lost_node(self, training: Jobs) -> None:
        plain_job_waits_for_a_lost_node(training, away=600)

    def test_a_pod_that_is_force_deleted_on_a_node_that_is_cut_off_is_outwaited(self, training: Jobs) -> None:
        plain_job_outwaits_a_pod_that_is_force_deleted_behind_a_cut(training, away=600)

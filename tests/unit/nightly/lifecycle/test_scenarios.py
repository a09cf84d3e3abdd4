"""The lives that the gate has in short, in full, and those in which the operator dies after any other write."""

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
    succeeded,
    taken,
    training,
    trains_until_shortly_before_the_machine_goes,
    window,
)


@pytest.mark.parametrize("writes", sorted(set(ALL_WRITES) - set(CHIEF_WRITES)))
def test_the_operator_may_die_after_any_write(writes: int) -> None:
    operator_dies_after(writes)


@pytest.mark.parametrize(("fault", "writes"), [death for death in ALL_DEATHS if death not in CHIEF_DEATHS])
def test_nothing_is_moved_aside_under_ranks_whenever_the_operator_dies(fault: str, writes: int | None) -> None:
    nothing_is_moved_aside_under_ranks(fault, writes)


class TestLeave:
    def test_no_window_is_waited_into_for_a_checkpoint(self) -> None:
        # A minute is left for ranks to stop.
        assert 338 <= seconds_until_it_leaves(lambda theatre: window(theatre, 400)) <= 343

    def test_who_is_told_late_gets_a_while_to_save(self) -> None:
        assert 300 <= seconds_until_it_leaves(lambda theatre: window(theatre, -10)) <= 303

    def test_a_save_is_waited_for_until_15_seconds_before_the_machine_goes(self) -> None:
        assert 105 <= seconds_until_it_leaves(lambda theatre: taken(theatre, 120)) <= 108

    def test_without_another_node_the_job_stops_in_time_saved_and_waits(self) -> None:
        stops_in_time_saved_and_waits(notice=200, away=300)

    @pytest.mark.parametrize("notice", [None, 120.0])
    def test_a_drain_that_nobody_takes_back_is_let_go_after_the_save(self, notice: float | None) -> None:
        lets_a_drain_go_after_the_save(notice, away=300)

    def test_with_time_enough_training_goes_on_where_no_other_node_is_free(self) -> None:
        trains_until_shortly_before_the_machine_goes(notice=600)


class TestHang:
    def test_it_is_seen_though_one_launcher_is_mute(self) -> None:
        theatre, play = training(progress={"stepTimeoutSeconds": 20})
        theatre.launcher_of(play, 1).mute = True
        theatre.launcher_of(play, 1).ranks[0].hung = True
        succeeded(theatre, play)
        assert play.levels == ["Start", "R0", "R0b"]


class TestPlain:
    def test_a_lost_node(self) -> None:
        plain_job_waits_for_a_lost_node(away=600)

    def test_a_pod_that_is_force_deleted_on_a_node_that_is_cut_off_is_outwaited(self) -> None:
        plain_job_outwaits_a_pod_that_is_force_deleted_behind_a_cut(away=600)

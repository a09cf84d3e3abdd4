"""Ranks come up beside the supervisor's loop: a program on stalled storage holds up nothing else."""

from __future__ import annotations

import dataclasses
import threading
import time

from tests.unit.launcher.gang import World
from tests.unit.launcher.real_launchers import (
    GOES_ON,
    a_progress_bars_first_number_is_no_finished_step,
    the_first_step_of_an_attempt_is_told,
)

from localcluster.patience import PATIENCE_SECONDS
from muster.node.launcher.progress import ProgressFile
from muster.node.launcher.ranks import Starting
from muster.node.launcher.snapshot import Snapshot
from muster.protocol.messages import EXITED, IDLE, RECLAIMING, RUNNING


def a_stalled_gang() -> World:
    world = World(1)
    world.programs_stall = True
    world.run(5)
    return world


def test_while_a_program_stalls_the_supervisor_turns_and_tells_that_no_rank_is_up():
    world = a_stalled_gang()
    told = world.workers[0].snapshot
    assert (told.state, told.attempt, told.ranks) == (RUNNING, 1, ())
    assert world.agenda.now - told.turned_at <= 1.0


def test_a_worker_is_not_idle_before_what_was_started_has_come_up_and_was_ended():
    world = a_stalled_gang()
    worker = world.workers[0]
    world.runs, world.attempt = False, 2
    world.run(5)
    assert worker.snapshot.state == RECLAIMING
    world.programs_stall = False
    world.run(5)
    assert not worker.is_training
    assert (worker.snapshot.state, worker.snapshot.attempt) == (IDLE, 2)


def test_a_worker_that_is_cut_off_is_not_fenced_before_what_was_started_was_ended():
    world = World(2)
    world.programs_stall = True
    world.run(5)
    world.cut([0])
    world.run(30)
    cut_off = world.workers[0]
    assert cut_off.snapshot.state == RECLAIMING
    world.programs_stall = False
    world.run(1)
    assert not cut_off.is_training
    assert (cut_off.snapshot.state, cut_off.snapshot.fenced) == (EXITED, True)


def test_ranks_are_started_beside_and_no_more_after_a_stop(until):
    goes_on, asked = threading.Event(), threading.Event()

    def start(rank):
        def begin():
            asked.set()
            assert goes_on.wait(PATIENCE_SECONDS)
            return rank

        return begin

    starting = Starting([start("first"), start("second")], lambda: None)
    assert asked.wait(PATIENCE_SECONDS)
    assert (starting.ranks, starting.is_over) == ((), False)
    starting.stop()
    goes_on.set()
    until(lambda: starting.is_over, "the end of the start")
    assert starting.ranks == ("first",)


def test_a_start_that_broke_is_no_end():
    """Else a gang whose launchers all have too few threads, say, would count as finished."""
    world = a_stalled_gang()
    worker = world.workers[0]
    worker.supervisor._gang.starting.is_over = True
    world.run(2)
    assert worker.snapshot.state == RUNNING


def test_the_age_of_the_loop_grows_while_it_is_stuck():
    told = Snapshot(turned_at=100.0)
    assert told.report(now=130.0, sequence=1).loop_age_seconds == 30.0
    assert not dataclasses.replace(told, turned_at=101.0).is_news(told)


def test_the_first_step_of_an_attempt_is_told(coordinator, run_python):
    the_first_step_of_an_attempt_is_told(coordinator, run_python, print_steps=False)


def test_a_progress_bars_first_number_is_no_finished_step(coordinator, run_python):
    a_progress_bars_first_number_is_no_finished_step(coordinator, run_python, GOES_ON, 301, 303)


def test_a_progress_file_may_begin_with_0_too(tmp_path):
    path = tmp_path / "progress"
    path.write_text('{"step": 0}\n')
    file = ProgressFile(str(path))
    assert (file.read(), file.tells_steps) == ([0], False)
    path.write_text('{"step": 0}\n{"step": 301}\n')
    assert (file.read(), file.tells_steps) == ([301], True)


def test_the_age_of_a_listing_counts_from_the_first_for_the_attempt(coordinator, run_python, tmp_path):
    begun = time.monotonic()
    run_python("", MUSTER_CHECKPOINT_DIRECTORY=str(tmp_path), MUSTER_SCAN_SECONDS="0.1")
    for attempt in (1, 2):
        coordinator.wait_to_run(attempt, hold_seconds=0.2)
        report = coordinator.wait_for(lambda r, n=attempt: r.checkpoints_scanned_for_attempt == n)
        assert report.scanned_age_seconds <= time.monotonic() - begun, "it is not older than what asked for it"
        coordinator.wait_for(lambda r: r.scanned_age_seconds > 1)
        begun = time.monotonic()

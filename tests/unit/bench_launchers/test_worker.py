"""A simulated launcher converges to its directives and reports what the real one would."""

from dataclasses import replace

import pytest
from bench.launchers.training import ENDED, STARTED, Pace, Training
from bench.launchers.worker import Identity, Worker

from muster.protocol.messages import (
    EXIT,
    EXITED,
    IDLE,
    RECLAIMING,
    RUN,
    RUNNING,
    TERMINATING,
    WAIT,
    CheckpointReport,
    Directive,
    Peer,
    RankReport,
)

PACE = Pace(step_seconds=1.0, checkpoint_steps=10, scan_seconds=0.5, reclaim_seconds=0.25)
RUN_1 = Directive(RUN, attempt=1, node_rank=0, node_count=2)


class Gang:
    """Two workers of one job, and what was told of their attempts."""

    def __init__(self, directory: str = "") -> None:
        self.told: list[tuple[str, int, int]] = []
        self.silent: dict[int, float] = {}
        self.training = Training(PACE, directory, lambda *event: self.told.append(event))
        self.workers = [
            Worker(Identity(f"uid-{n}", f"10.0.0.{n}", 5000 + n), self.training, PACE, self._silent_since)
            for n in range(2)
        ]

    def _silent_since(self, peer: Peer) -> float | None:
        return self.silent.get(peer.port)

    def obey(self, directive: Directive, now: float) -> None:
        for rank, worker in enumerate(self.workers):
            worker.obey(replace(directive, node_rank=rank))
            worker.turn(now)


def test_idle_workers_list_checkpoints_before_they_are_ready() -> None:
    gang = Gang("/checkpoints")
    worker = gang.workers[0]
    worker.obey(Directive(WAIT, attempt=1))
    worker.turn(10.0)
    report = worker.report(10.0, "", 0.0)
    assert (report.state, report.attempt, report.checkpoints_scanned_for_attempt) == (IDLE, 1, 0)
    assert worker.next_at() == 10.5
    worker.changed = False
    worker.turn(10.5)
    assert worker.changed
    assert worker.report(10.5, "", 0.0).checkpoints_scanned_for_attempt == 1


def test_without_a_checkpoint_directory_they_are_ready_at_once() -> None:
    gang = Gang()
    gang.obey(Directive(WAIT, attempt=1), 10.0)
    assert gang.workers[0].report(10.0, "", 0.0).checkpoints_scanned_for_attempt == 1


def test_the_last_start_of_an_attempt_is_told_once() -> None:
    gang = Gang()
    gang.workers[0].obey(RUN_1)
    gang.workers[0].turn(10.0)
    assert gang.told == []
    gang.obey(RUN_1, 11.0)
    gang.obey(RUN_1, 12.0)
    assert gang.told == [(STARTED, 1, 2)]


def test_steps_are_made_only_while_every_worker_is_there() -> None:
    gang = Gang()
    gang.workers[0].obey(RUN_1)
    gang.workers[0].turn(10.0)
    assert gang.workers[0].report(15.0, "", 0.0).step is None
    gang.obey(RUN_1, 20.0)
    report = gang.workers[0].report(23.5, "", 0.0)
    assert (report.step, report.step_age_seconds, report.started_age_seconds) == (3, 0.5, 13.5)
    gang.workers[1].kill(24.2)
    report = gang.workers[0].report(30.0, "", 0.0)
    assert (report.step, report.step_age_seconds) == (4, 6.0)


def test_a_resumed_attempt_goes_on_from_its_checkpoint_and_keeps_the_older_ones() -> None:
    gang = Gang("/c")
    gang.obey(Directive(WAIT, attempt=1), 0.0)
    gang.obey(Directive(WAIT, attempt=1), 0.5)
    gang.obey(RUN_1, 1.0)
    assert gang.workers[0].report(26.5, "", 0.0).checkpoints == (
        CheckpointReport(20, "/c/step-20"),
        CheckpointReport(10, "/c/step-10"),
    )
    gang.obey(Directive(WAIT, attempt=2), 27.0)
    gang.obey(Directive(WAIT, attempt=2), 27.5)
    gang.obey(Directive(RUN, attempt=2, node_count=2, resume_step=20), 40.0)
    report = gang.workers[0].report(42.0, "", 0.0)
    assert (report.step, report.checkpoints[0].step) == (22, 20)


@pytest.mark.parametrize(
    ("exit_code", "state", "alive"), [(3, RUNNING, [False, True]), (0, EXITED, [False, False])], ids=["fails", "ends"]
)
def test_ranks_that_end_by_themselves(exit_code: int, state: str, alive: list[bool]) -> None:
    gang = Gang()
    gang.obey(replace(RUN_1, processes_per_node=2), 10.0)
    worker = gang.workers[1]
    worker.changed = False
    assert worker.fail(exit_code, 12.0)
    assert worker.changed
    report = worker.report(13.0, "", 0.0)
    assert report.state == state
    assert [rank.alive for rank in report.ranks] == alive
    assert (report.ranks[0].rank, report.ranks[0].exit_code, report.ranks[0].exited_age_seconds) == (2, exit_code, 1.0)


def test_the_next_attempt_waits_until_the_ranks_are_dead_and_tells_how_they_ended() -> None:
    gang = Gang()
    gang.obey(RUN_1, 10.0)
    gang.workers[1].fail(7, 11.0)
    gang.obey(Directive(WAIT, attempt=2), 12.0)
    assert [worker.report(12.1, "", 0.0).state for worker in gang.workers] == [RECLAIMING, RECLAIMING]
    gang.obey(Directive(WAIT, attempt=2), 12.25)
    reports = [worker.report(13.25, "", 0.0) for worker in gang.workers]
    assert [(r.state, r.attempt, r.ranks, r.previous_attempt) for r in reports] == [(IDLE, 2, (), 1)] * 2
    assert reports[0].previous_ranks == (
        RankReport(0, 0, alive=False, signal=9, ended_by_launcher=True, exited_age_seconds=1.0),
    )
    assert (reports[1].previous_ranks[0].exit_code, reports[1].previous_ranks[0].exited_age_seconds) == (7, 2.25)
    assert gang.told == [(STARTED, 1, 2), (ENDED, 1, 2)]


def test_an_older_directive_changes_nothing() -> None:
    gang = Gang()
    gang.obey(Directive(RUN, attempt=2, node_count=2), 10.0)
    gang.obey(Directive(WAIT, attempt=1), 11.0)
    assert [worker.report(12.0, "", 0.0).attempt for worker in gang.workers] == [2, 2]


def test_exit_waits_for_the_end_of_the_ranks() -> None:
    gang = Gang()
    gang.obey(RUN_1, 10.0)
    gang.obey(Directive(EXIT, attempt=1), 11.0)
    assert not gang.workers[0].must_exit
    gang.obey(Directive(EXIT, attempt=1), 11.25)
    assert gang.workers[0].must_exit


def test_last_words_say_that_no_rank_is_alive() -> None:
    gang = Gang()
    gang.obey(RUN_1, 10.0)
    gang.workers[0].kill(12.0)
    report = gang.workers[0].report(12.0, "", 0.0)
    assert report.state == TERMINATING
    assert report.ranks == (RankReport(0, 0, alive=False, signal=9, ended_by_launcher=True, exited_age_seconds=0.0),)


def test_neighbours_are_heard_until_they_fall_silent() -> None:
    gang = Gang()
    gang.obey(replace(RUN_1, peers=(Peer(1, "10.0.0.1", 5001),)), 10.0)
    assert gang.workers[0].report(20.25, "", 0.0).peers[0].silent_seconds == 0.25
    gang.silent[5001] = 20.0
    assert gang.workers[0].report(31.0, "", 0.0).peers[0].silent_seconds == 11.0
    gang.silent[5001] = 5.0  # gone before this attempt: no ping of it was ever answered
    assert gang.workers[0].report(31.0, "", 0.0).peers[0].silent_seconds == 21.0

"""The fence of real launchers in real time: what stays silent, and for how long, keeps it open or not.

The gate has the same in simulated time (tests/unit/launcher/test_cut_off.py).
"""

from __future__ import annotations

import time

from tests.unit.launcher.real_launchers import HANG, STEPS

from muster.protocol.messages import RUNNING


def test_a_silent_neighbour_alone_fences_nobody(coordinator, run_python, silent_peer):
    run_python(HANG, MUSTER_FENCE_SECONDS="5")
    coordinator.run(1, peers=(silent_peer,))
    report = coordinator.wait_for(lambda r: any(p.silent_seconds > 12 for p in r.peers))
    assert report.state == RUNNING


def test_while_the_coordinator_answers_its_word_counts(coordinator, run_python, peer_of_the_next_attempt):
    run_python(HANG)
    coordinator.run(1, peers=(peer_of_the_next_attempt,))
    report = coordinator.wait_for(lambda r: any(p.silent_seconds < 2 for p in r.peers) and r.state == RUNNING)
    sequence = report.sequence
    report = coordinator.wait_for(lambda r: r.sequence > sequence + 4)
    assert (report.state, report.fenced) == (RUNNING, False)


def test_without_the_coordinator_an_answering_neighbour_keeps_the_fence_open(
    coordinator, run_python, answering_peer, until
):
    launcher = run_python(HANG, MUSTER_FENCE_SECONDS="6")
    coordinator.run(1, peers=(answering_peer,))
    coordinator.wait_for(lambda r: r.state == RUNNING)
    coordinator.fail(503)
    until(lambda: "no answer from the coordinator" in launcher.error_text, "the trouble to be seen")
    time.sleep(10)
    coordinator.fail(200)
    sequence = coordinator.latest.sequence
    report = coordinator.wait_for(lambda r: r.sequence > sequence)
    assert (report.state, report.fenced) == (RUNNING, False)


def test_a_rank_that_makes_steps_is_not_fenced(coordinator, run_python, silent_peer, until):
    launcher = run_python(STEPS, MUSTER_FENCE_SECONDS="5")
    coordinator.run(1, peers=(silent_peer,))
    step = coordinator.wait_for(lambda r: r.step is not None).step
    coordinator.fail(503)
    until(lambda: "no answer from the coordinator" in launcher.error_text, "the trouble to be seen")
    time.sleep(8)
    coordinator.fail(200)
    report = coordinator.wait_for(lambda r: r.step > step + 10)
    assert (report.state, report.fenced) == (RUNNING, False)

"""Neighbours and the fence: a worker that is cut off ends its ranks, one that merely lost the coordinator does not."""

from __future__ import annotations

import signal
import socket
import threading
import time

import pytest

from muster.launcher.fence import fence_seconds, is_cut_off
from muster.protocol.messages import EXITED, IDLE, RUNNING, Peer

HANG = "import time; time.sleep(600)"
STEPS = """
import json, os, time
for step in range(1, 6001):
    with open(os.environ["MUSTER_PROGRESS"], "a") as file:
        file.write(json.dumps({"step": step}) + "\\n")
    time.sleep(0.05)
"""


@pytest.fixture
def silent_peer():
    """A neighbour whose host is there and never answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as quiet:
        quiet.bind(("127.0.0.1", 0))
        yield Peer(1, "127.0.0.1", quiet.getsockname()[1])


@pytest.fixture
def answering_peer(launch, coordinator):
    """A neighbour with a launcher."""
    coordinator.wait_to_run(1)
    coordinator.watched = "127.0.0.2"
    launch("true", MUSTER_POD_IP="127.0.0.2")
    report = coordinator.wait_for(lambda r: r.peer_port > 0)
    coordinator.watched = "127.0.0.1"
    return Peer(2, "127.0.0.1", report.peer_port)


def test_a_ping_is_answered_with_its_nonce_and_the_attempt(coordinator, launch):
    launch("true")
    coordinator.wait_to_run(1)
    port = coordinator.wait_for(lambda r: r.attempt == 1 and r.peer_port > 0).peer_port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(30)
        asking.sendto(b"nonsense", ("127.0.0.1", port))
        asking.sendto(b"muster-ping too short", ("127.0.0.1", port))
        asking.sendto(b"muster-ping 0123456789abcdef", ("127.0.0.1", port))
        assert asking.recv(100) == b"muster-pong 0123456789abcdef 1"


def test_silence_of_neighbours_is_reported(coordinator, run_python, answering_peer, silent_peer):
    run_python(HANG)
    coordinator.run(1, peers=(answering_peer, silent_peer))
    report = coordinator.wait_for(lambda r: any(p.index == 1 and p.silent_seconds > 5 for p in r.peers))
    silent = {peer.index: peer.silent_seconds for peer in report.peers}
    assert silent[2] < silent[1]


def test_cut_off_from_everybody_the_ranks_are_ended(coordinator, run_python, silent_peer, until):
    launcher = run_python(HANG, MUSTER_FENCE_SECONDS="1")
    coordinator.run(1, peers=(silent_peer,))
    report = coordinator.wait_for(lambda r: r.state == RUNNING)
    assert report.fence_seconds == 1
    coordinator.stall(stalled=True)
    until(lambda: "attempt 1: ending its processes: cut off" in launcher.error_text, "the fence")
    coordinator.stall(stalled=False)
    report = coordinator.wait_for(lambda r: r.fenced and r.state == EXITED)
    assert report.attempt == 1
    assert [(rank.alive, rank.signal, rank.ended_by_launcher) for rank in report.ranks] == [
        (False, signal.SIGKILL, True)
    ]
    coordinator.wait_to_run(2)
    report = coordinator.wait_for(lambda r: r.state == IDLE and r.attempt == 2)
    assert not report.fenced


def test_a_silent_neighbour_alone_fences_nobody(coordinator, run_python, silent_peer):
    run_python(HANG, MUSTER_FENCE_SECONDS="2")
    coordinator.run(1, peers=(silent_peer,))
    report = coordinator.wait_for(lambda r: any(p.silent_seconds > 5 for p in r.peers))
    assert report.state == RUNNING


@pytest.fixture
def peer_of_the_next_attempt():
    """A neighbour that answers and has gone on to attempt 2."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
        there.bind(("127.0.0.1", 0))

        def answer():
            while True:
                try:
                    data, sender = there.recvfrom(256)
                except OSError:
                    return
                there.sendto(b"muster-pong " + data[12:28] + b" 2", sender)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield Peer(1, "127.0.0.1", there.getsockname()[1])


def test_a_neighbour_in_a_later_attempt_ends_the_ranks_of_a_worker_that_lost_the_coordinator(
    coordinator, run_python, peer_of_the_next_attempt
):
    run_python(STEPS)
    coordinator.run(1, peers=(peer_of_the_next_attempt,))
    coordinator.wait_for(lambda r: r.state == RUNNING and r.step is not None)
    coordinator.stall(stalled=True)
    time.sleep(4)
    coordinator.stall(stalled=False)
    report = coordinator.wait_for(lambda r: r.fenced and r.state == EXITED)
    assert report.attempt == 1


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
    launcher = run_python(HANG, MUSTER_FENCE_SECONDS="2.5")
    coordinator.run(1, peers=(answering_peer,))
    coordinator.wait_for(lambda r: r.state == RUNNING)
    coordinator.fail(503)
    until(lambda: "no answer from the coordinator" in launcher.error_text, "the trouble to be seen")
    time.sleep(4)
    coordinator.fail(200)
    sequence = coordinator.latest.sequence
    report = coordinator.wait_for(lambda r: r.sequence > sequence)
    assert (report.state, report.fenced) == (RUNNING, False)


def test_a_rank_that_makes_steps_is_not_fenced(coordinator, run_python, silent_peer, until):
    launcher = run_python(STEPS, MUSTER_FENCE_SECONDS="1")
    coordinator.run(1, peers=(silent_peer,))
    step = coordinator.wait_for(lambda r: r.step is not None).step
    coordinator.fail(503)
    until(lambda: "no answer from the coordinator" in launcher.error_text, "the trouble to be seen")
    time.sleep(3)
    coordinator.fail(200)
    report = coordinator.wait_for(lambda r: r.step > step + 10)
    assert (report.state, report.fenced) == (RUNNING, False)


CASES = {
    "everything is silent": (15, 15, [15, 20], 15, True),
    "one neighbour of two is silent": (15, 16, [0.5, 16], 16, True),
    "the coordinator answers": (15, 14.9, [99], 99, False),
    "all neighbours answer": (15, 99, [1, 14.9], 99, False),
    "steps are made": (15, 99, [99], 14.9, False),
    "there are no neighbours": (15, 99, [], 99, False),
}


@pytest.mark.parametrize(("limit", "coordinator_age", "peers", "step", "expected"), CASES.values(), ids=CASES.keys())
def test_when_a_worker_is_cut_off(limit, coordinator_age, peers, step, expected):
    assert is_cut_off(limit, coordinator_age, peers, step) is expected


HEARSAY = {
    "somebody misses a member": (2, 16, True),
    "somebody missed one before the last step": (17, 16, False),
    "nobody has said so for long": (601, 2000, False),
    "the last step is fresh": (2, 14, False),
}


@pytest.mark.parametrize(("broken", "step", "expected"), HEARSAY.values(), ids=HEARSAY.keys())
def test_what_neighbours_tell_counts_as_ones_own_eyes(broken, step, expected):
    assert is_cut_off(15, 99, [1, 2], step, broken) is expected


def test_the_fence_is_three_steps_when_these_take_longer():
    assert fence_seconds(15, None) == 15
    assert fence_seconds(15, 4) == 15
    assert fence_seconds(15, 6) == 18
    assert fence_seconds(15, 1e6) == 86400  # what a report can tell


def test_within_an_attempt_no_neighbour_is_forgotten(coordinator, run_python, silent_peer):
    """A coordinator that is new has heard few launchers yet, and names few."""
    run_python(HANG)
    coordinator.run(1, peers=(silent_peer,))
    coordinator.wait_for(lambda r: any(p.index == 1 for p in r.peers))
    coordinator.run(1, peers=())
    report = coordinator.wait_for(lambda r: any(p.index == 1 and p.silent_seconds > 5 for p in r.peers))
    assert report.state == RUNNING

"""Neighbours and the fence: a worker that is cut off ends its ranks, one that merely lost the coordinator does not."""

from __future__ import annotations

import signal
import socket
import threading

import pytest
from tests.unit.launcher.real_launchers import HANG, STEPS

from localcluster.patience import PATIENCE_SECONDS
from muster.protocol.fence import fence_seconds, is_cut_off
from muster.protocol.messages import EXITED, IDLE, RUNNING, Peer, digest


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
        asking.settimeout(PATIENCE_SECONDS)
        asking.sendto(b"nonsense", ("127.0.0.1", port))
        asking.sendto(b"muster-ping too short", ("127.0.0.1", port))
        asking.sendto(b"muster-ping 0123456789abcdef", ("127.0.0.1", port))
        assert asking.recv(100) == b"muster-pong 0123456789abcdef 1"


def test_silence_of_neighbours_is_reported(coordinator, run_python, answering_peer, silent_peer):
    run_python(HANG)
    coordinator.run(1, peers=(answering_peer, silent_peer))

    def is_reported(report):
        silent = {peer.index: peer.silent_seconds for peer in report.peers}
        return len(silent) == 2 and silent[2] < silent[1]

    coordinator.wait_for(is_reported, "the silence of the neighbour that does not answer")


def test_cut_off_from_everybody_the_ranks_are_ended(coordinator, run_python, silent_peer, until):
    launcher = run_python(HANG, MUSTER_FENCE_SECONDS="1")
    coordinator.run(1, peers=(silent_peer,), hold_seconds=0.2)
    report = coordinator.wait_for_any(lambda r: r.state == RUNNING)
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


def test_a_neighbours_later_attempt_ends_ranks_that_lost_the_coordinator(
    coordinator, run_python, peer_of_the_next_attempt, until
):
    launcher = run_python(STEPS)
    coordinator.run(1, peers=(peer_of_the_next_attempt,), hold_seconds=0.2)
    coordinator.wait_for_any(lambda r: r.state == RUNNING)
    coordinator.stall(stalled=True)
    until(lambda: "attempt 1: ending its processes" in launcher.error_text, "the end of its ranks")
    coordinator.stall(stalled=False)
    report = coordinator.wait_for(lambda r: r.fenced and r.state == EXITED)
    assert report.attempt == 1


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
    told = digest(coordinator.directive)
    report = coordinator.wait_for(lambda r: r.directive_seen == told)
    report = coordinator.wait_for(lambda r: r.sequence > report.sequence + 3)
    assert [peer.index for peer in report.peers] == [1]

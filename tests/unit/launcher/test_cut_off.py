"""Whatever part of a gang is cut off, its launchers end their ranks within the time that the operator counts on."""

from __future__ import annotations

import dataclasses
import math
from collections import deque

import pytest
from tests.unit.launcher.cut_off import (
    AT_ANY_SIZE,
    FENCE,
    any_set_is_cut_off_together,
    is_cut_right,
)
from tests.unit.launcher.gang import World

from muster.node.launcher.host import Host
from muster.node.launcher.peers import Peers
from muster.protocol.fence import fenced_after_seconds
from muster.protocol.messages import RUN, Peer

# tests/unit/nightly/launcher/test_cut_off.py has more sets, and larger gangs.
SIZE = 5


@pytest.mark.parametrize("holds", AT_ANY_SIZE)
def test_a_gang_of_this_size(holds):
    holds(SIZE)


@pytest.mark.parametrize(("size", "seed"), [(2, 0), (2, 3), (3, 0), (3, 1)])
def test_any_set_that_is_cut_off_together(size, seed):
    any_set_is_cut_off_together(size, seed)


def test_a_silent_neighbour_alone_fences_nobody():
    world = World(3)
    world.makes_steps = False
    world.start()
    world.only_pings_are_cut = True
    world.network.cut(["n2"], ["n0", "n1"], one_way=True)
    world.run(4 * FENCE)
    assert min(silence_of(world, 2)) > 3 * FENCE
    assert all(worker.is_training for worker in world.workers)


def test_while_the_coordinator_answers_a_neighbour_in_a_later_attempt_ends_no_ranks():
    world = World(3)
    world.start()
    later = world.directive_of
    world.attempt = 2
    world.directive_of = lambda index: dataclasses.replace(later(index), attempt=2 if index else 1)
    world.run(4 * FENCE)
    assert world.workers[0].supervisor._peers.newest_heard == 2
    snapshots = [worker.snapshot for worker in world.workers]
    assert [(one.attempt, one.fenced) for one in snapshots] == [(1, False), (2, False), (2, False)]
    assert world.workers[0].is_training


def test_a_rank_that_makes_steps_is_not_fenced_before_it_makes_none():
    world = World(3)
    world.start()
    world.cut({2})
    worker = world.workers[2]
    for _ in range(int(8 * FENCE)):
        worker.rank.clock.add_step(worker.rank.clock.step + 1, world.agenda.now)
        world.run(0.5)
    assert worker.is_training
    is_cut_right(world, {2})


def test_one_lost_path_long_ago_fences_nobody_when_the_coordinator_is_away():
    world = World(12)
    world.start()
    world.only_pings_are_cut = True
    world.network.cut(["n3"], ["n4"])
    world.run(2 * FENCE)
    assert world.workers[9].supervisor._peers.broken_at is not None
    world.network.cuts.clear()
    world.run(5)
    world.cut(set(range(12)))
    world.run(5)
    world.makes_steps = False  # a long evaluation
    world.run(4 * FENCE)
    assert all(worker.is_training for worker in world.workers)


def test_news_of_a_later_attempt_from_neighbours_alone_ends_the_ranks():
    """Cut off from the coordinator and from those that it has told: these two only hear each other and worker 2."""
    world = World(12)
    world.start()
    cut = {3, 4}
    world.cut(cut)
    world.network.heal(["n2"], ["n3"])
    world.runs, world.attempt = False, 2
    world.run(8)
    assert not any(world.workers[index].is_training for index in cut)


def silence_of(world: World, index: int) -> list[float]:
    """As its neighbours have it."""
    now = world.agenda.now
    others = [worker for worker in world.workers if worker.index != index]
    return [now - heard_at for other in others for peer, heard_at in other.supervisor._peers.heard() if peer == index]


def before_its_go(size: int) -> World:
    """A gang that is told to wait."""
    world = World(size)
    world.runs = False
    world.run(5)
    return world


def test_a_go_that_was_long_on_its_way_makes_the_fence_no_longer():
    """The operator knows when it gave the go and when it last heard of the worker: from then on it counts."""
    world = before_its_go(3)
    world.slow_answers, world.runs, told_at = {2: 3.0}, True, world.agenda.now
    for _ in range(6000):
        if not world.workers[2].is_training:
            world.run(0.001)
    assert world.workers[2].is_training
    world.cut({2})  # before it can tell that it has begun
    counted_from = max(told_at, world.last_heard[2])
    world.run(counted_from + fenced_after_seconds(FENCE) - world.agenda.now)
    assert [worker.is_training for worker in world.workers] == [True, True, False]


def test_a_change_of_leader_forgets_no_silence():
    """The new one never hears who is cut off, and does not name it."""
    world = World(12)
    world.start()
    world.cut({5})
    world.run(8)
    world.lead(world.replicas[1])
    world.run(5)
    assert 5 not in world.heard
    silences = silence_of(world, 5)
    assert len(silences) == len(world.workers[5].supervisor._peers.heard())
    assert all(seconds > 12 for seconds in silences)
    world.cut(set(range(12)))
    world.run(fenced_after_seconds(FENCE))
    assert not any(worker.is_training for worker in world.workers)


def test_a_neighbour_that_only_an_earlier_leader_has_heard_is_missed_from_the_start():
    """The go is the old leader's, the new one delivers it, and in between a worker is cut off."""
    world = before_its_go(3)
    world.cut({2})
    world.lead(world.replicas[1])
    world.runs = True
    world.run(8)
    assert [worker.is_training for worker in world.workers] == [True, True, False]
    assert silence_of(world, 2) == []
    world.run(2 * FENCE)
    assert [worker.is_training for worker in world.workers] == [True, True, False]
    world.cut({0, 1})
    world.run(fenced_after_seconds(FENCE))
    assert not any(worker.is_training for worker in world.workers)


def test_a_go_that_was_heard_before_a_long_freeze_starts_nothing():
    """The gang may have gone on without; who is there again is told anew."""
    world = before_its_go(3)
    frozen = world.workers[0]
    world.runs = True
    while frozen.reporter.directive().kind != RUN:
        world.agenda.run_one_due()
    frozen.freeze()
    world.cut({0})
    world.run(30)
    frozen.thaw()
    world.run(30)
    assert not frozen.is_training
    world.network.cuts.clear()
    world.run(5)
    assert frozen.is_training


def test_a_coordinator_of_old_does_not_tell_how_many_neighbours_there_are():
    world = World(3)
    told = world.directive_of
    world.directive_of = lambda index: dataclasses.replace(told(index), neighbours=0)  # type: ignore[method-assign]
    world.cut({2})
    world.run(8)
    world.cut({0, 1})
    world.makes_steps = False
    world.run(3 * FENCE)
    assert [worker.is_training for worker in world.workers] == [True, True, False]


class Wire:
    """A socket of which the test sees all."""

    descriptor, port = -1, 7000

    def __init__(self) -> None:
        self.inbox: deque[tuple[bytes, tuple[str, int]]] = deque()
        self.sent: list[tuple[bytes, tuple[str, int]]] = []

    def receive(self):
        return self.inbox.popleft() if self.inbox else None

    def send(self, data, target):
        self.sent.append((data, target))


NONCE = b"0123456789abcdef"
OTHER = ("10.0.0.2", 7002)


def peers_of(attempt: int) -> tuple[Peers, Wire]:
    wire = Wire()
    peers = Peers(wire, "gang", lambda count: NONCE[:count])
    peers.note_attempt(attempt)
    peers.begin(attempt, (Peer(2, *OTHER),), 1, 100.0)
    return peers, wire


def answer_to(peers: Peers, wire: Wire, ping: bytes) -> list[bytes]:
    wire.inbox.append((ping, OTHER))
    peers.poll(100.0)
    return [data for data, _ in wire.sent if data.startswith(b"muster-pong")]


def test_an_older_launcher_gets_the_answer_that_it_can_read():
    peers, wire = peers_of(4)
    peers.found_broken(99.0)
    assert answer_to(peers, wire, b"muster-ping " + NONCE) == [b"muster-pong " + NONCE + b" 4"]


def test_who_asks_for_news_gets_it():
    peers, wire = peers_of(4)
    peers.found_broken(99.0)
    assert answer_to(peers, wire, b"muster-ping " + NONCE + b" ? gang") == [b"muster-pong " + NONCE + b" 4 4 1000"]


def test_an_address_that_another_gang_has_now_is_silent():
    peers, wire = peers_of(4)
    assert answer_to(peers, wire, b"muster-ping " + NONCE + b" ? other") == []


PONGS = {
    "of an older launcher": (b" 5", 5, None),
    "with news": (b" 5 4 2500", 5, 97.5),
    "with more than is known here": (b" 5 4 2500 word 7", 5, 97.5),
    "with news of another attempt": (b" 5 5 2500", 5, None),
    "with nonsense": (b" five", 0, None),
    "with a number beyond reason": (b" 99999999999999999999", 0, None),
    "of a launcher of the first days": (b"", 0, None),
}


@pytest.mark.parametrize(("text", "newest", "broken_at"), PONGS.values(), ids=PONGS.keys())
def test_an_answer(text, newest, broken_at):
    peers, wire = peers_of(4)
    peers.poll(100.0)
    wire.inbox.append((b"muster-pong " + NONCE + text, OTHER))
    assert peers.poll(100.5) == ((newest, broken_at) != (0, None))
    assert not peers.poll(100.5)
    assert (peers.newest_heard, peers.broken_at) == (newest, broken_at)
    assert dict(peers.heard()) == {2: 100.0}


def test_at_a_new_address_silence_counts_on_and_only_an_answer_from_there_ends_it():
    peers, wire = peers_of(4)
    peers.poll(100.0)
    peers.set_neighbours((Peer(2, "10.0.0.3", 7003),), 1, 107.0)
    assert peers.silent_seconds(107.0) == [7.0]
    wire.inbox.append((b"muster-pong " + NONCE + b" 4", OTHER))
    peers._receive(*wire.inbox.popleft(), 107.0)
    assert peers.silent_seconds(107.0) == [7.0]
    peers.poll(107.0)
    assert wire.sent[-1][1] == ("10.0.0.3", 7003)
    wire.inbox.append((b"muster-pong " + NONCE + b" 4", ("10.0.0.3", 7003)))
    peers.poll(107.5)
    assert peers.silent_seconds(107.5) == [0.5]


def test_a_neighbour_of_whom_nobody_has_told_yet_is_silent_since_the_beginning():
    peers, _ = peers_of(4)
    peers.set_neighbours((), 3, 105.0)
    assert sorted(peers.silent_seconds(110.0)) == [10.0, 10.0]
    peers.set_neighbours((), 0, 111.0)  # a coordinator of old
    peers.set_neighbours((Peer(2, *OTHER), Peer(3, "10.0.0.4", 7), Peer(5, "10.0.0.5", 7)), 3, 112.0)
    assert peers.silent_seconds(112.0) == [12.0, 0.0, 0.0]
    peers.begin(5, (), 0, 120.0)
    assert peers.silent_seconds(130.0) == []


def test_who_says_that_it_has_news_is_asked_at_once_and_a_stranger_is_not():
    peers, wire = peers_of(4)
    peers.poll(100.0)
    for sender in (OTHER, ("10.0.0.66", 1)):
        wire.sent.clear()
        wire.inbox.append((b"muster-ping " + NONCE + b" ! gang", sender))
        peers.poll(100.2)
        pings = [target for data, target in wire.sent if data.startswith(b"muster-ping")]
        assert pings == ([OTHER] if sender == OTHER else [])


def test_a_ping_alone_proves_nothing():
    """Anybody can send one; only an answer carries the number that the neighbour was asked with."""
    peers, wire = peers_of(4)
    for text in (b" ! gang 9 4 0", b" ? gang 9 4 0", b" 9 4 0"):
        wire.inbox.append((b"muster-ping " + NONCE + text, OTHER))
    wire.inbox.append((b"muster-pong " + b"f" * 16 + b" 9 4 0", OTHER))
    peers.poll(100.0)
    assert (peers.newest_heard, peers.broken_at) == (0, None)


def test_for_how_long_a_launcher_stood_still_itself_is_told_until_a_step_is_finished(monkeypatch):
    monkeypatch.setattr("simulate.worker.SELDOM_SECONDS", Host.tick_seconds)
    world = World(1)
    world.start()
    world.run(5)
    world.makes_steps = False
    (worker,) = world.workers

    def told():
        return worker.snapshot.standstill_seconds

    for seconds, sum_seconds in ((10, 10.0), (4, 10.0), (8, 18.0)):  # four seconds may be a busy machine's
        world.run(3)
        worker.freeze()
        world.run(seconds)
        worker.thaw()
        world.run(3)
        assert told() == pytest.approx(sum_seconds, abs=1.0)
    report = worker.snapshot.report(world.agenda.now, 1)
    assert report.standstill_seconds == told() < report.step_age_seconds
    world.makes_steps = True
    world.run(3)
    assert told() == 0.0


class Woken:
    """A machine on which nothing happens but what is told: after how long which descriptors can be read."""

    tick_seconds = Host.tick_seconds

    def __init__(self, worker, events):
        self._worker, self._events = worker, iter(events)
        self.waits = []

    def __getattr__(self, name):
        return getattr(self._worker.supervisor_host, name)

    def wait(self, descriptors, timeout_seconds):
        self.waits.append(timeout_seconds)
        seconds, ready = next(self._events)
        world = self._worker.world
        world.loop.pass_to(world.agenda.now + min(seconds, timeout_seconds))
        return ready if seconds < timeout_seconds else set()


def test_packets_alone_are_answered_without_a_turn_and_postpone_none(monkeypatch):
    world = World(3)
    world.start()
    worker = world.workers[0]
    supervisor, began = worker.supervisor, world.agenda.now
    worker.supervisor_host = supervisor._host
    packets, other = {worker.datagrams.descriptor}, {worker.datagrams.descriptor, 5}
    events = [(0.0, other), *[(0.06, packets)] * 3, (0.01, other), *[(0.06, packets)] * 8]
    supervisor._host = Woken(worker, events)
    turns, heard = [], []
    monkeypatch.setattr(supervisor, "poll", lambda: turns.append(round(world.agenda.now - began, 3)))
    monkeypatch.setattr(supervisor, "hear", lambda: heard.append(round(world.agenda.now - began, 3)))
    monkeypatch.setattr(supervisor, "hears_at", lambda: math.inf)
    with pytest.raises(StopIteration):
        supervisor.run()
    # Again 0.2 s after the turn that something else brought, whatever the neighbours have sent since.
    assert turns == [0.0, 0.19, 0.39, 0.59]
    assert heard == [0.06, 0.12, 0.18, 0.25, 0.31, 0.37, 0.45, 0.51, 0.57]


def test_news_of_neighbours_brings_a_turn_at_once(monkeypatch):
    world = World(3)
    world.start()
    worker = world.workers[0]
    supervisor, began = worker.supervisor, world.agenda.now
    worker.supervisor_host = supervisor._host
    supervisor._host = Woken(worker, [(0.0, {5}), (0.05, {worker.datagrams.descriptor})])
    turns = []
    monkeypatch.setattr(supervisor, "poll", lambda: turns.append(round(world.agenda.now - began, 3)))
    monkeypatch.setattr(supervisor, "hear", lambda: True)
    with pytest.raises(StopIteration):
        supervisor.run()
    assert turns == [0.0, 0.05]

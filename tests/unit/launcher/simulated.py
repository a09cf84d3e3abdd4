"""Shipped launchers in one thread: simulated clock, network, processes and storage, nothing else is played."""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

from muster.node.launcher.environment import Settings
from muster.node.launcher.fence_file import FenceFile, FenceState
from muster.node.launcher.matcher import Matcher, Printed
from muster.node.launcher.peers import Peers
from muster.node.launcher.reporter_core import Contact, ReporterCore, Send
from muster.node.launcher.scanner import Scanner
from muster.node.launcher.snapshot import RankSnapshot, Snapshot
from muster.node.launcher.stepclock import StepClock
from muster.node.launcher.supervisor import Supervisor
from muster.protocol import messages
from muster.protocol.fence import peer_distances
from muster.protocol.messages import RUN, WAIT, Directive, Peer, Report
from muster.protocol.retries import POLL, TELL

COORDINATOR = -1
LATENCY_SECONDS = 0.002
CONNECT_SECONDS = 1.0  # until a packet without an answer counts as lost
STEP_SECONDS = 0.5
PORT = 7000


def digest(directive: Directive) -> str:
    """Kept with the directive, which each look of a report that is held compares."""
    kept = vars(directive)
    if "digest" not in kept:
        kept["digest"] = messages.digest(directive)
    return str(kept["digest"])


@functools.lru_cache(maxsize=4096)
def directive_to_run(
    index: int, size: int, attempt: int, fence_seconds: float, pace_seconds: float, heard: frozenset[int]
) -> Directive:
    neighbours = sorted({(index + distance) % size for distance in peer_distances(size)} - {index})
    return Directive(
        RUN,
        attempt,
        node_rank=index,
        node_count=size,
        peers=tuple(Peer(other, address(other), PORT + other) for other in neighbours if other in heard),
        neighbours=len(neighbours),
        fence_seconds=fence_seconds,
        poll_seconds=pace_seconds,
        hold_seconds=pace_seconds,
    )


class Clock:
    """Time that goes on from event to event."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def at(self, moment: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (max(moment, self.now), next(self._numbers), event))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, event = heapq.heappop(self._events)
            event()
        self.now = until


class Datagrams:
    """One worker's socket."""

    descriptor = -1

    def __init__(self, world: World, index: int) -> None:
        self.port = PORT + index
        self._world = world
        self._index = index
        self.inbox: deque[tuple[bytes, tuple[str, int]]] = deque()

    def receive(self) -> tuple[bytes, tuple[str, int]] | None:
        return self.inbox.popleft() if self.inbox else None

    def send(self, data: bytes, target: tuple[str, int]) -> None:
        other = target[1] - PORT
        if not self._world.is_cut(self._index, other):
            worker = self._world.workers[other]
            self._world.clock.at(
                self._world.clock.now + LATENCY_SECONDS,
                lambda: worker.receive(data, (address(self._index), self.port)),
            )


class Rank:
    """A rank that makes steps as long as all of its gang does."""

    local_rank = 0

    def __init__(self, rank: int) -> None:
        self.rank = self.pid = rank
        self.clock = StepClock()
        self.alive = True
        self.has_progress_file = True
        self.preset = ""
        self.heard_at = 0.0
        self.corruption = None
        self.progress_problem = ""
        self.printed = Printed()
        self.other_seconds: dict[str, float] = {}

    def update_progress(self) -> None:
        pass

    @property
    def has_ended(self) -> bool:
        return not self.alive

    is_reaped = has_ended

    def view(self) -> RankSnapshot:
        return RankSnapshot(self.rank, 0, self.alive)

    last_view = view


class Starting:
    """The start of a rank."""

    def __init__(self) -> None:
        self.ranks: tuple[Rank, ...] = ()
        self.is_over = False

    def stop(self) -> None:
        pass


class NoStacks:
    """Simulated ranks have no stacks."""

    reports: tuple[Any, ...] = ()

    def poll(self, _now: float) -> bool:
        return True


class Host:
    """One worker's machine."""

    starter = ""
    tick_seconds = 0.2

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def now(self) -> float:
        return self._worker.world.clock.now

    def wake(self) -> None:
        self._worker.turn_at(self.now())

    def reap(self) -> dict[int, int]:
        return {}

    def start_ranks(self, directive: Directive, _pattern: Any) -> Starting:
        starting = Starting()
        if not self._worker.world.programs_stall:
            self._come_up(starting, directive.node_rank)
        else:
            self._worker.come_up = lambda: self._come_up(starting, directive.node_rank)
        return starting

    def _come_up(self, starting: Starting, rank: int) -> None:
        self._worker.rank = Rank(rank)
        starting.ranks, starting.is_over = (self._worker.rank,), True
        self.wake()

    def dump_stacks(self, _ranks: Any) -> NoStacks:
        return NoStacks()

    def reclaim(self) -> Host:
        return self

    def step(self, _spared: Any) -> bool:
        if self._worker.rank is not None and self._worker.rank.alive:
            self._worker.rank.alive = False
            self._worker.ended_at = self.now()
        return True

    def shared_memory(self) -> frozenset[Any]:
        return frozenset()

    def remove_shared_memory(self, before: frozenset[Any]) -> None:
        pass


class Reporter:
    """The shipped core of the reporter, driven by the events of the world."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._world = worker, worker.world
        clock = self._world.clock
        identity = Report(0, "", peer_port=PORT + worker.index, address=address(worker.index))
        self.core = ReporterCore(identity, False, clock.now, lambda _text: None, self._world.random.random)
        self.snapshot = Snapshot()
        self._turns = {POLL: 0, TELL: 0}  # events of before the last turn of a line are void
        self._kept: dict[str, Replica | None] = {}  # who was reached through the Service and does not lead
        self._busy = {POLL: False, TELL: False}
        for name in (POLL, TELL):
            clock.at(clock.now + self._world.random.random(), lambda name=name: self._drive(name))  # type: ignore[misc]

    def directive(self) -> Directive | None:
        return self.core.directive

    def contact(self) -> Contact | None:
        return self.core.contact

    def publish(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        if self.core.publish(snapshot):
            self._drive(TELL)
            self._drive(POLL)

    def _drive(self, name: str) -> None:
        if self._busy[name]:
            return
        clock = self._world.clock
        self._turns[name] += 1
        action = self.core.next_action(name, clock.now)
        if isinstance(action, Send):
            self._busy[name] = True
            self._send(name, action)
        elif action.seconds is not None:
            turn = self._turns[name]
            clock.at(clock.now + action.seconds + 1e-6, lambda: self._turns[name] == turn and self._drive(name))

    def _send(self, name: str, sent: Send) -> None:
        clock, index = self._world.clock, self._worker.index
        replica = self._kept.get(name) if sent.target is None else None
        replica = replica or self._world.replica_at(sent.target)
        self._kept[name] = None
        if self._world.is_cut(index, COORDINATOR) or self._world.is_cut(COORDINATOR, index) or not replica.is_up:
            clock.at(clock.now + CONNECT_SECONDS, lambda: self._over(name, self.core.on_error, sent, "no route"))
        else:
            clock.at(clock.now + LATENCY_SECONDS, lambda: self._ask(name, sent, replica))

    def _ask(self, name: str, sent: Send, replica: Replica) -> None:
        world, now, index = self._world, self._world.clock.now, self._worker.index
        lost = world.is_cut(index, COORDINATOR) or world.is_cut(COORDINATOR, index) or not replica.is_up
        if lost:
            world.clock.at(
                sent.sent_at + sent.timeout_seconds, lambda: self._over(name, self.core.on_error, sent, "no answer")
            )
        elif world.leader is not replica:
            named = world.leader_named
            self._kept[name] = replica if sent.target is None and name == TELL else None
            if named is None:
                self._over(name, self.core.on_error, sent, "it answered 421")
            else:
                self._over(name, self.core.on_redirection, sent, named.address)
        else:
            world.heard.setdefault(index, now)
            world.last_heard[index] = max(sent.sent_at + LATENCY_SECONDS, world.last_heard.get(index, 0.0))
            directive = world.directive_of(index)
            if digest(directive) == sent.report.directive_seen and now < sent.sent_at + sent.report.hold_seconds:
                world.clock.at(now + 0.1, lambda: self._ask(name, sent, replica))
            else:
                world.clock.at(now + world.slow_answers.get(index, 0.0), lambda: self._answered(name, sent, directive))

    def _answered(self, name: str, sent: Send, directive: Directive) -> None:
        self._over(name, self.core.on_answer, sent, directive, digest(directive))
        self._worker.turn_at(self._world.clock.now)

    def _over(self, name: str, tell: Callable[..., None], sent: Send, *outcome: Any) -> None:
        tell(name, sent, *outcome, self._world.clock.now)
        self._busy[name] = False
        self._drive(name)
        self._drive(TELL)


@dataclasses.dataclass(eq=False)
class Replica:
    """One of the operator's pods."""

    address: tuple[str, int]
    is_up: bool = True


class Storage:
    """The fence file as one worker sees it; a look takes a moment, or never ends."""

    path = "/checkpoints/.muster-gang"
    pids: frozenset[int] = frozenset()

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._found: FenceState | None = None
        self.is_busy = False

    def read(self) -> None:
        self.claim(0)

    def claim(self, attempt: int) -> None:
        self.is_busy = True
        clock = self._worker.world.clock
        clock.at(clock.now + 0.05, lambda: self._end(attempt))

    def _end(self, attempt: int) -> None:
        world = self._worker.world
        if not world.storage_stalls:
            if self._worker.index in world.unmounted:
                self._found = FenceState(attempt, "its own" if attempt else "")
            else:
                world.fence_file = max(world.fence_file, attempt)
                self._found = FenceState(world.fence_file, "id" if world.fence_file else "")
            self._worker.turn_at(world.clock.now)

    def pop_result(self) -> FenceState | None:
        found, self._found = self._found, None
        self.is_busy = self.is_busy and found is None
        return found

    def kill(self) -> None:
        self.is_busy = False

    def note_ended(self, pids: Collection[int]) -> None:
        pass


class Worker:
    """One launcher."""

    def __init__(self, world: World, index: int) -> None:
        self.world, self.index = world, index
        self.rank: Rank | None = None
        self.come_up: Callable[[], None] = lambda: None
        self.ended_at: float | None = None
        self.datagrams = Datagrams(world, index)
        self.reporter = Reporter(self)
        self.peers = Peers(self.datagrams, "gang", world.random.randbytes)  # type: ignore[arg-type]
        self.fence_file = FenceFile(Storage(self) if world.has_storage else None)  # type: ignore[arg-type]
        settings = Settings("", 0, "", "", "", address(index), index, "", gang="gang", fence_seconds=world.base_seconds)
        self.supervisor = Supervisor(
            settings,
            Host(self),  # type: ignore[arg-type]
            self.reporter,  # type: ignore[arg-type]
            self.peers,
            self.fence_file,
            Scanner("", 2.0, 10.0),
            Matcher("", lambda _text: None),
            lambda _text: None,
        )
        self._poll_at = self._wake_at = float("inf")
        self.turn_at(world.clock.now)

    def turn_at(self, moment: float) -> None:
        """The supervisor polls at this moment at the latest."""
        self._poll_at = min(self._poll_at, moment)
        self._wake(moment)

    def _wake(self, moment: float) -> None:
        if moment < self._wake_at:
            self._wake_at = moment
            self.world.clock.at(moment, lambda: self._turn(moment))

    def _turn(self, moment: float) -> None:
        """One round of the supervisor's own loop: neighbours' packets alone bring no poll unless they have news."""
        if moment != self._wake_at:
            return
        self._wake_at = float("inf")
        now = self.world.clock.now
        if now >= self._poll_at or self.supervisor.hear():
            self._poll_at = float("inf")
            self.supervisor.poll()
            self.turn_at(now + max(0.001, self.supervisor.timeout_seconds()))
        self._wake(max(now + 0.001, self.supervisor.hears_at()))

    def freeze(self) -> None:
        """The supervisor does not turn any more."""
        self._wake_at = float("-inf")

    def thaw(self) -> None:
        self._wake_at = float("inf")
        self.turn_at(self.world.clock.now)

    def receive(self, data: bytes, sender: tuple[str, int]) -> None:
        self.datagrams.inbox.append((data, sender))
        self._wake(self.world.clock.now)

    @property
    def is_training(self) -> bool:
        return self.rank is not None and self.rank.alive


class World:
    """A gang, its coordinator, and who cannot send to whom."""

    def __init__(
        self,
        size: int,
        seed: int = 0,
        *,
        served_fence_seconds: float = 15.0,
        base_seconds: float = 15.0,
        has_storage: bool = False,
    ) -> None:
        self.clock = Clock()
        self.random = random.Random(seed)
        self.size, self.base_seconds = size, base_seconds
        self.served_fence_seconds = served_fence_seconds
        self.attempt, self.runs, self.claims = 1, True, False
        self.pace_seconds = 1.0
        self.steps = 0
        self.makes_steps = True
        self.cuts: set[tuple[int, int]] = set()
        self.has_storage, self.storage_stalls, self.fence_file = has_storage, False, 0
        self.unmounted: frozenset[int] = frozenset()  # workers in whose pods the volume is missing
        self.last_heard: dict[int, float] = {}  # when the newest report of each worker came
        self.slow_answers: dict[int, float] = {}  # worker -> for how long an answer is on its way to it
        self.programs_stall = False
        self.replicas = [Replica(("10.9.0.1", 8443)), Replica(("10.9.0.2", 8443))]
        self.leader: Replica | None = self.replicas[0]
        self.leader_named: Replica | None = self.replicas[0]  # as the Lease has it
        self.heard: dict[int, float] = {}  # when each worker was first heard by a leader
        self.only_pings_are_cut = False
        self.workers: list[Worker] = []
        self.workers += [Worker(self, index) for index in range(size)]
        self.clock.at(self.clock.now, self._step)

    def directive_of(self, index: int) -> Directive:
        if not self.runs:
            return Directive(
                WAIT,
                self.attempt,
                poll_seconds=self.pace_seconds,
                hold_seconds=self.pace_seconds,
                writes_fence_file=self.claims and index == 0,
            )
        return directive_to_run(
            index, self.size, self.attempt, self.served_fence_seconds, self.pace_seconds, frozenset(self.heard)
        )

    def replica_at(self, target: tuple[str, int] | None) -> Replica:
        """Who answers at this address; the Service takes any, be it up or not."""
        if target is None:
            return self.random.choice(self.replicas)
        return next(replica for replica in self.replicas if replica.address == target)

    def lead(self, replica: Replica | None) -> None:
        """Another leads from now on, and the Lease says so."""
        self.leader = replica
        self.leader_named = replica or self.leader_named
        self.heard = {}

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self.cuts

    def cut(self, members: Iterable[int], *, outward: bool = True, inward: bool = True) -> None:
        """Nothing passes between these and all others, the coordinator among them, or only in one direction."""
        inside = set(members)
        outside = {*range(self.size), COORDINATOR} - inside
        self.cuts |= {(a, b) for a in inside for b in outside if outward}
        self.cuts |= {(b, a) for a in inside for b in outside if inward}

    def _step(self) -> None:
        if self.makes_steps and not self._is_parted() and all(worker.is_training for worker in self.workers):
            self.steps += 1
            for worker in self.workers:
                worker.rank.clock.add_step(self.steps, self.clock.now)  # type: ignore[union-attr]
        self.clock.at(self.clock.now + STEP_SECONDS, self._step)

    def _is_parted(self) -> bool:
        return not self.only_pings_are_cut and any(COORDINATOR not in pair for pair in self.cuts)

    def start(self) -> None:
        """Until every worker trains."""
        for _ in range(60):
            self.clock.run(1.0)
            if all(worker.is_training for worker in self.workers):
                self.clock.run(self.random.uniform(2.0, 5.0))
                return
        raise AssertionError("the gang does not start")


def address(index: int) -> str:
    return f"10.0.{index // 256}.{index % 256}"

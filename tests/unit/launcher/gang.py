"""A gang of the simulator's workers (`simulate.worker`), to which the test says what the operator would.

Launchers, ranks, network and storage are the simulator's. Its faults strike whole nodes. What is finer is here: ranks
that make no steps, or make them while neighbours lose each other's pings, a slow answer, one missing volume, and a
program or a fence file that stalls alone.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable
from types import SimpleNamespace

from muster.coordinator.auth import Caller
from muster.coordinator.endpoints import encoded
from muster.node.launcher.scanner import Scanner
from muster.node.launcher.snapshot import Snapshot
from muster.protocol.fence import peer_distances
from muster.protocol.messages import RUN, WAIT, Directive, Peer, Report
from simulate.storage import Directory
from simulate.surroundings import Surroundings
from simulate.training import Observer, RankProcess, Script, Trainer
from simulate.worker import PORT, Addresses, Exchange, Worker

HOLD_STEP_SECONDS = 0.1  # how often a held answer is looked at


class Unobserved(Observer):
    """Nobody checks what the ranks do."""


class Node:
    """The machine of a worker, as far as its ranks ask for it before they make a step."""

    def __init__(self, world: World, index: int) -> None:
        self.name = place(index)
        self._world = world

    @property
    def runs(self) -> bool:
        return self._world.makes_steps

    def worker_ended(self, worker: Worker) -> None:
        """Nobody starts another."""

    def connects(self, other: Node) -> bool:
        return self._world.only_pings_are_cut or self._world.network.connects(self.name, other.name)


class GangWorker(Worker):
    """One launcher."""

    def __init__(self, world: World, index: int, trainer: Trainer) -> None:
        self.world, self.index = world, index
        variables = {"MUSTER_GANG": "gang", "MUSTER_WORKER_INDEX": str(index)}
        if world.has_storage:
            variables["MUSTER_CHECKPOINT_DIRECTORY"] = world.directory.path
        env = [{"name": name, "value": value} for name, value in variables.items()]
        pod = {
            "metadata": {"name": f"gang-{index}", "namespace": "team", "uid": str(index)},
            "spec": {"containers": [{"name": "main", "env": env}]},
            "status": {"podIP": f"10.0.{index // 256}.{index % 256}"},
        }
        super().__init__(world, world.addresses, Node(world, index), pod, trainer)  # type: ignore[arg-type]
        self.supervisor._scanner = Scanner("", 2.0, 10.0)  # there are no checkpoints

    @property
    def reaches_storage(self) -> bool:
        return not self.world.storage_stalls

    @property
    def reaches_program(self) -> bool:
        return not self.world.programs_stall

    @property
    def is_training(self) -> bool:
        return any(rank.alive for rank in self.ranks)

    @property
    def rank(self) -> RankProcess:
        """The one that was started last."""
        return self.ranks[-1]

    @property
    def snapshot(self) -> Snapshot:
        """What its next report tells."""
        return self.reporter.core._snapshot


class Replica:
    """One of the operator's pods. It holds an answer that says nothing new, and names the leader if that is another."""

    listens = answers = True

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self.place = f"replica-{number}"
        self.address = (f"10.9.0.{number}", 8443)
        self.operator = SimpleNamespace(server=self)

    def heard(self, exchange: Exchange, caller: Caller, report: Report) -> None:
        index, now = int(caller.pod_uid), self._world.agenda.now
        if self._world.leader is self:
            self._world.heard.setdefault(index, now)
            self._world.last_heard[index] = now
        self._answer(exchange, index, report.directive_seen, now + report.hold_seconds)

    def _answer(self, exchange: Exchange, index: int, seen: str, until: float) -> None:
        world = self._world
        digest, directive = encoded(world.directive_of(index))
        if world.leader is not self:
            host, port = world.leader_named.address
            exchange.answer(421, json.dumps({"leader": f"{host}:{port}"}).encode())
        elif digest != seen or world.agenda.now >= until:
            world.agenda.after(world.slow_answers.get(index, 0.0), lambda: exchange.answer(200, directive))
        elif exchange.is_open:
            again = functools.partial(self._answer, exchange, index, seen, until)
            world.agenda.at(min(until, world.agenda.now + HOLD_STEP_SECONDS), again)


class World(Surroundings):
    """A gang, its coordinator, and what the test lets happen to them.

    Attributes:
        heard: when the leader first heard each worker, by index.
        last_heard: when the newest report of each came.
        slow_answers: for how much longer an answer is on its way to a worker, by index.
        makes_steps: whether ranks make steps while they can.
        only_pings_are_cut: whether ranks reach each other whatever the network cuts.
        claims: whether worker 0 is told to write the fence file before the start.
    """

    def __init__(
        self,
        size: int,
        seed: int = 0,
        *,
        served_fence_seconds: float = 15.0,
        has_storage: bool = False,
        unmounted: Collection[int] = (),  # workers in whose pods the volume is missing
    ) -> None:
        super().__init__(seed)
        self.size, self.served_fence_seconds, self.has_storage = size, served_fence_seconds, has_storage
        self.attempt, self.runs, self.claims, self.pace_seconds = 1, True, False, 1.0
        self.makes_steps, self.only_pings_are_cut = True, False
        self.programs_stall = self.storage_stalls = False
        self.heard: dict[int, float] = {}
        self.last_heard: dict[int, float] = {}
        self.slow_answers: dict[int, float] = {}
        self.replicas = [Replica(self, 1), Replica(self, 2)]
        self.leader: Replica | None = self.replicas[0]
        self.leader_named = self.replicas[0]  # as the Lease has it
        self.addresses = Addresses(lambda target, _: self.replica_at(target))  # type: ignore[arg-type]
        script = Script(total_steps=10**9, step_seconds=0.5, checkpoint_every=10**9, waits=True)
        self.directories = {job: Directory("/checkpoints", self.wall_clock) for job in ("mounted", "unmounted")}
        self.directory = self.directories["mounted"]
        trainers = {job: Trainer(self, Unobserved(), job, script) for job in self.directories}
        self.workers = [
            GangWorker(self, index, trainers["unmounted" if index in unmounted else "mounted"]) for index in range(size)
        ]

    def directive_of(self, index: int) -> Directive:
        pace = {"poll_seconds": self.pace_seconds, "hold_seconds": self.pace_seconds}
        if not self.runs:
            return Directive(WAIT, self.attempt, writes_fence_file=self.claims and index == 0, **pace)
        neighbours = neighbours_of(index, self.size)
        return Directive(
            RUN,
            self.attempt,
            node_rank=index,
            node_count=self.size,
            peers=tuple(Peer(other, self.workers[other].address, PORT) for other in neighbours if other in self.heard),
            neighbours=len(neighbours),
            fence_seconds=self.served_fence_seconds,
            **pace,
        )

    def replica_at(self, target: tuple[str, int] | None) -> Replica:
        """Who answers at this address; the Service takes any, be it up or not."""
        if target is None:
            return self.stream("service").choice(self.replicas)
        return next(replica for replica in self.replicas if replica.address == target)

    def lead(self, replica: Replica | None) -> None:
        """Another leads from now on, and the Lease says so."""
        self.leader, self.leader_named, self.heard = replica, replica or self.leader_named, {}

    def cut(self, members: Iterable[int], *, outward: bool = True, inward: bool = True) -> None:
        """Nothing passes between these and all others, the coordinator among them, or only in one direction."""
        inside = {place(index) for index in members}
        outside = {*map(place, range(self.size)), *(replica.place for replica in self.replicas)} - inside
        if outward:
            self.network.cut(inside, outside, one_way=True)
        if inward:
            self.network.cut(outside, inside, one_way=True)

    def write_fence_file(self, attempt: int) -> None:
        self.directory.claim(attempt, "id", self.agenda.now)

    def run(self, seconds: float) -> None:
        until = self.agenda.now + seconds
        while self.agenda.next_at <= until:
            self.agenda.run_one_due()
        self.loop.pass_to(until)
        if self.defect is not None:
            raise self.defect

    def start(self) -> None:
        """Until every worker trains. Each knows before whether it can read the fence file."""
        self.runs = False
        self.run(1.0)
        self.runs = True
        self.run(5.0)
        assert all(worker.is_training for worker in self.workers)
        self.run(self.stream("start").uniform(2.0, 5.0))


def place(index: int) -> str:
    return f"n{index}"


@functools.cache
def neighbours_of(index: int, size: int) -> list[int]:
    return sorted({(index + distance) % size for distance in peer_distances(size)} - {index})

"""A worker's container: the shipped launcher in simulated time, between its ranks, its neighbours and the operator."""

import functools
import itertools
import json
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from muster.coordinator.auth import Caller
from muster.node.launcher.environment import Settings
from muster.node.launcher.fence_file import FenceFile, FenceState
from muster.node.launcher.incomplete_mover import IncompleteMover
from muster.node.launcher.matcher import Matcher
from muster.node.launcher.peers import Peers
from muster.node.launcher.reporter_core import OVERDUE_SECONDS, Contact, ReporterCore, Send
from muster.node.launcher.scan_child import ScanServer
from muster.node.launcher.scanner import Scanner
from muster.node.launcher.snapshot import Snapshot
from muster.node.launcher.supervisor import Supervisor
from muster.protocol.messages import Directive, Report, StackReport, decode_directive, digest_of
from muster.protocol.retries import POLL, TELL
from simulate.network import CONNECT_SECONDS, LATENCY_SECONDS, STORAGE
from simulate.replica import Replica
from simulate.storage import Directory, SimulatedFiles
from simulate.surroundings import Surroundings
from simulate.training import HostMachine, RankProcess, Trainer

LOOK_SECONDS = 0.02, 0.2  # at the checkpoint directory
MOVE_SECONDS = 3.0  # until what is incomplete has been moved aside
SOONEST_SECONDS = 0.001
UNKILLED_SECONDS = 1.0
START_SECONDS = 0.01, 0.1
START_OVER_NETWORK_SECONDS = 0.1, 3.0  # the program has to be read first
STALLED_SECONDS = 0.5  # how often who waits for storage looks
FRESH_SECONDS, SELDOM_SECONDS, OFTEN_SECONDS = 5.0, 2.0, 0.5
FILES = 30  # for which each stands in a large fleet
PORT = 7000
T = TypeVar("T")
SIDECAR = "sidecar"  # the name of a container that never ends by itself

_SIGN = b'{"sign": true}\n'  # of life, with which a look begins
_directive = functools.lru_cache(maxsize=4096)(decode_directive)


class Kubelet(HostMachine, Protocol):
    """The machine that a container runs on, as the container knows it."""

    def worker_ended(self, worker: "Container") -> None:
        """A container has ended."""


class Container:
    """One container that trains, from its start to its end.

    Attributes:
        exit_code: once it has ended.
        end_reason: what its kubelet gives as the reason of its end; "": what follows from the exit code.
        is_frozen: that nothing in it moves; what comes meanwhile waits.
        thawed_at: when it went on for the last time.
    """

    def __init__(self, around: Surroundings, machine: Kubelet, pod: dict[str, Any], trainer: Trainer) -> None:
        self.around = around
        self.machine = machine
        self.trainer = trainer
        self.name: str = pod["metadata"]["name"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.uid: str = pod["metadata"]["uid"]
        self.has_sidecar = any(container["name"] == SIDECAR for container in pod["spec"]["containers"])
        self.address: str = pod["status"]["podIP"]
        self.exit_code: int | None = None
        self.end_reason = ""
        self.is_frozen = False
        self.thawed_at = float("-inf")
        self.ranks: list[RankProcess] = []
        self.directory: Directory = around.directories[trainer.job]
        self._is_killed = False  # nothing of it does anything any more
        self._waiting: list[Callable[[], None]] = []  # what has come while it was frozen

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.exit_code is not None

    @property
    def can_write(self) -> bool:
        """Whether its ranks can write into the checkpoint directory."""
        return self.reaches_storage and not self.directory.full

    @property
    def reaches_storage(self) -> bool:
        """Whether a look at the checkpoint directory ever ends."""
        node = self.machine.name
        return node not in self.directory.stalls and self.around.network.connects(node, STORAGE)

    @property
    def reaches_program(self) -> bool:
        """Whether its program can be read: it lies on the same storage."""
        return self.reaches_storage

    def now(self) -> float:
        return self.around.agenda.now

    def at(self, moment: float, event: Callable[[], None]) -> None:
        """Something happens in it, unless it is over by then; while it is frozen, later."""
        self.around.agenda.at(moment, functools.partial(self._happens, event))

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        self.at(self.around.agenda.now + seconds, event)

    def wake(self) -> None:
        """Something has happened to a rank."""

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """All of it is killed, ranks included; it has not ended before the last of them has, which may be
        unkillable."""
        self._is_killed = True
        killed = [rank.kill() for rank in self.ranks]
        if all(killed):
            self._over(128 + signal.SIGKILL)
        else:
            self.around.agenda.after(UNKILLED_SECONDS, self.kill)

    def run_out_of_memory(self) -> None:
        """The kernel kills all of it."""
        self.end_reason = "OOMKilled"
        self.kill()

    def vanish(self) -> None:
        for rank in self.ranks:
            rank.vanish()
        self._over(-1)

    def freeze(self) -> None:
        """Nothing in it moves from now on."""
        self.is_frozen = True

    def thaw(self) -> None:
        """It goes on, and what has come meanwhile is there."""
        self.is_frozen, self.thawed_at = False, self.around.agenda.now
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self._happens(event)

    def _happens(self, event: Callable[[], None]) -> None:
        if self.is_over or self._is_killed:
            return
        if self.is_frozen:
            self._waiting.append(event)
        else:
            event()

    def _over(self, code: int) -> None:
        if not self.is_over:
            self.exit_code = code
            self.machine.worker_ended(self)


class PlainWorker(Container):
    """A worker without a launcher: the container is the rank."""

    def __init__(self, around: Surroundings, machine: Kubelet, pod: dict[str, Any], trainer: Trainer) -> None:
        super().__init__(around, machine, pod, trainer)
        environment = _environment(pod)
        self._rank, self._count = int(environment["NODE_RANK"]), int(environment["NNODES"])
        self.after(0.01, self._start)

    def wake(self) -> None:
        """The rank may have ended, and the container with it."""
        for rank in self.ranks:
            if not rank.alive and rank.status is not None:
                self._over(128 + rank.status if 0 < rank.status < 256 else rank.status >> 8)

    def terminate(self) -> None:
        """SIGTERM ends a trainer that does not care."""

        def end() -> None:
            for rank in self.ranks:
                rank.kill(signal.SIGTERM)

        self.after(0.0, end)

    def _start(self) -> None:
        """It finds by itself where to go on. Its attempt is its pod's: the record may have gone on before it came to
        run."""
        step = self.directory.newest_shown(self.machine.name, self.around.agenda.now) if self.reaches_storage else 0
        attempt = self.around.attempt_of_pod(self.namespace, self.name)
        self.ranks = [self.trainer.start(self, attempt, self._rank, self._count, step, next(self.around.pids))]


class Worker(Container):
    """One container whose first process is the shipped launcher."""

    def __init__(
        self, around: Surroundings, addresses: "Addresses", machine: Kubelet, pod: dict[str, Any], trainer: Trainer
    ) -> None:
        super().__init__(around, machine, pod, trainer)
        self.dead_children: dict[int, int] = {}
        self._ahead = 0.0  # what a step of the launcher that waits has waited for
        self._turn_at = self._hears_at = float("inf")
        environment = _environment(pod)
        index, gang = int(environment["MUSTER_WORKER_INDEX"]), environment["MUSTER_GANG"]
        path = self.directory.path if environment.get("MUSTER_CHECKPOINT_DIRECTORY") else ""
        self.datagrams = Datagrams(self)
        self.addresses = addresses
        addresses.workers[self.address] = self
        self.reporter = SimulatedReporter(self, scans=bool(path))
        settings = Settings("", 0, "", "", "", self.address, index, "", gang=gang, checkpoint_directory=path)
        storage = SimulatedStorage(self, self.directory) if path else None
        self.supervisor = Supervisor(
            settings,
            SimulatedHost(self),  # type: ignore[arg-type]
            self.reporter,  # type: ignore[arg-type]
            Peers(self.datagrams, gang, around.stream("nonce", self.uid).randbytes),  # type: ignore[arg-type]
            FenceFile(storage),  # type: ignore[arg-type]
            Scanner(path, settings.scan_seconds, settings.scan_deadline_seconds, lambda *_: Looker(self)),  # type: ignore[arg-type]
            Matcher("", self.log),
            self.log,
            IncompleteMover(path, lambda *_: MovingChild(self)),  # type: ignore[arg-type]
        )
        self.tick_at(around.agenda.now)

    def now(self) -> float:
        return self.around.agenda.now + self._ahead

    def log(self, text: str) -> None:
        self.around.journal.note("launcher", f"{self.name}: {text}")

    def wake(self) -> None:
        """Something has happened that its launcher hears of at once."""
        self.tick_at(self.around.agenda.now)

    def tick_at(self, moment: float) -> None:
        """Let the launcher turn then, if it does not before."""
        if moment < self._turn_at and not self.is_over:
            self._turn_at = moment
            self.at(moment, lambda: self._tick(moment))

    def hear(self) -> None:
        """Neighbours have sent something, or are to be asked."""
        if self.supervisor.hear():
            self.wake()
        self._hear_later()

    def _hear_later(self) -> None:
        moment = self.supervisor.hears_at()
        if moment != self._hears_at:
            self._hears_at = moment
            if moment < float("inf"):
                self.at(moment, lambda: self._hear(moment))

    def _hear(self, moment: float) -> None:
        if moment == self._hears_at:
            self._hears_at = float("inf")
            self.hear()

    def terminate(self) -> None:
        def leave() -> None:
            self.supervisor.leave()
            self.wake()

        self.after(0.0, leave)

    def start_rank(self, directive: Directive) -> RankProcess:
        pid = next(self.around.pids)
        step = directive.resume_step or 0
        rank = self.trainer.start(self, directive.attempt, directive.node_rank, directive.node_count, step, pid)
        self.ranks = [one for one in self.ranks if one.alive] + [rank]
        return rank

    def reap(self) -> dict[int, int]:
        """Ranks that have ended, once."""
        ended = {rank.pid: rank.status for rank in self.ranks if not rank.alive and rank.status is not None}
        self.ranks = [rank for rank in self.ranks if rank.pid not in ended]
        children, self.dead_children = self.dead_children, {}
        return {**ended, **children}

    def pause(self, seconds: float) -> None:
        """The launcher waits, and does nothing else."""
        self._ahead += seconds

    def _tick(self, moment: float) -> None:
        if moment != self._turn_at:
            return
        self._turn_at = float("inf")
        self._ahead = 0.0
        code = self.supervisor.poll()
        ahead, self._ahead = self._ahead, 0.0
        if code is not None:
            self.after(ahead, lambda: self._exit(code))
        else:
            self.tick_at(self.around.agenda.now + max(SOONEST_SECONDS, self.supervisor.timeout_seconds()))
            self._hear_later()

    def _exit(self, code: int) -> None:
        # The container's processes go with its first one, which does not end before the last of them has.
        killed = [rank.kill() for rank in self.ranks]
        if all(killed):
            self._over(code)
        else:
            self.after(UNKILLED_SECONDS, lambda: self._exit(code))

    def _over(self, code: int) -> None:
        self.addresses.workers.pop(self.address, None)
        super()._over(code)


@dataclass(frozen=True)
class Addresses:
    """Whom a launcher reaches by an address.

    Attributes:
        replica_at: the operator's replica that answers a caller at an address; without one, any.
        workers: those that run, by address.
    """

    replica_at: Callable[[tuple[str, int] | None, str], Replica | None]
    workers: dict[str, Worker] = field(default_factory=dict)


def container_of(
    around: Surroundings, addresses: Addresses, machine: Kubelet, pod: dict[str, Any], trainer: Trainer
) -> Container:
    """What a pod of a job runs."""
    if "MUSTER_GANG" in _environment(pod):
        return Worker(around, addresses, machine, pod, trainer)
    return PlainWorker(around, machine, pod, trainer)


class SimulatedHost:
    """What the supervisor has of its machine."""

    starter = ""  # its ranks start no others

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def now(self) -> float:
        return self._worker.now()

    @property
    def tick_seconds(self) -> float:
        """Ranks wake the launcher themselves; only one that may have to end them by the clock looks at it often."""
        contact = self._worker.reporter.contact()
        fresh = contact is not None and self.now() < max(
            contact.sent_at + FRESH_SECONDS, contact.next_due_at + OVERDUE_SECONDS
        )
        return SELDOM_SECONDS if fresh else OFTEN_SECONDS

    def wake(self) -> None:
        self._worker.wake()

    def pause(self, seconds: float) -> None:
        self._worker.pause(seconds)

    def reap(self) -> dict[int, int]:
        return self._worker.reap()

    def start_ranks(self, directive: Directive, _keeps_lines: bool) -> "SimulatedStarting":
        return SimulatedStarting(self._worker, directive)

    def dump_stacks(self, ranks: Iterable[RankProcess]) -> "SimulatedStacks":
        return SimulatedStacks(tuple(StackReport(rank.rank, "/train.py:1 in step") for rank in ranks if rank.alive))

    def put_request(self, attempt: int, text: str) -> None:
        request = json.loads(text or '{"number": 0, "kind": ""}')
        self._worker.trainer.asked(self._worker, attempt, request["number"], request["kind"])

    def ask_by_signal(self, _ranks: Iterable[RankProcess]) -> bool:
        return False

    def stop(self, ranks: Iterable[RankProcess]) -> None:
        for rank in ranks:
            rank.stop()

    def reclaim(self) -> "SimulatedHost":
        """Begin to end everything that ranks have left."""
        return self

    def step(self, _spared: Any) -> bool:
        """One round of that: whether nothing is left, not even one that is dead and that nobody has reaped."""
        for rank in self._worker.ranks:
            rank.kill()
        return not self._worker.ranks

    def shared_memory(self) -> frozenset[Any]:
        return frozenset()

    def remove_shared_memory(self, before: frozenset[Any]) -> None:
        """Nothing."""


@dataclass(frozen=True)
class SimulatedStacks:
    """Where ranks stood, printed at once."""

    reports: tuple[StackReport, ...]

    def poll(self, _now: float) -> bool:
        return True


class SimulatedStarting:
    """A rank that comes up in a moment; one whose program lies on storage that stalls, once that goes on.

    The shipped one begins at once, in a thread that nobody can call back: so does this.
    """

    def __init__(self, worker: Worker, directive: Directive) -> None:
        self.ranks: tuple[RankProcess, ...] = ()
        self.is_over = False
        self._worker = worker
        self._directive = directive
        stream = worker.around.stream("program", worker.uid)
        slow = stream.random() < worker.around.slow_starts
        worker.after(stream.uniform(*(START_OVER_NETWORK_SECONDS if slow else START_SECONDS)), self._come_up)

    def stop(self) -> None:
        """Start no more: the only one is under way."""

    def _come_up(self) -> None:
        if not self._worker.reaches_program:
            self._worker.after(STALLED_SECONDS, self._come_up)
            return
        self.ranks = (self._worker.start_rank(self._directive),)
        self.is_over = True
        self._worker.wake()


class Datagrams:
    """One worker's socket for pings."""

    descriptor = -1
    port = PORT

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.inbox: deque[tuple[bytes, tuple[str, int]]] = deque()

    def receive(self) -> tuple[bytes, tuple[str, int]] | None:
        return self.inbox.popleft() if self.inbox else None

    def send(self, data: bytes, target: tuple[str, int]) -> None:
        """Send it; nobody tells whether it arrives."""
        worker = self._worker
        other = worker.addresses.workers.get(target[0])
        if other is None or not worker.around.network.passes(worker.machine.name, other.machine.name):
            return
        sender = (worker.address, PORT)

        def arrive() -> None:
            other.datagrams.inbox.append((data, sender))
            other.hear()

        for delay in worker.around.network.delays(worker.around.stream("packet", worker.uid, other.uid)):
            other.after(LATENCY_SECONDS + delay, arrive)


class SimulatedStorage:
    """The fence file's file as one worker reaches it."""

    pids: frozenset[int] = frozenset()

    def __init__(self, worker: Worker, directory: Directory) -> None:
        self.path = f"{directory.path}/.muster"
        self.is_busy = False
        self._worker = worker
        self._directory = directory
        self._found: FenceState | None = None
        self._looks = itertools.count(1)
        self._scan_number = 0

    def read(self) -> None:
        self._begin(0)

    def claim(self, attempt: int) -> None:
        self._begin(attempt)

    def pop_result(self) -> FenceState | None:
        """What was found, once."""
        found, self._found = self._found, None
        self.is_busy = self.is_busy and found is None
        return found

    def kill(self) -> None:
        """Give the look up."""
        self._scan_number, self.is_busy = 0, False

    def note_ended(self, pids: Collection[int]) -> None:
        """No process looks here."""

    def _begin(self, attempt: int) -> None:
        self.is_busy, self._scan_number = True, next(self._looks)
        look = self._scan_number
        delay = self._worker.around.stream("fence file", self._worker.uid).uniform(*LOOK_SECONDS)
        self._worker.after(delay, lambda: self._end(look, attempt))

    def _end(self, look: int, attempt: int) -> None:
        if look != self._scan_number or not self._worker.reaches_storage:
            return
        node, now = self._worker.machine.name, self._worker.around.agenda.now
        if attempt:
            identity = f"fence-file-{self._worker.around.stream('identity', self._worker.uid).randrange(10**9):09}"
            self._found = self._directory.claim(attempt, identity, now)
        else:
            self._found = self._directory.fence_file_seen_from(node, now)
        self._worker.wake()


class Looker:
    """The shipped child that looks for checkpoints, on the files that the worker's node sees."""

    descriptor = -1

    def __init__(self, worker: Worker) -> None:
        self.pid = next(worker.around.pids)
        self._worker = worker
        self._said: list[bytes] = []
        self._heard: list[bytes] = []  # what is said about what was asked last
        self._answers = Answers(worker.directory, worker.machine.name)
        self._is_dead = False
        files = SimulatedFiles(worker.directory, worker.machine.name, lambda: worker.around.agenda.now)
        self._looks = ScanServer(
            worker.directory.path,
            self._heard.append,
            is_asked_again=lambda: False,
            now=worker.now,
            files_at=lambda _: files,
            aside=lambda call: call(),
        )

    def write(self, data: bytes) -> int:
        delay = self._worker.around.stream("listing", self._worker.uid).uniform(*LOOK_SECONDS)
        self._worker.after(delay, lambda: self._hear(data))
        return len(data)

    def read(self, _limit: int) -> bytes:
        if not self._said:
            raise BlockingIOError
        said = b"".join(self._said)
        self._said.clear()
        return said

    def kill(self) -> None:
        """End it; it is reaped at once."""
        if not self._is_dead:
            self._is_dead = True
            self._worker.after(0.0, self._reaped)

    def hang_up(self) -> None:
        """Nothing."""

    def _reaped(self) -> None:
        self._worker.dead_children[self.pid] = signal.SIGKILL
        self._worker.wake()

    def _hear(self, data: bytes) -> None:
        if self._is_dead:
            return
        if not self._worker.reaches_storage:
            self._worker.after(STALLED_SECONDS, lambda: self._hear(data))
            return
        self._said += self._answers.again(data) or self._inspect(data)
        self._worker.wake()

    def _inspect(self, data: bytes) -> list[bytes]:
        self._heard.clear()
        self._looks.hear(data.splitlines())
        if self._worker.around.is_large:
            self._heard[:] = map(_as_of_many, self._heard)
        self._answers.note(data, self._heard)
        return self._heard


class MovingChild:
    """The child that moves what is incomplete aside, which takes a while. Nothing here is in the way of a start."""

    descriptor = -1

    def __init__(self, worker: Worker) -> None:
        self.pid = next(worker.around.pids)
        self._worker = worker
        self._said = b""

    def write(self, data: bytes) -> int:
        self._worker.trainer.moves_incomplete()
        self._worker.after(MOVE_SECONDS, self._end)
        return len(data)

    def read(self, _limit: int) -> bytes:
        if not self._said:
            raise BlockingIOError
        said, self._said = self._said, b""
        return said

    def kill(self) -> None:
        """End it; it is reaped at once."""
        self._worker.after(0.0, self._reaped)

    def hang_up(self) -> None:
        """Nothing."""

    def _end(self) -> None:
        self._worker.trainer.moves_incomplete()
        self._said = b'{"moved": "", "error": ""}\n'
        self._reaped()

    def _reaped(self) -> None:
        self._worker.dead_children[self.pid] = 0
        self._worker.wake()


def _as_of_many(line: bytes) -> bytes:
    """What the child says, as if it had looked at many files more: the launcher rests for longer then."""
    told = json.loads(line)
    if "looks" not in told:
        return line
    return json.dumps({**told, "looks": told["looks"] * FILES}).encode() + b"\n"


class Answers:
    """What a child that looks for checkpoints has answered: asked the same again, of a directory in which nothing has
    changed, it answers the same. Most looks are such, and each costs as much as a decision of the operator.

    Only of answers is this true that tell of nothing but complete checkpoints: what is incomplete or suspect is judged
    anew by and by. The first answer after a change is not the last: what was seen once needs fewer looks.
    """

    def __init__(self, directory: Directory, node: str) -> None:
        self._directory = directory
        self._node = node
        self._asked: object = None
        self._answer: dict[str, Any] = {}
        self._is_steady = False

    def again(self, data: bytes) -> list[bytes]:
        """The same answer to the same question; nothing where somebody has to look."""
        number, asked = self._question(data)
        if asked is None or asked != self._asked or not self._is_steady:
            return []
        return [_SIGN, json.dumps({**self._answer, "scan": number}).encode() + b"\n"]

    def note(self, data: bytes, said: list[bytes]) -> None:
        """It was asked this, and has said that."""
        number, asked = self._question(data)
        before, self._asked = (self._asked, self._answer), None
        told = [line for line in said if line != _SIGN]
        answer = json.loads(told[0]) if asked is not None and len(told) == 1 else {}
        if answer.pop("scan", None) != number or not answer["done"]:
            return
        if any(answer[name] for name in ("incomplete", "note", "warning", "trap", "error")):
            return
        self._asked, self._answer = asked, answer
        self._is_steady = before == (asked, answer)

    def _question(self, data: bytes) -> tuple[int, object]:
        """Its number, and what else it depends on; None: on more than that."""
        lines = data.splitlines()
        request = json.loads(lines[0]) if len(lines) == 1 else {}
        number = request.pop("scan", 0)
        depends = (
            not number
            or request["thorough"]
            or request["requestedDirectory"]
            or self._directory.lag_seconds.get(self._node)
        )
        return number, None if depends else (request, self._directory.changes)


class SimulatedReporter:
    """The shipped core of the reporter, driven by events in place of its two threads."""

    def __init__(self, worker: Worker, *, scans: bool) -> None:
        self._worker, self._around = worker, worker.around
        identity = Report(0, "", peer_port=PORT, address=worker.address, launcher_version="simulated")
        chance = self._around.stream("report", worker.uid).random
        self.core = ReporterCore(identity, scans, worker.now(), worker.log, chance)
        self._turns = {POLL: 0, TELL: 0}
        self._busy = {POLL: False, TELL: False}
        self._last_tell: Exchange | None = None
        self._is_still = False
        for name in (POLL, TELL):
            worker.after(chance() * 0.2, functools.partial(self._drive, name))

    def stand_still(self, *, still: bool = True) -> None:
        """Its threads do nothing for now: the operator is neither told nor heard, and everything else goes on."""
        self._is_still = still
        for name in (POLL, TELL):
            self._drive(name)

    def directive(self) -> Directive | None:
        return self.core.directive

    def contact(self) -> Contact | None:
        """The last answered report."""
        return self.core.contact

    def publish(self, snapshot: Snapshot) -> None:
        """Take over a new state."""
        if self.core.publish(snapshot):
            self._drive(TELL)
            self._drive(POLL)

    def send_last(self, snapshot: Snapshot, deadline_seconds: float) -> None:
        """One final report; how long it takes does not hold the launcher up here."""
        self.core.publish(snapshot)
        if self._is_still:
            return
        sent = self.core.send(self._worker.now(), 0.0, deadline_seconds)
        Exchange(self._worker, sent, lambda *_: None, lambda *_: None, lambda *_: None).begin()

    def _drive(self, name: str) -> None:
        if self._busy[name] or self._is_still:
            return
        self._turns[name] += 1
        action = self.core.next_action(name, self._worker.now())
        if isinstance(action, Send):
            self._busy[name] = True
            exchange = Exchange(
                self._worker,
                action,
                functools.partial(self._answered, name, action),
                functools.partial(self._over, name, self.core.on_error, action),
                functools.partial(self._over, name, self.core.on_redirection, action),
                self._last_tell.sent_on_by if name == TELL and self._last_tell is not None else None,
            )
            if name == TELL:
                self._last_tell = exchange
            exchange.begin()
        elif action.seconds is not None:
            turn = self._turns[name]
            self._worker.after(action.seconds + 1e-6, lambda: self._again(name, turn))

    def _again(self, name: str, turn: int) -> None:
        if self._turns[name] == turn:
            self._drive(name)

    def _answered(self, name: str, sent: Send, body: bytes) -> None:
        if self._over(name, self.core.on_answer, sent, _directive(body), digest_of(body)):
            self._worker.wake()

    def _over(self, name: str, tell: Callable[..., T], sent: Send, *outcome: Any) -> T:
        told = tell(name, sent, *outcome, self._worker.now())
        self._busy[name] = False
        self._drive(name)
        if name == POLL:
            self._drive(TELL)
        return told


class Exchange:
    """One report on its way to a replica, and the answer on its way back.

    Args:
        connected: what an open connection to the Service leads to; None: there is none.

    Attributes:
        sent_on_by: the replica that was reached through the Service and does not lead.
    """

    def __init__(
        self,
        worker: Worker,
        sent: Send,
        answered: Callable[[bytes], None],
        failed: Callable[[str], None],
        redirected: Callable[[tuple[str, int]], None],
        connected: Replica | None = None,
    ) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.sent_on_by: Replica | None = None
        self._worker = worker
        self._around = worker.around
        self._sent = sent
        self._answered = answered
        self._failed = failed
        self._redirected = redirected
        self._is_over = False
        self._replica = connected

    def begin(self) -> None:
        target, place, replica = self._sent.target, self._worker.machine.name, self._replica
        if target is not None or replica is None or not replica.listens:
            self._replica = replica = self._worker.addresses.replica_at(target, self._worker.uid)
        if replica is None or not replica.listens or not self._around.network.connects(place, replica.place):
            seconds = min(CONNECT_SECONDS, self._sent.timeout_seconds)
            self._worker.after(seconds, lambda: self._end(self._failed, "no route"))
            return
        self._worker.at(self._sent.sent_at + self._sent.timeout_seconds, self._time_out)
        self._around.agenda.after(LATENCY_SECONDS, self._arrive)

    @property
    def is_open(self) -> bool:
        """Whether the worker still waits."""
        return not self._is_over and not self._worker.is_over

    def _time_out(self) -> None:
        if not self._is_over and self.on_lost is not None:
            self.on_lost()
        self._end(self._failed, "no answer in time")

    def _arrive(self) -> None:
        replica, worker = self._replica, self._worker
        assert replica is not None
        if not replica.answers or not self._around.network.connects(worker.machine.name, replica.place):
            return
        caller = Caller(worker.namespace, worker.name, worker.uid, worker.machine.name, "")
        answer = replica.operator.server.heard(self, caller, self._sent.report)
        if answer is not None:
            self.answer(*answer)

    def answer(self, status: int, body: bytes) -> None:
        """The replica answers, now or later."""
        self.on_lost = None
        replica = self._replica
        if replica is None or not self._around.network.connects(replica.place, self._worker.machine.name):
            return
        self._worker.after(LATENCY_SECONDS, lambda: self._hear(status, body))

    def _hear(self, status: int, body: bytes) -> None:
        if status == 200:
            self._end(self._answered, body)
            return
        if status == 421 and self._sent.target is None:
            self.sent_on_by = self._replica
        leader = str(json.loads(body).get("leader", "")) if status == 421 else ""
        host, _, port = leader.rpartition(":")
        if host:
            self._end(self._redirected, (host, int(port)))
        else:
            self._end(self._failed, f"it answered {status}")

    def _end(self, tell: Callable[[Any], None], outcome: Any) -> None:
        if not self._is_over:
            self._is_over = True
            tell(outcome)


def _environment(pod: dict[str, Any]) -> dict[str, str]:
    for container in pod["spec"]["containers"]:
        found = {item["name"]: item.get("value", "") for item in container.get("env") or ()}
        if found.keys() & {"MUSTER_GANG", "NODE_RANK"}:
            return found
    return {}

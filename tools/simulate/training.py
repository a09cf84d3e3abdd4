"""What runs in the workers: trainers that make steps together, save as they go, and die of each other's death."""

import functools
import signal
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from muster.node.launcher.matcher import Printed
from muster.node.launcher.snapshot import RankSnapshot
from muster.node.launcher.stepclock import StepClock
from muster.protocol.messages import LEAVE
from simulate.storage import Directory, Save
from simulate.surroundings import Surroundings

VICTIM_SECONDS = 0.5
VICTIM_TAIL = "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer"
WATCHDOG_SECONDS = 600.0
WATCHDOG_TAIL = "Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE) ran for 600000 milliseconds"
STUCK_SECONDS = 0.5  # how often one that makes no step looks again whether it can
SAVE_RETRY_SECONDS = 2.0
LEAST_BACK = 4  # steps: a program that goes back by less is not noticed
PART_OF_SAVE = 0.5, 0.99  # of the time that a save takes, when a rank has written its part
IMPORT_SECONDS = 0.5, 3.0
LAST_STEPS = 5  # of who trains on until a moment


class OnRequest(Enum):
    """What a program does when it has saved because it was asked to leave."""

    ENDS_WELL = 0
    ENDS_BADLY = 1
    WAITS = 2
    SAVES_HALF = 3


@dataclass
class Script:
    """How a job trains.

    Attributes:
        save_seconds: from the step to the complete checkpoint; the next steps are made meanwhile.
        crashes_after: the step after which the first rank fails, and from then on after every start; None for a program
            that is sound.
        forgets: it begins anew whatever it is told to resume from.
        lasts_seconds: of the life, for which it trains on beyond its steps: it ends a few steps after the first that
            comes later.
        waits: its ranks wait for one that has died until a watchdog ends them: no fabric tells them.
        answers: what it does when it is asked to leave, and then it also saves when it is asked to; None: it does not
            look for requests.
    """

    total_steps: int = 60
    step_seconds: float = 2.0
    checkpoint_every: int = 10
    save_seconds: float = 3.0
    crashes_after: int | None = None
    forgets: bool = False
    waits: bool = False
    lasts_seconds: float = 0.0
    answers: "OnRequest | None" = None


class HostMachine(Protocol):
    """The machine that a rank runs on, as the rank knows it."""

    @property
    def name(self) -> str:
        """Of the node."""

    @property
    def powered(self) -> bool:
        """Whether anything of it runs."""

    @property
    def runs(self) -> bool:
        """Whether processes on it go on."""

    @property
    def workers(self) -> Mapping[str, "HostContainer"]:
        """Its containers, by uid of the pod."""

    def connects(self, other: "HostMachine") -> bool:
        """Whether processes on the two can talk."""


class HostContainer(Protocol):
    """The container that a rank runs in, as the rank knows it."""

    @property
    def around(self) -> Surroundings:
        """What the life consists of beside it."""

    @property
    def machine(self) -> HostMachine:
        """Where it runs."""

    @property
    def uid(self) -> str:
        """Of its pod."""

    @property
    def trainer(self) -> "Trainer":
        """What it trains for."""

    @property
    def ranks(self) -> "Sequence[RankProcess]":
        """Its ranks."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of it runs any more."""

    @property
    def is_frozen(self) -> bool:
        """Whether nothing in it moves."""

    @property
    def thawed_at(self) -> float:
        """When it went on for the last time."""

    @property
    def can_write(self) -> bool:
        """Whether its ranks can write into the checkpoint directory."""

    def now(self) -> float:
        """The machine's clock that only goes on."""

    def wake(self) -> None:
        """Something has happened to a rank."""


class RankProcess:
    """One rank process, as the launcher's supervisor and its fellows see it."""

    local_rank = 0

    def __init__(self, worker: HostContainer, attempt: "Attempt", rank: int, pid: int) -> None:
        self.worker = worker
        self.attempt = attempt
        self.rank = rank
        self.pid = pid
        self.alive = True
        self.hung = False
        self.unkillable = False
        self.is_doomed = False  # SIGKILL was sent to it: it never runs code of its own again
        self.ready_at = worker.around.agenda.now + worker.around.stream("import", worker.uid).uniform(*IMPORT_SECONDS)
        # What the supervisor knows.
        self.clock = StepClock()
        self.printed = Printed()
        self.other_seconds: Mapping[str, float] = {}
        self.has_progress_file = True
        self.preset = ""
        self.heard_at = worker.now()
        self.corruption = None
        self.progress_problem = ""
        self.told: list[int] = []  # steps that nobody has read yet
        self.asked = (0, "")  # number and kind of the request that it can read
        self.answered_request = 0
        self.status: int | None = None
        self._tail = ""
        self._ended_at: float | None = None
        self._by_launcher = False

    # What the supervisor asks of it.

    def update_progress(self, asked: Container[int]) -> None:
        told, self.told = self.told, []
        for step in told:
            self.heard_at = self.worker.now()
            self.clock.add_step(step, self.heard_at)

    def note_exit(self, status: int, by_launcher: bool, asked: Container[int]) -> None:
        self._ended_at = self.worker.now()
        self._by_launcher = by_launcher and status in (signal.SIGKILL, signal.SIGTERM)

    @property
    def is_reaped(self) -> bool:
        return self._ended_at is not None

    has_ended = is_reaped

    def drain(self, until: float) -> None:
        """Its output is there already."""

    def view(self) -> RankSnapshot:
        alive, status = not self.is_reaped, self.status or 0
        signaled = not alive and 0 < status < 256
        return RankSnapshot(
            rank=self.rank,
            local_rank=0,
            alive=alive,
            exit_code=None if alive or signaled else status >> 8,
            signal=status if signaled else None,
            ended_by_launcher=self._by_launcher and not alive,
            exited_at=self._ended_at,
            tail=self._tail if not alive and status else "",
        )

    last_view = view

    @property
    def can_write(self) -> bool:
        """Whether it comes to write into the checkpoint directory."""
        return not self.is_doomed and self.worker.machine.runs and not self.worker.is_frozen and self.worker.can_write

    # What happens to it.

    def exit(self, code: int, tail: str = "") -> None:
        self._end(code << 8, tail)

    def kill(self, number: int = signal.SIGKILL) -> bool:
        """It gets a signal that ends it; whether it has ended."""
        self.is_doomed |= number == signal.SIGKILL
        if self.alive and not self.unkillable:
            self._end(number, "")
        return not self.alive

    def stop(self) -> None:
        """It gets SIGTERM, of which only one that is not stuck takes notice."""
        if not self.hung:
            self.kill(signal.SIGTERM)

    def vanish(self) -> None:
        """Its machine is gone, and nobody reaps it."""
        if self.alive:
            self.alive = False
            self.attempt.ended(self, visibly=False)

    def _end(self, status: int, tail: str) -> None:
        if self.alive:
            self.alive, self.status, self._tail = False, status, tail
            self.attempt.ended(self, visibly=True)
            self.worker.wake()


class Attempt:
    """The ranks of one attempt of a job, wherever they run."""

    def __init__(self, trainer: "Trainer", number: int, count: int, step: int) -> None:
        self.number = number
        self.count = count
        self.step = 0 if trainer.script.forgets else step
        self.resume_step = step
        self.ranks: dict[int, RankProcess] = {}
        self._trainer = trainer
        self._around = trainer.around
        self._runs = False
        self._stuck_since: float | None = None
        self._finished = False
        self._saved = 0
        self._agreed = 0  # the highest number of a request that the ranks have agreed on
        self._leaves_with: int | None = None  # the step after which it makes none, as it was asked to leave
        self.made = 0  # steps

    def join(self, process: RankProcess) -> None:
        self.ranks[process.rank] = process
        if len(self.ranks) == self.count and not self._runs:
            self._runs = True
            ready = max(rank.ready_at for rank in self.ranks.values())
            self._around.agenda.at(ready + self._pace(), self._make_step)

    def ended(self, process: RankProcess, *, visibly: bool) -> None:
        """A rank has ended: connections that it had are reset, where anybody is left to do it."""
        if visibly and process.status and not self._trainer.script.waits:
            self._around.agenda.after(VICTIM_SECONDS, lambda: self._carry_along(process))

    def _carry_along(self, dead: RankProcess) -> None:
        if self.ranks.get(dead.rank) is not dead:
            return
        for rank in list(self.ranks.values()):
            here = rank.worker.machine
            if rank.alive and not rank.hung and here.runs and here.connects(dead.worker.machine):
                rank.exit(1, VICTIM_TAIL)

    def _pace(self) -> float:
        stream = self._around.stream("pace", self._trainer.job, str(self.number))
        return self._trainer.script.step_seconds * stream.uniform(0.97, 1.03)

    def _make_step(self) -> None:
        if self._finished or self._leaves_with is not None or not any(rank.alive for rank in self.ranks.values()):
            self._runs = False  # a pod that is made anew before its attempt has its go begins the steps again
            return
        if not self._is_able():
            now = self._around.agenda.now
            self._stuck_since = now if self._stuck_since is None else self._stuck_since
            if now - self._stuck_since >= WATCHDOG_SECONDS:
                self._watchdog()  # of those that move: who is frozen goes on one day, or is ended then
            self._around.agenda.after(STUCK_SECONDS, self._make_step)
            return
        self._stuck_since = None
        script, step = self._trainer.script, self.step + 1
        self.step = step
        self.made += 1
        for rank in self.ranks.values():
            rank.told.append(step)
            rank.worker.wake()
        self._trainer.has_forgotten |= 3 < step < self.resume_step
        self._trainer.stepped(self)
        if self._trainer.is_last(step):
            self._finished = True
            self._save(step)
            return
        if script.crashes_after is not None and step > script.crashes_after:
            self._trainer.is_broken = True
        if self._trainer.is_broken:
            self._crash()
            return
        if step % script.checkpoint_every == 0 and step > self._saved:
            self._save(step)
        self._poll_request(step)
        self._around.agenda.after(self._pace(), self._make_step)

    def _poll_request(self, step: int) -> None:
        """The ranks agree by a collective: that one of them has read it is enough."""
        if self._trainer.script.answers is None:
            return
        number, kind = max(rank.asked for rank in self.ranks.values())
        if number <= self._agreed:
            return
        self._agreed = number
        for rank in self.ranks.values():
            rank.answered_request = number
            rank.worker.wake()
        if kind == LEAVE:
            self._leaves_with = step
            self._trainer.agreed_to_end(self)
        else:
            self._trainer.agreed_to_save(self)
        if step > self._saved:
            self._save(step)

    def _end_as_asked(self) -> None:
        """The checkpoint of a request is complete."""
        match self._trainer.script.answers:
            case OnRequest.ENDS_WELL | OnRequest.ENDS_BADLY as answer:
                for rank in self.ranks.values():
                    rank.exit(answer.value)

    def goes_back(self, steps: int) -> bool:
        """The program loads an older state of its own, as after a spike of the loss, and goes on from there; whether it
        does."""
        back_to = max(self.step - steps, 1)
        if self.made < LEAST_BACK or self._finished or self.step - back_to < LEAST_BACK:
            return False
        self.step = back_to
        return True

    def _crash(self) -> None:
        rank = min(self.ranks.values(), key=lambda rank: rank.rank)
        if rank.alive and rank.worker.machine.runs and not rank.worker.is_frozen:
            rank.exit(1, "IndexError: list index out of range")
        elif rank.alive:
            self._around.agenda.after(STUCK_SECONDS, self._crash)

    def _is_able(self) -> bool:
        ranks = list(self.ranks.values())
        if not all(rank.alive and not rank.hung and rank.worker.machine.runs for rank in ranks):
            return False
        if any(rank.worker.is_frozen for rank in ranks):
            return False
        return not self._around.network.cuts or all(
            one.worker.machine.connects(other.worker.machine) for one in ranks for other in ranks
        )

    def _watchdog(self) -> None:
        for rank in self.ranks.values():
            if rank.alive and rank.worker.machine.runs:
                rank.exit(134, WATCHDOG_TAIL)

    def _save(self, step: int) -> None:
        """Each rank writes its part, and then the first of them the marker."""
        self._saved = step
        agenda, seconds = self._around.agenda, self._trainer.script.save_seconds
        save = self._trainer.directory.begin(step, self.number, self.count)
        for rank in self.ranks.values():
            part_seconds = seconds * self._around.stream("save", rank.worker.uid).uniform(*PART_OF_SAVE)
            agenda.after(part_seconds, functools.partial(self._write_shard, save, rank))
        agenda.after(seconds, lambda: self._finish_save(save))

    def _write_shard(self, save: Save, rank: RankProcess) -> None:
        if not rank.alive:
            return
        if not rank.can_write:
            self._around.agenda.after(SAVE_RETRY_SECONDS, lambda: self._write_shard(save, rank))
            return
        self._trainer.wrote_part(self, save, rank)

    def _finish_save(self, save: Save) -> None:
        ranks = list(self.ranks.values())
        if not all(rank.alive for rank in ranks):
            return
        if len(save.written) < self.count or not all(rank.can_write for rank in ranks):
            self._around.agenda.after(SAVE_RETRY_SECONDS, lambda: self._finish_save(save))
            return
        if save.step == self._leaves_with and self._trainer.script.answers is OnRequest.SAVES_HALF:
            ranks[0].exit(1, "OSError: [Errno 28] No space left on device")
            return
        self._trainer.saved(self, save)
        if save.step == self._leaves_with:
            self._end_as_asked()
        if self._trainer.is_last(save.step):
            for rank in ranks:
                rank.exit(0)


class Observer(Protocol):
    """What is shown all that ranks do, before they do it."""

    def rank_starts(self, trainer: "Trainer", process: RankProcess, step: int) -> None:
        """A rank is about to run."""

    def makes_step(self, trainer: "Trainer", attempt: Attempt) -> None:
        """All ranks of an attempt have finished a step."""

    def writes(self, trainer: "Trainer", attempt: Attempt, step: int) -> None:
        """A rank of an attempt is about to write its part of a checkpoint."""

    def publishes(self, trainer: "Trainer", attempt: Attempt, step: int) -> None:
        """A checkpoint of an attempt is about to be complete."""

    def moves_incomplete(self, trainer: "Trainer") -> None:
        """A launcher has what is incomplete moved aside."""


class Trainer:
    """The training of one job: its attempts, one after the other if all is well."""

    def __init__(self, around: Surroundings, observer: Observer, job: str, script: Script) -> None:
        self.around = around
        self._observer = observer
        self.job = job
        self.script = script
        self.attempts: dict[int, Attempt] = {}
        self.newest_started = 0
        self._last: int | None = None
        self.has_finished = False  # what it has made of its last step is saved
        self.is_broken = False  # its program fails after each start
        self.leaves: list[tuple[int, int]] = []  # attempt and step of those that were asked to leave, and did
        self.asked_saves: list[tuple[int, int]] = []  # the same of saves that were asked for
        self.has_forgotten = False  # it has made steps that a checkpoint has which it was to go on from

    def start(self, worker: HostContainer, number: int, rank: int, count: int, step: int, pid: int) -> RankProcess:
        attempt = self.attempts.get(number)
        if attempt is None:
            attempt = self.attempts[number] = Attempt(self, number, count, step)
        process = RankProcess(worker, attempt, rank, pid)
        self._observer.rank_starts(self, process, step)
        self.newest_started = max(self.newest_started, number)
        attempt.join(process)
        return process

    def is_last(self, step: int) -> bool:
        """Whether the training is over with this step: which one that is may turn out late."""
        script = self.script
        if self._last is None and self.around.age_seconds >= script.lasts_seconds:
            self._last = max(script.total_steps, step + LAST_STEPS) if script.lasts_seconds else script.total_steps
        return self._last is not None and step >= self._last

    def stepped(self, attempt: Attempt) -> None:
        """All ranks of an attempt have finished a step."""
        self._observer.makes_step(self, attempt)

    @property
    def directory(self) -> Directory:
        return self.around.directories[self.job]

    def wrote_part(self, attempt: Attempt, save: Save, rank: RankProcess) -> None:
        """A rank of an attempt has written its part of a checkpoint."""
        self._observer.writes(self, attempt, save.step)
        self.directory.write_shard(save, rank.rank, rank.worker.machine.name, self.around.agenda.now)

    def saved(self, attempt: Attempt, save: Save) -> None:
        self._observer.publishes(self, attempt, save.step)
        self.has_finished |= self.is_last(save.step)
        self.directory.write_metadata(save, attempt.ranks[0].worker.machine.name, self.around.agenda.now)

    def asked(self, worker: HostContainer, attempt: int, number: int, kind: str) -> None:
        """A launcher shows its ranks what they are asked for; 0: nothing."""
        for rank in worker.ranks:
            if rank.attempt.number == attempt:
                rank.asked = (number, kind)

    def agreed_to_end(self, attempt: Attempt) -> None:
        """All ranks of an attempt have agreed to leave."""
        self.leaves.append((attempt.number, attempt.step))

    def agreed_to_save(self, attempt: Attempt) -> None:
        """All ranks of an attempt have agreed to save and go on."""
        self.asked_saves.append((attempt.number, attempt.step))

    def moves_incomplete(self) -> None:
        """A launcher has what is incomplete moved aside."""
        self._observer.moves_incomplete(self)

    @property
    def made(self) -> int:
        """Steps of all attempts, those included that were made again."""
        return sum(attempt.made for attempt in self.attempts.values())

    @property
    def alive(self) -> list[RankProcess]:
        """Ranks of any attempt that are alive."""
        return [rank for attempt in self.attempts.values() for rank in attempt.ranks.values() if rank.alive]

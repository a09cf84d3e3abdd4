"""Scripted launchers: real HTTPS clients with real tokens that converge to their directives, around ranks of the mind.

`Training` moves all ranks of a job forward in step, the way a collective does: only while every rank of one attempt is
alive. The `Ledger` remembers every start and end of a rank, and what must never happen.
"""

import asyncio
import itertools
import ssl
import time
from dataclasses import dataclass, field, replace

import aiohttp

from muster.node.launcher.moves import Move, next_move, wanted_listing
from muster.protocol import messages
from muster.protocol.fence import is_cut_off
from muster.protocol.messages import (
    EXIT,
    EXITED,
    IDLE,
    RUNNING,
    TERMINATING,
    CheckpointReport,
    Directive,
    PeerReport,
    RankReport,
    Report,
)

TERMINATED = 143
RETRY_SECONDS = 0.05
STEP_SECONDS = 0.01
BASE_FENCE_SECONDS = 15.0


@dataclass(frozen=True)
class Start:
    """One start of a worker's ranks."""

    job_uid: str
    attempt: int
    index: int
    pod: str
    resumed_step: int | None


class Ledger:
    """What has run, what runs, and what must not have happened."""

    def __init__(self) -> None:
        self.starts: list[Start] = []
        self.violations: list[str] = []
        self._alive: dict[str, Start] = {}

    def start(self, start: Start) -> None:
        for other in self._alive.values():
            if other.job_uid == start.job_uid and other.attempt != start.attempt:
                self.violations.append(f"{start} while {other} is alive")
        for other in self.starts:
            if (other.job_uid, other.attempt, other.index) == (start.job_uid, start.attempt, start.index):
                self.violations.append(f"{start} a second time: {other}")
        self.starts.append(start)
        self._alive[start.pod] = start

    def end(self, pod: str) -> None:
        self._alive.pop(pod, None)

    def alive(self) -> list[Start]:
        return list(self._alive.values())

    def started(self, attempt: int) -> list[int]:
        """Indexes of the workers whose ranks were started in this attempt, sorted."""
        return sorted(start.index for start in self.starts if start.attempt == attempt)


@dataclass
class Training:
    """One job's training.

    Attributes:
        hold_at: no step beyond this one is made for now.
        last_step: after it every rank exits with code 0.
        disk: steps of the complete checkpoints.
        fails_at: each rank that gets there fails (an application error).
    """

    nodes: int
    hold_at: int = 12
    last_step: int = 1000
    checkpoint_every: int = 5
    fails_at: int | None = None
    disk: set[int] = field(default_factory=set)
    step: int = 0
    launchers: dict[str, "Launcher"] = field(default_factory=dict)

    def tick(self) -> None:
        running = [launcher for launcher in self.launchers.values() if launcher.rank_alive]
        if len(running) < self.nodes or len({launcher.attempt for launcher in running}) > 1:
            return
        positions = {launcher.position for launcher in running}
        if len(positions) > 1:
            running[0].ledger.violations.append(f"ranks of one attempt at different steps: {positions}")
            return
        step = positions.pop() + 1
        if step > min(self.hold_at, self.last_step):
            return
        if step == self.fails_at:
            running[0].fail(exit_code=3, tail=f"step {step}\nValueError: loss is nan")
            return
        self.step = step
        if step % self.checkpoint_every == 0:
            self.disk.add(step)
        for launcher in running:
            launcher.made(step, finished=step == self.last_step)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(STEP_SECONDS)
            self.tick()


@dataclass(frozen=True)
class Identity:
    """What a pod knows of itself and of the coordinator."""

    job_uid: str
    pod: str
    index: int
    address: str
    url: str
    server_name: str
    ca: str
    token: str


class Launcher:
    """One launcher.

    Attributes:
        answers: kinds of the directives, and HTTP statuses or names of errors, in the order of their arrival.
        reclaim_seconds: how long its ranks take to die.
        may_reclaim: while it is not set, its ranks do not die.
        told_step: the step of the last report that was answered.
    """

    def __init__(self, identity: Identity, training: Training, ledger: Ledger) -> None:
        self.identity = identity
        self.ledger = ledger
        self.state, self.attempt = IDLE, 0
        self.rank_alive = False
        self.position = 0
        self.answers: list[str] = []
        self.reclaim_seconds = 0.0
        self.may_reclaim = asyncio.Event()
        self.may_reclaim.set()
        self.is_cut = self.ejected = False
        self.told_step: int | None = None
        self._training = training
        self._heard_at: dict[int, float] = {}  # by index, the neighbours' last answers
        self._ranks: tuple[RankReport, ...] = ()
        self._ended_at: float | None = None
        self._step: int | None = None
        self._step_at = self._started_at = 0.0
        self._scanned_for = (0, 0)  # attempt and listing
        self._fenced = False
        self._checkpoints: tuple[CheckpointReport, ...] = ()
        self._sequence = itertools.count(1)
        self._directive = Directive("")
        self._seen = ""
        self._answered_at = time.monotonic()
        self._news = asyncio.Event()
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reclaiming: asyncio.Task[None] | None = None
        self._tls = ssl.create_default_context(cadata=identity.ca)

    async def run(self) -> int:
        """Converge until told to exit; returns the exit code. Cancelling it is a power cut: nothing more is said."""
        self._training.launchers[self.identity.pod] = self
        try:
            async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
                tasks = [group.create_task(work) for work in (self._poll(session), self._tell(session), self._fence())]
                code = await self._exit
                for task in tasks:
                    task.cancel()
            self.end_ranks()
            return code
        finally:
            self._training.launchers.pop(self.identity.pod, None)

    async def leave(self) -> int:
        """SIGTERM: the ranks end, one last report."""
        if self.rank_alive:
            await asyncio.sleep(self.reclaim_seconds)
        self.end_ranks()
        await self._last_words()
        return TERMINATED

    def cut(self) -> None:
        """From now on nothing goes out or comes in; the ranks go on until the fence ends them."""
        self.is_cut = True

    def fail(self, exit_code: int | None = None, signal: int | None = None, tail: str = "") -> None:
        self.ledger.end(self.identity.pod)
        self.rank_alive = False
        self.state, self._ended_at = EXITED, time.monotonic()
        self._ranks = (replace(self._ranks[0], alive=False, exit_code=exit_code, signal=signal, tail=tail),)
        self._news.set()
        if self.ejected and not self._exit.done():
            self._exit.set_result(exit_code or 0)

    def made(self, step: int, *, finished: bool) -> None:
        first = self._step is None
        self.position = self._step = step
        self._step_at = time.monotonic()
        before, self._checkpoints = self._checkpoints, self._listing()
        if finished:
            self.fail(exit_code=0)
        if first or before != self._checkpoints or step == self._training.hold_at:
            self._news.set()

    def end_ranks(self) -> None:
        if self.rank_alive:
            self.rank_alive = False
            self.ledger.end(self.identity.pod)

    def _listing(self) -> tuple[CheckpointReport, ...]:
        newest = sorted(self._training.disk, reverse=True)[:8]
        return tuple(CheckpointReport(step, f"/checkpoints/step-{step}") for step in newest)

    async def _poll(self, session: aiohttp.ClientSession) -> None:
        while True:
            hold = self._directive.hold_seconds if self._seen else 0.0
            report = self._report(hold)
            sent_at = time.monotonic()
            directive = await self._post(session, report)
            if directive is None:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            early = time.monotonic() - sent_at < hold
            await self._accept(directive)
            if early and messages.digest(directive) == report.directive_seen:
                await asyncio.sleep(RETRY_SECONDS)  # our other connection has taken its place

    async def _tell(self, session: aiohttp.ClientSession) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            directive = await self._post(session, self._report(0.0))
            if directive is None:
                self._news.set()
                await asyncio.sleep(RETRY_SECONDS)
            else:
                await self._accept(directive)

    async def _fence(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self._ping()
            if self.rank_alive and self._is_cut_off():
                self.end_ranks()
                self._fenced, self.state = True, EXITED
                self._ranks = (replace(self._ranks[0], alive=False, signal=9, ended_by_launcher=True),)
                self._news.set()

    def _ping(self) -> None:
        for peer in self._directive.peers if self._ranks else ():
            self._heard_at.setdefault(peer.index, self._started_at)
        for other in self._training.launchers.values():
            if other.identity.index in self._heard_at and not (self.is_cut or other.is_cut):
                self._heard_at[other.identity.index] = time.monotonic()

    def _is_cut_off(self) -> bool:
        now = time.monotonic()
        silent = [now - heard_at for heard_at in self._heard_at.values()]
        since_step = now - (self._started_at if self._step is None else self._step_at)
        return is_cut_off(self._fence_seconds(), now - self._answered_at, silent, since_step)

    def _fence_seconds(self) -> float:
        return self._directive.fence_seconds or BASE_FENCE_SECONDS

    async def _post(self, session: aiohttp.ClientSession, report: Report) -> Directive | None:
        if self.is_cut:
            return None
        headers = {"Authorization": f"Bearer {self.identity.token}", "Content-Type": "application/json"}
        try:
            async with session.post(
                self.identity.url + messages.REPORT_PATH,
                data=messages.encode(report),
                headers=headers,
                ssl=self._tls,
                server_hostname=self.identity.server_name,
                timeout=aiohttp.ClientTimeout(total=report.hold_seconds + 60.0),
            ) as answer:
                body = await answer.read()
                if answer.status != 200:
                    self.answers.append(f"{answer.status}")
                    return None
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            self.answers.append(type(error).__name__)
            return None
        if self.is_cut:
            return None
        directive = messages.decode_directive(body)
        self.answers.append(directive.kind)
        self._answered_at = time.monotonic()
        self.told_step = report.step
        return directive

    async def _accept(self, directive: Directive) -> None:
        self._seen = messages.digest(directive)
        if directive.kind != EXIT and directive.attempt < self._directive.attempt:
            return
        self._directive = directive
        if self._reclaiming is None or self._reclaiming.done():
            self._reclaiming = asyncio.create_task(self._converge())

    async def _converge(self) -> None:
        directive = self._directive
        if self.ejected:
            return
        if directive.ejected and directive.attempt == self.attempt and self._ranks:
            self.ejected = True
            self._news.set()
        move = next_move(directive, self.attempt if self._ranks else None, self._scanned_for)
        if move is Move.END:
            await asyncio.sleep(self.reclaim_seconds)
            await self.may_reclaim.wait()
            self.end_ranks()
            self.state, self.attempt, self._ranks, self._fenced = IDLE, 0, (), False
            self._heard_at = {}
            await self._converge()
        elif move is Move.LIST:
            self.attempt, self._step = directive.attempt, None
            self._checkpoints, self._scanned_for = self._listing(), wanted_listing(directive)
            self._news.set()
        elif move is Move.START:
            self._run_ranks(directive)
        elif move is Move.EXIT and not self._exit.done():
            await self._last_words()
            if not self._exit.done():  # SIGTERM was quicker
                self._exit.set_result(directive.exit_code)

    def _run_ranks(self, directive: Directive) -> None:
        identity = self.identity
        self.ledger.start(
            Start(identity.job_uid, directive.attempt, identity.index, identity.pod, directive.resume_step)
        )
        if directive.node_rank != identity.index:
            self.ledger.violations.append(f"{identity.pod} was given node rank {directive.node_rank}")
        self.state, self.attempt, self.rank_alive = RUNNING, directive.attempt, True
        self._heard_at = {}
        self.position, self._step, self._started_at = directive.resume_step or 0, None, time.monotonic()
        self._ranks = (RankReport(directive.node_rank, 0, alive=True),)
        self._news.set()

    async def _last_words(self) -> None:
        self.state = TERMINATING
        async with aiohttp.ClientSession() as session:
            await self._post(session, self._report(0.0))

    def _report(self, hold_seconds: float) -> Report:
        now = time.monotonic()
        ranks = self._ranks
        if ranks and not ranks[0].alive and self._ended_at is not None:
            ranks = (replace(ranks[0], exited_age_seconds=now - self._ended_at),)
        if ranks and self.state == TERMINATING:
            ranks = (replace(ranks[0], alive=False),)
        return Report(
            sequence=next(self._sequence),
            state=self.state,
            attempt=self.attempt,
            ranks=ranks,
            step=self._step,
            step_age_seconds=None if self._step is None else now - self._step_at,
            started_age_seconds=now - self._started_at if ranks else None,
            fence_seconds=self._fence_seconds(),
            fenced=self._fenced,
            peer_port=7946,
            peers=tuple(PeerReport(index, now - heard_at) for index, heard_at in self._heard_at.items()),
            checkpoints=self._checkpoints,
            checkpoints_scanned_for_attempt=self._scanned_for[0],
            listing_round=self._scanned_for[1],
            address=self.identity.address,
            launcher_version="scripted",
            directive_seen=self._seen,
            hold_seconds=hold_seconds,
            ejected=self.ejected,
        )

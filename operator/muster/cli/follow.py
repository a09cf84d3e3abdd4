"""`kubectl muster logs JOB --follow`: print the workers' output from now on, also of pods that replace lost ones."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from muster.api.trainingjob import TrainingJob
from muster.cli import show
from muster.cli.errors import CliError, one_line
from muster.cli.jobs import job_of
from muster.cli.printed import (
    MAX_WORKERS,
    LogRequest,
    NothingAskedForError,
    Wanted,
    container_of,
    pods_by_worker,
    shortened,
    tail_of,
    wanted,
    without_overwritten,
    worker_text,
)
from muster.cli.reading import pods_of, record_of
from muster.cli.session import Session
from muster.kube import paths
from muster.kube.errors import ApiError, Forbidden, Invalid, NotFound, Unauthorized
from muster.world.views import PodView

LOOK_SECONDS = 2.0
LAST_LINES_SECONDS = 5.0  # after the job's end


@dataclass(frozen=True, order=True, slots=True)
class Stamp:
    """When a line was printed, by the clock of its node: to the nanosecond, which datetime does not hold."""

    second: datetime
    nanosecond: str

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Parse the kubelet's time (RFC 3339, with as many digits as it needs); None: it is none."""
        whole, _, rest = text.partition(".")
        digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
        try:
            return cls(datetime.fromisoformat(whole + rest[len(digits) :]), digits.ljust(9, "0")[:9])
        except ValueError:
            return None


@dataclass(slots=True)
class LogPosition:
    """How far a log has been read, so that reading resumes there after a lost connection."""

    text: str = ""
    stamp: Stamp | None = None
    printed: int = 0
    skip: int = 0

    def again(self) -> None:
        """Prepare to read the log again, from the last line's second on."""
        self.skip = self.printed

    def line_if_new(self, raw: bytes) -> str | None:
        """Return a line without its time; None: it was read before."""
        text, _, line = raw.decode(errors="replace").partition(" ")
        stamp = Stamp.from_text(text)
        if stamp is None:
            return raw.decode(errors="replace")
        if self.stamp is not None and stamp < self.stamp:
            return None
        if stamp == self.stamp:
            if self.skip:
                self.skip -= 1
                return None
            self.printed += 1
        else:
            self.text, self.stamp, self.printed, self.skip = text, stamp, 1, 0
        return line


class Follower:
    """Prints the output of one job's workers, each line as it comes, until the job has ended.

    Args:
        session: with the job's namespace.
        name: of the job.
        rank: only the worker that has it; None: all.
        tail: lines of each worker to begin with; None: as the command does without following.
        print_line: prints one line of a worker; while it waits, its worker's log is not read.
        print_note: prints a note, or a heading in `==> ... <==`.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        rank: int | None,
        tail: int | None,
        print_line: Callable[[str], Awaitable[None]],
        print_note: Callable[[str], Awaitable[None]],
    ) -> None:
        self._session = session
        self._name = name
        self._asked = LogRequest(rank)
        self._tail = tail
        self._print_line = print_line
        self._print_note = print_note
        self._printing = 0
        self._prefixed = True
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pods: dict[str, PodView] = {}
        self._trouble = ""

    async def run(self) -> None:
        """Print until the job has ended.

        Raises:
            CliError: there is no such job or rank, or the logs may not be read.
            ApiError: the first request failed; failures of later ones are printed.
        """
        first: TrainingJob | None = None
        try:
            while True:
                try:
                    job = await self._read_new(first)
                    self._trouble = ""
                except (Unauthorized, Forbidden):
                    raise
                except ApiError as error:
                    if first is None:
                        raise
                    await self._print_note_once(f"the API server does not answer: {one_line(str(error))}")
                else:
                    first = first or job
                    if first is not None and (job is None or job.status.completion is not None):
                        await self._last_lines(job or first, is_gone=job is None)
                        return
                await asyncio.sleep(LOOK_SECONDS)
                for task in self._tasks.values():
                    if task.done():
                        task.result()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _read_new(self, first: TrainingJob | None) -> TrainingJob | None:
        """Begin to read new pods; returns the job, None where it is gone."""
        try:
            job = await job_of(self._session, self._name)
        except CliError:
            if first is None:
                raise
            return None
        if first is not None and job.metadata.uid != first.metadata.uid:
            return None
        (record, _), (pods, hidden) = await asyncio.gather(record_of(self._session, job), pods_of(self._session, job))
        if pods is None:
            raise CliError(hidden[0])
        try:
            workers, _, notes = wanted(job, record, self._asked)
        except NothingAskedForError as error:
            if first is None:
                raise CliError(f"{job.metadata.namespace}/{self._name}: {error}") from error
            workers, notes = [], []
        if first is None:
            self._prefixed = len(workers) > 1
            self._tail = self._tail or tail_of(len(workers))
            if not pods:
                await self._print_note(f"note: no worker has a pod now: kubectl muster status {self._name} says why")
            for note in notes:
                await self._print_note(f"note: {note}")
            if len(workers) > MAX_WORKERS:
                await self._print_note(f"note: {len(workers) - MAX_WORKERS} more workers: choose one with --rank N")
        self._pods = {pod.uid: pod for pod in pods}
        newest = pods_by_worker(pods)
        for worker in workers[:MAX_WORKERS]:
            pod = next(iter(newest.get(worker.index, [])), None)
            if pod is not None and pod.uid not in self._tasks:
                tail = self._tail if first is None else None
                self._tasks[pod.uid] = asyncio.create_task(self._read(job, worker, pod, tail))
        return job

    async def _read(self, job: TrainingJob, worker: Wanted, pod: PodView, tail: int | None) -> None:
        """Print the log of one pod until it is over."""
        on = f" on {pod.place}" if pod.place else ""
        await self._print_note(f"==> {worker_text(worker)}, pod {pod.name}{on} <==")
        path = paths.core("pods", namespace=pod.namespace, name=pod.name, subresource="log")
        query: dict[str, str | int] = {"follow": "true", "timestamps": "true"}
        container = container_of(job)
        if container:
            query["container"] = container
        place, trouble = LogPosition(), ""
        while True:
            since: dict[str, str | int] = {"sinceTime": place.text} if place.text else {}
            begin: dict[str, str | int] = {"tailLines": tail} if tail is not None and not since else {}
            place.again()
            try:
                async with contextlib.aclosing(self._session.client.follow(path, {**query, **since, **begin})) as lines:
                    async for raw in lines:
                        line, trouble = place.line_if_new(raw), ""
                        if line is not None:
                            await self._print(worker, line)
            except NotFound:
                return
            except (Unauthorized, Forbidden) as error:
                raise CliError(
                    f"the log of pod {pod.name} may not be read: ask for the cluster's role view in this namespace"
                ) from error
            except Invalid:  # its container has not begun
                pass
            except ApiError as error:  # most often the kubelet does not answer
                if not trouble:
                    trouble = f"its log cannot be read, {pod.place or 'its node'} may be lost: {one_line(str(error))}"
                    await self._print_note(f"note: worker {worker.index}: {trouble}")
            seen = self._pods.get(pod.uid)
            if seen is None or seen.terminal:
                return
            await asyncio.sleep(LOOK_SECONDS)

    async def _print(self, worker: Wanted, line: str) -> None:
        prefix = f"worker {worker.index} | " if self._prefixed else ""
        self._printing += 1
        try:
            await self._print_line(f"{prefix}{shortened(without_overwritten(line))}")
        finally:
            self._printing -= 1

    async def _print_note_once(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            await self._print_note(f"note: {trouble}")

    async def _last_lines(self, job: TrainingJob, *, is_gone: bool) -> None:
        tasks: set[asyncio.Task[None]] = set(self._tasks.values())
        while tasks:
            _, tasks = await asyncio.wait(tasks, timeout=LAST_LINES_SECONDS)
            if not self._printing:  # else the reader is behind, and decides how long this takes
                break
        where, end = f"{job.metadata.namespace}/{self._name}", job.status.completion
        ending_text = "is gone" if is_gone or end is None else f"has {end.result.value.lower()}: {end.reason}"
        await self._print_note(f"==> {where} {ending_text} <==")


async def follow(session: Session, name: str, rank: int | None, tail: int | None) -> None:
    """Print until the job has ended, or a signal comes.

    Raises:
        CliError: there is no such job or rank, or the logs may not be read.
        ApiError: the first request failed.
    """
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)

    async def print_text(text: str) -> None:
        print(show.printable(text), flush=True)

    follower = Follower(session, name, rank, tail, print_text, print_text)
    work, end = asyncio.ensure_future(follower.run()), asyncio.ensure_future(over.wait())
    await asyncio.wait({work, end}, return_when=asyncio.FIRST_COMPLETED)
    end.cancel()
    if not work.done():
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        return
    work.result()

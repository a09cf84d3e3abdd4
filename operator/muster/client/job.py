"""One submitted job: wait for it, read its state, logs and account, have it save and move, suspend and cancel it."""

import asyncio
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

from muster.answers.jobstatus import JobStatusView
from muster.answers.reported import JobReport
from muster.api.trainingjob import CompletionResult, TrainingJob
from muster.cli import logs, move, report, save, status
from muster.cli.errors import CliError
from muster.cli.follow import Follower
from muster.cli.move import MovedJob
from muster.cli.printed import PRINTED_NOTHING, JobLogs, LogRequest, PodLog
from muster.cli.progress import JobProgress, progress_of, read_same_job, versions
from muster.cli.save import RequestedSave
from muster.cli.session import Session
from muster.client.background import DeadlineError
from muster.client.connection import ClusterConnection
from muster.client.errors import (
    JobFailedError,
    JobGoneError,
    JobStalledError,
    NoLogError,
    WaitTimeoutError,
    in_python,
)
from muster.kube import paths
from muster.kube.errors import ApiError, Conflict, Invalid, NotFound

T = TypeVar("T")
LINES_AHEAD = 1000
"""Lines of a followed log that are kept for a reader that is behind."""
Awaited = Literal["Running", "Suspended", "Succeeded"]
_REACHED: Mapping[str, frozenset[str]] = {
    "Running": frozenset({"Running", "Saving"}),
    "Suspended": frozenset({"Suspended"}),
    "Succeeded": frozenset(),
}


class Job:
    """A TrainingJob of the cluster. `Muster.submit` and `Muster.job` make it.

    Attributes:
        name: of the job.
        namespace: that it is in.
        uid: a job of the same name that is created later has another one.
    """

    def __init__(self, connection: ClusterConnection, session: Session, name: str, uid: str) -> None:
        self.name = name
        self.namespace = session.namespace
        self.uid = uid
        self._connection = connection
        self._session = session

    def __repr__(self) -> str:
        return f"Job({self.namespace}/{self.name})"

    def wait(
        self,
        until: Awaited = "Succeeded",
        *,
        timeout: float | None = None,
        progress: Callable[[JobProgress], object] | None = None,
    ) -> JobProgress:
        """Wait until the job is in a state; a job that has succeeded ends every wait.

        Args:
            until: the state.
            timeout: seconds; None: as long as it takes. The job is read once in any case: 0 asks how it stands now.
            progress: is called with how the job stands, now and at each change: `progress=print` prints it.

        Returns:
            How the job stands then.

        Raises:
            JobFailedError: the job has failed; JobStalledError: it needs a person.
            JobGoneError: it was deleted or ejected.
            WaitTimeoutError: the time is over. The job goes on.
            MusterError: the API server refuses, or does not answer for five minutes.
            ValueError: there is no such state to wait for.
        """
        if until not in get_args(Awaited):
            raise ValueError(f"until: {until!r} cannot be waited for: write one of {', '.join(get_args(Awaited))}")
        last: JobProgress | None = None
        try:
            for job in self._versions(timeout):
                now = progress_of(job)
                if progress is not None and now != last:
                    progress(now)
                last = now
                if self._has_reached(job, until):
                    return now
        except DeadlineError as error:
            stands = f"it is {last}" if last is not None else "the API server has not answered"
            raise WaitTimeoutError(f"job {self._full_name} is not {until} after {timeout:g} s; {stands}") from error
        raise AssertionError("unreachable: the watch ends by an error only")

    def watch(self) -> Iterator[JobProgress]:
        """Yield how the job stands, now and at each change, until it has ended.

        Raises:
            JobGoneError: it was deleted.
            MusterError: the API server refuses, or does not answer for five minutes.
        """
        last: JobProgress | None = None
        for job in self._versions(None):
            now = progress_of(job)
            if now != last:
                yield now
            last = now
            if job.status.completion is not None:
                return

    def status(self) -> JobStatusView:
        """Return the state of the job with its workers, warnings and Events, and what you can do.

        Raises:
            JobGoneError: it was deleted.
            MusterError: it cannot be read.
        """
        return self._ask(lambda session: status.find(session, self.name))

    def report(self) -> JobReport:
        """Return the account of the job: in `buckets` the seconds and GPU-hours of each kind.

        Raises:
            JobGoneError: it was deleted.
            MusterError: it cannot be read, or the job is too new to have figures.
        """
        return self._ask(lambda session: report.find(session, self.name))

    def logs(
        self,
        *,
        rank: int | None = None,
        failed: bool = False,
        attempt: int | None = None,
        tail: int | None = None,
        follow: bool = False,
    ) -> Iterator[str]:
        """Return the lines that workers have printed, of several workers with `worker N | ` before each.

        It reads the logs of at most 16 workers. Where lines are missing, for that or another reason, a Python warning
        says of which worker and why.

        Args:
            rank: only of the worker that has this rank.
            failed: only of the worker that failed, last or in `attempt`.
            attempt: only what was printed in this attempt.
            tail: lines of each worker; None: 100 of one, 10 of several.
            follow: go on with what they print until the job has ended, also in pods that replace lost ones.

        Raises:
            NoLogError: no worker has a log that can be read; says why.
            JobGoneError: it was deleted.
            MusterError: there is no such rank or attempt, or pods may not be read.
            ValueError: two arguments contradict each other.
        """
        if failed and rank is not None:
            raise ValueError("failed: it already names the worker: leave out rank")
        if follow and (failed or attempt is not None):
            raise ValueError("follow: an attempt that has ended cannot be followed: leave out failed and attempt")
        if follow:
            return self._follow(rank, tail)
        request = LogRequest(rank, failed, attempt)
        job_logs = self._ask(lambda session: logs.find(session, self.name, request, tail))
        lines = _lines(job_logs)
        if not lines:
            why = _limits(job_logs, job_logs.logs) or "it has no workers now"
            raise NoLogError(f"job {self._full_name} has no lines to read: {why}")
        limits = _limits(job_logs, [log for log in job_logs.logs if log.problem != PRINTED_NOTHING])
        if limits:
            warnings.warn(f"logs of job {self._full_name}: {limits}", stacklevel=2)
        return iter(lines)

    def save(self, *, wait: bool = True) -> RequestedSave:
        """Ask the program to save a checkpoint and go on.

        Args:
            wait: for the checkpoint, at most `spec.checkpoint.saveTimeoutSeconds` and a minute.

        Returns:
            The request, with the `step` that was saved.

        Raises:
            JobGoneError: the job was deleted.
            WaitTimeoutError: what comes of the request is not known in time. It stands.
            MusterError: the job cannot save now, or has saved nothing in its time.
        """
        return self._ask_for(lambda session, job: save.save(session, job, waits=wait, report=_ignore))

    def move(self, nodes: Sequence[str], *, undo: bool = False, timeout: int = 1800) -> MovedJob:
        """Have the job leave nodes after a save. Its workers go to others once these are free, and stay away.

        Args:
            nodes: to leave.
            undo: let the job use these nodes again, and wait for nothing.
            timeout: seconds to wait until the job has left; 0: do not wait.

        Returns:
            The nodes that the job avoids now, and where its workers are.

        Raises:
            JobGoneError: the job was deleted.
            WaitTimeoutError: the job has not left in time. It leaves once it can.
            MusterError: it has ended, has no worker on these nodes, or does not avoid those that are undone.
            ValueError: no nodes are named.
        """
        if isinstance(nodes, str) or not nodes:
            raise ValueError(f"nodes: {nodes!r} is no list of names: write e.g. ['gpu-7']")
        if undo:
            return self._ask_for(lambda session, job: move.undo_move(session, job, nodes))
        return self._ask_for(lambda session, job: move.move(session, job, nodes, timeout, _ignore))

    def suspend(self) -> None:
        """Stop the job after a last save and release its nodes; `wait("Suspended")` waits for that.

        Raises:
            MusterError: it cannot be changed.
        """
        self._change({"suspend": True})

    def resume(self) -> None:
        """Let a suspended job go on from its newest complete checkpoint.

        Raises:
            MusterError: it cannot be changed.
        """
        self._change({"suspend": False})

    def cancel(self) -> None:
        """Delete the job. Its ranks end within seconds, without a last save; its checkpoints stay.

        Raises:
            JobGoneError: it was deleted before.
            MusterError: it cannot be deleted.
        """
        options = {"preconditions": {"uid": self.uid}}
        self._write(lambda session: session.client.delete(self._path, options))

    @property
    def _full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def _path(self) -> str:
        return paths.muster("trainingjobs", namespace=self.namespace, name=self.name)

    def _versions(self, timeout: float | None) -> Iterator[TrainingJob]:
        return self._connection.iterate(self._session, versions(self._session, self.name, self.uid), timeout)

    def _follow(self, rank: int | None, tail: int | None) -> Iterator[str]:
        followed = _followed(self._session, self.name, self.uid, rank, tail)
        for text, is_note in self._connection.iterate(self._session, followed):
            if is_note:
                note = in_python(text.removeprefix("note: "))
                warnings.warn(f"logs of job {self._full_name}: {note}", stacklevel=2)
            else:
                yield text

    def _has_reached(self, job: TrainingJob, until: str) -> bool:
        """Whether the wait is over.

        Raises:
            JobFailedError: the state can never come, or not without a person.
            JobGoneError: it was ejected.
        """
        state, end = job.status.state, job.status.completion
        if end is not None and end.result is CompletionResult.FAILED:
            raise JobFailedError(
                f"job {self._full_name} has failed: {end.reason}: {end.message}; logs(failed=True) has what it printed",
                end.reason,
            )
        if end is not None:
            return True
        if job.status.is_ejected:
            raise JobGoneError(f"job {self._full_name} was ejected: Muster does not follow its ranks any more")
        if job.status.observed_generation < job.metadata.generation:
            return False  # the status is from before the newest change
        if state == "Stalled":
            now = progress_of(job)
            remedy = "status().actions has what you can do"
            raise JobStalledError(f"job {self._full_name} stalls: {now.reason}: {now.message}; {remedy}", now.reason)
        return state in _REACHED[until]

    def _ask_for(self, request: Callable[[Session, TrainingJob], Awaitable[T]]) -> T:
        """Ask for something by a change of this job, and return what came of it."""

        async def asked(session: Session) -> T:
            return await request(session, await read_same_job(session, self.name, self.uid))

        return self._connection.ask(self._session, asked, writes=True)

    def _change(self, spec: Mapping[str, Any]) -> None:
        body = {"metadata": {"uid": self.uid}, "spec": spec}
        self._write(lambda session: session.client.patch(self._path, body))

    def _ask(self, find: Callable[[Session], Awaitable[T]]) -> T:
        """Return what is found of this job.

        It is checked afterwards that the name is still this job's: a uid does not come back, so it was before.
        """

        async def found(session: Session) -> T:
            try:
                answer = await find(session)
            except CliError:
                await read_same_job(session, self.name, self.uid)
                raise
            await read_same_job(session, self.name, self.uid)
            return answer

        return self._connection.ask(self._session, found)

    def _write(self, change: Callable[[Session], Awaitable[bytes]]) -> None:
        async def changed(session: Session) -> bytes:
            try:
                return await change(session)
            except (Conflict, Invalid, NotFound) as error:
                if not self._is_gone(error):
                    raise
                message = f"job {self._full_name} was deleted before: jobs() lists those that there are"
                raise JobGoneError(message) from error

        self._connection.ask(self._session, changed, writes=True)

    def _is_gone(self, error: ApiError) -> bool:
        """Whether the answer to a write says that there is no such job any more, or another one of its name."""
        if isinstance(error, NotFound):
            return error.details.get("name") == self.name  # else the kind is unknown
        if isinstance(error, Invalid):  # of a patch that names another uid
            return any(cause.get("field") == "metadata.uid" for cause in error.details.get("causes") or ())
        return True


async def _followed(
    session: Session, name: str, uid: str, rank: int | None, tail: int | None
) -> AsyncGenerator[tuple[str, bool], None]:
    """Yield lines as they come, until the job has ended; and whether each is a note."""
    await read_same_job(session, name, uid)
    lines: asyncio.Queue[tuple[str, bool] | None] = asyncio.Queue(LINES_AHEAD)

    async def put_line(text: str) -> None:
        await lines.put((text, False))

    async def put_note(text: str) -> None:
        if text.startswith("note: "):
            await lines.put((text, True))

    async def follow() -> None:
        try:
            await Follower(session, name, rank, tail, put_line, put_note).run()
        except Exception:
            await lines.put(None)
            raise
        await lines.put(None)

    work = asyncio.create_task(follow())
    try:
        while (line := await lines.get()) is not None:
            yield line
        await work
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def _ignore(_: str) -> None:
    """Print nothing of how a wait goes."""


def _lines(job_logs: JobLogs) -> list[str]:
    """Return the lines of all workers."""
    several = len(job_logs.logs) > 1
    return [
        f"worker {log.worker} | {line}" if several else line
        for log in job_logs.logs
        for line in [*log.lines, *(kept for incident in log.incidents for kept in incident.last_lines)]
    ]


def _limits(job_logs: JobLogs, workers_logs: Sequence[PodLog]) -> str:
    """Say what limits this answer, and the logs of these workers; "": nothing does."""
    problems = [f"worker {log.worker}: {log.problem}" for log in workers_logs if log.problem]
    return in_python("; ".join([*problems, *job_logs.notes]))

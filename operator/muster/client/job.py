"""One submitted job: wait for it, read its state, logs and account, suspend and cancel it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Literal, TypeVar, get_args

from muster.answers.jobstatus import JobStatusView
from muster.answers.reported import JobReport
from muster.api.trainingjob import CompletionResult, TrainingJob
from muster.cli import logs, report, status
from muster.cli.follow import Follower
from muster.cli.printed import JobLogs, LogRequest
from muster.cli.session import Session
from muster.client.background import DeadlineError
from muster.client.connection import ClusterConnection
from muster.client.errors import (
    JobFailedError,
    JobGoneError,
    JobStalledError,
    NoLogError,
    WaitTimeoutError,
)
from muster.client.progress import JobProgress, progress_of, versions
from muster.kube import paths
from muster.kube.errors import ApiError, Conflict, Invalid, NotFound

T = TypeVar("T")
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
            timeout: seconds; None: as long as it takes.
            progress: is called with how the job stands, now and at each change: `progress=print` prints it.

        Returns:
            How the job stands then.

        Raises:
            JobFailedError: the job has failed; JobStalledError: it needs a person.
            JobGoneError: it was deleted or ejected.
            WaitTimeoutError: the time is over. The job goes on.
            MusterError: the API server refuses, or does not answer for five minutes.
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
            raise WaitTimeoutError(f"job {self._called} is not {until} after {timeout:g} s; {stands}") from error
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
            MusterError: it cannot be read.
        """
        return self._ask(lambda session: status.find(session, self.name))

    def report(self) -> JobReport:
        """Return the account of the job: in `buckets` the seconds and GPU-hours of each kind.

        Raises:
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

        Args:
            rank: only of the worker that has this rank.
            failed: only of the worker that failed, last or in `attempt`.
            attempt: only what was printed in this attempt.
            tail: lines of each worker; None: 100 of one, 10 of several.
            follow: go on with what they print until the job has ended, also in pods that replace lost ones.

        Raises:
            NoLogError: no worker has a log that can be read; says why.
            MusterError: there is no such rank or attempt, or pods may not be read.
        """
        if failed and rank is not None:
            raise ValueError("failed: it already names the worker: leave out rank")
        if follow and (failed or attempt is not None):
            raise ValueError("follow: an attempt that has ended cannot be followed: leave out failed and attempt")
        if follow:
            return self._connection.iterate(self._session, _followed(self._session, self.name, rank, tail))
        request = LogRequest(rank, failed, attempt)
        return iter(_lines(self._ask(lambda session: logs.find(session, self.name, request, tail))))

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
    def _called(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def _path(self) -> str:
        return paths.muster("trainingjobs", namespace=self.namespace, name=self.name)

    def _versions(self, timeout: float | None) -> Iterator[TrainingJob]:
        made = versions(self._session, self.name, self.uid)
        return self._connection.iterate(self._session, made, timeout)

    def _has_reached(self, job: TrainingJob, until: str) -> bool:
        """Whether the wait is over.

        Raises:
            JobFailedError: the state can never come, or not without a person.
            JobGoneError: it was ejected.
        """
        state, end = job.status.state, job.status.completion
        if end is not None and end.result is CompletionResult.FAILED:
            raise JobFailedError(
                f"job {self._called} has failed: {end.reason}: {end.message}; logs(failed=True) has what it printed",
                end.reason,
            )
        if end is not None:
            return True
        if job.status.is_ejected:
            raise JobGoneError(f"job {self._called} was ejected: Muster does not follow its ranks any more")
        if job.status.observed_generation < job.metadata.generation:
            return False  # the status is from before the newest change
        if state == "Stalled":
            now = progress_of(job)
            remedy = "status().actions has what you can do"
            raise JobStalledError(f"job {self._called} stalls: {now.reason}: {now.message}; {remedy}", now.reason)
        return state in _REACHED[until]

    def _change(self, spec: Mapping[str, Any]) -> None:
        body = {"metadata": {"uid": self.uid}, "spec": spec}
        self._write(lambda session: session.client.patch(self._path, body))

    def _ask(self, find: Callable[[Session], Awaitable[T]]) -> T:
        return self._connection.ask(self._session, find)

    def _write(self, change: Callable[[Session], Awaitable[bytes]]) -> None:
        async def changed(session: Session) -> bytes:
            try:
                return await change(session)
            except (Conflict, Invalid, NotFound) as error:
                if not self._is_gone(error):
                    raise
                message = f"job {self._called} was deleted before: jobs() lists those that there are"
                raise JobGoneError(message) from error

        self._connection.ask(self._session, changed, writes=True)

    def _is_gone(self, error: ApiError) -> bool:
        """Whether the answer to a write says that there is no such job any more, or another one of its name."""
        if isinstance(error, NotFound):
            return error.details.get("name") == self.name  # else the kind is unknown
        if isinstance(error, Invalid):  # of a patch that names another uid
            return any(cause.get("field") == "metadata.uid" for cause in error.details.get("causes") or ())
        return True


async def _followed(session: Session, name: str, rank: int | None, tail: int | None) -> AsyncGenerator[str, None]:
    """Yield lines as they come, until the job has ended."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    work = asyncio.ensure_future(Follower(session, name, rank, tail, lines.put_nowait).run())
    work.add_done_callback(lambda _: lines.put_nowait(None))
    try:
        while (line := await lines.get()) is not None:
            yield line
        work.result()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


def _lines(job_logs: JobLogs) -> list[str]:
    """Return the lines of all workers.

    Raises:
        NoLogError: there are none.
    """
    several = len(job_logs.logs) > 1
    lines = [
        f"worker {log.worker} | {line}" if several else line
        for log in job_logs.logs
        for line in [*log.lines, *(kept for incident in log.incidents for kept in incident.last_lines)]
    ]
    if not lines:
        why = [*(f"worker {log.worker}: {log.problem}" for log in job_logs.logs), *job_logs.notes]
        sentences = "; ".join(why) or "it has no workers now"
        raise NoLogError(f"job {job_logs.namespace}/{job_logs.name} has no lines to read: {sentences}")
    return lines

"""Follow one job by a watch: how it stands, each time that this changes.

A watch that is cut is opened again after the job has been read. An API server that does not answer is asked again for
a while. A change of the operator's leader is no event here: the next one writes the same status.

Tests: tests/unit/client/test_progress.py.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from muster.answers.explanation import explain
from muster.answers.text_parts import on_one_line
from muster.api.trainingjob import TrainingJob
from muster.cli.jobs import JobDeletedError, NoSuchJobError, job_of
from muster.cli.session import Session
from muster.kube import decode, paths
from muster.kube.errors import Gone, ServerError, TooManyRequests, Unreachable, from_status

SERVER_SECONDS = 300
"""How long the API server is asked to keep one watch open."""
UNANSWERED_SECONDS = 300.0
"""How long an API server that does not answer is asked again."""
PAUSE_SECONDS = 1.0
_PASSES = (Gone, Unreachable, ServerError, TooManyRequests)
_TRAINS = frozenset({"Running", "Saving"})


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How a job stands. As text it is one line.

    Attributes:
        state: as `kubectl get tj`; "": no operator has looked at the job yet.
        reason: why, as one CamelCase word of docs/reference/messages.md.
        message: the reason as a sentence: what the job waits for, or what has failed.
        step: newest finished step; None: none is known.
        checkpoint_step: of the newest complete checkpoint; None: there is none.
        attempt: number of the newest start; 0: none yet.
        nodes_ready: workers that run, of how many, e.g. `15/16`.
        position: place in the queue; None: it does not wait there.
        warnings: reasons of what a person should know about the job.
    """

    state: str
    reason: str = ""
    message: str = ""
    step: int | None = None
    checkpoint_step: int | None = None
    attempt: int = 0
    nodes_ready: str = ""
    position: int | None = None
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.line("status()")

    def line(self, shown_by: str) -> str:
        """Return the line; `shown_by` is the call or the command that shows the warnings."""
        parts = [self.state or "New: no operator has looked at the job yet"]
        if self.reason not in ("", self.state):
            parts[0] += f" ({self.reason})"
        if self.position is not None:
            parts.append(f"place {self.position} in the queue")
        if self.step is not None:
            parts.append(f"step {self.step:,}")
        if self.checkpoint_step is not None:
            parts.append(f"checkpoint {self.checkpoint_step:,}")
        if self.warnings:
            parts.append(f"see {', '.join(self.warnings)} in {shown_by}")
        reason_text = f": {self.message}" if self.message and self.state not in _TRAINS else ""
        return ", ".join(parts) + reason_text


def progress_of(job: TrainingJob) -> JobProgress:
    """Return how a job stands."""
    status, base = job.status, explain(job)
    return JobProgress(
        state=status.state,
        reason=status.reason,
        message=on_one_line(base.message),
        step=status.step,
        checkpoint_step=status.checkpoint.step if status.checkpoint else None,
        attempt=status.attempt,
        nodes_ready=base.nodes_ready,
        position=status.waiting.position or None if status.waiting else None,
        warnings=tuple(warning.reason for warning in status.warnings),
    )


async def versions(session: Session, name: str, uid: str) -> AsyncGenerator[TrainingJob, None]:
    """Yield a job as it is now, and each time that it changes. Use inside `contextlib.aclosing`.

    Raises:
        JobDeletedError: it was deleted.
        CliError: this version cannot read it.
        ApiError: the API server refuses, or has not answered for `UNANSWERED_SECONDS`.
    """
    failing_since: float | None = None
    while True:
        try:
            async with contextlib.aclosing(_until_cut(session, name, uid)) as jobs:
                async for job in jobs:
                    failing_since = None
                    yield job
        except _PASSES:
            now = time.monotonic()
            failing_since = now if failing_since is None else failing_since
            if now - failing_since > UNANSWERED_SECONDS:
                raise
        await asyncio.sleep(PAUSE_SECONDS)


async def read_same_job(session: Session, name: str, uid: str) -> TrainingJob:
    """Read a job.

    Raises:
        JobDeletedError: it was deleted, also where another one has its name.
        CliError: this version cannot read it.
        ApiError: the API server did not answer as it should.
    """
    try:
        job = await job_of(session, name)
    except NoSuchJobError as error:
        raise _gone(session, name) from error
    if job.metadata.uid != uid:
        raise _gone(session, name)
    return job


async def _until_cut(session: Session, name: str, uid: str) -> AsyncGenerator[TrainingJob, None]:
    """Yield a job as it is, then its changes until the watch ends."""
    job = await read_same_job(session, name, uid)
    yield job
    query: dict[str, str | int] = {
        "fieldSelector": f"metadata.name={name}",
        "resourceVersion": job.metadata.resource_version,
        "allowWatchBookmarks": "true",
        "timeoutSeconds": SERVER_SECONDS,
    }
    path = paths.muster("trainingjobs", namespace=session.namespace)
    async with contextlib.aclosing(session.client.watch(path, query)) as lines:
        async for line in lines:
            event = decode.watch_event(line)
            if event.type == "ERROR":
                raise from_status(0, bytes(event.object))
            if event.type == "DELETED":
                raise _gone(session, name)
            if event.type == "BOOKMARK":
                continue
            changed = decode.custom(TrainingJob)(event.object)
            if isinstance(changed, decode.Undecodable):
                return  # reading it again says why
            yield changed


def _gone(session: Session, name: str) -> JobDeletedError:
    return JobDeletedError(
        f"job {session.namespace}/{name} was deleted; its checkpoints stay: submit it again to go on from the newest"
    )

"""Wait for what a job was asked for, and say how it goes.

Tests: tests/unit/cli/test_move.py.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from muster.api.trainingjob import TrainingJob
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.jobs import JobDeletedError, job_of
from muster.cli.session import Session

PAUSE_SECONDS = 1.0

NoWaitOption = Annotated[bool, typer.Option("--no-wait", help="Write the request, and end.")]
TimeoutOption = Annotated[
    int,
    typer.Option(
        "--timeout", min=1, max=86400, metavar="SECONDS", help="How long to wait. The request stands afterwards, too."
    ),
]


class NotInTimeError(CliError):
    """What was asked for has not come in time. The request stands."""


def say(line: str) -> None:
    """Print one line of progress on stderr."""
    typer.echo(show.printable(line), err=True)


async def wait(
    session: Session,
    job: TrainingJob,
    seconds: int,
    is_over: Callable[[TrainingJob], Awaitable[bool]],
    report: Callable[[str], object],
) -> tuple[TrainingJob, bool]:
    """Read a job once a second, and report each change of its state, until something holds.

    Args:
        session: with the job's namespace.
        job: as it was read before.
        seconds: for which it is waited.
        is_over: whether the wait is over.
        report: is called with the state, as one line.

    Returns:
        The job as it was read last, and whether the wait was over in time.

    Raises:
        JobDeletedError: it was deleted or replaced.
        ApiError: the API server did not answer as it should.
    """
    printed, current = "", job
    for _ in range(seconds):
        current = await job_of(session, job.metadata.name)
        if current.metadata.uid != job.metadata.uid or current.metadata.deletion_timestamp is not None:
            raise JobDeletedError(f"job {session.namespace}/{job.metadata.name} was deleted or replaced just now")
        if await is_over(current):
            return current, True
        line = state_of(current)
        if line != printed:
            report(line)
        printed = line
        await asyncio.sleep(PAUSE_SECONDS)
    return current, False


def state_of(job: TrainingJob) -> str:
    """Return the state of a job on one line, as its status tells it."""
    status = job.status
    if status.observed_generation < job.metadata.generation:
        return "the operator has not seen the request yet"
    running = next((condition for condition in status.conditions if condition.type == "Running"), None)
    message = f": {running.message}" if running is not None and running.message else ""
    return f"{status.state} ({status.reason}){message}"

"""Follow a job that was just created, until it has ended or the user leaves it.

Tests: tests/unit/cli/test_submit.py.
"""

import contextlib

import typer

from muster.api.trainingjob import CompletionResult, TrainingJob
from muster.cli import confirmation, show
from muster.cli.cancel import delete_job
from muster.cli.errors import CliError
from muster.cli.jobs import job_of
from muster.cli.progress import progress_of, versions
from muster.cli.session import Options, Session, connected

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C has ended, as a shell has it."""


def attach(options: Options, name: str, uid: str) -> None:
    """Print how a job stands, now and at each change, until it has ended.

    Raises:
        typer.Exit: with code 1 where it has failed, or needs a person, with `INTERRUPTED` where the user left it.
    """
    try:
        connected(options, lambda session: _wait_for_end(session, name, uid))
    except KeyboardInterrupt as error:
        full_name = f"{options.namespace}/{name}"
        if _wants_to_cancel(full_name):
            connected(options, lambda session: _cancel(session, name, uid))
        else:
            _say(f"detached: job {full_name} goes on. kubectl muster status {full_name} shows it")
        raise typer.Exit(INTERRUPTED) from error


async def _wait_for_end(session: Session, name: str, uid: str) -> None:
    """Return when the job has succeeded.

    Raises:
        CliError: it has failed, was deleted or ejected, or does not go on without a person.
        ApiError: the API server refuses, or does not answer for long.
    """
    last = ""
    async with contextlib.aclosing(versions(session, name, uid)) as jobs:
        async for job in jobs:
            line = progress_of(job).line(f"kubectl muster status {session.namespace}/{name}")
            if line != last:
                _say(line)
            last = line
            if _has_succeeded(job):
                return


def _has_succeeded(job: TrainingJob) -> bool:
    """Return whether the wait is over.

    Raises:
        CliError: it will not succeed, or not without a person.
    """
    end, full_name = job.status.completion, f"{job.metadata.namespace}/{job.metadata.name}"
    if end is not None and end.result is CompletionResult.FAILED:
        raise CliError(
            f"job {full_name} has failed: {end.reason}: {end.message}; kubectl muster logs {full_name} --failed has "
            "what it printed"
        )
    if job.status.is_ejected:
        raise CliError(f"job {full_name} was ejected: Muster does not follow its ranks any more")
    is_current = job.status.observed_generation >= job.metadata.generation
    if end is None and is_current and job.status.state == "Stalled":
        now = progress_of(job)
        raise CliError(
            f"job {full_name} stalls: {now.reason}: {now.message}; kubectl muster status {full_name} has what you "
            "can do"
        )
    return end is not None


def _wants_to_cancel(name: str) -> bool:
    """Ask what Ctrl-C means. Any answer but `cancel` detaches, and so does a second Ctrl-C, or no terminal."""
    if not confirmation.is_terminal():
        return False
    try:
        answer = typer.prompt(f"\nDetach from job {name}, so that it goes on, or cancel it?", "detach", err=True)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo(err=True)
        return False
    return bool(answer.strip() == "cancel")


async def _cancel(session: Session, name: str, uid: str) -> None:
    job = await job_of(session, name)
    if job.metadata.uid == uid:
        await delete_job(session, job)
    _say(f"job {session.namespace}/{name} was deleted: its ranks end within seconds, and its checkpoints stay")


def _say(line: str) -> None:
    typer.echo(show.printable(line), err=True)

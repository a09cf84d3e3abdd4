"""`kubectl muster save JOB`: ask the program of a job to save and go on.

The request is in the job's spec (spec.checkpoint.saveRequest), so nothing hangs on this command once it has written
that.
"""

from collections.abc import Callable
from typing import Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import ENDED, OUTPUT_VERSION
from muster.api.base import ApiModel, rfc3339
from muster.api.gang import SaveRequest
from muster.api.trainingjob import LaunchMode, TrainingJob
from muster.cli import show, waiting
from muster.cli.errors import CliError
from muster.cli.jobs import job_of, patch_spec
from muster.cli.reading import record_of
from muster.cli.session import (
    ContextOption,
    JobArgument,
    KubeconfigOption,
    NamespaceOption,
    Options,
    OutputOption,
    Session,
    job_argument,
    run,
)
from muster.cli.waiting import NoWaitOption

# Beside the time that the job itself has for a save: for the operator to see the request, and to say what came of it.
MORE_SECONDS = 60


class RequestedSave(ApiModel):
    """A request to save and go on, and what came of it."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["RequestedSave"] = "RequestedSave"
    name: str
    namespace: str
    request: str = Field(description="The job's spec.checkpoint.saveRequest.")
    step: int | None = Field(None, description="Of the checkpoint that was saved; absent: it was not waited for.")


def command(
    context: typer.Context,
    job: JobArgument,
    no_wait: NoWaitOption = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Ask a job to save a checkpoint and go on.

    A program that looks for requests saves at the end of its step.
    """
    short, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)

    async def asked(session: Session) -> RequestedSave:
        return await save(session, await job_of(session, short), waits=not no_wait, report=waiting.say)

    run(options, asked, render)


async def save(session: Session, job: TrainingJob, *, waits: bool, report: Callable[[str], object]) -> RequestedSave:
    """Ask a job to save, and wait for the checkpoint.

    Args:
        session: with the job's namespace.
        job: as it was read just now.
        waits: whether to wait for the checkpoint.
        report: is called with how the wait goes, a line each time.

    Raises:
        CliError: the job cannot save now, or has saved nothing.
        NotInTimeError: what comes of the request is not known in time.
        ApiError: the API server did not answer as it should.
    """
    _check_can_save(job)
    request = rfc3339(session.now())
    await patch_spec(session, job, {"checkpoint": {"saveRequest": request}})
    asked = RequestedSave(name=job.metadata.name, namespace=session.namespace, request=request)
    if job.status.state == "Saving":
        report("the job saves to leave nodes: that save serves the request, or the program is asked after it")
    if not waits:
        return asked
    seconds = job.spec.checkpoint.save_timeout_seconds
    report(f"request {request}: waiting for a new complete checkpoint, at most {seconds} s")
    step = await _saved_step(session, job, request, seconds + MORE_SECONDS, report)
    return asked.model_copy(update={"step": step})


def _check_can_save(job: TrainingJob) -> None:
    """Check that the job has ranks that can be asked, and that Muster sees what they save.

    Raises:
        CliError: it has none, or it does not.
    """
    status, called = job.status, f"job {job.metadata.namespace}/{job.metadata.name}"
    if job.metadata.deletion_timestamp is not None:
        raise CliError(f"{called} is being deleted: none of its ranks saves any more")
    if status.state in ENDED or status.completion is not None:
        raise CliError(f"{called} has ended ({status.state}): none of its ranks saves any more")
    if job.spec.eject:
        raise CliError(f"{called} leaves Muster, or has left it (spec.eject): its ranks are asked for nothing")
    if job.spec.launch.mode is LaunchMode.PLAIN or not job.spec.checkpoint.directory:
        raise CliError(
            f"{called} cannot be asked: Muster sees checkpoints only in mode Managed, in spec.checkpoint.directory"
        )
    if job.spec.checkpoint.save_timeout_seconds == 0:
        raise CliError(f"{called} waits for no save: its spec.checkpoint.saveTimeoutSeconds is 0")
    if status.state not in ("Running", "Saving"):
        reason = f" ({status.reason})" if status.reason else ""
        raise CliError(
            f"{called} is {status.state or 'new'}{reason}: only ranks that train can save. Try again once it is Running"
        )


async def _saved_step(
    session: Session, job: TrainingJob, request: str, seconds: int, report: Callable[[str], object]
) -> int:
    """Wait for the checkpoint of the request, and return its step.

    Raises:
        CliError: the job has ended meanwhile, its record may not be read, or its program has saved nothing.
        NotInTimeError: what comes of the request is not known in time.
    """

    called = f"job {session.namespace}/{job.metadata.name}"

    async def is_over(current: TrainingJob) -> bool:
        recorded = await _recorded(session, current, request)
        if recorded is None and current.spec.checkpoint.save_request != request:
            raise CliError(f"{called} was asked to save by another user at the same time: run the command again")
        return current.status.completion is not None or (recorded is not None and recorded.over)

    job, in_time = await waiting.wait(session, job, seconds, is_over, report)
    recorded = await _recorded(session, job, request)
    if recorded is not None and recorded.saved_step is not None:
        return recorded.saved_step
    if job.status.completion is not None:
        raise CliError(f"{called} has ended meanwhile ({job.status.state})")
    if in_time:
        raise CliError(
            f"{called} has no new complete checkpoint: its program does not look for requests, or its save takes "
            "longer. It trains on"
        )
    raise waiting.NotInTimeError(
        f"{called} has not saved after {seconds} s, and the request stands: {waiting.state_of(job)}"
    )


async def _recorded(session: Session, job: TrainingJob, request: str) -> SaveRequest | None:
    """Return the request as the job's record has it; None: it has another one, or none.

    Raises:
        CliError: the record cannot be read.
    """
    record, unread = await record_of(session, job)
    if unread:
        raise CliError(f"what becomes of the request is not known: {unread[0]}")
    recorded = record.save_request if record is not None else None
    return recorded if recorded is not None and recorded.name == request else None


def render(console: Console, it: RequestedSave) -> None:
    """Print the step that was saved, or that it was asked for."""
    text = f"is asked to save ({it.request})" if it.step is None else f"has saved step {it.step}"
    console.print(Text(show.printable(f"{it.namespace}/{it.name} {text}"), style="bold"))

"""`kubectl muster cancel JOB`: delete a job, after its user has read what is lost and what stays."""

from typing import Annotated, Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import OUTPUT_VERSION
from muster.api.base import ApiModel
from muster.api.trainingjob import TrainingJob
from muster.cli import show
from muster.cli.confirmation import confirm
from muster.cli.errors import CliError
from muster.cli.jobs import job_of
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
from muster.kube import paths
from muster.kube.errors import Conflict, NotFound

_SUSPENDED = '{"spec":{"suspend":true}}'


class Cancellation(ApiModel):
    """A job that was deleted."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["Cancellation"] = "Cancellation"
    name: str
    namespace: str
    state: str = Field(description="Of the job before.")
    consequences: list[str] = Field(description="What ends, what is lost and what stays.")


def command(
    context: typer.Context,
    job: JobArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Delete a job, without a last save; ask first.

    Its ranks end within seconds. Its checkpoints stay, and so does its account in the fleet's report.
    """
    name, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)
    run(options, lambda session: _cancel(session, name, yes=yes), render)


async def _cancel(session: Session, name: str, *, yes: bool) -> Cancellation:
    job = await job_of(session, name)
    made = Cancellation(name=name, namespace=session.namespace, state=job.status.state, consequences=consequences(job))
    if not yes:
        await _confirm(job, made)
    await delete_job(session, job)
    return made


def consequences(job: TrainingJob) -> list[str]:
    """Return what follows from the deletion of a job, a sentence each."""
    status, directory = job.status, job.spec.checkpoint.directory
    if status.completion is not None:
        lines = ["it has ended: nothing runs any more, and what its workers printed is gone with their pods"]
    else:
        lines = ["its ranks end within seconds, without a last save"]
        saved = status.checkpoint
        if status.step is not None and saved is None:
            lines.append(f"no complete checkpoint of it is known: its {status.step:,} steps may be lost")
        elif status.step is not None and saved is not None and status.step > saved.step:
            lines.append(
                f"{status.step - saved.step:,} steps since its newest complete checkpoint, {saved.step:,}, are lost"
            )
    lines.append(f"its checkpoints stay{f' in {directory}' if directory else ''}")
    lines.append("its account stays in kubectl muster report --fleet, if it has had nodes")
    owner = job.metadata.controller
    if owner is not None:
        lines.append(f"it belongs to {owner.kind} {owner.name}, which may make it again")
    return lines


async def delete_job(session: Session, job: TrainingJob) -> None:
    """Delete a job, and no other one that has taken its name meanwhile.

    Raises:
        CliError: it was deleted before.
        ApiError: the API server did not answer as it should.
    """
    path = paths.muster("trainingjobs", namespace=session.namespace, name=job.metadata.name)
    try:
        await session.client.delete(path, {"preconditions": {"uid": job.metadata.uid}})
    except (Conflict, NotFound) as error:
        raise CliError(
            f"job {session.namespace}/{job.metadata.name} was deleted or replaced meanwhile: nothing was done"
        ) from error


async def _confirm(job: TrainingJob, made: Cancellation) -> None:
    lines = [f"{made.namespace}/{made.name} is {made.state or 'New'}:", *(f"  {line}" for line in made.consequences)]
    if job.status.completion is None and job.status.step is not None:
        suspends = f"kubectl patch -n {made.namespace} tj {made.name} --type=merge -p '{_SUSPENDED}'"
        lines.append(f"  to have it save before: {suspends}")
    typer.echo(show.printable("\n".join(lines)), err=True)
    await confirm("Delete it?")


def render(console: Console, it: Cancellation) -> None:
    """Print what was deleted."""
    console.print(Text(show.printable(f"trainingjob {it.namespace}/{it.name} deleted"), style="bold"))
    for line in it.consequences:
        console.print(Text(show.printable(f"  {line}")))

"""`kubectl muster fork`: create a job that begins from a checkpoint of another one, with a directory of its own."""

import json
from typing import Annotated, Any, Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import OUTPUT_VERSION
from muster.api.base import ApiModel
from muster.cli import show
from muster.cli.convert import as_document
from muster.cli.created import create_job
from muster.cli.forked import forked
from muster.cli.jobs import read_job
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


class Fork(ApiModel):
    """A job that begins from another one's checkpoint."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["Fork"] = "Fork"
    name: str
    namespace: str
    source_job: str = Field(description="The job whose checkpoint it begins from.")
    resume_from: str
    directory: str = Field(description="Where it saves.")
    created: bool = Field(description="False: it was only asked what would become of it.")
    changes: list[str] = Field(description="What is different from the job that it is a fork of.")
    checks: list[str] = Field(description="What to look at.")
    manifest: dict[str, Any] = Field(description="The TrainingJob.")


def command(
    context: typer.Context,
    job: JobArgument,
    from_step: Annotated[
        int | None,
        typer.Option("--from-step", metavar="N", min=0, help="Step to begin from. Default: the newest complete one."),
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="NEW", help="Name of the new job. Default: JOB-STEP.")] = "",
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="What is different, as often as needed: a variable (LR=0.1), an option of the command (--lr=0.1), "
            "or a field of the job (spec.nodes=4; its value is YAML).",
        ),
    ] = None,
    directory: Annotated[
        str,
        typer.Option(
            "--directory", metavar="PATH|URL", help="Where the new job saves. Default: beside the directory of JOB."
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the new job, and do not create it.")] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Create a job that begins from a checkpoint of another one.

    The new job saves to a directory of its own.
    """
    short, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)

    async def find(session: Session) -> Fork:
        return await _fork(session, short, name, from_step, directory, sets or [], dry_run)

    run(options, find, render)


async def _fork(
    session: Session, job: str, name: str, from_step: int | None, directory: str, sets: list[str], dry_run: bool
) -> Fork:
    """Build the new job, and create it unless this is a dry run.

    Raises:
        CliError: it cannot be built, or the API server refuses it.
        ApiError: the API server did not answer as it should.
    """
    data, source_job = await read_job(session, job)
    made = forked(source_job, json.loads(data), name=name, from_step=from_step, directory=directory, sets=sets)
    new = made.manifest["metadata"]["name"]
    await create_job(session, made.manifest, dry_run=dry_run)
    return Fork(
        name=new,
        namespace=session.namespace,
        source_job=source_job.metadata.name,
        resume_from=made.start,
        directory=made.directory,
        created=not dry_run,
        changes=made.changed,
        checks=made.check,
        manifest=made.manifest,
    )


def render(console: Console, it: Fork) -> None:
    """Print what was created; or the manifest on stdout and the rest on stderr."""
    if not it.created:
        typer.echo(show.printable(_notes(it)), err=True)
        typer.echo(as_document(it.manifest), nl=False)  # unchanged: a terminal's console would fold it
        return
    head = f"trainingjob {it.namespace}/{it.name} created: it begins from {it.resume_from} and saves to {it.directory}"
    console.print(Text(show.printable(head), style="bold"))
    console.print(Text(show.printable(_notes(it))))
    console.print(Text(show.printable(f"see kubectl muster status -n {it.namespace} {it.name}")))


def _notes(it: Fork) -> str:
    return "\n".join(
        [*(f"  changed  {change}" for change in it.changes), *(f"  check    {check}" for check in it.checks)]
    )

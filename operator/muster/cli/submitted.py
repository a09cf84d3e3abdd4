"""What `submit` and `run` have in common: their options, and how a job is created, shown and followed.

Tests: tests/unit/cli/test_submit.py.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import OUTPUT_VERSION
from muster.api.base import ApiModel
from muster.cli import show
from muster.cli.attached import attach
from muster.cli.convert import NOT_ALL, as_document, note_lines
from muster.cli.created import create_job
from muster.cli.session import Options, Session, connected, print_finding
from muster.convert.documents import Result
from muster.convert.fields import Notes

NameOption = Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the job.")]
GpusOption = Annotated[
    int | None, typer.Option("--gpus-per-node", metavar="N", min=0, help="Accelerators of each node; 0: none.")
]
VolumesOption = Annotated[
    list[str] | None,
    typer.Option("--volume", metavar="PATH=CLAIM", help="Mount a PersistentVolumeClaim at a path; as often as needed."),
]
DirectoryOption = Annotated[
    str,
    typer.Option(
        "--checkpoint-directory", metavar="PATH|URL", help="Where the program saves (spec.checkpoint.directory)."
    ),
]
TimeOption = Annotated[
    str,
    typer.Option("--time", "-t", metavar="TIME", help="Expected to train, as in Slurm; an estimate that ends nothing."),
]
HoldOption = Annotated[
    int | None,
    typer.Option(
        "--hold-on-failure", metavar="SECONDS", min=1, help="Keep the workers of a failure so long, for a shell."
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Print the job, and do not create it.")]


class SubmittedJob(ApiModel):
    """A job that was created of a script or a command."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["SubmittedJob"] = "SubmittedJob"
    name: str
    namespace: str
    uid: str = Field(description="Empty for a dry run.")
    created: bool = Field(description="False: it was only asked what would become of it.")
    changes: list[str] = Field(description="What became of lines of the script.")
    omitted: list[str] = Field(description="What means nothing here.")
    checks: list[str] = Field(description="What to look at.")
    manifest: dict[str, Any] = Field(description="The TrainingJob.")


def volumes_of(written: Sequence[str] | None) -> dict[str, str]:
    """Return the claim of each path.

    Raises:
        typer.BadParameter: one is no PATH=CLAIM.
    """
    volumes: dict[str, str] = {}
    for text in written or ():
        path, sign, claim = text.partition("=")
        if not path.startswith("/") or not sign or not claim:
            why = f"{text}: write the path and the claim, as /shared=my-claim"
            raise typer.BadParameter(why, param_hint="--volume")
        volumes[path.rstrip("/") or "/"] = claim
    return volumes


def submit_result(options: Options, title: str, result: Result, *, dry_run: bool, wait: bool) -> None:
    """Create a job, print what became of it, and follow it.

    Args:
        options: of the command line.
        title: what the job was made of, for people.
        result: the job, or why there is none.
        dry_run: print the job only; the API server is asked whether it takes it.
        wait: until the job has ended.

    Raises:
        typer.Exit: with code 2 where there is no job, as of `connected` and `attach` otherwise.
    """
    if result.job is None:
        lines = [f"error: {title} cannot become a job:", *(f"  {line}" for line in result.refused.split("\n"))]
        typer.echo(show.printable("\n".join(lines)), err=True)
        raise typer.Exit(NOT_ALL)
    manifest, notes = result.job, result.notes

    async def create(session: Session) -> SubmittedJob:
        uid = await create_job(session, manifest, dry_run=dry_run)
        return SubmittedJob(
            name=manifest["metadata"]["name"],
            namespace=session.namespace,
            uid=uid,
            created=not dry_run,
            changes=notes.became,
            omitted=notes.left_out,
            checks=notes.check,
            manifest=manifest,
        )

    created = connected(options, create)
    print_finding(options, created, render)
    if wait and not dry_run:
        attach(Options(options.kubeconfig, options.context, created.namespace), created.name, created.uid)


def render(console: Console, it: SubmittedJob) -> None:
    """Print what was created; or the manifest on stdout and the rest on stderr."""
    lines = "\n".join(note_lines(Notes(it.changes, it.omitted, it.checks)))
    if not it.created:
        typer.echo(show.printable(lines), err=True)
        typer.echo(as_document(it.manifest), nl=False)  # unchanged: a terminal's console would fold it
        return
    console.print(Text(show.printable(f"trainingjob {it.namespace}/{it.name} created"), style="bold"))
    console.print(Text(show.printable(lines)))
    console.print(Text(show.printable(f"see kubectl muster status -n {it.namespace} {it.name}")))

"""`kubectl muster requeue JOB`: delete a job and create it again, so that it goes on from its newest checkpoint.

The job is never lost. The API server is asked first whether it takes the job, and the manifest lies in a file from
before the deletion until the job exists again.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import ENDED, OUTPUT_VERSION
from muster.api.base import ApiModel
from muster.api.gang import GangSpec
from muster.api.trainingjob import TrainingJob
from muster.cli import show
from muster.cli.confirmation import confirm
from muster.cli.convert import as_document
from muster.cli.errors import CliError, one_line
from muster.cli.forked import bare_manifest
from muster.cli.jobs import read_job
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
from muster.kube import paths
from muster.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    DryRunUnsupported,
    Forbidden,
    NotFound,
    Unauthorized,
    Unreachable,
)
from muster.protocol.resuming import is_own

GONE_WITHIN_SECONDS = 300
"""How long the deletion may take: pods have their grace period, and those on lost nodes go later."""
PAUSE_SECONDS = 1.0


class Requeue(ApiModel):
    """A job that was created again."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["Requeue"] = "Requeue"
    name: str
    namespace: str
    created: bool = Field(description="False: it was only asked what would become of it.")
    start: str = Field(description="What it begins from, as a sentence.")
    changes: list[str] = Field(description="What is different from the job before.")
    manifest: dict[str, Any] = Field(description="The TrainingJob.")


@dataclass(slots=True)
class Again:
    """A job as it is to be created again.

    Attributes:
        manifest: of the job.
        start: what it begins from, as a sentence.
        changed: differences from the job, for people.
    """

    manifest: dict[str, Any]
    start: str
    changed: list[str] = field(default_factory=list)


def command(
    context: typer.Context,
    job: JobArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    save: Annotated[
        str,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Where the manifest lies until the job exists again. Default: JOB.requeue.yaml.",
        ),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the job, and change nothing.")] = False,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Delete a job and create it again.

    The new job goes on from the newest checkpoint in its directory, with new restart budgets.
    """
    short, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)
    file = Path(save or f"{short}.requeue.yaml")
    run(options, lambda session: _requeue(session, short, file, yes=yes, dry_run=dry_run), render)


def made_again(
    job: TrainingJob, raw: Mapping[str, Any], record: GangSpec | None, *, record_known: bool = True
) -> Again:
    """Build the job that takes the place of this one.

    Args:
        job: the one that is replaced.
        raw: the job from the API server, with fields that the model does not know.
        record: its record; None: there is none, or it may not be read.
        record_known: whether the record could be read.

    Raises:
        CliError: something else makes this job, and would make it again.
    """
    owner = job.metadata.controller
    if owner is not None:
        raise CliError(
            f"job {job.metadata.name} belongs to {owner.kind} {owner.name}, which makes it: have that make it again"
        )
    manifest = bare_manifest(raw, job, job.metadata.name)
    new_job = Again(manifest, "it begins without a checkpoint from Muster")
    if job.spec.suspend:
        new_job.changed.append("spec.suspend: taken out")
    directory, saved, requested = job.spec.checkpoint.directory, job.status.checkpoint, job.spec.checkpoint.resume_from
    if saved is None or directory is None or not is_own(saved.path, directory):
        if requested is not None:
            new_job.start = f"it begins from {requested}, as spec.checkpoint.resumeFrom asks"
        return new_job
    new_job.start = f"it goes on from step {saved.step} in {directory}"
    checkpoint = manifest["spec"].get("checkpoint") or {}
    branch = record.branch if record is not None else None
    excludes = branch is not None and (branch.frozen or bool(branch.excluded_checkpoints))
    if excludes or not (record_known or requested is None):
        # Without its record, checkpoints that do not count any more would count again.
        manifest["spec"]["checkpoint"] = {**checkpoint, "resumeFrom": saved.path}
        new_job.changed.append(f"spec.checkpoint.resumeFrom: {saved.path}, so that later ones do not count")
    elif requested is not None:
        manifest["spec"]["checkpoint"] = {name: value for name, value in checkpoint.items() if name != "resumeFrom"}
        new_job.changed.append(f"spec.checkpoint.resumeFrom: {requested} was applied, and is taken out")
    return new_job


async def _requeue(session: Session, name: str, file: Path, *, yes: bool, dry_run: bool) -> Requeue:
    """Delete the job and create it again, unless this is a dry run.

    Raises:
        CliError: it cannot be created again, or the user has not confirmed it; says where the manifest is if the job
            is gone.
        ApiError: the API server did not answer as it should, before anything was changed.
    """
    data, job = await read_job(session, name)
    if job.metadata.deletion_timestamp is not None:
        raise CliError(f"job {session.namespace}/{name} is being deleted: create it again once it is gone")
    record, unread = await record_of(session, job)
    new_job = made_again(job, json.loads(data), record, record_known=not unread)
    await _check_is_accepted(session, new_job.manifest)
    if not dry_run:
        if not yes:
            await _confirm(job, new_job)
        await _replace(session, job, new_job.manifest, file)
    return Requeue(
        name=name,
        namespace=session.namespace,
        created=not dry_run,
        start=new_job.start,
        changes=new_job.changed,
        manifest=new_job.manifest,
    )


async def _check_is_accepted(session: Session, manifest: Mapping[str, Any]) -> None:
    """Check that the API server takes the job, as far as it says so while there is one of that name.

    Raises:
        CliError: it does not; nothing is changed.
    """
    path, query = paths.muster("trainingjobs", namespace=session.namespace), {"fieldValidation": "Strict"}
    try:
        await session.client.post(path, manifest, {**query, "dryRun": "All"})
    except (AlreadyExists, DryRunUnsupported):
        return  # the job itself: it is found last
    except (Forbidden, NotFound, Unauthorized, Unreachable):
        raise
    except ApiError as error:
        raise CliError(
            f"the API server does not take job {manifest['metadata']['name']} again: {one_line(error.message)}. "
            "Nothing was changed"
        ) from error


async def _confirm(job: TrainingJob, new_job: Again) -> None:
    """Ask on the terminal.

    Raises:
        CliError: there is no terminal, or the answer was no.
    """
    state = job.status.state or "new"
    lines = [
        f"job {job.metadata.namespace}/{job.metadata.name} ({state}) is deleted and created again: {new_job.start}"
    ]
    if job.status.state not in ENDED:
        lines.append("it has not ended: its ranks stop at once, without a last save (spec.suspend waits for one)")
    for line in [*lines, *new_job.changed]:
        typer.echo(f"-  {show.printable(line)}", err=True)
    await confirm("Delete it and create it again?")


async def _replace(session: Session, job: TrainingJob, manifest: Mapping[str, Any], file: Path) -> None:
    name, namespace = job.metadata.name, session.namespace
    save_manifest(manifest, file)
    typer.echo(show.printable(f"the manifest is in {file} until the job exists again"), err=True)
    kept = f"Its manifest is in {file}: kubectl create -f {file}"
    path = paths.muster("trainingjobs", namespace=namespace, name=name)
    options = {"preconditions": {"uid": job.metadata.uid}, "propagationPolicy": "Foreground"}
    try:
        await session.client.delete(path, options)
    except (Conflict, NotFound) as error:  # this one is gone already
        raise CliError(f"job {namespace}/{name} was deleted by another user just now. {kept}") from error
    except (Forbidden, Unauthorized):
        _remove(file)
        raise
    except ApiError as error:
        raise CliError(
            f"whether job {namespace}/{name} is deleted is not known: {one_line(error.message)}. {kept}, if it is gone"
        ) from error
    if not await is_gone(session, path, job.metadata.uid, GONE_WITHIN_SECONDS):
        raise CliError(
            f"job {namespace}/{name} is not gone after {GONE_WITHIN_SECONDS} s, as its pods do not end: see kubectl -n "
            f"{namespace} get pods -l muster.dev/job={name}. {kept}, once it is gone"
        )
    try:
        await session.client.post(paths.muster("trainingjobs", namespace=namespace), manifest, None)
    except AlreadyExists as error:
        raise CliError(
            f"job {namespace}/{name} was deleted, and something else, e.g. GitOps, has created it meanwhile. See "
            f"whether that is as it should be; the manifest of before is in {file}"
        ) from error
    except ApiError as error:
        raise CliError(
            f"job {namespace}/{name} was deleted and could not be created again: {one_line(error.message)}. {kept}"
        ) from error
    _remove(file)


def _remove(file: Path) -> None:
    with contextlib.suppress(OSError):  # it helps only while the job is not there
        file.unlink()


def save_manifest(manifest: Mapping[str, Any], file: Path) -> None:
    """Write the manifest to a new file, which only this user can read: variables may hold secrets.

    Raises:
        CliError: there is such a file, or it cannot be written.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise CliError(
            f"there is a file {file}, perhaps of a command that did not end: look at it, and remove it or give "
            "another one with --save. Nothing was changed"
        ) from error
    except OSError as error:
        raise CliError(
            f"the manifest cannot be kept in {file} ({error.strerror}): give another file with --save. Nothing was "
            "changed"
        ) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(as_document(manifest))
            opened.flush()
            os.fsync(descriptor)
    except OSError as error:
        _remove(file)
        raise CliError(
            f"the manifest cannot be kept in {file} ({error.strerror}): give another file with --save. Nothing was "
            "changed"
        ) from error


async def is_gone(session: Session, path: str, uid: str, seconds: int) -> bool:
    """Wait until the object is gone, for so many seconds at most; returns whether it is.

    An API server that does not answer is asked again: the job is to be created once it is back.
    """
    for _ in range(seconds):
        try:
            current = json.loads(await session.client.get(path))
        except NotFound:
            return True
        except ApiError:
            current = {}
        if current and (current.get("metadata") or {}).get("uid") != uid:
            return True
        await asyncio.sleep(PAUSE_SECONDS)
    return False


def render(console: Console, it: Requeue) -> None:
    """Print what was created; or the manifest on stdout and the rest on stderr."""
    if not it.created:
        typer.echo(show.printable(_notes([it.start, *it.changes])), err=True)
        typer.echo(as_document(it.manifest), nl=False)  # unchanged: a terminal's console would fold it
        return
    console.print(Text(show.printable(f"trainingjob {it.namespace}/{it.name} created again: {it.start}"), style="bold"))
    if it.changes:
        console.print(Text(show.printable(_notes(it.changes))))
    console.print(Text(show.printable(f"see kubectl muster status -n {it.namespace} {it.name}")))


def _notes(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)

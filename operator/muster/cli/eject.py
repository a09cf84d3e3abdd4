"""`kubectl muster eject JOB`: let a gang train on without Muster until its ranks end.

Three steps, each of which may be the last one before this command dies: run it again, and it goes on. First the job is
asked to leave (spec.eject), and its manifest is kept in a file. Once the condition Ejected says that every worker knows
of it, the job is deleted and its dependents are orphaned. Then what remains is listed. Nothing needs more than the
rights to edit TrainingJobs. See docs/decisions/0084.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from pydantic import Field
from rich.console import Console
from rich.text import Text

from muster.answers.explanation import ENDED, OUTPUT_VERSION
from muster.api.base import ApiModel
from muster.api.trainingjob import ConditionStatus, TrainingJob
from muster.cli import show
from muster.cli.confirmation import confirm
from muster.cli.convert import as_document
from muster.cli.errors import CliError, one_line
from muster.cli.forked import bare_manifest
from muster.cli.jobs import NoSuchJobError, patch_spec, pods_named, read_job
from muster.cli.leftovers import orphans_removed_by
from muster.cli.requeue import is_gone, save_manifest
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
from muster.protocol.checkpoint_names import is_url
from muster.status.ejection import EJECTED
from muster.world.names import gang_name
from muster.world.views import JOB_UID_LABEL, PodView

PAUSE_SECONDS = 1.0
PROMISES_THAT_END = (
    "a failure restarts nothing: the ranks of other workers wait for a lost one until their own time-outs",
    "no worker moves off an unhealthy node, and nothing is saved before maintenance or a removal",
    "no step, hang or wrong result is watched, and nothing is accounted for from now on",
    "Muster ends no rank for a later attempt. Another TrainingJob of this namespace that saves to the same directory "
    "waits while a pod may live; nothing else does (other namespaces, clusters and systems)",
)


class Ejection(ApiModel):
    """A gang that has left Muster, and what remains of it."""

    api_version: str = OUTPUT_VERSION
    kind: Literal["Ejection"] = "Ejection"
    name: str
    namespace: str
    training: list[str] = Field(description="Its pods that have not ended, by name.")
    ended: list[str] = Field(description="Its pods that have ended.")
    manifest_file: str = Field(
        description="Where the manifest of the TrainingJob is; empty: the job was gone, or going, when this run began."
    )
    notes: list[str] = Field(description="What else remains, what is wrong, and how to end it.")


def command(
    context: typer.Context,
    job: JobArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    save: Annotated[
        str,
        typer.Option("--save", metavar="FILE", help="Where to keep the job's manifest. Default: JOB.eject.yaml."),
    ] = "",
    timeout: Annotated[
        int,
        typer.Option("--timeout", min=1, max=86400, metavar="SECONDS", help="How long each step may take."),
    ] = 120,
    kubeconfig: KubeconfigOption = None,
    kube_context: ContextOption = None,
    namespace: NamespaceOption = None,
    output: OutputOption = None,
) -> None:
    """Let a job's pods train on without Muster.

    The TrainingJob is deleted, and its pods go on until their ranks end. Nothing restarts them any more.
    """
    short, inside = job_argument(job, namespace)
    options = Options(kubeconfig, kube_context, inside, output).over(context.obj)
    file = Path(save or f"{short}.eject.yaml")
    run(options, lambda session: _eject(session, short, file, yes=yes, timeout=timeout), render)


async def _eject(session: Session, name: str, file: Path, *, yes: bool, timeout: int) -> Ejection:
    """Take the gang out of Muster, or finish what an earlier run has begun.

    Raises:
        CliError: the job cannot be ejected (now), or the user has not confirmed it.
        ApiError: the API server did not answer as it should.
    """
    try:
        data, job = await read_job(session, name)
    except NoSuchJobError:
        left = await _remains(session, name, None)
        if not left.training:
            raise
        return left
    kept = ""
    if job.metadata.deletion_timestamp is None:
        _check_ranks_train(job)
        if not yes:
            await _confirm(job)
        _keep(bare_manifest(msgspec.json.decode(data), job, name), file, is_second=job.spec.eject)
        kept = str(file)
        await patch_spec(session, job, {"eject": True})
        await _await_ejected(session, job, timeout)
        await _delete(session, job)
    elif not _is_ejected(job):
        raise CliError(f"job {session.namespace}/{name} is being deleted, and its pods with it")
    path = paths.muster("trainingjobs", namespace=session.namespace, name=name)
    if not await is_gone(session, path, job.metadata.uid, timeout):
        raise CliError(
            f"job {session.namespace}/{name} is ejected and deleted, and not gone after {timeout} s: Kubernetes' "
            "garbage collector has to let go of its pods first. Its ranks train on. Run the command again"
        )
    left = await _remains(session, name, job)
    return left.model_copy(update={"manifest_file": kept})


def _keep(manifest: Mapping[str, Any], file: Path, *, is_second: bool) -> None:
    """Write the manifest to the file, unless an earlier run has done that.

    Raises:
        CliError: it cannot be written, or there is a file of this name that no earlier run can have written so.
    """
    try:
        is_kept = is_second and file.read_bytes() == as_document(manifest).encode()
    except OSError:
        is_kept = False
    if not is_kept:
        save_manifest(manifest, file)


def _check_ranks_train(job: TrainingJob) -> None:
    """Check that the job has ranks that could train on.

    Raises:
        CliError: it has none, or something else makes the job.
    """
    status, called = job.status, f"job {job.metadata.namespace}/{job.metadata.name}"
    owner = job.metadata.controller
    if owner is not None:
        raise CliError(f"{called} belongs to {owner.kind} {owner.name}, which would make it again: eject it there")
    if status.state in ENDED or status.completion is not None:
        raise CliError(f"{called} has ended ({status.state}): none of its ranks trains, so there is nothing to eject")
    if job.spec.suspend:
        raise CliError(
            f"{called} is suspended, or about to be: no rank of it trains on. Set spec.suspend to false first"
        )
    # A second run waits for a gang that was asked before, and has failed since.
    if status.state != "Running" and not job.spec.eject:
        raise CliError(
            f"{called} is {status.state or 'new'}{f' ({status.reason})' if status.reason else ''}: only ranks that "
            "train can go on without Muster. Try again once it is Running; to end it: kubectl -n "
            f"{job.metadata.namespace} delete tj {job.metadata.name}"
        )


async def _confirm(job: TrainingJob) -> None:
    """Say which promises end, and ask on the terminal.

    Raises:
        CliError: there is no terminal, or the answer was no.
    """
    called = f"{job.metadata.namespace}/{job.metadata.name}"
    typer.echo(show.printable(f"job {called} leaves Muster for good, and its ranks train on. From then on:"), err=True)
    for line in PROMISES_THAT_END:
        typer.echo(f"-  {line}", err=True)
    await confirm("Eject it?")


def _is_ejected(job: TrainingJob) -> bool:
    return any(c.type == EJECTED and c.status is ConditionStatus.TRUE for c in job.status.conditions)


async def _await_ejected(session: Session, job: TrainingJob, timeout: int) -> None:
    """Wait until every worker knows that it may go on.

    Raises:
        CliError: that took too long, or the job has ended or is deleted meanwhile.
    """
    name, uid = job.metadata.name, job.metadata.uid
    called, current = f"job {session.namespace}/{name}", job
    for _ in range(timeout):
        _, current = await read_job(session, name)
        if current.metadata.uid != uid or current.metadata.deletion_timestamp is not None:
            raise CliError(f"{called} was deleted or replaced just now")
        if current.status.completion is not None:
            raise CliError(f"{called} has ended meanwhile ({current.status.state}): there is nothing to eject")
        if _is_ejected(current):
            return
        await asyncio.sleep(PAUSE_SECONDS)
    raise CliError(f"{called} is not ejected after {timeout} s: {_why_not(current)}")


def _why_not(job: TrainingJob) -> str:
    """Return why a job that is asked to leave has not left yet, and what can be done."""
    status = job.status
    ejected, running = (next((c for c in status.conditions if c.type == kind), None) for kind in (EJECTED, "Running"))
    rerun = "Run the command again to go on"
    if ejected is not None:
        return (
            f"{ejected.message}. {rerun}, or end the job, which ends its pods: kubectl -n {job.metadata.namespace} "
            f"delete tj {job.metadata.name}"
        )
    back = (
        f"{rerun}, or take the request back: kubectl -n {job.metadata.namespace} patch tj {job.metadata.name} "
        """--type=merge -p '{"spec":{"eject":false}}'"""
    )
    if status.observed_generation < job.metadata.generation:
        return f"the operator has not seen the request. The job goes on as it was. {back}"
    return f"{status.state} ({status.reason}){f': {running.message}' if running and running.message else ''}. {back}"


async def _delete(session: Session, job: TrainingJob) -> None:
    """Delete exactly this job, and have Kubernetes leave alone what it owns.

    Raises:
        CliError: another job has its name now.
    """
    path = paths.muster("trainingjobs", namespace=session.namespace, name=job.metadata.name)
    options = {"preconditions": {"uid": job.metadata.uid}, "propagationPolicy": "Orphan"}
    try:
        await session.client.delete(path, options)
    except NotFound:
        return  # an earlier run of this command has done it
    except Conflict as error:
        raise CliError(
            f"job {session.namespace}/{job.metadata.name} was replaced just now: {one_line(error.message)}"
        ) from error


async def _remains(session: Session, name: str, job: TrainingJob | None) -> Ejection:
    """Find what remains of an ejected gang. None: its TrainingJob is gone already."""
    pods = [pod for pod in await _ejected_pods(session, name) if job is None or pod.job_uid == job.metadata.uid]
    training = sorted(pod.name for pod in pods if not pod.terminal)
    notes: list[str] = []
    if job is not None and len(pods) < job.spec.nodes:
        notes.append(
            f"{job.spec.nodes - len(pods)} of its {job.spec.nodes} pods are gone: the others may wait for them"
        )
    failed = sorted(pod.name for pod in pods if pod.phase == "Failed")
    if failed:
        notes.append(f"failed: {', '.join(failed)}: the ranks of the others may wait for theirs")
    if job is not None and job.spec.checkpoint.directory and not is_url(job.spec.checkpoint.directory):
        gang = gang_name(name, job.metadata.uid)
        notes.append(f"the fence file {job.spec.checkpoint.directory}/.muster-{gang} stays, and nothing reads it")
    for uid in sorted({pod.job_uid for pod in pods}):
        notes.append(
            "its Service or ConfigMap and its PodDisruptionBudget stay; the latter lets no drain evict the pods, until "
            f"you delete it: kubectl -n {session.namespace} delete pdb -l {JOB_UID_LABEL}={uid}"
        )
        notes.append(f"to end it, or once it has ended: {orphans_removed_by(session.namespace, uid)}")
        notes.append(f"its Gang {gang_name(name, uid)} stays, and holds nothing: an administrator may delete it")
    return Ejection(
        name=name,
        namespace=session.namespace,
        training=training,
        ended=sorted(pod.name for pod in pods if pod.terminal),
        manifest_file="",
        notes=notes,
    )


async def _ejected_pods(session: Session, name: str) -> list[PodView]:
    """Return the pods of a job of this name that no TrainingJob owns any more. Something else may own them since.

    Raises:
        CliError: the user may not list pods, so that it is not known whether one lives.
    """
    return [pod for pod in await pods_named(session, name) if pod.owner_uid != pod.job_uid]


def render(console: Console, it: Ejection) -> None:
    """Print what trains on, and what remains."""
    count = f"{len(it.training)} pod{'' if len(it.training) == 1 else 's'}"
    console.print(Text(show.printable(f"{it.namespace}/{it.name} is ejected: {count} may train on"), style="bold"))
    lines: Sequence[str] = [*it.training, *it.notes]
    if it.manifest_file:
        lines = [*lines, f"its manifest is in {it.manifest_file}"]
    console.print(Text(show.printable("\n".join(f"  {line}" for line in lines))))

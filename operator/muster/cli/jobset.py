"""`kubectl muster convert --to jobset`: make JobSets of TrainingJobs, unless pods of theirs may live.

Tests: tests/unit/cli/test_to_jobset.py.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
import yaml

from muster.answers.explanation import ENDED
from muster.api.fleetpolicy import FleetPolicy, FleetPolicySpec
from muster.api.trainingjob import TrainingJob, parsed
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.jobs import pods_named, read_job
from muster.cli.session import Options, Session, connected
from muster.convert.fields import Notes, RefusedError
from muster.convert.to_jobset import jobset
from muster.kube import decode, paths
from muster.kube.errors import Forbidden, NotFound

_FILES = (".yaml", ".yml", ".json")
_SHOWN = 3


def jobsets(options: Options, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return the JobSet of each job; what became of its fields is printed on stderr.

    Args:
        options: of the command line.
        names: jobs of the cluster, or files with the manifest of one.

    Raises:
        typer.Exit: with code 1 where one cannot be converted; one line on stderr says why.
    """
    return connected(options, lambda session: _convert(session, names))


async def _convert(session: Session, names: Sequence[str]) -> list[dict[str, Any]]:
    resource = await _resource(session)
    return [await _jobset(session, name, resource) for name in names]


async def _jobset(session: Session, name: str, resource: str) -> dict[str, Any]:
    """Return the JobSet of a job.

    Raises:
        CliError: pods of it may live, or it cannot be converted.
    """
    manifest, notes = await _manifest(session, name), Notes()
    try:
        job = parsed(manifest)
    except ValueError as error:
        raise CliError(f"{name} has no TrainingJob that can be read: {error}") from error
    await _check_nothing_lives(session, job.metadata.name)
    try:
        made = jobset(job, manifest["spec"]["template"], resource, notes)
    except RefusedError as error:
        raise CliError(f"TrainingJob {job.metadata.name} cannot be a JobSet: {error}") from error
    made["metadata"]["namespace"] = session.namespace
    lines = [f"TrainingJob {job.metadata.name}: JobSet {job.metadata.name}"]
    lines += [f"  became    {line}" for line in notes.became]
    lines += [f"  left out  {line}" for line in notes.left_out]
    lines += [f"  check     {line}" for line in notes.check]
    typer.echo(show.printable("\n".join(lines)), err=True)
    return made


async def _manifest(session: Session, name: str) -> Mapping[str, Any]:
    """Return a job as it was written, from the cluster or from a file.

    Raises:
        CliError: there is no such job, or the file has none.
    """
    if not name.endswith(_FILES):
        written: Mapping[str, Any] = json.loads((await read_job(session, name))[0])
        return written
    try:
        read = yaml.safe_load(_text(Path(name)))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CliError(f"file {name} cannot be read: give a file with the manifest of one TrainingJob") from error
    if not isinstance(read, dict) or read.get("kind") != "TrainingJob":
        raise CliError(f"file {name} has no TrainingJob: give a file with the manifest of one")
    inside = (read.get("metadata") or {}).get("namespace")
    if inside not in (None, session.namespace):
        raise CliError(f"the job in file {name} is of namespace {inside}: add -n {inside}")
    return {**read, "metadata": {"uid": "", **(read.get("metadata") or {}), "namespace": session.namespace}}


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8")


async def _check_nothing_lives(session: Session, name: str) -> None:
    """Check that no pod of a job of this name, or of a gang that was ejected, may train beside the JobSet.

    Raises:
        CliError: one may, now or once the job goes on.
    """
    called = f"{session.namespace}/{name}"
    living = sorted(pod.name for pod in await pods_named(session, name) if not pod.terminal)
    if living:
        more = f" and {len(living) - _SHOWN} more" if len(living) > _SHOWN else ""
        raise CliError(
            f"pods of {called} may still train and save: {', '.join(living[:_SHOWN])}{more}. Wait until they have "
            f"ended; of a job that was ejected, kubectl -n {session.namespace} delete pods -l muster.dev/job={name} "
            "ends them"
        )
    try:
        data = await session.client.get(paths.muster("trainingjobs", namespace=session.namespace, name=name))
    except NotFound:
        return
    job = decode.custom(TrainingJob)(data)
    if isinstance(job, TrainingJob) and (job.status.state in ENDED or job.status.state == "Suspended"):
        return
    raise CliError(f"TrainingJob {called} has not ended, and may train beside the JobSet: suspend or delete it first")


async def _resource(session: Session) -> str:
    """Return the resource that gpusPerNode counts: the FleetPolicy's, else the default."""
    try:
        data = await session.client.get(paths.muster("fleetpolicies", name="default"))
    except (Forbidden, NotFound):
        return FleetPolicySpec().accelerator_resource
    policy = decode.custom(FleetPolicy)(data)
    return (policy.spec if isinstance(policy, FleetPolicy) else FleetPolicySpec()).accelerator_resource

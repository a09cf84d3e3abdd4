"""`kubectl muster convert --to jobset`: make JobSets of TrainingJobs, unless ranks of theirs may live.

Tests: tests/unit/cli/test_to_jobset.py.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
import yaml

from muster.answers.explanation import ENDED
from muster.answers.lists import listed
from muster.api.fleetpolicy import FleetPolicy, FleetPolicySpec
from muster.api.gang import Proof, UnfencedWorker
from muster.api.trainingjob import TrainingJob, parsed
from muster.checkpoints.location import saves_to
from muster.cli import show
from muster.cli.errors import CliError
from muster.cli.jobs import pods_named, read_job, worker_pods
from muster.cli.reading import record_of
from muster.cli.session import Options, Session, connected
from muster.convert.fields import Notes, RefusedError
from muster.convert.to_jobset import jobset
from muster.kube import decode, paths
from muster.kube.errors import Forbidden, NotFound
from muster.world.names import shortened

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
    await _check_nothing_lives(session, job, notes)
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


async def _check_nothing_lives(session: Session, job: TrainingJob, notes: Notes) -> None:
    """Check that no rank of a job of this name, or of one that saves to its directory, may train beside the JobSet.

    Raises:
        CliError: one may, now or once the job goes on.
    """
    name, place = job.metadata.name, saves_to(job)
    called = f"{session.namespace}/{name}"
    living = [pod.name for pod in await pods_named(session, name) if not pod.terminal]
    if living:
        raise CliError(
            f"pods of {called} may still train and save: {_shown(living)}. Wait until they have "
            f"ended; of a job that was ejected, kubectl -n {session.namespace} delete pods -l muster.dev/job={name} "
            "ends them"
        )
    pods = await worker_pods(session, name) if place else []
    saving = [pod.name for pod in pods if pod.saves_to == place and not pod.terminal]
    if saving:
        raise CliError(
            f"pods of another job may still train and save to the directory of {called}: {_shown(saving)}. Wait until "
            "they have ended, or give the job another spec.checkpoint.directory"
        )
    try:
        data = await session.client.get(paths.muster("trainingjobs", namespace=session.namespace, name=name))
    except NotFound:
        return
    existing = decode.custom(TrainingJob)(data)
    if not isinstance(existing, TrainingJob) or not _is_at_rest(existing):
        raise CliError(
            f"TrainingJob {called} has not ended, and may train beside the JobSet: suspend it and wait until it is "
            "Suspended, or delete it"
        )
    await _check_ranks_ended(session, existing, notes)


def _shown(pods: Sequence[str]) -> str:
    return shortened(sorted(pods), _SHOWN)


def _is_at_rest(job: TrainingJob) -> bool:
    """Whether the job has ended, or is suspended and the operator has seen that it is to stay so."""
    if job.status.state in ENDED:
        return True
    is_seen = job.status.observed_generation == job.metadata.generation
    return job.spec.suspend and job.status.state == "Suspended" and is_seen


async def _check_ranks_ended(session: Session, job: TrainingJob, notes: Notes) -> None:
    """Check that no former worker of the job may train whose pod the API server has forgotten.

    The record of a suspended job keeps its last workers until all are proved dead. A kubelet that is heard has ended
    those without a pod.

    Raises:
        CliError: one may, or that is not known.
    """
    called = f"{session.namespace}/{job.metadata.name}"
    record, problems = await record_of(session, job)
    if problems:
        raise CliError(f"whether ranks of {called} have ended is not known: {problems[0]}")
    former = [worker for worker in (record.unfenced_workers if record else []) if not _is_fenced(session, worker)]
    if not former:
        return
    try:
        nodes, _ = await listed(session.client, paths.core("nodes"), decode.node)
    except Forbidden:
        where = _shown(sorted({worker.node for worker in former}))
        notes.check.append(f"its last nodes: ranks train on where one is cut off ({where}); you may not list nodes")
        return
    ready = {node.name for node in nodes if node.ready}
    living = [f"{worker.pod} on {worker.node}" for worker in former if worker.node not in ready]
    if living:
        raise CliError(
            f"ranks of {called} may still train, on nodes that are gone or not Ready: {_shown(living)}. Wait until the "
            "nodes are Ready. If you know that the ranks have ended, keep the job's manifest, delete the job and "
            "convert the file"
        )


def _is_fenced(session: Session, worker: UnfencedWorker) -> bool:
    """Whether the launcher of a former worker has ended its ranks by now, even if it is cut off."""
    return worker.proof is Proof.FENCE and worker.fenced_time <= session.now()


async def _resource(session: Session) -> str:
    """Return the resource that gpusPerNode counts: the FleetPolicy's, else the default."""
    try:
        data = await session.client.get(paths.muster("fleetpolicies", name="default"))
    except (Forbidden, NotFound):
        return FleetPolicySpec().accelerator_resource
    policy = decode.custom(FleetPolicy)(data)
    return (policy.spec if isinstance(policy, FleetPolicy) else FleetPolicySpec()).accelerator_resource

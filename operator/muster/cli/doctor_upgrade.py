"""Check whether this is a good moment to upgrade, and whether the version of this command can read every record.

Tests: tests/unit/cli/test_doctor_upgrade.py.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from muster.api.base import VERSION
from muster.api.fleetpolicy import FleetPolicy
from muster.api.gang import Gang
from muster.api.nodehealth import NodeHealth
from muster.api.trainingjob import TrainingJob
from muster.cli.doctor_cluster import definition_path
from muster.cli.doctor_rows import (
    MAX_MESSAGE,
    Check,
    ClusterReader,
    DoctorRow,
    deployment,
    passed,
    profile_of,
    short_list,
    wrong,
)
from muster.cli.errors import one_line
from muster.kube import decode, paths
from muster.kube.decode import Undecodable
from muster.kube.schemas import MODELS
from muster.status.report import ASSEMBLING

UNDER_WAY = frozenset({"Starting", "Recovering"})  # a burn-in is part of either
Record = TrainingJob | Gang | NodeHealth | FleetPolicy
T = TypeVar("T")
KINDS: Mapping[str, type[Record]] = {
    "trainingjobs": TrainingJob,
    "gangs": Gang,
    "nodehealths": NodeHealth,
    "fleetpolicies": FleetPolicy,
}
_OF_JOBS = frozenset({"trainingjobs", "gangs"})


async def check_starts(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether jobs are starting, burning in or recovering, which an upgrade slows down."""
    jobs = await _read_all(cluster, "trainingjobs", decode.custom(TrainingJob))
    names = [
        f"{job.metadata.namespace}/{job.metadata.name}"
        for job in jobs
        if isinstance(job, TrainingJob) and (job.status.state in UNDER_WAY or job.status.reason == ASSEMBLING)
    ]
    if not names:
        return passed("starts", "no job is starting, burning in or recovering")
    text = f"jobs are starting, burning in or recovering ({len(names)}), and an upgrade makes them slower: "
    return [wrong("starts", text + short_list(names), "wait until kubectl muster top shows none, or accept the delay")]


async def check_decisions(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether something is decided and not yet carried out: evacuations, fencing, tests of nodes."""
    gangs, healths = await asyncio.gather(
        _read_all(cluster, "gangs", decode.custom(Gang)),
        cluster.read_all(paths.muster("nodehealths"), decode.custom(NodeHealth)),
    )
    records = [gang for gang in gangs if isinstance(gang, Gang)]
    evacuating = [_name(gang) for gang in records if gang.spec.evacuation]
    unfenced = [_name(gang) for gang in records if gang.spec.unfenced_workers]
    tested = [health.metadata.name for health in healths if isinstance(health, NodeHealth) and _awaits_test(health)]
    rows = [
        wrong("decisions", f"{text}: {short_list(names)}", f"wait, and see how far it is: {command}")
        for text, names, command in (
            ("workers are being moved off nodes, by Gangs", evacuating, "kubectl muster top"),
            ("ranks are not proved to have ended, by Gangs", unfenced, "kubectl muster top"),
            ("a test was requested of nodes", tested, "kubectl get nodehealths -o yaml (spec.check, status.check)"),
        )
        if names
    ]
    return rows or passed("decisions", "none is in flight")


def _name(gang: Gang) -> str:
    return f"{gang.metadata.namespace}/{gang.metadata.name}"


def _awaits_test(health: NodeHealth) -> bool:
    asked, result = health.spec.check, health.status.check
    return asked is not None and (result is None or result.id != asked.id)


async def check_replicas(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether another replica can take the lease while one is replaced."""
    operator = await deployment(cluster)
    available = operator.get("status", {}).get("availableReplicas", 0)
    if available >= 2:
        return passed("replicas", f"{available} are available: another one takes the lease while one is replaced")
    text = f"replicas of Deployment muster that are available: {available}; no other one would take the lease"
    command = "kubectl -n muster-system scale deployment muster --replicas=2"
    if operator["spec"].get("replicas", 1) > 1:
        command = "kubectl -n muster-system rollout status deployment muster"
    return [wrong("replicas", text, f"have two available first: {command}")]


async def check_stored_versions(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether objects may be stored in a version that is not served any more."""
    definitions = await asyncio.gather(*(cluster.get(definition_path(resource)) for resource in MODELS))
    rows = []
    for definition in filter(None, definitions):
        name = definition["metadata"]["name"]
        others = [it for it in definition.get("status", {}).get("storedVersions", ()) if it != VERSION]
        if others:
            text = f"objects of CustomResourceDefinition {name} may be stored as {', '.join(others)}, not as {VERSION}"
            remedy = (
                f"write each anew (kubectl get {name} -A -o yaml | kubectl replace -f -), then take {others[0]} out of "
                f"status.storedVersions: kubectl edit crd {name} --subresource=status"
            )
            rows.append(wrong("stored versions", text, remedy))
    return rows or passed("stored versions", f"{VERSION} alone")


async def check_records(cluster: ClusterReader) -> list[DoctorRow]:
    """Check whether this version can read every object of the kinds that the operator decides by."""
    rows, count = [], 0
    for resource, model in KINDS.items():
        objects = await _read_all(cluster, resource, _problem_reader(model))
        count += len(objects)
        broken = [problem for problem in objects if problem is not None]
        if broken:
            first = broken[0]
            names = [f"{it.namespace}/{it.name}".removeprefix("/") for it in broken]
            inside = f"-n {first.namespace} " if first.namespace else ""
            text = f"{resource} cannot be read by this version ({len(broken)}): {short_list(names)}: "
            text += one_line(first.error)[:MAX_MESSAGE]
            remedy = f"correct or delete it before the upgrade: kubectl {inside}edit {resource} {first.name}"
            rows.append(wrong("records", text, remedy))
    return rows or passed("records", f"this version can read all {count}")


async def _read_all(cluster: ClusterReader, resource: str, read: Callable[[msgspec.Raw], T]) -> list[T]:
    """Return all objects of a kind; those of jobs do not matter in a profile without them, which may lack the kind.

    Raises:
        UnreadableError: as of `ClusterReader.read_all`.
    """
    if resource in _OF_JOBS and not (await profile_of(cluster)).has_jobs:
        return []
    return await cluster.read_all(paths.muster(resource), read)


def _problem_reader(model: type[Record]) -> Callable[[msgspec.Raw], Undecodable | None]:
    """Return a decoder that keeps nothing of what fits the model."""
    read = decode.custom(model)

    def problem_of(data: msgspec.Raw) -> Undecodable | None:
        record = read(data)
        return record if isinstance(record, Undecodable) else None

    return problem_of


CHECKS: Mapping[str, Check] = {
    "starts": check_starts,
    "decisions": check_decisions,
    "replicas": check_replicas,
    "stored versions": check_stored_versions,
    "records": check_records,
}

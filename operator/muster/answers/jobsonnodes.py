"""Find the jobs that hold nodes: while there are any, an operator without jobs neither is Ready nor leads.

Objects are read apart from the kinds' models: also a Gang or a TrainingJob of another version counts.

Tests: tests/unit/controller/test_holdingjobs.py, tests/unit/cli/test_doctor_parts.py.
"""

from collections.abc import Callable, Container, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

import msgspec

from muster.kube import decode, paths
from muster.world.views import JOB_UID_LABEL

T = TypeVar("T")

Key = tuple[str, str]  # namespace and uid of a job

# Pods of jobs that have not ended.
_LIVING_PODS = {"labelSelector": JOB_UID_LABEL, "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


class ReadAll(Protocol):
    """Read each object of a list. It raises where the list, or an object in it, cannot be read."""

    async def __call__(
        self, path: str, read: Callable[[msgspec.Raw], T], query: Mapping[str, str | int] | None = None, /
    ) -> list[T]:
        """Return what `read` makes of each object."""


class _Meta(msgspec.Struct, rename="camel"):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    deletion_timestamp: datetime | None = None


class _JobStatus(msgspec.Struct):
    completion: dict[str, Any] | None = None


class _Job(msgspec.Struct):
    metadata: _Meta
    status: _JobStatus = msgspec.field(default_factory=_JobStatus)


class _Record(msgspec.Struct, rename="camel"):
    job_uid: str = ""
    members: list[Any] = []
    ejected: bool = False


class _Gang(msgspec.Struct):
    metadata: _Meta
    spec: _Record = msgspec.field(default_factory=_Record)


_jobs, _gangs = msgspec.json.Decoder(_Job), msgspec.json.Decoder(_Gang)


async def jobs_on_nodes(kinds: Container[str], read_all: ReadAll) -> list[str]:
    """Return the jobs that hold nodes, as `namespace/name`, sorted.

    A job holds nodes by the members of its Gang, or by its pods. The leader ends pods of a job that is suspended or has
    ended, and Kubernetes those of one that is deleted.

    Args:
        kinds: of Muster's that the API server knows. A kind that is not installed has no objects.
        read_all: reads the objects of a list.
    """
    if "gangs" not in kinds or "trainingjobs" not in kinds:
        return []
    with_members = set(await read_all(paths.muster("gangs"), _holder_by_members)) - {None}
    with_pods = set(await read_all(paths.core("pods"), _holder_by_pod, _LIVING_PODS)) - {None}
    if not with_members and not with_pods:
        return []

    def name_of_holder(item: msgspec.Raw) -> str:
        job = _jobs.decode(item)
        key = (job.metadata.namespace, job.metadata.uid)
        holds = key in with_pods or (key in with_members and job.status.completion is None)
        return f"{key[0]}/{job.metadata.name}" if holds and job.metadata.deletion_timestamp is None else ""

    return sorted(filter(None, await read_all(paths.muster("trainingjobs"), name_of_holder)))


def _holder_by_members(item: msgspec.Raw) -> Key | None:
    gang = _gangs.decode(item)
    return (gang.metadata.namespace, gang.spec.job_uid) if gang.spec.members and not gang.spec.ejected else None


def _holder_by_pod(item: msgspec.Raw) -> Key | None:
    """Return the job of a pod on a node. An ejected pod has no owner: it trains on without Muster."""
    pod = decode.bare_pod(item)
    return (pod.namespace, pod.job_uid) if pod.owner_uid == pod.job_uid and pod.node else None

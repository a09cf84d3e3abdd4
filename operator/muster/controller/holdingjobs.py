"""Keeps a replica without jobs from leading while jobs hold nodes, so that a replica that runs them goes on.

No other part would restart such jobs, fence their ranks or free their nodes. So the change to a profile without jobs
is refused while jobs run: the new replica is not ready, and a rolling update waits. One replica of before stays and
leads, without a standby. If a job gets nodes after the last look and before the last leader of before ends, no replica
leads until a user decides.
"""

import asyncio
from datetime import datetime
from typing import Any

import msgspec
import structlog

from muster.answers.lists import items
from muster.api.installation import InstallationProfile
from muster.kube import decode, paths
from muster.kube.client import Client
from muster.kube.definitions import served_kinds
from muster.kube.errors import ApiError
from muster.kube.lease import LeaderLease
from muster.world.views import JOB_UID_LABEL

ASK_AGAIN_SECONDS = 10.0
NAMED = 5  # jobs that are named at most

log = structlog.get_logger()
# Pods of jobs that have not ended.
_LIVING_PODS = {"labelSelector": JOB_UID_LABEL, "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


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


class HoldingJobs:
    """Looks for jobs that hold nodes.

    Attributes:
        problem: why this replica may not lead, as text for users; "" if it may.
    """

    def __init__(self, client: Client, profile: InstallationProfile) -> None:
        self._client = client
        self._profile = profile
        self.problem = "jobs that hold nodes have not been looked for yet"

    async def acquire(self, lease: LeaderLease) -> None:
        """Take the lease when no job holds nodes.

        Look on while it waits, and once more under the lease: the leader before may start a job until it lets go.
        """
        while True:
            if await self._may_lead():
                async with asyncio.TaskGroup() as group:
                    checking = group.create_task(self._keep_checking())
                    await lease.acquire()
                    checking.cancel()
                if await self._may_lead():
                    return
                await lease.release()
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def _keep_checking(self) -> None:
        """Keep `problem` up to date: if this replica is Ready while jobs hold nodes, a rollout ends their leader."""
        while True:
            await asyncio.sleep(ASK_AGAIN_SECONDS)
            await self._may_lead()

    async def _may_lead(self) -> bool:
        """Look once, and keep the result as `problem`."""
        try:
            names = await self._names()
        except (ApiError, msgspec.MsgspecError, ValueError) as error:
            log.warning("jobs that hold nodes not looked for", error=str(error))
            self.problem = f"cannot look for jobs that hold nodes: {error}"
            return False
        problem = self._described(names) if names else ""
        if problem and problem != self.problem:
            log.error("jobs hold nodes", jobs=len(names), message=problem)
        self.problem = problem
        return not names

    def _described(self, names: list[str]) -> str:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return (
            f"profile {self._profile} runs no jobs, and jobs hold nodes: {', '.join(names[:NAMED])}{more}. Suspend, "
            "eject or delete these jobs, or go back: apply the overlay of before again, or take MUSTER_PROFILE back "
            "if you changed nothing else. Until then this replica does not lead. If no other "
            "replica leads, no job can be suspended or ejected: go back, or delete these jobs"
        )

    async def _names(self) -> list[str]:
        """The jobs that hold nodes, as `namespace/name`. A kind that is not installed has no objects.

        Raises:
            ApiError: the kinds or their objects could not be listed.
            ValueError: an object cannot be read.
        """
        if not await served_kinds(self._client) >= {"gangs", "trainingjobs"}:
            return []
        with_members = {
            (gang.metadata.namespace, gang.spec.job_uid)
            async for item in items(self._client, paths.muster("gangs"))
            if (gang := _gangs.decode(item)).spec.members and not gang.spec.ejected
        }
        with_pods = {  # an ejected pod has no owner: it trains on without Muster
            (pod.namespace, pod.job_uid)
            async for item in items(self._client, paths.core("pods"), _LIVING_PODS)
            if (pod := decode.bare_pod(item)).owner_uid == pod.job_uid and pod.node
        }
        if not with_members and not with_pods:
            return []
        return sorted(
            [
                f"{job.metadata.namespace}/{job.metadata.name}"
                async for item in items(self._client, paths.muster("trainingjobs"))
                if _holds(job := _jobs.decode(item), with_members, with_pods)
            ]
        )


def _holds(job: _Job, with_members: set[tuple[str, str]], with_pods: set[tuple[str, str]]) -> bool:
    """Whether a job holds nodes, by its record or by its pods.

    The leader ends pods of a job that is suspended or has ended, and Kubernetes those of one that is deleted.
    """
    key = (job.metadata.namespace, job.metadata.uid)
    if job.metadata.deletion_timestamp is not None:
        return False
    return key in with_pods or (key in with_members and job.status.completion is None)

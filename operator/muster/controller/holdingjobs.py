"""Keeps a replica without jobs from leading while jobs hold nodes, so that a replica that runs them goes on.

No other part would restart such jobs, fence their ranks or free their nodes. So the change to a profile without jobs
is refused while jobs run: the new replica is not ready, and a rolling update waits. One replica of before stays and
leads, without a standby.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import structlog

from muster.api.base import GROUP, VERSION
from muster.api.installation import InstallationProfile
from muster.kube import decode, paths
from muster.kube.client import Client
from muster.kube.errors import ApiError, Forbidden, NotFound
from muster.kube.lease import LeaderLease

ASK_AGAIN_SECONDS = 10.0
PAGE = 500
NAMED = 5  # jobs that are named at most

log = structlog.get_logger()
T = TypeVar("T")


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

        Look once more under it: the leader before may have started a job until it let go.
        """
        while True:
            if await self._may_lead():
                await lease.acquire()
                if await self._may_lead():
                    return
                await lease.release()
            await asyncio.sleep(ASK_AGAIN_SECONDS)

    async def _may_lead(self) -> bool:
        """Look once, and keep the result as `problem`."""
        try:
            names = await self._names()
        except Forbidden as error:  # then no role of this installation is about jobs
            log.warning("jobs that hold nodes not looked for", error=str(error))
            names = []
        except (ApiError, msgspec.MsgspecError, ValueError) as error:
            self.problem = f"cannot look for jobs that hold nodes: {error}"
            log.warning("jobs that hold nodes not looked for", error=str(error))
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
            "eject or delete these jobs, or go back (kubectl -n muster-system set env deployment/muster "
            "MUSTER_PROFILE=jobs, or the same in your overlay). Until then this replica does not lead"
        )

    async def _names(self) -> list[str]:
        """The jobs that hold nodes, as `namespace/name`. A kind that is not installed has no objects.

        Raises:
            ApiError: the kinds or their objects could not be listed.
            ValueError: an object cannot be read.
        """
        if not await self._kinds() >= {"gangs", "trainingjobs"}:
            return []
        holders = {
            (gang.metadata.namespace, gang.spec.job_uid)
            async for gang in self._listed("gangs", _gangs)
            if gang.spec.members
        }
        if not holders:
            return []
        return sorted(
            [
                f"{job.metadata.namespace}/{job.metadata.name}"
                async for job in self._listed("trainingjobs", _jobs)
                if (job.metadata.namespace, job.metadata.uid) in holders and _wants_nodes(job)
            ]
        )

    async def _kinds(self) -> set[str]:
        """The plural names of Muster's kinds that the API server knows."""
        try:
            answer = msgspec.json.decode(await self._client.get(f"/apis/{GROUP}/{VERSION}"))
        except NotFound:
            return set()
        return {resource["name"] for resource in answer["resources"]}

    async def _listed(self, plural: str, decoder: msgspec.json.Decoder[T]) -> AsyncIterator[T]:
        query: dict[str, str | int] = {"limit": PAGE}
        while True:
            page = decode.list_page(await self._client.get(paths.muster(plural), query))
            for item in page.items or ():
                yield decoder.decode(item)
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_


def _wants_nodes(job: _Job) -> bool:
    """See `TrainingJob.wants_nodes`."""
    return job.status.completion is None and job.metadata.deletion_timestamp is None

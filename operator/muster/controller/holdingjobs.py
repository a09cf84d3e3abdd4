"""Keeps a replica without jobs from leading while jobs hold nodes, so that a replica that runs them goes on.

No other part would restart such jobs, fence their ranks or free their nodes. So the change to a profile without jobs
is refused while jobs run: the new replica is not ready, and a rolling update waits. One replica of before stays and
leads, without a standby. If a job gets nodes after the last look and before the last leader of before ends, no replica
leads until a user decides.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
import structlog

from muster.answers.jobsonnodes import jobs_on_nodes
from muster.answers.lists import items
from muster.api.installation import InstallationProfile
from muster.kube.client import Client
from muster.kube.definitions import served_kinds
from muster.kube.errors import ApiError
from muster.kube.lease import LeaderLease
from muster.world.names import shortened

T = TypeVar("T")

ASK_AGAIN_SECONDS = 10.0
NAMED = 5  # jobs that are named at most

log = structlog.get_logger()


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
            names = await jobs_on_nodes(await served_kinds(self._client), self._read_all)
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
        return (
            f"profile {self._profile} runs no jobs, and jobs hold nodes: {shortened(names, NAMED)}. Suspend, "
            "eject or delete these jobs, or go back: apply the overlay of before again, or take MUSTER_PROFILE back "
            "if you changed nothing else. Until then this replica does not lead. If no other "
            "replica leads, no job can be suspended or ejected: go back, or delete these jobs"
        )

    async def _read_all(
        self, path: str, read: Callable[[msgspec.Raw], T], query: Mapping[str, str | int] | None = None, /
    ) -> list[T]:
        return [read(item) async for item in items(self._client, path, query)]

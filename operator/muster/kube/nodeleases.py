"""Reads the kubelets' heartbeats in one list from time to time.

A fleet of 16,384 nodes renews its leases 1,638 times a second. A watch shows each renewal by itself, to every replica,
and hardly any of them is ever needed. One list is 13 MB and costs a tenth of what the watch does. The resourceVersion
of a heartbeat says how old it was when it was read (`muster.controller.heartbeats`), so no renewal has to be watched.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from muster.api.namespaces import NODE_LEASES
from muster.kube import decode, informer, jitter, paths
from muster.kube.client import Client
from muster.kube.decode import NodeLease
from muster.kube.errors import ApiError

REST_SECONDS = 15.0
"""The pause between two lists while no decision depends on heartbeats."""
NEAR_SECONDS, NEAR_LEASES_PER_SECOND = 1.0, 4096
"""The pause while a decision depends on them: one second, and longer in a large fleet."""
ASKED_SECONDS = 10.0
"""After a call of `ask` the short pause applies for this long."""

_DEADLINE_SECONDS = 30.0

log = structlog.get_logger()
Clock = Callable[[], float]
OnListed = Callable[[list[NodeLease], int, float], None]


class NodeLeases:
    """Lists the leases repeatedly. Start `run()` as a task; nothing is known before `synced` is set. `on_listed` is
    called with all leases, the resourceVersion of the list, and for how many seconds it was under way.
    """

    name = "node_leases"

    def __init__(self, client: Client, on_listed: OnListed, clock: Clock = time.monotonic) -> None:
        self.synced = asyncio.Event()
        self.last_contact = clock()  # when the API server last answered with a list
        self._client = client
        self._on_listed = on_listed
        self._clock = clock
        self._count = 0
        self._looked_at = float("-inf")
        self._asked_until = float("-inf")
        self._asked = asyncio.Event()
        self._reader = informer.node_leases(client, clock)

    def ask(self) -> None:
        """Request recent heartbeats: list now unless the last list is recent, and again soon."""
        self._asked_until = self._clock() + ASKED_SECONDS
        self._asked.set()

    async def run(self) -> None:
        """List until cancelled. Errors are logged and retried, with a growing and jittered pause."""
        failures = 0
        while True:
            try:
                await self.read_leases()
                failures = 0
            except (ApiError, ValueError) as error:
                failures += 1
                pause = jitter.uniform(0.5, 1.0) * min(0.1 * 2**failures, informer.MAX_BACKOFF_SECONDS)
                log.warning("heartbeats not read", error=str(error), retry_seconds=round(pause, 1))
                await asyncio.sleep(pause)
                continue
            await self._until_due()

    async def read_leases(self) -> None:
        """List all leases once.

        Raises:
            ApiError: the leases could not be listed.
            ValueError: not even the names in the list can be read.
        """
        began_at = self._clock()
        data = await self._client.get(paths.leases(NODE_LEASES), deadline_seconds=_DEADLINE_SECONDS)
        leases, version = decode.node_leases(data, self._reader.read)
        self._looked_at = began_at
        self.last_contact = self._clock()
        self._count = len(leases)
        self._reader.note_listed(self._count)
        await asyncio.sleep(0)  # in a large fleet decoding took long, and another long step follows
        self._on_listed(leases, version, self.last_contact - began_at)
        self.synced.set()

    def last_contact_age_seconds(self) -> float:
        """Return the seconds since the API server last answered with a list."""
        return self._clock() - self.last_contact

    async def _until_due(self) -> None:
        while (left := self._due() - self._clock()) > 0:
            self._asked.clear()
            try:
                async with asyncio.timeout(left):
                    await self._asked.wait()
            except TimeoutError:
                return

    def _due(self) -> float:
        near = max(NEAR_SECONDS, self._count / NEAR_LEASES_PER_SECOND)
        return self._looked_at + (near if self._clock() < self._asked_until else REST_SECONDS)

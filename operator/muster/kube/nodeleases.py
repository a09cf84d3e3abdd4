"""The kubelets' heartbeats, read in one list now and then.

A fleet of 16,384 nodes renews its leases 1,638 times a second. A watch shows each renewal by itself, to every replica,
and hardly any of them is ever asked for. One list is 13 MB and costs a tenth of what the watch does; how old a
heartbeat was when it was read is told by its resourceVersion (`muster.controller.heartbeats`), so that nothing has to
be seen while it happens.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from muster.kube import decode, informer, jitter, paths
from muster.kube.client import Client
from muster.kube.decode import NodeLease
from muster.kube.errors import ApiError

REST_SECONDS = 15.0
"""From one look to the next while nobody asks."""
NEAR_SECONDS, NEAR_LEASES_PER_SECOND = 1.0, 4096
"""While somebody does: a second, and longer in a large fleet."""
ASKED_SECONDS = 10.0
"""For so long a question keeps the looks near to each other."""

_DEADLINE_SECONDS = 30.0

log = structlog.get_logger()
Clock = Callable[[], float]
Taken = Callable[[list[NodeLease], int, float], None]


class NodeLeases:
    """Start `run()` as a task; nothing is known before `synced` is set.

    Args:
        taken: called with all leases, the resourceVersion of the list, and for how many seconds it was under way.
    """

    name = "node_leases"

    def __init__(self, client: Client, taken: Taken, clock: Clock = time.monotonic) -> None:
        self.synced = asyncio.Event()
        self.last_contact = clock()  # when the API server last answered with a list
        self._client = client
        self._taken = taken
        self._clock = clock
        self._count = 0
        self._looked_at = float("-inf")
        self._asked_until = float("-inf")
        self._asked = asyncio.Event()
        self._reader = informer.node_leases(client, clock)

    def ask(self) -> None:
        """Somebody depends on how old heartbeats are: look now if the last look is not near, and again soon."""
        self._asked_until = self._clock() + ASKED_SECONDS
        self._asked.set()

    async def run(self) -> None:
        """Look until cancelled. Trouble is logged and tried again, with a growing and jittered pause."""
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
        """Read all of them once.

        Raises:
            ApiError: they could not be listed.
            ValueError: not even whose they are can be read.
        """
        begun = self._clock()
        data = await self._client.get(paths.leases(paths.NODE_LEASES), deadline_seconds=_DEADLINE_SECONDS)
        leases, version = decode.node_leases(data, self._reader.read)
        self._looked_at = begun
        self.last_contact = self._clock()
        self._count = len(leases)
        self._reader.note_listed(self._count)
        await asyncio.sleep(0)  # of a large fleet that was a long step, and another follows
        self._taken(leases, version, self.last_contact - begun)
        self.synced.set()

    def last_contact_age_seconds(self) -> float:
        """Since the API server last answered with a list."""
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

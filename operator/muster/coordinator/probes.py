"""Liveness and readiness of a process whose event loop does the work, for a server that answers from another thread.

The loop must not answer them itself: every client on the network could take its time. So the loop writes a beat, and
the server's thread reads it. A loop that stands still writes none, and liveness fails.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from muster.serve import Endpoint, probe

BEAT_SECONDS = 0.5
STANDS_STILL_SECONDS = 10.0
"""Three failed probes restart the process, so that it has stood still for about half a minute by then."""


@dataclass(frozen=True, slots=True)
class _Written:
    at: float
    not_healthy: str
    not_ready: str


class LoopHeartbeat:
    """The health of the event loop's process as the loop last wrote it, for a server in another thread.

    Args:
        not_healthy: says why the process should be restarted, "" when all is well; called by the loop.
        not_ready: says why the process cannot serve now, "" when it can; called by the loop.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        not_healthy: Callable[[], str],
        not_ready: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._not_healthy = not_healthy
        self._not_ready = not_ready
        self._clock = clock
        self._last = self._now()

    def write(self) -> None:
        """Write the health and the time from the event loop, as proof that the loop runs."""
        self._last = self._now()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write the beat every half second for as long as this context is open."""
        task = asyncio.create_task(self._run(), name="beat")
        try:
            yield
        finally:
            task.cancel()

    def endpoints(self) -> dict[str, Endpoint]:
        """The handlers of /healthz and /readyz, by path; they may be called from any thread."""
        return {"/healthz": probe(self.not_healthy), "/readyz": probe(self.not_ready)}

    def not_healthy(self) -> str:
        """Why the process should be restarted, as the loop last wrote it, or because the loop stands still; "" = all is
        well."""
        return self._stands_still() or self._last.not_healthy

    def not_ready(self) -> str:
        """Why the process cannot serve now, as the loop last wrote it, or because the loop stands still; "" = it
        can."""
        return self._stands_still() or self._last.not_ready

    def _now(self) -> _Written:
        return _Written(self._clock(), self._not_healthy(), self._not_ready())

    def _stands_still(self) -> str:
        age = self._clock() - self._last.at
        return f"the event loop has stood still for {age:.0f} s" if age > STANDS_STILL_SECONDS else ""

    async def _run(self) -> None:
        while True:
            self.write()
            await asyncio.sleep(BEAT_SECONDS)

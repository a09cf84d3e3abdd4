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


class Beat:
    """What the event loop last said of its process.

    Args:
        not_healthy: why the process should be restarted, "" when all is well; called by the loop.
        not_ready: why it cannot serve now, "" when it can; likewise.
        clock: monotonic.
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
        """The loop turns."""
        self._last = self._now()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write it every half second meanwhile."""
        task = asyncio.create_task(self._run(), name="beat")
        try:
            yield
        finally:
            task.cancel()

    def endpoints(self) -> dict[str, Endpoint]:
        """/healthz and /readyz, for any thread."""
        return {"/healthz": probe(self.not_healthy), "/readyz": probe(self.not_ready)}

    def not_healthy(self) -> str:
        """As the loop said, or that it stands still."""
        return self._stands_still() or self._last.not_healthy

    def not_ready(self) -> str:
        """As the loop said, or that it stands still."""
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

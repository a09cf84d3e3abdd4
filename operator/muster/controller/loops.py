"""The loops of one operator process, which never end by themselves.

Where one fails, the whole process ends, so that the next one begins clean.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from muster.kube.errors import LeadershipLost

Loop = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger()


class Loops:
    """The tasks of one process.

    Args:
        identity: of the process, for its log.
        end: ends the process there and then.

    Attributes:
        stopping: whether the process is ending gracefully: no loop that fails then ends it there and then.
    """

    def __init__(self, identity: str, end: Callable[[int], None]) -> None:
        self.stopping = False
        self._identity = identity
        self._end = end
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, name: str, loop: Loop) -> None:
        """Run a loop as a task of this name."""
        self._tasks.append(asyncio.create_task(self._guarded(name, loop), name=name))

    def ended(self) -> list[str]:
        """The names of the loops that have ended."""
        return [task.get_name() for task in self._tasks if task.done()]

    async def stop(self) -> None:
        """Cancel all loops, and wait until they have ended."""
        self.stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def give_up(self, reason: str) -> None:
        """End the process now, so that nothing in flight is written by a process that may not write any more."""
        if self.stopping:
            return
        log.error("exiting", reason=reason, identity=self._identity)
        self._end(1)

    async def _guarded(self, name: str, loop: Loop) -> None:
        try:
            await loop()
        except LeadershipLost as lost:
            self.give_up(str(lost))
        except Exception:
            log.exception("task failed", task=name)
            self.give_up(f"task {name} failed")

"""The background tasks of a server."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Background tasks that end with their server."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()  # asyncio itself refers to a task only weakly

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task and keep it until it ends or is cancelled."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def cancel(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

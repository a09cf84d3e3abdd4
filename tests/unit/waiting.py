"""Waiting for what other tasks of the loop do."""

import asyncio
from collections.abc import Callable

from localcluster.patience import PATIENCE_SECONDS


async def until(condition: Callable[[], object]) -> None:
    """Return once the condition holds.

    Raises:
        TimeoutError: it has not held for longer than any machine takes.
    """
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in many places
            await asyncio.sleep(0.002)

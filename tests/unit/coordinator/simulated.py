"""Simulated time for what a loop of the coordinator does."""

import asyncio
from typing import Any

from simulate.loop import SimulatedLoop


def simulated(work: Any) -> Any:
    """Run a coroutine in simulated time."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work)

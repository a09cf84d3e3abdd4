"""Long work in slices: after each, everything else of the process may run, such as launchers, watches, the lease."""

import asyncio
from collections.abc import Callable, Generator
from typing import TypeVar

# The step that ends a slice takes a few milliseconds more, seldom up to 20.
SLICE_SECONDS = 0.005

T = TypeVar("T")


class Slices:
    """The present slice of one piece of long work."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun = clock()

    async def pause(self) -> float:
        """Let other tasks run if this slice has lasted long enough; returns the seconds that they took."""
        now = self._clock()
        if now - self._begun < SLICE_SECONDS:
            return 0.0
        await asyncio.sleep(0)
        self._begun = self._clock()
        return self._begun - now


async def in_slices(steps: Generator[None, None, T], clock: Callable[[], float]) -> T:
    """Run a generator to its end, with a pause for other tasks between its steps; returns what the generator
    returns."""
    slices = Slices(clock)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
        await slices.pause()

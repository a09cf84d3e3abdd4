"""Run coroutines from code that is not asynchronous, also in a notebook, whose own event loop runs already.

The event loop has a thread of its own. It ends with the process, or when it is closed.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
CLOSE_SECONDS = 5.0


class DeadlineError(Exception):
    """What an iteration was given time for has not come."""


class BackgroundLoop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="muster-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. An interrupt of the caller (Ctrl-C, a stopped cell) cancels it.

        Raises:
            RuntimeError: the loop was closed.
        """
        if self._loop.is_closed():
            work.close()
            raise RuntimeError("this connection was closed: make another one with Muster()")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, made: AsyncGenerator[T, None], timeout: float | None = None) -> Iterator[T]:
        """Yield what an asynchronous generator yields, and close it in the end.

        Args:
            made: the generator.
            timeout: seconds for all of it; None: without end.

        Raises:
            DeadlineError: it did not end in time.
        """
        turn = asyncio.Lock()
        until = None if timeout is None else self._loop.time() + timeout
        try:
            while True:
                try:
                    item = self.run(_next(made, until, turn))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if threading.current_thread() is self._thread:  # the garbage collector may run anywhere
                self._loop.create_task(_close(made, turn))
            elif not self._loop.is_closed():
                self.run(_close(made, turn))

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine, and end the thread."""
        asyncio.run_coroutine_threadsafe(self._end(last), self._loop)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()

    async def _end(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            await last
        finally:
            self._loop.stop()


async def _next(made: AsyncGenerator[T, None], until: float | None, turn: asyncio.Lock) -> T:
    async with turn:
        try:
            async with asyncio.timeout_at(until):
                return await anext(made)
        except TimeoutError as error:
            raise DeadlineError from error


async def _close(made: AsyncGenerator[T, None], turn: asyncio.Lock) -> None:
    async with turn:  # a step that was interrupted may still be ending
        await made.aclose()

"""Run coroutines from code that is not asynchronous, also in a notebook, whose own event loop runs already.

The event loop has a thread of its own. It ends with the process, or when it is closed.
"""

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent import futures
from typing import Any, TypeVar

from muster.client.errors import NotConnectedError

T = TypeVar("T")
CLOSE_SECONDS = 5.0
FIRST_ITEM_SECONDS = 5.0
"""For the first item of a generator there is at least this time: to ask the API server once."""


class DeadlineError(Exception):
    """What an iteration was given time for has not come."""


class BackgroundLoop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ended: futures.Future[None] = futures.Future()
        self._thread = threading.Thread(target=self._serve, name="muster-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. An interrupt of the caller (Ctrl-C, a stopped cell) cancels it.

        Raises:
            NotConnectedError: the loop was closed, before or meanwhile.
        """
        closed = "this connection was closed: make another one with Muster()"
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:
            work.close()
            raise NotConnectedError(closed) from error
        either: list[futures.Future[Any]] = [future, self._ended]
        try:
            futures.wait(either, return_when=futures.FIRST_COMPLETED)
        except BaseException:
            future.cancel()
            raise
        if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:  # the loop was already stopping
            work.close()
        if not future.done() or future.cancelled():
            raise NotConnectedError(closed)
        return future.result()

    def iterate(self, generator: AsyncGenerator[T, None], timeout: float | None = None) -> Iterator[T]:
        """Yield what an asynchronous generator yields, and close it in the end.

        Args:
            generator: the generator.
            timeout: seconds for all of it, but for the first item at least `FIRST_ITEM_SECONDS`; None: without end.

        Raises:
            DeadlineError: it did not end in time.
        """
        lock = asyncio.Lock()
        begin = self._loop.time()
        least_seconds = FIRST_ITEM_SECONDS
        try:
            while True:
                until = None if timeout is None else begin + max(timeout, least_seconds)
                try:
                    item = self.run(_next(generator, until, lock))
                except StopAsyncIteration:
                    return
                least_seconds = 0.0
                yield item
        finally:
            if threading.current_thread() is self._thread:  # the garbage collector may run anywhere
                self._loop.create_task(_close(generator, lock))
            else:
                with contextlib.suppress(NotConnectedError):  # closing has ended it
                    self.run(_close(generator, lock))

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Cancel what runs, run a last coroutine, and end the thread."""
        asyncio.run_coroutine_threadsafe(self._end(last), self._loop)
        if threading.current_thread() is not self._thread:
            self._thread.join(CLOSE_SECONDS)

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.close()
        self._ended.set_result(None)

    async def _end(self, last: Coroutine[Any, Any, None]) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            await last
        finally:
            self._loop.stop()


async def _next(generator: AsyncGenerator[T, None], until: float | None, lock: asyncio.Lock) -> T:
    async with lock:
        try:
            async with asyncio.timeout_at(until):
                return await anext(generator)
        except TimeoutError as error:
            raise DeadlineError from error


async def _close(generator: AsyncGenerator[T, None], lock: asyncio.Lock) -> None:
    async with lock:  # a step that was interrupted may still be ending
        await generator.aclose()

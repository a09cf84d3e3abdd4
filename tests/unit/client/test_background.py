"""The event loop in a thread of its own: beside a running one, interrupted, and closed from wherever."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest

from muster.client.background import BackgroundLoop, DeadlineError


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    made = BackgroundLoop()
    yield made
    made.close(asyncio.sleep(0))


async def counted(closed: list[str], until: int) -> AsyncGenerator[int, None]:
    try:
        for number in range(until):
            yield number
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.01)
        closed.append("closed")


async def test_it_runs_beside_the_event_loop_of_a_notebook(loop: BackgroundLoop) -> None:
    assert loop.run(asyncio.sleep(0, "done")) == "done"


def test_a_loop_over_a_generator_that_is_left_closes_it(loop: BackgroundLoop) -> None:
    closed: list[str] = []
    for number in loop.iterate(counted(closed, 3)):
        if number == 1:
            break
    assert closed == ["closed"]


def test_a_generator_that_takes_too_long_is_closed(loop: BackgroundLoop) -> None:
    closed: list[str] = []
    found = []
    with pytest.raises(DeadlineError):
        for number in loop.iterate(counted(closed, 2), 0.05):
            found.append(number)  # noqa: PERF402 - the numbers before the error count
    assert (found, closed) == ([0, 1], ["closed"])


def test_an_interrupt_cancels_what_runs(loop: BackgroundLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []
    numbers = loop.iterate(counted(closed, 1))
    assert next(numbers) == 0
    plain = asyncio.run_coroutine_threadsafe

    def interrupted(*arguments: object) -> object:
        future = plain(*arguments)  # type: ignore[arg-type, var-annotated]
        monkeypatch.undo()
        monkeypatch.setattr(future, "result", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        return future

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(numbers)
    assert closed == ["closed"]


def test_what_is_closed_runs_nothing_and_has_no_thread() -> None:
    loop = BackgroundLoop()
    loop.close(asyncio.sleep(0))
    with pytest.raises(RuntimeError, match="make another one with Muster"):
        loop.run(asyncio.sleep(0))
    assert "muster-client" not in {thread.name for thread in threading.enumerate()}


def test_the_garbage_collector_may_close_it_in_its_own_thread() -> None:
    loop = BackgroundLoop()

    async def collect() -> None:
        loop.close(asyncio.sleep(0))

    loop.run(collect())
    loop._thread.join(5)
    assert not loop._thread.is_alive()

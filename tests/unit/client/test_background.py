"""The event loop in a thread of its own: beside a running one, interrupted, and closed from wherever."""

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, Iterator
from concurrent import futures

import pytest

from muster.client import background
from muster.client.background import BackgroundLoop, DeadlineError
from muster.client.errors import NotConnectedError


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


def test_a_generator_that_never_begins_is_closed(loop: BackgroundLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_ITEM_SECONDS", 0.05)
    closed: list[str] = []
    with pytest.raises(DeadlineError):
        next(loop.iterate(counted(closed, 0), 0))
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

    def interrupted(*_: object, **__: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(futures, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(numbers)
    assert closed == ["closed"]


def test_what_is_closed_runs_nothing_and_has_no_thread() -> None:
    loop = BackgroundLoop()
    loop.close(asyncio.sleep(0))
    with pytest.raises(NotConnectedError, match="make another one with Muster"):
        loop.run(asyncio.sleep(0))
    assert "muster-client" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.timeout(30)
def test_closing_ends_what_another_thread_waits_for() -> None:
    loop = BackgroundLoop()
    closed: list[str] = []
    begun = threading.Event()

    def wait() -> None:
        with pytest.raises(NotConnectedError, match="make another one with Muster"):
            for _ in loop.iterate(counted(closed, 1)):
                begun.set()
        closed.append("said so")

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    assert begun.wait(5)
    loop.close(asyncio.sleep(0))
    waiting.join(5)
    assert closed == ["closed", "said so"]


@pytest.mark.timeout(30)
def test_what_is_asked_while_it_stops_does_not_run(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    loop = BackgroundLoop()
    stopped, go_on = threading.Event(), threading.Event()
    plain = loop._loop.close

    def close() -> None:
        stopped.set()
        go_on.wait(5)
        plain()

    monkeypatch.setattr(loop._loop, "close", close)
    closing = threading.Thread(target=loop.close, args=(asyncio.sleep(0),))
    closing.start()
    assert stopped.wait(5)
    threading.Timer(0.05, go_on.set).start()
    with pytest.raises(NotConnectedError, match="make another one with Muster"):
        loop.run(asyncio.sleep(0))
    closing.join(5)
    gc.collect()
    assert not recwarn.list


def test_the_garbage_collector_may_close_it_in_its_own_thread() -> None:
    loop = BackgroundLoop()

    async def collect() -> None:
        loop.close(asyncio.sleep(0))

    loop.run(collect())
    loop._thread.join(5)
    assert not loop._thread.is_alive()

"""Clients of the real API server, directly and through a proxy that can be frozen and cut like a network."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from localcluster.controlplane import ADMIN, ControlPlane
from localcluster.patience import PATIENCE_SECONDS
from muster.kube.client import Client


class Network:
    """A TCP proxy in front of the API server."""

    def __init__(self, target: str) -> None:
        self._host, self._port = urlsplit(target).hostname or "", urlsplit(target).port or 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._requests, self._answers = asyncio.Event(), asyncio.Event()
        self._listening: asyncio.Server | None = None
        self.thaw()

    def freeze(self, *, requests: bool = True, answers: bool = True) -> None:
        """Let nothing through any more; connections stay open."""
        if requests:
            self._requests.clear()
        if answers:
            self._answers.clear()

    def thaw(self) -> None:
        """Let everything through."""
        self._requests.set()
        self._answers.set()

    def cut(self) -> None:
        """Break the connections that are open; what was frozen in them is lost."""
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    async def start(self) -> str:
        self._listening = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"https://127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._listening is not None
        self._listening.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there_reader, there_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(there_writer)
        for source, sink, gate in ((reader, there_writer, self._requests), (there_reader, writer, self._answers)):
            task = asyncio.create_task(self._pump(source, sink, gate))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await gate.wait()
                sink.write(data)
                await sink.drain()
        sink.close()


@pytest.fixture
async def network(api_server: ControlPlane) -> AsyncIterator[Network]:
    made = Network(api_server.server)
    yield made
    await made.stop()


@pytest.fixture
async def far_client(api_server: ControlPlane, network: Network, tmp_path: Path) -> AsyncIterator[Client]:
    """A client whose connections go through `network`."""
    path = tmp_path / "kubeconfig"
    api_server.write_kubeconfig(ADMIN, path, await network.start())
    made = await Client.connect(str(path))
    yield made
    await made.close()


@pytest.fixture
async def background() -> AsyncIterator[Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]]:
    """Runs a coroutine beside the test and ends it with the test."""
    tasks: list[asyncio.Task[None]] = []

    def start(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        tasks.append(asyncio.create_task(work))
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Coroutine[Any, Any, None]]:
    """Waits for a condition."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():  # noqa: ASYNC110 - what is waited for is another process' progress
                await asyncio.sleep(0.01)

    return wait

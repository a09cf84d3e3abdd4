"""A coordinator as it is, on loopback, whose directive the test chooses."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import pytest
from bench.launchers.channel import Endpoint

from muster.coordinator.auth import AuthError, Caller
from muster.coordinator.hub import Hub
from muster.coordinator.server import CoordinatorServer
from muster.kube.certificates import new_authority, new_serving
from muster.protocol.messages import WAIT, Directive

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
NAME = "muster-coordinator.test.svc"
POD = Caller("jobs", "job-0-1", "uid-0", "node-0", "node-uid")


class Coordinator:
    """Answers the token `good`.

    Attributes:
        why_not: why nobody is served, "" when everybody is.
    """

    def __init__(self) -> None:
        self.directive = Directive(WAIT, attempt=1, poll_seconds=0.2, hold_seconds=0.2)
        self.why_not = ""
        self.hub = Hub()
        self.states: list[str] = []
        self.server = CoordinatorServer(
            self.hub, self, lambda _: self.directive, lambda _: True, lambda: self.why_not, cpu_clock=lambda: 0.0
        )
        self.hub.subscribe(lambda _, report: self.states.append(f"{report.state} {report.attempt}"))
        now = datetime.now(UTC)
        self._authority = new_authority(now)
        self._serving = new_serving(self._authority, (NAME,), now)
        self.port = 0

    async def start(self) -> None:
        self.port = await self.server.start("127.0.0.1", self.port, self._serving.certificate, self._serving.key)

    def endpoint(self, port: int = 0) -> Endpoint:
        tls = ssl.create_default_context(cadata=self._authority.certificate.decode())
        return Endpoint("127.0.0.1", port or self.port, NAME, tls)

    @contextlib.asynccontextmanager
    async def impostor(self, serve: Serve) -> AsyncIterator[Endpoint]:
        """A server with the same certificate that does with each connection what the test wants."""

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await serve(reader, writer)

        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=self.server._tls)
        try:
            yield self.endpoint(port=server.sockets[0].getsockname()[1])
        finally:
            server.close()

    def order(self, directive: Directive) -> None:
        self.directive = directive
        self.server.notify([POD.pod_uid])

    def known(self, authorization: str) -> Caller | None:
        return POD if authorization == "Bearer good" else None

    async def verify(self, authorization: str) -> Caller:
        if authorization != "Bearer good":
            raise AuthError("send the good token")
        return POD


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    made = Coordinator()
    await made.start()
    yield made
    await made.server.stop()

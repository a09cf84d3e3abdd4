"""What clients without a good token have TLS compute, by a clock of the test and counted CPU."""

import asyncio
import asyncio.sslproto
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.clock import StepClock

from muster.coordinator import metered_tls
from muster.coordinator.metered_tls import TlsMeter
from muster.coordinator.server import load_pair, server_context
from muster.kube.certificates import new_authority, new_serving

STEP_SECONDS = 0.0005  # that each call of TLS computes
DEADLINE = 120.0
TRUST = ssl.create_default_context()
TRUST.check_hostname, TRUST.verify_mode = False, ssl.CERT_NONE


class Client:
    """A client's side of TLS, whose bytes the test carries to the server's side in pieces of its choice."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._from_server, self._to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = TRUST.wrap_bio(self._from_server, self._to_server)
        self.server = context.wrap_bio(self._in, self._out, server_side=True)

    def shake_hands(self, piece: int = 65536) -> None:
        for _ in range(3):
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
            self.send(piece, self.server.do_handshake)
            self._from_server.write(self._out.read())

    def send(self, piece: int, read: Any) -> None:
        """Hand the server what the client has written, so many bytes at a time."""
        data = self._to_server.read()
        for start in range(0, len(data), piece):
            self._in.write(data[start : start + piece])
            with contextlib.suppress(ssl.SSLWantReadError):
                read()


class Transport:
    """The connection of a client's TLS."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get_extra_info(self, name: str) -> ssl.SSLObject:
        assert name == "ssl_object"
        return self._client.server


@pytest.fixture
def meter() -> TlsMeter:
    return TlsMeter(StepClock(STEP_SECONDS), metered_tls.MAX_BODY_SECONDS)


@pytest.fixture
def context(meter: TlsMeter) -> ssl.SSLContext:
    made, now = server_context(), datetime.now(UTC)
    serving = new_serving(new_authority(now), ("localhost",), now)
    load_pair(made, serving.certificate, serving.key)
    meter.watch(made)
    return made


def test_a_handshake_in_pieces_of_a_byte_is_given_up(context: ssl.SSLContext) -> None:
    Client(context).shake_hands()
    with pytest.raises(ssl.SSLError, match="too much"):
        Client(context).shake_hands(piece=1)


def test_records_of_a_byte_are_read_of_clients_with_a_good_token_only(meter: TlsMeter, context: ssl.SSLContext) -> None:
    stranger, launcher = Client(context), Client(context)
    for each in (stranger, launcher):
        each.shake_hands()
    transport: Any = Transport(launcher)
    meter.note_authenticated(transport)
    for client in (launcher, stranger):
        for _ in range(100):
            client.tls.write(b"x")
        if client is stranger:
            with pytest.raises(ssl.SSLError, match="too much"):
                client.send(65536, lambda: [stranger.server.read(16) for _ in range(100)])
        else:
            client.send(65536, lambda: [launcher.server.read(16) for _ in range(100)])
    assert meter.collect_seconds(transport) == pytest.approx(100 * (STEP_SECONDS + metered_tls.RECORD_SECONDS))
    assert meter.collect_seconds(transport) == 0.0
    for _ in range(300):
        launcher.tls.write(b"x")
    with pytest.raises(ssl.SSLError, match="too much"):
        launcher.send(65536, lambda: [launcher.server.read(16) for _ in range(300)])


@pytest.fixture
async def port(context: ssl.SSLContext) -> AsyncIterator[int]:
    server = await asyncio.start_server(discard, "127.0.0.1", 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def discard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read and throw away, as after a request that was refused."""
    with contextlib.suppress(OSError):
        while await reader.read(65536):
            pass
    writer.close()


def test_a_connection_that_asyncio_has_given_up_took_nothing_more(meter: TlsMeter) -> None:
    """Its place among those of its pod is given back after this question."""
    given_up = asyncio.sslproto._SSLProtocolTransport(asyncio.AbstractEventLoop(), None)  # type: ignore[attr-defined]
    given_up._closed = True
    assert meter.collect_seconds(given_up) == 0.0


async def test_asyncio_cuts_off_a_client_that_sends_on_after_it_was_refused(port: int) -> None:
    async with asyncio.timeout(DEADLINE):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=TRUST)
        with pytest.raises(OSError):  # whichever way it is closed
            while True:
                writer.write(b"x" * 16384)
                await writer.drain()
                await asyncio.sleep(0)
        writer.transport.abort()

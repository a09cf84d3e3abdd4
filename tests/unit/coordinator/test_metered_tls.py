"""What clients without a good token have TLS compute, by a clock of the test and counted CPU."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.clock import Clock, StepClock

from muster.coordinator import connection_limiter, metered_tls
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
def meter(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> TlsMeter:
    monkeypatch.setattr(metered_tls, "BURST_SECONDS", 0.02)  # of a few handshakes
    return TlsMeter(clock, StepClock(STEP_SECONDS), metered_tls.MAX_BODY_SECONDS)


@pytest.fixture
def context(meter: TlsMeter) -> ssl.SSLContext:
    made, now = server_context(), datetime.now(UTC)
    serving = new_serving(new_authority(now), ("localhost",), now)
    load_pair(made, serving.certificate, serving.key)
    meter.watch(made)
    return made


def authenticate(meter: TlsMeter, client: Client, *, is_free: bool = True) -> None:
    transport: Any = Transport(client)
    meter.note_authenticated(transport, is_free=is_free)


def test_a_handshake_in_pieces_of_a_byte_is_given_up(context: ssl.SSLContext) -> None:
    Client(context).shake_hands()
    with pytest.raises(ssl.SSLError, match="too much"):
        Client(context).shake_hands(piece=1)


def test_records_of_a_byte_are_read_of_clients_with_a_good_token_only(meter: TlsMeter, context: ssl.SSLContext) -> None:
    stranger, launcher = Client(context), Client(context)
    for each in (stranger, launcher):
        each.shake_hands()
    authenticate(meter, launcher)
    for client in (launcher, stranger):
        for _ in range(100):
            client.tls.write(b"x")
        if client is stranger:
            with pytest.raises(ssl.SSLError, match="too much"):
                client.send(65536, lambda: [stranger.server.read(16) for _ in range(100)])
        else:
            client.send(65536, lambda: [launcher.server.read(16) for _ in range(100)])
    transport: Any = Transport(launcher)
    assert meter.collect_seconds(transport) == pytest.approx(100 * (STEP_SECONDS + metered_tls.RECORD_SECONDS))
    assert meter.collect_seconds(transport) == 0.0
    for _ in range(300):
        launcher.tls.write(b"x")
    with pytest.raises(ssl.SSLError, match="too much"):
        launcher.send(65536, lambda: [launcher.server.read(16) for _ in range(300)])


def test_fewer_handshakes_are_let_in_while_all_of_them_have_taken_too_much(
    clock: Clock, meter: TlsMeter, context: ssl.SSLContext
) -> None:
    usual = connection_limiter.HANDSHAKES_PER_SECOND
    handshakes = 0
    while meter.handshakes_per_second() == usual:
        Client(context).shake_hands()
        handshakes += 1
        assert handshakes < 10_000
    assert meter.handshakes_per_second() == usual * metered_tls.EXHAUSTED_FACTOR
    clock.advance(metered_tls.BURST_SECONDS / metered_tls.UNAUTHENTICATED_SHARE)
    assert meter.handshakes_per_second() == usual


@pytest.mark.parametrize(("is_free", "are_fewer"), [(True, False), (False, True)])
def test_launchers_take_nothing_however_many_connect_at_once(
    meter: TlsMeter, context: ssl.SSLContext, is_free: bool, are_fewer: bool
) -> None:
    for _ in range(2 * int(metered_tls.BURST_SECONDS / STEP_SECONDS)):
        client = Client(context)
        client.shake_hands()
        authenticate(meter, client, is_free=is_free)
    assert (meter.handshakes_per_second() < connection_limiter.HANDSHAKES_PER_SECOND) == are_fewer


def test_the_usual_handshakes_take_less_than_their_share() -> None:
    """So that without slow cores and tricks nothing is slower than by their number alone."""
    assert connection_limiter.HANDSHAKES_PER_SECOND * 0.001 < metered_tls.UNAUTHENTICATED_SHARE


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


async def test_asyncio_cuts_off_a_client_that_sends_on_after_it_was_refused(port: int) -> None:
    async with asyncio.timeout(DEADLINE):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=TRUST)
        with pytest.raises(OSError):  # whichever way it is closed
            while True:
                writer.write(b"x" * 16384)
                await writer.drain()
                await asyncio.sleep(0)
        writer.transport.abort()

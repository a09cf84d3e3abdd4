"""What connections to the page an address and a user may have, over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from aiohttp import StreamReader
from tests.unit.page.conftest import Fleet

from localcluster.patience import PATIENCE_SECONDS
from muster import serve
from muster.coordinator import connection_limiter
from muster.coordinator.connection_limiter import Limits
from muster.page import connections
from muster.page.shares import Shares

CROWD, READER = "127.0.0.9", "127.0.0.1"
FEW = Limits(unauthenticated=8, waiting=8, waiting_of_address=4, handshakes=12)


class Client:
    """One connection from an address."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def status(self, path: str, token: str = "") -> int:
        """The status of the answer; 0: the connection was closed."""
        head = f"GET {path} HTTP/1.1\r\nHost: it\r\nAuthorization: Bearer {token}\r\n\r\n"
        try:
            self._writer.write(head.encode())
            line = await self._reader.readline()
            length = 0
            while (header := await self._reader.readline()).strip():
                if header.lower().startswith(b"content-length:"):
                    length = int(header.split(b":")[1])
            await self._reader.readexactly(length)
            return int(line.split()[1]) if line else 0
        except (OSError, asyncio.IncompleteReadError):
            return 0

    async def closed(self) -> bool:
        """Wait until the page has closed it."""
        with contextlib.suppress(OSError):
            await self._reader.read()
        return True

    def close(self) -> None:
        self._writer.transport.abort()


class Connect:
    """Opens connections to the page."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.opened: list[Client] = []

    async def __call__(self, host: str = READER) -> Client:
        made = await asyncio.open_connection("127.0.0.1", self._port, local_addr=(host, 0), family=socket.AF_INET)
        self.opened.append(Client(*made))
        return self.opened[-1]


@pytest.fixture
async def connect(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connect]:
    monkeypatch.setattr(connections, "LIMITS", FEW)
    async with asyncio.timeout(PATIENCE_SECONDS), fleet.served() as address:
        made = Connect(urlsplit(address).port or 0)
        try:
            yield made
        finally:
            for client in made.opened:
                client.close()


async def test_what_is_no_http_is_not_logged(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    for request in (b"no request\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 1000 + b"\r\n"):
        client = await connect(CROWD)
        client._writer.write(request)
        assert b" 400 " in await client._reader.readline()
        client.close()
    assert caplog.records == []


@pytest.mark.parametrize("addresses", [1, FEW.unauthenticated + 4])
async def test_silent_clients_keep_no_reader_out_for_long(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, addresses: int
) -> None:
    """While others wait, those that have shown no token have a quarter of the time."""
    monkeypatch.setattr(connections, "UNAUTHENTICATED_SECONDS", 3600.0)
    monkeypatch.setattr(connections, "HURRIED_SECONDS", 1.0)
    crowd = [await connect(f"127.0.1.{1 + number % addresses}") for number in range(FEW.unauthenticated + 4)]
    assert await (await connect()).status("/api/jobs", "admin-token") == 200
    assert await crowd[0].closed()
    assert await crowd[-1].status("/api/jobs", "admin-token") == 200, "nobody waits: it has all its time"


async def test_a_connection_without_a_good_token_has_its_time(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNAUTHENTICATED_SECONDS", 0.0)
    client = await connect()
    assert await client.status("/") == 200
    assert await client.status("/api/jobs", "no-token") == 401
    assert await client.closed()


async def test_a_flood_closes_no_connection_of_a_reader_who_is_known(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even from the reader's own address: behind a gateway all readers have one."""
    monkeypatch.setattr(connections, "UNAUTHENTICATED_SECONDS", 0.0)
    reader = await connect()
    assert await reader.status("/api/jobs", "admin-token") == 200
    for _ in range(30):
        stranger = await connect()
        await connect(CROWD)
    assert await stranger.closed()
    assert await reader.status("/api/jobs", "admin-token") == 200


async def test_a_readers_connection_takes_nothing_from_the_budget_for_handshakes(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limiter, "HANDSHAKES_PER_SECOND", 1e-9)
    for _ in range(FEW.handshakes + 2):
        reader = await connect()
        assert await reader.status("/api/jobs", "admin-token") == 200
        reader.close()


async def test_new_good_tokens_of_a_user_take_from_the_handshake_budget(
    fleet: Fleet, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant makes as many tokens as it likes. A reader who is known connects all the same."""
    monkeypatch.setattr(connection_limiter, "HANDSHAKES_PER_SECOND", 1e-9)
    reader = await connect()
    assert await reader.status("/api/jobs", "admin-token") == 200
    for number in range(FEW.handshakes - 2):  # one is the reader's, and one is left
        token = fleet.reviews.tenant(f"system:serviceaccount:team-g:sa-{number}", "team-g")
        client = await connect(CROWD)
        assert await client.status("/api/jobs", token) == 200
        client.close()
    for _ in range(3):
        again = await connect()
        assert await again.status("/api/jobs", "admin-token") == 200
        again.close()
    late = await connect(CROWD)
    assert await late.status("/api/jobs", fleet.reviews.tenant("late", "team-g")) == 200
    assert fleet.page.connections is not None
    assert fleet.page.connections._limiter._budget < 1


async def test_a_user_that_took_more_than_its_share_has_no_handshakes_for_free(
    fleet: Fleet, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limiter, "HANDSHAKES_PER_SECOND", 1e-9)
    fleet.page.shares = Shares(fleet.clock, fleet.sleep)
    assert await (await connect()).status("/api/jobs", "admin-token") == 200
    assert fleet.page.connections is not None
    before = fleet.page.connections._limiter._budget
    assert await (await connect()).status("/api/jobs", "admin-token") == 200
    assert fleet.page.connections._limiter._budget == pytest.approx(before)
    fleet.page.shares.charge("admin", 1000.0)
    monkeypatch.setattr(Shares, "wait_for_share", continue_at_once)
    assert await (await connect()).status("/api/jobs", "admin-token") == 200
    assert fleet.page.connections._limiter._budget == pytest.approx(before - 1)


async def continue_at_once(*_: object) -> bool:
    """Let a request that has to wait go on at once."""
    return True


async def test_a_connection_without_a_good_token_has_few_requests(connect: Connect) -> None:
    client = await connect(CROWD)
    answers = [await client.status("/page.css") for _ in range(connections.UNAUTHENTICATED_REQUESTS + 1)]
    assert answers == [200] * connections.UNAUTHENTICATED_REQUESTS + [0]


async def test_a_connection_has_no_request_after_a_token_that_is_refused(connect: Connect) -> None:
    client = await connect(CROWD)
    assert await client.status("/api/jobs", "no-token") == 401
    assert await client.closed()


async def test_a_readers_connection_stays_open_whatever_comes_over_it(connect: Connect) -> None:
    """A gateway sends requests of many over one connection."""
    gateway = await connect()
    assert await gateway.status("/api/jobs", "admin-token") == 200
    for _ in range(2 * connections.UNAUTHENTICATED_REQUESTS):
        assert await gateway.status("/page.css") == 200
        assert await gateway.status("/api/jobs", "no-token") == 401
    assert await gateway.status("/api/jobs", "admin-token") == 200


async def test_a_client_that_reads_no_answers_is_cut_off(
    fleet: Fleet, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "UNREAD_SECONDS", 0.0)
    client, other = await connect(), await connect()
    for each in (client, other):
        assert await each.status("/api/jobs", "admin-token") == 200
    assert fleet.page.connections is not None
    unread, read = fleet.page.connections._by_transport.values()
    for each_ in (unread, read):
        each_.pause_writing()  # what it has not read fills the buffers
    read.resume_writing()
    assert await client.closed()
    assert await other.status("/api/jobs", "admin-token") == 200


async def test_no_body_is_read_after_the_answer(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(StreamReader, "readany", read.append)
    client = await connect(CROWD)
    client._writer.write(b"GET /page.css HTTP/1.1\r\nHost: it\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
    assert b" 200 " in await client._reader.readline()
    assert await client.closed()
    assert read == []


async def test_a_user_has_so_many_connections_and_the_oldest_makes_room(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS_OF_USER", 3)
    mine = [await connect() for _ in range(4)]
    for each in mine:
        assert await each.status("/api/jobs", "admin-token") == 200
    assert await mine[0].closed()
    assert await mine[1].status("/api/jobs", "admin-token") == 200


async def test_where_all_places_are_taken_the_user_with_the_most_gives_up_its_oldest(
    fleet: Fleet, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Service accounts of a namespace are one user: a tenant makes as many as it likes."""
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 5)
    reader = await connect()
    assert await reader.status("/api/jobs", "admin-token") == 200
    crowd = []
    for number in range(9):
        token = fleet.reviews.tenant(f"system:serviceaccount:team-g:sa-{number}", "team-g")
        crowd.append(await connect(CROWD))
        assert await crowd[-1].status("/api/jobs", token) == 200
    for client in crowd[:5]:
        assert await client.closed()
    other = await connect()
    assert await other.status("/api/jobs", fleet.reviews.tenant("anna", "team-a")) == 200
    assert await crowd[5].closed()
    assert await reader.status("/api/jobs", "admin-token") == 200
    assert await other.status("/api/jobs", "anna-token") == 200
    assert await crowd[-1].status("/api/jobs", token) == 200


def test_all_connections_fit_into_the_files_that_a_process_may_open_anywhere() -> None:
    limits = connections.LIMITS
    of_probes = 2 * (serve._MAX_THREADS + serve._MAX_WAITING)
    assert limits.unauthenticated + limits.waiting + connections.MAX_CONNECTIONS + of_probes <= 1024 - 32


@pytest.mark.parametrize(
    ("user", "share"),
    [
        ("system:serviceaccount:team-g:sa", "system:serviceaccount:team-g"),
        ("system:node:n0", "system:node:n0"),
        ("anna", "anna"),
    ],
)
def test_service_accounts_of_a_namespace_share_places(user: str, share: str) -> None:
    assert connections.share_of(user) == share

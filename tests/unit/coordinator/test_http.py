"""Requests as launchers send them, in pieces and one after another, and everything else that may come to a port."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.unit.waiting import until

from muster.coordinator import http
from muster.coordinator.auth import Caller
from muster.coordinator.http import BadRequestError, Connection, Head, parsed_head

BODY_LIMIT = 64 * 1024
POST = b"POST /v1/report HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Length: %d\r\n\r\n%b"
DEADLINE = 90.0
CALLER = Caller("team", "pod", "u1", "node", "node-uid")


def post(body: bytes) -> bytes:
    return POST % (len(body), body)


class Site:
    """Answers each request with its body, at once or when told to."""

    def __init__(self) -> None:
        self.connections: set[Connection] = set()
        self.asked: list[tuple[Connection, Head]] = []
        self.taken: list[tuple[Connection, bytes]] = []
        self.gone: list[Connection] = []
        self.knows = True
        self.at_once = True
        self.port = 0

    def admit(self, head: Head) -> None:
        if head.length > BODY_LIMIT:
            raise BadRequestError(413, "too large")

    def identify(self, connection: Connection, head: Head) -> None:
        self.asked.append((connection, head))
        if self.knows:
            connection.welcome(CALLER)

    def lost(self, connection: Connection) -> None:
        self.gone.append(connection)

    def serve(self, connection: Connection, head: Head, body: bytes) -> None:
        self.taken.append((connection, body))
        if self.at_once:
            connection.answer(200, body)

    async def visit(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def sent(self, count: int) -> None:
        await until(lambda: len(self.taken) >= count)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(made), "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()
    for connection in list(made.connections):
        connection.close()


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    async with asyncio.timeout(DEADLINE):
        head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in head if line.lower().startswith(b"content-length"))
        return int(head[0].split()[1]), await reader.readexactly(length)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            "POST /a HTTP/1.1\r\nContent-Length: 3\r\nAuthorization:  Bearer x \r\nX-Other: y",
            Head("POST", "/a", 3, "Bearer x", keep=True),
            id="as launchers send it",
        ),
        pytest.param(
            "POST /a HTTP/1.1\r\ncontent-length:0\r\nconnection: Close",
            Head("POST", "/a", 0, "", keep=False),
            id="the last one of its connection",
        ),
        pytest.param("GET / HTTP/1.0", Head("GET", "/", 0, "", keep=False), id="an old browser"),
    ],
)
def test_heads(text: str, want: Head) -> None:
    assert parsed_head(text.encode()) == want


@pytest.mark.parametrize(
    ("text", "status"),
    [
        pytest.param("", 400, id="nothing"),
        pytest.param("\x16\x03\x01", 400, id="TLS within TLS"),
        pytest.param("POST /a b HTTP/1.1", 400, id="too many words"),
        pytest.param("POST / HTTP/2.0\r\nContent-Length: 1", 505, id="another version"),
        pytest.param("POST / HTTP/1.1", 411, id="no length"),
        pytest.param("POST / HTTP/1.1\r\nTransfer-Encoding: chunked", 411, id="chunks"),
        pytest.param("POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", 411, id="both"),
        pytest.param("POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6", 400, id="two lengths"),
        pytest.param("POST / HTTP/1.1\r\nContent-Length: -5", 400, id="negative"),
        pytest.param("POST / HTTP/1.1\r\nContent-Length: ٣", 400, id="digits of another script"),
        pytest.param("POST / HTTP/1.1\r\nContent-Length: " + "9" * 400, 400, id="huge"),
        pytest.param("POST / HTTP/1.1\r\nContent-Length: 5\r\n continued", 400, id="a folded header"),
        pytest.param("POST / HTTP/1.1\r\nContent-Length : 5", 400, id="a blank before the colon"),
        pytest.param("POST / HTTP/1.1\r\nnonsense", 400, id="no colon"),
    ],
)
def test_heads_that_are_refused(text: str, status: int) -> None:
    with pytest.raises(BadRequestError) as caught:
        parsed_head(text.encode())
    assert caught.value.status == status


async def test_a_request_may_come_byte_by_byte(site: Site) -> None:
    reader, writer = await site.visit()
    for byte in post(b"hello"):
        writer.write(bytes([byte]))
        await asyncio.sleep(0)
    assert await answer(reader) == (200, b"hello")
    writer.close()


async def test_requests_follow_each_other_on_one_connection(site: Site) -> None:
    reader, writer = await site.visit()
    for body in (b"one", b"x" * BODY_LIMIT, b""):
        writer.write(post(body))
        assert await answer(reader) == (200, body)
    assert len(site.connections) == 1
    writer.close()


async def test_requests_sent_ahead_are_answered_in_order(site: Site) -> None:
    site.at_once = False
    reader, writer = await site.visit()
    writer.write(b"".join(post(b"%d" % number) for number in range(3)))
    for number in range(3):
        await site.sent(number + 1)
        await asyncio.sleep(0.02)
        assert len(site.taken) == number + 1
        site.taken[-1][0].answer(200, b"to %d" % number)
        assert await answer(reader) == (200, b"to %d" % number)
    writer.close()


async def test_who_sends_far_ahead_is_not_read_until_answered(site: Site) -> None:
    site.at_once = False
    reader, writer = await site.visit()
    body = b"x" * BODY_LIMIT
    writer.write(post(body) * 64)
    await site.sent(1)
    await asyncio.sleep(0.05)
    kept = site.taken[0][0]._received
    assert len(kept) < 16 * BODY_LIMIT
    site.at_once = True
    site.taken[0][0].answer(200, body)
    for _ in range(64):
        assert await answer(reader) == (200, body)
    writer.close()


async def test_no_body_is_read_before_its_sender_is_known(site: Site) -> None:
    site.knows = False
    reader, writer = await site.visit()
    writer.write(post(b"x" * BODY_LIMIT))
    await until(lambda: site.asked)
    ((connection, head),) = site.asked
    assert head.authorization == "Bearer t"
    kept = connection._received
    for _ in range(20):  # turns of the loop in which more would come
        await asyncio.sleep(0)
    assert connection._received == kept
    assert site.taken == []
    connection.welcome(CALLER)
    assert await answer(reader) == (200, b"x" * BODY_LIMIT)
    writer.close()


async def test_an_unknown_sender_is_told_so_though_he_still_sends(site: Site) -> None:
    site.knows = False
    reader, writer = await site.visit()
    writer.write(post(b"x" * BODY_LIMIT)[:-1])
    await until(lambda: site.asked)
    connection = site.asked[0][0]
    connection.refuse(401, http.refusal("who are you?"))
    connection.welcome(CALLER)  # too late
    assert await answer(reader) == (401, b'{"error":"who are you?"}')
    assert connection._received == b""
    assert site.taken == []
    writer.close()


@pytest.mark.parametrize("sent", [b"", b"POST /v1/report HTT"], ids=["nothing", "a part of a head"])
async def test_who_never_says_who_he_is_does_not_stay(site: Site, sent: bytes) -> None:
    reader, writer = await site.visit()
    writer.write(sent)
    await until(lambda: any(connection._received == sent for connection in site.connections))
    (connection,) = site.connections
    later = asyncio.get_running_loop().time() + http.FIRST_REQUEST_SECONDS
    connection.expire(later)
    connection.expire(later + http.LINGER_SECONDS)
    async with asyncio.timeout(DEADLINE):
        await reader.read()
    assert site.connections == set()
    writer.close()


async def test_bytes_now_and_then_win_no_time(site: Site) -> None:
    _, writer = await site.visit()
    deadlines = set()
    for byte in POST[:20]:
        writer.write(bytes([byte]))
        await until(lambda end=bytes([byte]): any(c._received.endswith(end) for c in site.connections))
        deadlines.update(connection._deadline for connection in site.connections)
    assert len(deadlines) == 1
    writer.close()


async def test_a_caller_that_asks_for_it_is_let_go(site: Site) -> None:
    reader, writer = await site.visit()
    writer.write(b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi")
    assert await answer(reader) == (200, b"hi")
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"nonsense\r\n\r\n", 400, id="no request"),
        pytest.param(POST % (BODY_LIMIT + 1, b"x" * (BODY_LIMIT + 1)), 413, id="too large"),
        pytest.param(b"POST / HTTP/1.1\r\nX: " + b"y" * http.MAX_HEAD_BYTES, 431, id="an endless head"),
    ],
)
async def test_a_refused_caller_reads_why_and_is_cut_off(site: Site, data: bytes, status: int) -> None:
    reader, writer = await site.visit()
    writer.write(data)
    assert (await answer(reader))[0] == status
    writer.write(post(b"again"))
    (connection,) = site.connections
    connection.expire(asyncio.get_running_loop().time() + http.LINGER_SECONDS)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await answer(reader)
    assert site.taken == []
    writer.close()


async def test_a_request_that_never_ends_is_given_up(site: Site) -> None:
    reader, writer = await site.visit()
    writer.write(post(b"hello")[:-1])
    await until(lambda: any(connection._received for connection in site.connections))
    (connection,) = site.connections
    now = asyncio.get_running_loop().time()
    connection.expire(now + http.REQUEST_DEADLINE_SECONDS - 1)
    assert connection.is_open
    connection.expire(now + http.REQUEST_DEADLINE_SECONDS)
    assert (await answer(reader))[0] == 408
    writer.close()


async def test_only_a_connection_without_a_request_is_idle(site: Site) -> None:
    site.at_once = False
    reader, writer = await site.visit()
    writer.write(post(b"hello"))
    await site.sent(1)
    (connection,) = site.connections
    later = asyncio.get_running_loop().time() + 10 * http.KEEPALIVE_SECONDS
    connection.expire(later)
    connection.answer(200, b"at last")
    assert await answer(reader) == (200, b"at last")
    connection.expire(later)
    assert await reader.read() == b""
    writer.close()


async def test_a_client_that_hangs_up_is_reported_once_and_answered_in_vain(site: Site) -> None:
    site.at_once = False
    _, writer = await site.visit()
    writer.write(post(b"hello"))
    await site.sent(1)
    connection, lost = site.taken[0][0], asyncio.Event()
    connection.on_lost = lost.set
    writer.close()
    async with asyncio.timeout(DEADLINE):
        await lost.wait()
    assert not connection.is_open
    connection.answer(200, b"nobody reads this")
    assert site.connections == set()

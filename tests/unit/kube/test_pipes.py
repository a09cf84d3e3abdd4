"""POSTs over kept connections, against a server that says what the test wants, byte by byte."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.unit.clock import Clock

from muster.kube.pipes import IDLE_SECONDS, Answer, Pipes

OK = b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\npod!"


class Server:
    """Answers each request with the next script; None closes the connection without a word."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0)
                if answer is None:
                    return
                for part in (answer[:20], answer[20:]):
                    writer.write(part)
                    await writer.drain()
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def pipes(server: Server, clock: Callable[[], float] = lambda: 0.0) -> AsyncIterator[Pipes]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    made = Pipes(f"http://127.0.0.1:{port}/base", ssl.create_default_context(), clock=clock)
    try:
        yield made
    finally:
        await made.close()
        listening.close()


async def test_requests_follow_each_other_on_one_connection() -> None:
    server = Server(OK, OK)
    async with pipes(server) as made:
        for _ in range(2):
            assert await made.send("POST", "/api/pods", {"Authorization": "Bearer x"}, b"{}") == Answer(201, b"pod!")
    assert server.connections == 1
    assert server.requests[0].startswith(b"POST /base/api/pods HTTP/1.1\r\nHost: 127.0.0.1")
    assert b"\r\nAuthorization: Bearer x\r\nContent-Length: 2\r\n\r\n{}" in server.requests[0]


async def test_a_patch_says_so() -> None:
    server = Server(OK)
    async with pipes(server) as made:
        kind = {"Content-Type": "application/json-patch+json"}
        assert await made.send("PATCH", "/api/nodes/a?force=true", kind, b"{}") == Answer(201, b"pod!")
    assert server.requests[0].startswith(b"PATCH /base/api/nodes/a?force=true HTTP/1.1\r\n")


@pytest.mark.parametrize(
    ("said", "want", "connections"),
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
            Answer(200, b"abcde"),
            1,
            id="in chunks",
        ),
        pytest.param(
            b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 7\r\ncontent-length: 2\r\n\r\n{}",
            Answer(429, b"{}", 7.0),
            1,
            id="come back later",
        ),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
            Answer(201, b""),
            1,
            id="an interim answer",
        ),
        pytest.param(
            b"HTTP/1.1 500 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno",
            Answer(500, b"no"),
            2,
            id="the last one",
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Answer(200, b"ok"), 2, id="an old server"),
    ],
)
async def test_answers_of_every_shape(said: bytes, want: Answer, connections: int) -> None:
    server = Server(said, OK)
    async with pipes(server) as made:
        assert await made.send("POST", "/", {}, b"{}") == want
        assert await made.send("POST", "/", {}, b"{}") == Answer(201, b"pod!")
    assert server.connections == connections


async def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        writer.close()

    listening = await asyncio.start_server(once, "127.0.0.1", 0)
    made = Pipes(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", ssl.create_default_context())
    assert await made.send("POST", "/", {}, b"{}") == Answer(200, b"all of it")
    listening.close()


@pytest.mark.parametrize(
    "said",
    [
        None,
        b"HTTP/1.1 201 Created\r\nContent-Length: 4\r\n\r\npo",
        b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"what?\r\n\r\n",
    ],
    ids=["nothing", "half", "no chunk", "no HTTP"],
)
async def test_what_is_cut_short_is_an_error_and_the_connection_is_dropped(said: bytes | None) -> None:
    class Cut(Server):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self.connections:
                return await super().serve(reader, writer)
            self.connections += 1
            await reader.readuntil(b"{}")
            if said:
                writer.write(said)
                await writer.drain()
            writer.close()
            return None

    server = Cut(OK)
    async with pipes(server) as made:
        with pytest.raises(OSError, match=r"cut short|reset"):
            await made.send("POST", "/", {}, b"{}")
        assert await made.send("POST", "/", {}, b"{}") == Answer(201, b"pod!")


async def test_a_connection_that_was_idle_for_long_is_not_used_again(clock: Clock) -> None:
    server = Server(OK, OK)
    async with pipes(server, clock) as made:
        await made.send("POST", "/", {}, b"{}")
        clock.advance(IDLE_SECONDS)
        await made.send("POST", "/", {}, b"{}")
    assert server.connections == 2


async def test_a_request_that_is_given_up_leaves_no_connection_behind() -> None:
    class Silent(Server):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self.connections:
                return await super().serve(reader, writer)
            self.connections += 1
            await reader.read()
            writer.close()
            return None

    server = Silent(OK)
    async with pipes(server) as made:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await made.send("POST", "/", {}, b"{}")
        assert await made.send("POST", "/", {}, b"{}") == Answer(201, b"pod!")
    assert server.connections == 2

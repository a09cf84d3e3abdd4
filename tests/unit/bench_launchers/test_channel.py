"""The small HTTP client: answers, refusals, connections that are lost, answers that come late or are none."""

import asyncio
from typing import Any

import pytest
from bench.launchers.channel import Channel, Endpoint, RefusedError, UnreachableError

from localcluster.patience import PATIENCE_SECONDS
from muster.protocol.messages import IDLE, Report, decode_directive, encode

REPORT = encode(Report(1, IDLE))


async def test_a_report_gets_the_directive(coordinator: Any) -> None:
    channel = Channel(coordinator.endpoint(), "good")
    for sequence in (1, 2):
        answer = await channel.exchange(encode(Report(sequence, IDLE)), PATIENCE_SECONDS)
        assert decode_directive(answer) == coordinator.directive
    channel.close()


async def test_a_refusal_says_why(coordinator: Any) -> None:
    with pytest.raises(RefusedError, match=r"401.*send the good token") as refused:
        await Channel(coordinator.endpoint(), "bad").exchange(REPORT, PATIENCE_SECONDS)
    assert refused.value.status == 401


async def test_the_name_in_the_certificate_counts(coordinator: Any) -> None:
    with pytest.raises(UnreachableError, match="certificate verify failed"):
        await Channel(coordinator.endpoint("somebody.else"), "good").exchange(REPORT, PATIENCE_SECONDS)


async def test_a_kept_connection_that_was_closed_is_renewed(coordinator: Any) -> None:
    channel = Channel(coordinator.endpoint(), "good")
    await channel.exchange(REPORT, PATIENCE_SECONDS)
    channel.close()
    assert decode_directive(await channel.exchange(REPORT, PATIENCE_SECONDS)) == coordinator.directive
    channel.close()


async def test_nobody_there(coordinator: Any) -> None:
    await coordinator.server.stop()
    with pytest.raises(UnreachableError):
        await Channel(coordinator.endpoint(), "good").exchange(REPORT, PATIENCE_SECONDS)


async def test_an_answer_in_pieces_is_put_together(coordinator: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        for piece in (b"HTTP/1.1 200 OK\r\ncontent-le", b"ngth: 4\r\n\r", b"\nab", b"cd"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)

    async with coordinator.impostor(serve) as endpoint:
        assert await Channel(endpoint, "good").exchange(REPORT, PATIENCE_SECONDS) == b"abcd"


async def test_what_is_no_answer(coordinator: Any) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(b"SSH-2.0\r\n\r\n")

    async with coordinator.impostor(serve) as endpoint:
        with pytest.raises(UnreachableError, match="SSH"):
            await Channel(endpoint, "good").exchange(REPORT, PATIENCE_SECONDS)


async def test_a_late_answer_is_not_taken_for_that_of_the_next_report(coordinator: Any) -> None:
    connections, given_up = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        number = connections
        await reader.readuntil(b"}")
        if number == 1:
            await given_up.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)

    async with coordinator.impostor(serve) as endpoint:
        channel = Channel(endpoint, "good")
        with pytest.raises(UnreachableError, match="within"):
            await channel.exchange(REPORT, 0.1)
        given_up.set()
        assert await channel.exchange(REPORT, PATIENCE_SECONDS) == b"2"


def test_endpoints_are_https() -> None:
    with pytest.raises(ValueError, match="https://host:port"):
        Endpoint.of("http://127.0.0.1:1", "", "")

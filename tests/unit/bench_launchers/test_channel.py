"""The small HTTP client: refusals, connections that are lost, answers that come late."""

import asyncio
from typing import Any

import pytest
from bench.launchers.channel import Channel, RefusedError, UnreachableError

from localcluster.patience import PATIENCE_SECONDS
from muster.protocol.messages import IDLE, Report, decode_directive, encode

REPORT = encode(Report(1, IDLE))


async def test_a_refusal_says_why(coordinator: Any) -> None:
    with pytest.raises(RefusedError, match=r"401.*send the good token") as refused:
        await Channel(coordinator.endpoint(), "bad").exchange(REPORT, PATIENCE_SECONDS)
    assert refused.value.status == 401


async def test_a_kept_connection_that_was_closed_is_renewed(coordinator: Any) -> None:
    channel = Channel(coordinator.endpoint(), "good")
    await channel.exchange(REPORT, PATIENCE_SECONDS)
    channel.close()
    assert decode_directive(await channel.exchange(REPORT, PATIENCE_SECONDS)) == coordinator.directive
    channel.close()


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

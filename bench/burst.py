"""Many requests as fast as the API server takes them: HTTP by hand over kept TLS connections.

A client library's own time would be the floor's time.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)\r\n")
_LAST_CHUNK = b"\r\n0\r\n\r\n"


class Burst:
    """Connections that share a queue of requests."""

    def __init__(self, server: str, token: str) -> None:
        host, port = server.removeprefix("https://").split(":")
        self._address = (host, int(port))
        self._token = token
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def open(self, connections: int, ca: str) -> None:
        """Connect; the handshakes are no part of what is measured, other systems have theirs behind them, too."""
        context = ssl.create_default_context(cafile=ca)
        host, port = self._address
        for _ in range(connections):
            self._streams.append(await asyncio.open_connection(host, port, ssl=context))

    async def send(self, requests: Iterable[bytes]) -> None:
        """Send all, each as soon as a connection is free; all must succeed.

        Raises:
            ConnectionError: one of them was refused.
        """
        left = iter(requests)
        await asyncio.gather(*(self._work(left, reader, writer) for reader, writer in self._streams))

    async def _work(self, left: Iterable[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for request in left:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            # Long answers come in chunks. JSON has no line ends of this kind in it, so the last chunk cannot be missed.
            body = await (reader.readexactly(int(length[1])) if length else reader.readuntil(_LAST_CHUNK))
            if head[9:10] != b"2":
                raise ConnectionError(f"{request.split(b' HTTP')[0]!r}: {body!r}")

    def request(self, method: str, path: str, body: bytes, kind: str = "application/json") -> bytes:
        """The bytes of one request."""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._address[0]}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Accept: application/json\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

"""Sends writes by the thousand: HTTP/1.1 over kept connections, written by hand.

A gang of a thousand workers means two thousand writes at once. A client library's own time would then be most of what
the operator adds to a start (docs/decisions/0010). This module does one thing: send a body, read the answer. Everything
else goes through `kubernetes.aio`.
"""

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_CONNECTIONS = 128
# The API server closes connections that were idle for a minute and a half.
IDLE_SECONDS = 60.0
MAX_HEAD_BYTES = 1 << 16
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[^\r]*chunked", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection:[^\r]*close", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\r\nretry-after:[ \t]*(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the server."""

    status: int
    body: bytes
    retry_after_seconds: float | None = None


@dataclass(slots=True)
class _Pipe:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used_at: float = 0.0


class Pipes:
    """A pool of connections to one server: as many as are needed at once, up to a limit.

    Args:
        host: `https://name:port` or `http://name:port`.
        context: TLS settings for https.
        server_name: the name that the certificate must have, when it is not that of the address.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        host: str,
        context: ssl.SSLContext,
        server_name: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        url = urlsplit(host)
        self._secure = url.scheme == "https"
        self._name, self._port = url.hostname or "", url.port or (443 if self._secure else 80)
        self._prefix, self._netloc = url.path.rstrip("/"), url.netloc
        self._context, self._server_name = context, server_name
        self._clock = clock
        self._idle: list[_Pipe] = []
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send one request and read its answer. A connection that fails, or whose request is cancelled, is closed.

        Raises:
            OSError: there is no connection, or it broke; whether the request was carried out is unknown.
        """
        fields = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = (
            f"{method} {self._prefix}{path} HTTP/1.1\r\n"
            f"Host: {self._netloc}\r\n{fields}Content-Length: {len(body)}\r\n\r\n"
        )
        async with self._room:
            pipe = await self._idle_pipe()
            answer, keep = None, False
            try:
                pipe.writer.write(head.encode() + body)
                answer, keep = await read_answer(pipe.reader)
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
                raise ConnectionResetError(f"the answer was cut short: {error}") from error
            finally:
                if keep:
                    pipe.used_at = self._clock()
                    self._idle.append(pipe)
                else:
                    pipe.writer.close()
            return answer

    async def close(self) -> None:
        """Close every connection that is not in use."""
        idle, self._idle = self._idle, []
        for pipe in idle:
            pipe.writer.close()

    async def _idle_pipe(self) -> _Pipe:
        while self._idle:
            pipe = self._idle.pop()
            if self._clock() - pipe.used_at < IDLE_SECONDS and not pipe.reader.at_eof():
                return pipe
            pipe.writer.close()
        security = self._context if self._secure else None
        name = (self._server_name or self._name) if self._secure else None
        streams = await asyncio.open_connection(
            self._name, self._port, ssl=security, server_hostname=name, limit=MAX_HEAD_BYTES
        )
        return _Pipe(*streams)


async def read_answer(reader: asyncio.StreamReader) -> tuple[Answer, bool]:
    """Read an answer; also return whether the connection may be used again.

    Raises:
        OSError, EOFError, ValueError, asyncio.LimitOverrunError: the connection broke, or this is no HTTP.
    """
    head = await reader.readuntil(b"\r\n\r\n")
    while head[9:10] == b"1":  # 100 Continue and the like come before the answer
        head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = _LENGTH.search(head)
    if length:
        body = await reader.readexactly(int(length[1]))
    elif _CHUNKED.search(head):
        body = await _read_chunks(reader)
    else:
        body = b"" if status == 204 else await reader.read()
    keep = not _CLOSE.search(head) and head.startswith(b"HTTP/1.1") and bool(length or _CHUNKED.search(head))
    after = _RETRY_AFTER.search(head)
    return Answer(status, body, float(after[1]) if after else None), keep


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        if size < 0:
            raise ValueError("a chunk of less than nothing")
        chunk = await reader.readexactly(size + 2)
        if size == 0:
            return b"".join(chunks)
        chunks.append(chunk[:-2])

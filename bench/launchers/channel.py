"""One keep-alive HTTPS connection that posts reports, as small as it can be: a simulated launcher has two of them.

An HTTP library costs more for each exchange than the whole state of the launcher does. The coordinator answers with a
Content-Length and nothing else is understood here.
"""

import asyncio
import asyncio.sslproto
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from muster.protocol.messages import REPORT_PATH

CONNECT_SECONDS = 30.0  # thousands connect at once; a real launcher would wait for 3 s and try again
TLS_BUFFER_BYTES = 16 * 1024  # one TLS record; asyncio's own choice is 256 KiB for each connection


class UnreachableError(Exception):
    """No usable answer; says why."""


class RefusedError(UnreachableError):
    """An answer that is no directive."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"it answered {status} {body[:200].decode('utf-8', 'replace').strip()}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the coordinator is, and what its certificate must say.

    Attributes:
        source: the address that connections come from; "" for any. The operator shares its places out by address.
    """

    host: str
    port: int
    server_name: str
    tls: ssl.SSLContext
    source: str = ""

    @classmethod
    def of(cls, url: str, server_name: str, ca_pem: str) -> "Endpoint":
        """The endpoint of a URL like https://127.0.0.1:8443.

        Raises:
            ValueError: it is no such URL.
        """
        parts = urlsplit(url)
        if parts.scheme != "https" or not parts.hostname or not parts.port:
            raise ValueError(f"--coordinator must look like https://host:port, not {url!r}")
        return cls(parts.hostname, parts.port, server_name or parts.hostname, ssl.create_default_context(cadata=ca_pem))


class Channel(asyncio.Protocol):
    """One connection; one exchange at a time."""

    def __init__(self, endpoint: Endpoint, token: str, path: str = REPORT_PATH) -> None:
        self._endpoint = endpoint
        self._head = (
            f"POST {path} HTTP/1.1\r\nHost: {endpoint.server_name}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode("ascii")
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._received = b""

    async def exchange(self, body: bytes, timeout_seconds: float) -> bytes:
        """Post a report and return the directive's bytes; a kept connection that turns out to be closed is renewed
        once.

        Raises:
            UnreachableError: no answer, or none that is a directive.
        """
        kept = self._transport is not None
        try:
            return await self._exchange(body, timeout_seconds)
        except ConnectionError as error:
            if not kept:
                raise UnreachableError(str(error) or type(error).__name__) from error
        except (OSError, TimeoutError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from error
        try:
            return await self._exchange(body, timeout_seconds)
        except (OSError, TimeoutError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from error

    def close(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    async def _exchange(self, body: bytes, timeout_seconds: float) -> bytes:
        loop = asyncio.get_running_loop()
        if self._transport is None:
            async with asyncio.timeout(CONNECT_SECONDS):
                await loop.create_connection(
                    lambda: self,
                    self._endpoint.host,
                    self._endpoint.port,
                    ssl=self._endpoint.tls,
                    server_hostname=self._endpoint.server_name,
                    local_addr=(self._endpoint.source, 0) if self._endpoint.source else None,
                    ssl_handshake_timeout=CONNECT_SECONDS,
                )
        assert self._transport is not None
        answer: asyncio.Future[bytes] = loop.create_future()
        self._answer, self._received = answer, b""
        timer = loop.call_later(timeout_seconds, self._too_late, answer, timeout_seconds)
        try:
            self._transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
            return await answer
        except BaseException:
            self.close()  # an answer may still come, and it must not be taken for that of the next report
            raise
        finally:
            timer.cancel()
            self._answer = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """A part of the answer has come."""
        self._received += data
        head, separator, body = self._received.partition(b"\r\n\r\n")
        if not separator or self._answer is None or self._answer.done():
            return
        try:
            status, length = _parsed(head)
        except ValueError as error:
            self._answer.set_exception(UnreachableError(f"no HTTP answer that can be read: {error}"))
            return
        if len(body) < length:
            return
        if status == 200:
            self._answer.set_result(body)
        else:
            self._answer.set_exception(RefusedError(status, body))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionResetError(str(exc or "the coordinator closed the connection")))

    def _too_late(self, answer: "asyncio.Future[bytes]", seconds: float) -> None:
        if not answer.done():
            answer.set_exception(TimeoutError(f"no answer within {seconds:g} s"))


def own_address(number: int) -> str:
    """One of the addresses of this machine's loopback, as each node and each pod has one of its own; below 8
    million."""
    return f"127.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def save_memory() -> None:
    """Give each TLS connection of this process a small buffer."""
    asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


def _parsed(head: bytes) -> tuple[int, int]:
    """Status and length of the body.

    Raises:
        ValueError: not an HTTP/1.1 answer with a Content-Length.
    """
    status_line, *lines = head.split(b"\r\n")
    if not status_line.startswith(b"HTTP/1.1 "):
        raise ValueError(f"{status_line[:80]!r} is no status line")
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(status_line[9:12]), int(value)
    raise ValueError("it has no Content-Length")

"""The least HTTP/1.1 that a launcher needs: requests with a Content-Length on connections that are kept, one at a time.

Thousands of connections lie still here, each with an answer that is held back. A framework keeps a task, a parser and a
request object for each of them and spends more on a report than the report's own work costs; here a connection is one
small object without a task. Whatever is not such a request is refused and its connection closed.

Anybody can connect, so nothing of a request's body is taken in before its head has said who sends it: until then the
connection is not read, and what has come already is a few kilobytes.
"""

import asyncio
import http
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from muster.coordinator.auth import Caller
from muster.serve import plain_address

MAX_HEAD_BYTES = 16 * 1024  # a service-account token has one or two thousand
READ_AHEAD_BYTES = 16 * 1024  # that TLS keeps of a connection that is not read
FIRST_REQUEST_SECONDS = 10.0  # from the handshake to a token that is good
KEEPALIVE_SECONDS = 75.0
REQUEST_DEADLINE_SECONDS = 10.0  # from its first byte to its last
LINGER_SECONDS = 2.0  # for a refused caller to read why, before the connection is cut
JSON = "application/json"

_LATER = float("inf")


class BadRequestError(Exception):
    """The bytes received are no request that is served here. The message says why; `status` is that of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Head:
    """The request line and the headers that matter, parsed before the body comes."""

    method: str
    path: str
    length: int
    authorization: str
    keep: bool  # the connection stays open for another request


def parsed_head(data: bytes) -> Head:
    """Parse the head of a request.

    Args:
        data: the head's bytes without the empty line that ends it.

    Raises:
        BadRequestError: the bytes are no head, or it does not say how long the body is.
    """
    try:
        request_line, *lines = data.decode("latin-1").split("\r\n")
        method, path, version = request_line.split(" ")
    except ValueError:
        raise BadRequestError(400, "this is no HTTP request") from None
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequestError(505, "HTTP/1.1 is spoken here")
    length, authorization, keep = "", "", version == "HTTP/1.1"
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name[0] in " \t" or name[-1] in " \t":
            raise BadRequestError(400, "a header cannot be read")
        name = name.lower()
        if name == "content-length":
            if length:
                raise BadRequestError(400, "more than one Content-Length")
            length = value.strip()
        elif name == "authorization":
            authorization = value.strip()
        elif name == "connection":
            keep = keep and value.strip().lower() != "close"
        elif name == "transfer-encoding":
            raise BadRequestError(411, "send a Content-Length")
    if not length:
        if method == "POST":
            raise BadRequestError(411, "send a Content-Length")
        length = "0"
    if not (length.isascii() and length.isdigit() and len(length) < 16):
        raise BadRequestError(400, "the Content-Length is no number")
    return Head(method, path, int(length), authorization, keep)


class Site(Protocol):
    """The server that handles the requests of its connections."""

    connections: "set[Connection]"  # the open ones

    def admit(self, head: Head) -> None:
        """Raise BadRequestError for a head whose body is not wanted from any sender."""

    def identify(self, connection: "Connection", head: Head) -> None:
        """Find out who sent the head; then call the connection's `welcome` or `refuse`, now or later."""

    def serve(self, connection: "Connection", head: Head, body: bytes) -> None:
        """Take over a complete request of a known caller; then call the connection's `answer` once, now or later."""

    def lost(self, connection: "Connection") -> None:
        """Note that a connection is closed, by the client or by this server."""


class Connection(asyncio.Protocol):
    """One client's connection, which is kept open from request to request.

    Args:
        site: the server that its requests go to.

    Attributes:
        caller: the pod that sent the request that was last identified; None before any was.
        is_open: False once no answer can be sent any more.
        on_lost: called when the caller hangs up; reset it when that no longer matters.
    """

    __slots__ = (
        "_deadline",
        "_head",
        "_loop",
        "_received",
        "_site",
        "_state",
        "_transport",
        "_writable",
        "caller",
        "is_open",
        "on_lost",
    )

    def __init__(self, site: Site) -> None:
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._head: Head | None = None  # of the request that is coming in or being answered
        self._state = _READING
        self._writable = True
        self._deadline = _LATER
        self.caller: Caller | None = None
        self.is_open = False
        self.on_lost: Callable[[], None] | None = None

    @property
    def host(self) -> str:
        """The address that the connection comes from; "" once it is closed."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return plain_address(peer[0]) if peer else ""

    @property
    def transport(self) -> asyncio.BaseTransport | None:
        """The connection below HTTP; None before its handshake and once it is closed."""
        return self._transport

    @property
    def receiving(self) -> bool:
        """Whether the body of a request is coming in on this connection."""
        return self._state is _READING and self._head is not None

    @property
    def is_asked_about(self) -> bool:
        """Whether the server is verifying who sent the current request. Until then the sender can only wait."""
        return self._state is _IDENTIFYING

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve the connection: its TLS handshake is done."""
        assert isinstance(transport, asyncio.Transport)
        limit_read_ahead = getattr(transport, "set_read_buffer_limits", None)  # one without TLS has none to limit
        if limit_read_ahead is not None:
            limit_read_ahead(high=READ_AHEAD_BYTES)
        self._transport, self.is_open = transport, True
        self._deadline = self._loop.time() + FIRST_REQUEST_SECONDS
        self._site.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up after the connection was closed, by the client or by this server."""
        self._site.connections.discard(self)
        self._site.lost(self)
        self._transport, self.is_open, self._received = None, False, b""
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        """Take in bytes of a request."""
        if self._state is _REFUSED:
            return
        if not self._received and self._head is None and self._state is _READING:
            self._begin_request()
        self._received += data
        if self._state is _READING:
            self._read()
        elif len(self._received) > MAX_HEAD_BYTES and self._transport is not None:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        """Serve no more requests on this connection while its client does not read answers."""
        self._writable = False

    def resume_writing(self) -> None:
        """Serve requests on this connection again: its client reads answers."""
        self._writable = True
        if self._state is _READING:
            self._read()

    def answer(self, status: int, body: bytes) -> None:
        """Send the answer to the request that was handed over; does nothing when the caller has hung up.

        After a refusal the connection is closed: a launcher then asks anew, and other clients have no reason to stay.
        """
        self.on_lost = None
        transport, head = self._transport, self._head
        if transport is None or head is None:
            return
        self._head, keep = None, head.keep and status == http.HTTPStatus.OK
        transport.write(_answer(status, body, keep))
        if not keep:
            transport.close()
            return
        self._state, self._deadline = _READING, self._loop.time() + KEEPALIVE_SECONDS
        transport.resume_reading()
        if self._received:  # the next request has come already
            self._begin_request()
            self._loop.call_soon(self._read)

    def welcome(self, caller: Caller) -> None:
        """Let the body of the current request come in: its sender is known now."""
        if self._state is not _IDENTIFYING or self._transport is None:
            return
        self.caller, self._state = caller, _READING
        self._transport.resume_reading()
        self._read()

    def refuse(self, status: int, body: bytes) -> None:
        """Send a refusal and end the connection.

        Bytes that still come are thrown away. Closing at once would discard the refusal before the client has read it.
        """
        if self._transport is None or self._state in (_SERVING, _REFUSED):
            return
        self._transport.write(_answer(status, body, keep=False))
        self._received, self._head = b"", None
        self._state, self._deadline = _REFUSED, self._loop.time() + LINGER_SECONDS
        self._transport.resume_reading()

    def expire(self, now: float) -> None:
        """End the connection if it has been idle, or a request has been coming in, for too long.

        Args:
            now: seconds of the event loop's clock.
        """
        if now < self._deadline or self._transport is None:
            return
        if self._state is _READING and (self._received or self._head is not None):
            self.refuse(408, refusal(f"the request did not arrive within {REQUEST_DEADLINE_SECONDS:.0f} s"))
        elif self._state is _READING:
            self._transport.close()
        else:
            self._transport.abort()

    def abort(self) -> None:
        """Close the connection at once, without sending what was written."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection after sending what was written."""
        if self._transport is not None:
            self._transport.close()

    def _read(self) -> None:
        """Have the sender identified once the head of a request is there; hand the request over once it is complete."""
        if self._state is not _READING or not self._writable or not (self._received or self._head):
            return
        try:
            if self._head is None:
                self._read_head()  # and `welcome` goes on
                return
        except BadRequestError as error:
            self.refuse(error.status, refusal(str(error)))
            return
        head = self._head
        if head is None or len(self._received) < head.length:
            return
        body, self._received = self._received[: head.length], self._received[head.length :]
        self._state, self._deadline = _SERVING, _LATER
        self._site.serve(self, head, body)

    def _read_head(self) -> None:
        head, separator, rest = self._received.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD_BYTES:
            raise BadRequestError(431, f"the head of a request may have {MAX_HEAD_BYTES} bytes")
        if not separator:
            return
        parsed = parsed_head(head)
        self._site.admit(parsed)
        self._head, self._received, self._state = parsed, rest, _IDENTIFYING
        self._site.identify(self, parsed)
        if self._state is _IDENTIFYING and self._transport is not None:
            self._transport.pause_reading()

    def _begin_request(self) -> None:
        """Note when the first byte of a request came, from which its time limit counts.

        Before the first good request of a connection, the limit counts from the connection's start.
        """
        if self.caller is not None:
            self._deadline = self._loop.time() + REQUEST_DEADLINE_SECONDS


_READING, _IDENTIFYING, _SERVING, _REFUSED = "reading", "identifying", "serving", "refused"


def refusal(message: str) -> bytes:
    """The JSON body of an answer that refuses a request with this message."""
    return msgspec.json.encode({"error": message})


def _answer(status: int, body: bytes, keep: bool) -> bytes:
    phrase = http.HTTPStatus(status).phrase
    ending = "" if keep else "Connection: close\r\n"
    head = f"HTTP/1.1 {status} {phrase}\r\nContent-Type: {JSON}\r\nContent-Length: {len(body)}\r\n{ending}\r\n"
    return head.encode("ascii") + body

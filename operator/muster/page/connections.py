"""Limit connections to the page: their number by address and user, and their time and requests without a good token.

aiohttp's own server bounds none of them: it keeps a client that connects and sends nothing for ever, with its TLS
session, and one that reads no answers with the answers.
"""

import asyncio
import asyncio.sslproto
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from muster.coordinator.connection_limiter import BACKLOG, ConnectionLimiter, Limits
from muster.coordinator.metered_tls import TlsMeter
from muster.coordinator.tasks import Tasks
from muster.serve import listening_socket

LIMITS = Limits(unauthenticated=128, waiting=256, waiting_of_address=128)
"""All of them fit into 1,024 open files, with MAX_CONNECTIONS and those of the probes' port. A browser has six
connections to a host, and needs a token on each within its first requests. An Ingress or Gateway shows all readers as
one address: its pool of connections carries many users' requests, and each connection is authenticated by the first
good token on it."""

MAX_CONNECTIONS_OF_USER = 128  # far more than browsers have; the oldest makes room
MAX_CONNECTIONS = 320  # of all users together; beyond it the user with the most gives up its oldest
SERVICE_ACCOUNT = "system:serviceaccount:"
UNAUTHENTICATED_SECONDS = 20.0  # from the handshake; a browser reconnects silently
HURRIED_SECONDS = 5.0  # the same while all places are taken and others wait
UNAUTHENTICATED_REQUESTS = 4  # of one connection: the page's three files and one more; a browser reconnects silently
UNREAD_SECONDS = 60.0  # after which a client that reads no answers is cut off
HANDSHAKE_SECONDS = 10.0
SWEEP_SECONDS = 1.0
TLS_BUFFER_BYTES = 16 * 1024  # of each connection; a request's head fits into it


def share_of(user: str) -> str:
    """Return the name under which a user's connections count.

    All service accounts of a namespace are one, because a tenant may create as many as it likes there.
    """
    return user.rpartition(":")[0] if user.startswith(SERVICE_ACCOUNT) else user


@dataclass(slots=True)
class _Unauthenticated:
    host: str
    since: float  # by the loop's clock
    requests: int = 0


class Connections:
    """Accepts connections for a server of HTTP.

    Args:
        protocol: makes the HTTP side of a connection.
        context: for HTTPS; None: plain HTTP.
    """

    def __init__(self, protocol: Callable[[], asyncio.Protocol], context: ssl.SSLContext | None) -> None:
        self._protocol = protocol
        self._context = context
        self._meter = TlsMeter()
        if context is not None:
            self._meter.watch(context)
        self._limiter = ConnectionLimiter(self._enter, LIMITS)
        self._unauthenticated: dict[_Connection, _Unauthenticated] = {}  # the oldest first
        self._by_user: dict[str, list[_Connection]] = {}  # authenticated ones, by `share_of`; the oldest first
        self._authenticated = 0
        self._by_transport: dict[asyncio.BaseTransport, _Connection] = {}
        self._tasks = Tasks()

    @contextlib.asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncIterator[int]:
        """Listen inside the context; yields the port. No host: all addresses.

        Raises:
            OSError: the port is taken.
        """
        # asyncio gives each TLS connection a read buffer of 256 KiB.
        asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES
        with listening_socket(host, port, BACKLOG) as listener:
            self._tasks.spawn(self._limiter.serve(listener))
            self._tasks.spawn(self._sweep())
            try:
                yield int(listener.getsockname()[1])
            finally:
                await self._tasks.cancel()
                for transport in list(self._by_transport):
                    _abort(transport)

    def user_of(self, transport: asyncio.BaseTransport | None) -> str:
        """Return the name, by `share_of`, of the user of the first good token of a connection; "": it had none."""
        connection = self._by_transport.get(transport) if transport is not None else None
        return connection.user if connection is not None else ""

    def may_continue(self, transport: asyncio.BaseTransport | None, *, is_refused: bool) -> bool:
        """Count a request, and return whether the connection may have another one.

        A connection without a good token has few, and none after a token that is refused: each handshake is counted,
        requests are not.
        """
        connection = self._by_transport.get(transport) if transport is not None else None
        unauthenticated = self._unauthenticated.get(connection) if connection is not None else None
        if unauthenticated is None:
            return True
        unauthenticated.requests += 1
        return not is_refused and unauthenticated.requests < UNAUTHENTICATED_REQUESTS

    def authenticated(self, transport: asyncio.BaseTransport | None, user: str, *, is_free: bool) -> bool:
        """Note that a good token of this user has come over this connection. If it is free, the handshake does not
        count against the budget.

        Returns:
            Whether it is the connection's first good token.
        """
        connection = self._by_transport.get(transport) if transport is not None else None
        if connection is None or connection not in self._unauthenticated:
            return False
        self._meter.note_authenticated(transport)
        self._no_longer_unauthenticated(connection, is_known=is_free)
        connection.user = share_of(user)
        of_user = self._by_user.setdefault(connection.user, [])
        of_user.append(connection)
        self._authenticated += 1
        if len(of_user) > MAX_CONNECTIONS_OF_USER:
            self._give_up(of_user[0])
        elif self._authenticated > MAX_CONNECTIONS:
            self._give_up(max(self._by_user.values(), key=len)[0])
        return True

    def made(self, connection: "_Connection", transport: asyncio.BaseTransport) -> None:
        """Note that the handshake of a connection is done."""
        self._by_transport[transport] = connection

    def lost(self, connection: "_Connection") -> None:
        """Note that a connection is closed."""
        if connection.transport is not None:
            self._by_transport.pop(connection.transport, None)
        self._no_longer_unauthenticated(connection)
        self._no_longer_authenticated(connection)

    def _give_up(self, connection: "_Connection") -> None:
        """Abort a connection; its place is free at once, though its end is seen later."""
        self._no_longer_authenticated(connection)
        connection.abort()

    def _no_longer_authenticated(self, connection: "_Connection") -> None:
        of_user = self._by_user.get(connection.user, [])
        if connection in of_user:
            of_user.remove(connection)
            self._authenticated -= 1
            if not of_user:
                del self._by_user[connection.user]

    def _enter(self, client: socket.socket, host: str) -> None:
        connection = _Connection(self, self._protocol)
        self._unauthenticated[connection] = _Unauthenticated(host, asyncio.get_running_loop().time())
        connection.handshake = self._tasks.spawn(self._shake_hands(client, connection))

    async def _shake_hands(self, client: socket.socket, connection: "_Connection") -> None:
        timeout = None if self._context is None else HANDSHAKE_SECONDS
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, client, ssl=self._context, ssl_handshake_timeout=timeout
            )
        except (OSError, asyncio.CancelledError):  # the client has gone, was too slow or had to make room
            client.close()
            self._no_longer_unauthenticated(connection)

    def _no_longer_unauthenticated(self, connection: "_Connection", *, is_known: bool = False) -> None:
        unauthenticated = self._unauthenticated.pop(connection, None)
        if unauthenticated is not None:
            self._limiter.note_settled(unauthenticated.host, is_known=is_known)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = asyncio.get_running_loop().time()
            for connection in list(self._by_transport.values()):
                if now - connection.unread_since > UNREAD_SECONDS:
                    connection.abort()
            for connection, unauthenticated in list(self._unauthenticated.items()):
                most = HURRIED_SECONDS if self._limiter.keeps_others_out() else UNAUTHENTICATED_SECONDS
                if now - unauthenticated.since > most:
                    connection.abort()
                    self._no_longer_unauthenticated(connection)


class _Connection(asyncio.Protocol):
    """One connection, whose events are passed on to the HTTP side."""

    def __init__(self, connections: Connections, protocol: Callable[[], asyncio.Protocol]) -> None:
        self._connections = connections
        self._make_protocol = protocol
        self._http: asyncio.Protocol | None = None
        self.transport: asyncio.BaseTransport | None = None
        self.handshake: asyncio.Task[None] | None = None
        self.user = ""
        self.unread_since = float("inf")  # since when its client has left an answer unread, by the loop's clock

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self._http = transport, self._make_protocol()
        self._connections.made(self, transport)
        self._http.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.lost(self)
        if self._http is not None:
            self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._http is not None:
            self._http.data_received(data)

    def eof_received(self) -> bool | None:
        return self._http.eof_received() if self._http is not None else None

    def pause_writing(self) -> None:
        self.unread_since = asyncio.get_running_loop().time()
        if self._http is not None:
            self._http.pause_writing()

    def resume_writing(self) -> None:
        self.unread_since = float("inf")
        if self._http is not None:
            self._http.resume_writing()

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            _abort(self.transport)
        elif self.handshake is not None:
            self.handshake.cancel()


def _abort(transport: asyncio.BaseTransport) -> None:
    assert isinstance(transport, asyncio.WriteTransport)
    transport.abort()

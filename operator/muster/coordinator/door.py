"""Lets connections in one by one: whoever has not said who he is may hold little, and nobody can hold all of it.

A TLS connection costs some fifty kilobytes before a byte of a request has come. So only so many strangers are let in at
once, and fewer from one address; the others wait as bare sockets, which cost next to nothing, and addresses take turns.
A launcher is a stranger for some milliseconds, so thousands of them that come at once pass in the time that their
handshakes take anyway. Where all places are taken, an address with many of them gives up those that it has had for long
to addresses that have none.
"""

import asyncio
import socket
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

import structlog

MAX_STRANGERS = 512
MAX_STRANGERS_OF_ADDRESS = 64  # workers with the network of their host share its address
FEW_STRANGERS_OF_ADDRESS = 16  # that it keeps for as long as a handshake may last, whoever waits
MAX_WAITING = 16384
MAX_WAITING_OF_ADDRESS = 4096
BACKLOG = 4096
PAUSE_SECONDS = 0.1  # when no socket can be had: no file descriptors are left

log = structlog.get_logger()


class Door:
    """Takes connections from a listening socket.

    Args:
        enter: what a stranger that is let in goes through; it calls `done` with his address once he is none any more.
    """

    def __init__(self, enter: Callable[[socket.socket, str], None]) -> None:
        self._enter = enter
        self._inside: Counter[str] = Counter()  # strangers by address
        self._strangers = 0
        self._waiting: OrderedDict[str, deque[socket.socket]] = (
            OrderedDict()
        )  # the address whose turn it is comes first
        self._queued = 0

    async def serve(self, listener: socket.socket) -> None:
        """Let in until cancelled; then whoever waits is cut off."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    visitor, address = await loop.sock_accept(listener)
                except OSError as error:
                    log.warning("cannot accept a connection", error=str(error))
                    await asyncio.sleep(PAUSE_SECONDS)
                    continue
                self.knock(visitor, address[0])
                await asyncio.sleep(0)
        finally:
            for waiting in self._waiting.values():
                for visitor in waiting:
                    visitor.close()
            self._waiting.clear()

    def knock(self, visitor: socket.socket, host: str) -> None:
        """Somebody has come: he is let in, or waits; where too many wait, the last of those of whom there are most has to go."""
        self._waiting.setdefault(host, deque()).append(visitor)
        self._queued += 1
        self._let_in()
        if len(self._waiting.get(host, ())) > MAX_WAITING_OF_ADDRESS:
            self._send_away(host)
        elif self._queued > MAX_WAITING:
            self._send_away(max(self._waiting, key=lambda one: len(self._waiting[one])))

    def done(self, host: str) -> None:
        """One from this address is gone, or known by now."""
        self._strangers -= 1
        self._inside[host] -= 1
        if not self._inside[host]:
            del self._inside[host]
        self._let_in()

    def too_many_of(self) -> str | None:
        """The address that has more than a few places and others of its own that wait; or, while all places are taken and an
        address waits that has none, the one that has the most.
        """
        own = (host for host in self._waiting if self._inside[host] >= MAX_STRANGERS_OF_ADDRESS)
        crowded = next(own, None)
        if crowded is not None or self._strangers < MAX_STRANGERS or self._without_place() is None:
            return crowded
        host, places = self._inside.most_common(1)[0]
        return host if places > FEW_STRANGERS_OF_ADDRESS else None

    def _let_in(self) -> None:
        while self._strangers < MAX_STRANGERS:
            host = self._without_place() or next(
                (host for host in self._waiting if self._inside[host] < MAX_STRANGERS_OF_ADDRESS), None
            )
            if host is None:
                return
            self._take(host)

    def _without_place(self) -> str | None:
        """An address that waits and has no stranger inside."""
        return next((host for host in self._waiting if not self._inside[host]), None)

    def _send_away(self, host: str) -> None:
        self._waiting[host].pop().close()
        self._queued -= 1
        if not self._waiting[host]:
            del self._waiting[host]

    def _take(self, host: str) -> None:
        waiting = self._waiting[host]
        visitor = waiting.popleft()
        self._queued -= 1
        self._strangers += 1
        self._inside[host] += 1
        if waiting:
            self._waiting.move_to_end(host)
        else:
            del self._waiting[host]
        self._enter(visitor, host)


def listener(host: str, port: int) -> socket.socket:
    """A socket that listens on a host's address; on all addresses, of both kinds where there are two, for "".

    Raises:
        OSError: the port is taken, or there is no such address.
    """
    if host == "" and socket.has_dualstack_ipv6():
        made = socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    else:
        made = socket.create_server((host, port), backlog=BACKLOG)
    made.setblocking(False)
    return made

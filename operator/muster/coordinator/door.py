"""Lets connections in one by one: whoever has not said who he is may hold little, and nobody can hold all of it.

A TLS connection costs some fifty kilobytes before a byte of a request has come. So only so many strangers are let in at
once, and fewer from one address; the others wait as bare sockets, which cost next to nothing, and addresses take turns.
A launcher is a stranger for some milliseconds, so thousands of them that come at once pass in the time that their
handshakes take anyway. Where all places are taken, an address with many of them gives up those that it has had for long
to addresses that have none.

An address is one of IPv4, or a network of 64 bits of IPv6, because one machine may have all of it. What an address may
have is far more than a node needs: eight workers and a checker on the network of their host hold some thirty
connections, and each is a stranger for milliseconds. Where all launchers come from one address (a load balancer or
gateway with NAT), 64 at a time still pass as fast as handshakes can be computed, some thousand a second, and the next
thousand wait; the others are closed, and launchers try again. A connection whose token was good is no stranger: no
limit of its address counts it, and no flood closes it.
"""

import asyncio
import socket
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from muster.serve import client_network

BACKLOG = 4096
PAUSE_SECONDS = 0.1  # when no socket can be had: no file descriptors are left
# What a client may send to a socket that nobody reads yet lies in the kernel's memory, which is charged to the pod: the
# kernel takes twice this, so that 4,096 of them hold 128 MiB. Linux would give each of them four to eight times as
# much.
RECEIVE_BUFFER_BYTES = 16 * 1024

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections of strangers there may be."""

    strangers: int = 512
    of_address: int = 64
    few_of_address: int = 16  # that it keeps for as long as a handshake may last, whoever waits
    waiting: int = 4096
    waiting_of_address: int = 1024


class Door:
    """Takes connections from a listening socket.

    Args:
        enter: what a stranger that is let in goes through; it calls `done` with his address once he is none any more.
    """

    def __init__(self, enter: Callable[[socket.socket, str], None], limits: Limits = Limits()) -> None:
        self._enter = enter
        self._limits = limits
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
                self.knock(visitor, client_network(address[0]))
                await asyncio.sleep(0)
        finally:
            for waiting in self._waiting.values():
                for visitor in waiting:
                    visitor.close()
            self._waiting.clear()

    def knock(self, visitor: socket.socket, host: str) -> None:
        """Somebody has come: he is let in, or waits.

        Where too many wait, one goes: the newcomer, if its address has more than an equal share of what waits, else the
        last of the address with the most. So a flood costs no search among those that wait.
        """
        self._waiting.setdefault(host, deque()).append(visitor)
        self._queued += 1
        self._let_in()
        own = len(self._waiting.get(host, ()))
        if own > self._limits.waiting_of_address:
            self._send_away(host)
        elif self._queued > self._limits.waiting:
            share = self._limits.waiting // len(self._waiting)
            self._send_away(host if own > share else max(self._waiting, key=lambda one: len(self._waiting[one])))

    def done(self, host: str) -> None:
        """One from this address is gone, or known by now."""
        self._strangers -= 1
        self._inside[host] -= 1
        if not self._inside[host]:
            del self._inside[host]
        self._let_in()

    def too_many_of(self) -> str | None:
        """The address that has more than a few places and others of its own that wait; or, while all places are taken
        and an address waits that has none, the one that has the most.
        """
        full = (host for host, places in self._inside.items() if places >= self._limits.of_address)
        crowded = next((host for host in full if host in self._waiting), None)
        if crowded is not None or not self.keeps_others_out():
            return crowded
        host, places = self._inside.most_common(1)[0]
        return host if places > self._limits.few_of_address else None

    def keeps_others_out(self) -> bool:
        """Whether all places are taken, and an address waits that has none."""
        return self._strangers >= self._limits.strangers and self._without_place() is not None

    def _let_in(self) -> None:
        while self._strangers < self._limits.strangers:
            host = self._without_place() or next(
                (host for host in self._waiting if self._inside[host] < self._limits.of_address), None
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
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)  # what it accepts has the same
    made.setblocking(False)
    return made

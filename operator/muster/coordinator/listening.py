"""Accepts the connections of a port of the event loop, those of a flood within a share of a core.

A connection costs the loop some 50 microseconds before anything is known of its client. Clients that connect and hang
up as fast as they can would take a third of a core. So an address of which many connections in a second lead to no
handshake gets a listening socket of its own, together with all such addresses: the kernel sorts connections by their
source. That socket is read within the share. What comes faster fills its backlog, and then the kernel drops it, while
connections of all other addresses are accepted at once.
"""

import asyncio
import contextlib
import socket
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

import structlog

from muster.serve import CpuShare, client_network, listening_sockets, sort_by_source

BACKLOG = 4096
FLOOD_BACKLOG = 512  # at the share's pace a second's worth: what waits longer has been given up
PAUSE_SECONDS = 0.1  # when no socket can be had: no file descriptors are left
# What a client may send to a socket that is not read yet lies in the kernel's memory, which is charged to the pod: the
# kernel takes twice this, so that 4,096 of them hold 128 MiB. Linux would give each of them four to eight times as
# much.
RECEIVE_BUFFER_BYTES = 16 * 1024
# Connections that come within this pause after another one are accepted together, so many at most: one by one, each
# would wake the loop.
GATHERED, GATHERING_SECONDS = 64, 0.025
COUNTED_SECONDS = 1.0
FLOOD_CONNECTIONS = 16  # of one address within COUNTED_SECONDS, without those whose handshake begins
FLOOD_SECONDS = 10.0  # for which such an address is sorted out
MAX_FLOODING = 100  # addresses, the latest ones; kernels give a filter of IPv6 networks room for some 110
SORTING_SECONDS = 0.25  # between two changes of the kernel's filter, which costs 3 ms for 100 addresses
FLOOD_SHARE, FLOOD_BURST_SECONDS = 0.03, 0.03  # of a core

log = structlog.get_logger()


class Listening:
    """A port of the running event loop.

    Args:
        host: to listen on; "": all addresses, IPv6 and IPv4 where both exist.
        port: 0: any.
        cpu_clock: seconds that the thread has computed so far.

    Attributes:
        port: on which it listens.

    Raises:
        OSError: the port is taken, or there is no such address.
    """

    def __init__(self, host: str, port: int, cpu_clock: Callable[[], float] = time.thread_time) -> None:
        self._cpu_clock = cpu_clock
        self._sockets = listening_sockets((host, port), [BACKLOG, FLOOD_BACKLOG], RECEIVE_BUFFER_BYTES)
        self.port = int(self._sockets[0].getsockname()[1])
        self._connections: Counter[str] = Counter()  # by address, of this second, less those that were let in
        self._counted_since = self._sorted_at = float("-inf")  # by the loop's clock
        self._flooding: OrderedDict[str, float] = OrderedDict()  # addresses, until when they are
        self._is_sorted = True  # whether the kernel knows all of these
        self._share = CpuShare(FLOOD_SHARE, FLOOD_BURST_SECONDS, asyncio.get_running_loop().time)
        try:
            sort_by_source(self._sockets[0], [], 1)
        except OSError:  # this kernel cannot: one socket takes all connections at once
            self._sockets.pop().close()

    def close(self) -> None:
        """Stop listening, once `serve` has been cancelled."""
        for each in self._sockets:
            each.close()

    def note_let_in(self, client: str) -> None:
        """Note that the handshake of an accepted connection of this address or network begins. Those have a budget of
        their own."""
        self._connections[client] -= 1

    def note_good(self, client: str, connections: int) -> None:
        """Note that a good token has come from this address or network. It may have so many more connections, for as
        long as connections are counted."""
        self._connections[client] = min(self._connections[client], 0) - connections
        if self._flooding.pop(client, None) is not None:
            self._is_sorted = False

    async def serve(self, enqueue: Callable[[socket.socket, str], None]) -> None:
        """Accept connections until this is cancelled.

        Args:
            enqueue: takes an accepted socket, and the IPv4 address or IPv6 network of 64 bits that it comes from. A
                socket for which it raises is closed.
        """
        usual, *flooded = self._sockets
        async with asyncio.TaskGroup() as both:
            both.create_task(self._serve_usual(usual, enqueue))
            for each in flooded:
                both.create_task(self._serve_flooded(each, enqueue))

    async def _serve_usual(self, listener: socket.socket, enqueue: Callable[[socket.socket, str], None]) -> None:
        loop, last = asyncio.get_running_loop(), float("-inf")
        while True:
            accepted = await self._accept_next(listener, enqueue)
            before, last = last, loop.time()
            if accepted and last - before < GATHERING_SECONDS:
                await asyncio.sleep(GATHERING_SECONDS)
                self._accept_waiting(listener, enqueue)
                last = loop.time()

    async def _serve_flooded(self, listener: socket.socket, enqueue: Callable[[socket.socket, str], None]) -> None:
        while True:
            await self._accept_next(listener, enqueue)
            began = self._cpu_clock()
            self._accept_waiting(listener, enqueue)
            self._share.charge(self._cpu_clock() - began)
            await asyncio.sleep(max(self._share.pause_seconds(), GATHERING_SECONDS))

    async def _accept_next(self, listener: socket.socket, enqueue: Callable[[socket.socket, str], None]) -> bool:
        """Wait for a connection. Return whether one came."""
        try:
            visitor, address = await asyncio.get_running_loop().sock_accept(listener)
        except OSError as error:
            log.warning("cannot accept a connection", error=str(error))
            await asyncio.sleep(PAUSE_SECONDS)
            return False
        self._count_and_enqueue(visitor, address, enqueue)
        return True

    def _accept_waiting(self, listener: socket.socket, enqueue: Callable[[socket.socket, str], None]) -> None:
        """Accept the connections that have come, `GATHERED` at most."""
        with contextlib.suppress(OSError):  # no more have come; whatever else there is, `_accept_next` logs it
            for _ in range(GATHERED):
                visitor, address = listener.accept()
                visitor.setblocking(False)
                self._count_and_enqueue(visitor, address, enqueue)

    def _count_and_enqueue(
        self, visitor: socket.socket, address: tuple[str, ...], enqueue: Callable[[socket.socket, str], None]
    ) -> None:
        client = client_network(address[0])
        self._count(client)
        try:
            enqueue(visitor, client)
        except Exception:  # accepting goes on, whatever is wrong with one connection
            log.exception("a connection could not be let in")
            visitor.close()

    def _count(self, client: str) -> None:
        """Count a connection, and sort addresses out that have many."""
        now = asyncio.get_running_loop().time()
        if now - self._counted_since >= COUNTED_SECONDS:
            self._counted_since = now
            self._connections.clear()
            ended = [each for each, until in self._flooding.items() if until <= now]
            for each in ended:
                del self._flooding[each]
            self._is_sorted = self._is_sorted and not ended
        self._connections[client] += 1
        if self._connections[client] >= FLOOD_CONNECTIONS:
            self._is_sorted = self._is_sorted and client in self._flooding
            self._flooding[client] = now + FLOOD_SECONDS
            self._flooding.move_to_end(client)
            if len(self._flooding) > MAX_FLOODING:
                self._flooding.popitem(last=False)
        if not self._is_sorted and now - self._sorted_at >= SORTING_SECONDS and len(self._sockets) > 1:
            self._sort(now)

    def _sort(self, now: float) -> None:
        """Tell the kernel which addresses are sorted out."""
        self._sorted_at = now
        try:
            sort_by_source(self._sockets[0], self._flooding, 1)
            self._is_sorted = True
        except OSError as error:  # tried again, not too often
            self._sorted_at += FLOOD_SECONDS
            log.warning("connections of a flood cannot be sorted out", error=str(error))

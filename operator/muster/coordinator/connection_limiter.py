"""Lets the connections of a port in one by one: a client without a good token costs little, and delays no other.

A handshake takes 1.4 ms of the event loop for any client, and a TLS connection some fifty kilobytes, before a byte of a
request has come. So handshakes have a budget: so many a second. One that leads to a good token gives its part back, so
thousands of launchers connect as fast as handshakes can be computed. The others wait as bare sockets, which cost next
to nothing. The address that has wasted the fewest handshakes lately goes first, so a launcher does not wait behind a
flood, from however many addresses it comes. A client that has hung up while it waited costs no handshake. A launcher
that shares its address with a flood, as behind a gateway with NAT, does not wait behind it either: there the newest
connection goes first that was there at the turn before, so that clients which hang up soon have done so.

An address is one of IPv4, or a network of 64 bits of IPv6, because one machine may have all of it.

Tests: tests/unit/coordinator/test_connection_limiter.py.
"""

import asyncio
import contextlib
import heapq
import itertools
import select
import socket
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import structlog

from muster.serve import client_network

HANDSHAKES_PER_SECOND = 25.0  # without a good token: 4 % of a core
SHORTEST_PAUSE_SECONDS = 0.001  # until there is room for a handshake: sums of fractions stay below one for long
FORGETTING_SECONDS = 300.0  # until half of the handshakes that an address has wasted are forgotten
# Of a flooded address the newest connection goes first, once more wait than the budget serves within this time: the
# older ones have most likely been given up, or are the flood's.
NEWEST_FIRST_SECONDS = 2.0
BACKLOG = 1024
# Connections that come within this pause after another one are accepted together, so many at most: one by one, each
# would wake the loop.
GATHERED, GATHERING_SECONDS = 256, 0.025
# While good tokens come, no more connections are accepted than are let in within this time at that pace. The others
# wait in the kernel, or try again: a launcher that waits for longer than 3 s has given up, and to close it costs, too.
AHEAD_SECONDS = 1.0
LINES = 2  # connections of a launcher
PAUSE_SECONDS = 0.1  # when no socket can be had: no file descriptors are left

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections without a good token there may be, inside and waiting.

    Attributes:
        handshakes: at once, after a quiet time.
    """

    unauthenticated: int = 512
    waiting: int = 4096
    waiting_of_address: int = 1024
    handshakes: int = 128


class _Visitor(NamedTuple):
    connection: socket.socket
    since: float  # by the loop's clock


class ConnectionLimiter:
    """Lets the connections of a port in as far as the limits allow.

    Args:
        enter: begins the handshake of a connection that is let in. Its owner calls `note_settled` with the address once
            the connection is authenticated or gone; the owner sees to it that neither takes long.
        limits: numbers of connections and handshakes.
        per_second: how many handshakes that lead to no good token there may be in a second.
    """

    def __init__(
        self,
        enter: Callable[[socket.socket, str], None],
        limits: Limits = Limits(),
        per_second: Callable[[], float] = lambda: HANDSHAKES_PER_SECOND,
    ) -> None:
        self._enter = enter
        self._limits = limits
        self._per_second = per_second
        self._unauthenticated = 0
        self._waiting: dict[str, deque[_Visitor]] = {}  # by address
        # Each address that waits, once: by how many handshakes it has wasted (0, 1, 2 or 3, 4 to 7 ...), then in turns.
        self._turns: list[tuple[int, int, str]] = []
        self._numbers = itertools.count()
        self._queued = 0
        self._good_tokens = 0  # of those who have just come, since connections were last accepted together
        self._come: Counter[str] = Counter()  # good tokens by address, those that count
        self._budget = float(limits.handshakes)
        self._counted_at = self._forgot_at = float("-inf")  # by the loop's clock
        self._wasted: Counter[str] = Counter()  # handshakes by address
        self._next: asyncio.TimerHandle | None = None  # lets in when the budget has room again

    async def serve(self, listener: socket.socket) -> None:
        """Accept and let in connections until this is cancelled; then close those that still wait.

        Args:
            listener: of `muster.serve.listening_socket`.
        """
        loop, last = asyncio.get_running_loop(), float("-inf")
        try:
            while True:
                is_accepted = await self._accept_next(listener)
                previous, last = last, loop.time()
                if is_accepted and last - previous < GATHERING_SECONDS:
                    await asyncio.sleep(GATHERING_SECONDS)
                    self._accept_waiting(listener)
                    last = loop.time()
        finally:
            if self._next is not None:
                self._next.cancel()
                self._next = None
            for visitors in self._waiting.values():
                for visitor in visitors:
                    visitor.connection.close()
            self._waiting.clear()
            self._turns.clear()

    def enqueue(self, visitor: socket.socket, host: str) -> None:
        """Queue a new connection, and let in those whose turn it is.

        Where too many wait, one of the address with the most is closed.

        Args:
            visitor: the accepted socket, before its handshake.
            host: the IPv4 address, or the IPv6 network of 64 bits, that it comes from.
        """
        if host not in self._waiting:
            self._waiting[host] = deque()
            self._queue_address(host)
        self._waiting[host].append(_Visitor(visitor, asyncio.get_running_loop().time()))
        self._queued += 1
        self._let_in()
        own = self._length(host)
        if own > self._limits.waiting_of_address:
            self._send_away(host)
        elif self._queued > self._limits.waiting:
            # A flood costs no search among those that wait.
            share = self._limits.waiting // len(self._waiting)
            self._send_away(host if own > share else max(self._waiting, key=self._length))

    def note_settled(self, host: str, *, is_known: bool = False) -> None:
        """Note that a connection of this address is authenticated or closed, and let in others in its place.

        Args:
            host: the address or network that was handed to `enter`.
            is_known: whether its token was good. Then the handshake does not count against the budget.
        """
        self._unauthenticated -= 1
        if is_known:
            if self._come[host] < LINES:  # 64 pods that come again and again keep no one in the kernel's queue
                self._come[host] += 1
                self._good_tokens += 1
            self._budget = min(self._budget + 1, self._limits.handshakes)
        else:
            self._wasted[host] += 1
        self._let_in()

    def keeps_others_out(self) -> bool:
        """Whether all places for unauthenticated connections are taken while others wait."""
        return self._unauthenticated >= self._limits.unauthenticated and self._queued > 0

    async def _accept_next(self, listener: socket.socket) -> bool:
        """Wait for a connection. Return whether one came."""
        try:
            visitor, address = await asyncio.get_running_loop().sock_accept(listener)
        except OSError as error:
            log.warning("cannot accept a connection", error=str(error))
            await asyncio.sleep(PAUSE_SECONDS)
            return False
        self._enqueue_from(visitor, address)
        return True

    def _accept_waiting(self, listener: socket.socket) -> None:
        """Accept the connections that have come, as far as there is room."""
        room = self._room()
        with contextlib.suppress(OSError):  # no more have come; whatever else there is, `_accept_next` logs it
            for _ in range(room):
                visitor, address = listener.accept()
                visitor.setblocking(False)
                self._enqueue_from(visitor, address)

    def _room(self) -> int:
        """Return how many connections may be accepted together now: a flood, which has no good tokens, at full pace."""
        good_tokens, self._good_tokens = self._good_tokens, 0
        if not good_tokens:
            return GATHERED
        return min(GATHERED, max(0, round(good_tokens * AHEAD_SECONDS / GATHERING_SECONDS) - self._queued))

    def _enqueue_from(self, visitor: socket.socket, address: tuple[str, ...]) -> None:
        try:
            self.enqueue(visitor, client_network(address[0]))
        except Exception:  # accepting goes on, whatever is wrong with one connection
            log.exception("a connection could not be let in")
            visitor.close()

    def _let_in(self) -> None:
        if self._next is not None and self._budget < 1:  # the timer lets in
            return
        loop = asyncio.get_running_loop()
        self._count(loop.time())
        while self._unauthenticated < self._limits.unauthenticated and self._has_waiting_address():
            if self._budget < 1:
                if self._next is None:
                    pause = max((1 - self._budget) / self._per_second(), SHORTEST_PAUSE_SECONDS)
                    self._next = loop.call_later(pause, self._let_in_next)
                return
            self._let_in_from(heapq.heappop(self._turns)[2])

    def _let_in_next(self) -> None:
        self._next = None
        self._let_in()

    def _count(self, now: float) -> None:
        """Add to the handshake budget what the time since the last call is worth, and halve old counts of wasted
        handshakes."""
        if now - self._forgot_at >= FORGETTING_SECONDS:
            self._forgot_at = now
            self._come.clear()
            self._wasted = Counter({host: wasted // 2 for host, wasted in self._wasted.items() if wasted > 1})
        gained = max(now - self._counted_at, 0.0) * self._per_second()
        self._budget, self._counted_at = min(self._budget + gained, self._limits.handshakes), now

    def _queue_address(self, host: str) -> None:
        """Put an address behind all that have wasted as few handshakes."""
        heapq.heappush(self._turns, self._new_position(host))

    def _new_position(self, host: str) -> tuple[int, int, str]:
        return self._wasted[host].bit_length(), next(self._numbers), host

    def _has_waiting_address(self) -> bool:
        """Whether an address waits. The first turn is then that of one that has wasted the fewest handshakes."""
        while self._turns:
            lane, _, host = self._turns[0]
            if not self._waiting[host]:  # all its connections were sent away
                heapq.heappop(self._turns)
                del self._waiting[host]
            elif lane < self._wasted[host].bit_length():  # it has wasted others since
                heapq.heapreplace(self._turns, self._new_position(host))
            else:
                return True
        return False

    def _is_flooded(self, host: str) -> bool:
        """Whether an address has wasted handshakes, and more of its connections wait than a launcher waits for."""
        return self._wasted[host] > 0 and self._length(host) > NEWEST_FIRST_SECONDS * self._per_second()

    def _length(self, host: str) -> int:
        return len(self._waiting.get(host, ()))

    def _send_away(self, host: str) -> None:
        """Close one waiting connection of an address: the one that would come last."""
        visitors = self._waiting[host]
        (visitors.popleft() if self._is_flooded(host) else visitors.pop()).connection.close()
        self._queued -= 1

    def _let_in_from(self, host: str) -> None:
        """Let in the next waiting connection of an address whose turn was taken from the heap."""
        visitor = self._next_of(host)
        if self._waiting[host]:
            self._queue_address(host)
        else:
            del self._waiting[host]
        if visitor is not None:
            self._unauthenticated += 1
            self._budget -= 1
            self._enter(visitor, host)

    def _next_of(self, host: str) -> socket.socket | None:
        """Remove the next connection of an address: the oldest one, of a flooded address the newest that has waited for
        a turn. None: all clients have hung up."""
        visitors = self._waiting[host]
        recent: list[_Visitor] = []
        if is_flooded := self._is_flooded(host):
            latest = self._counted_at - 1 / self._per_second()
            while visitors and visitors[-1].since > latest:
                recent.append(visitors.pop())
        visitor = self._first_there(visitors, newest=is_flooded)
        visitors.extend(reversed(recent))
        return visitor or self._first_there(visitors, newest=False)

    def _first_there(self, visitors: "deque[_Visitor]", *, newest: bool) -> socket.socket | None:
        """Remove the first connection whose client has not hung up, and close those before it."""
        while visitors:
            visitor = (visitors.pop() if newest else visitors.popleft()).connection
            self._queued -= 1
            if not _has_hung_up(visitor):
                return visitor
            visitor.close()
        return None


def _has_hung_up(visitor: socket.socket) -> bool:
    """Whether the client has closed the connection, even if it sent something before."""
    poll = select.poll()
    poll.register(visitor, select.POLLRDHUP)
    return any(events & select.POLLRDHUP for _, events in poll.poll(0))

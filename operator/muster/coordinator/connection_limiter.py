"""Lets connections in one by one: an unauthenticated client can hold little memory, and no client can hold all of it.

A TLS connection costs some fifty kilobytes before a byte of a request has come. So only so many unauthenticated
connections are let in at once, and fewer from one address; the others wait as bare sockets, which cost next to nothing,
and addresses take turns. A launcher is unauthenticated for some milliseconds, so thousands of them that come at once
pass in the time that their handshakes take anyway. Where all places are taken, an address with many of them gives up
those that it has had for long to addresses that have none.

An address is one of IPv4, or a network of 64 bits of IPv6, because one machine may have all of it. What an address may
have is far more than a node needs: eight workers and a checker on the network of their host hold some thirty
connections, and each is unauthenticated for milliseconds. Where all launchers come from one address (a load balancer or
gateway with NAT), 64 at a time still pass as fast as handshakes can be computed, some thousand a second, and the next
thousand wait; the others are closed, and launchers try again. A connection whose token was good is authenticated: no
limit of its address counts it, and no flood closes it.

A handshake takes 1.4 ms of the event loop for any client, so handshakes have a budget: so many a second. One that leads
to a good token gives its part back, so thousands of launchers connect as fast as handshakes can be computed. All others
share the budget. The address that has wasted the fewest handshakes lately goes first, so a launcher does not wait
behind a flood, from however many addresses it comes. A client that has hung up while it waited costs no handshake. A
launcher that shares its address with a flood does not wait behind it either: the newest connection there goes first.
"""

import asyncio
import select
import socket
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from muster.coordinator.listening import Listening

HANDSHAKES_PER_SECOND = 25.0  # without a good token: 4 % of a core
SHORTEST_PAUSE_SECONDS = 0.001  # until there is room for a handshake: sums of fractions stay below one for long
FORGETTING_SECONDS = 300.0  # until half of the handshakes that an address has wasted are forgotten
LANES = 12  # the last one: 1,024 wasted handshakes or more
# Of a flooded address the newest connection goes first, once more wait than the budget serves within this time: the
# older ones have most likely been given up, or are the flood's.
NEWEST_FIRST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How many unauthenticated connections there may be, in all and of one address, inside and waiting.

    Attributes:
        after_good: connections that an address may have at once for a good token, before it counts as a flood: many
            launchers may share the address of a gateway. 0: a good token changes nothing.
    """

    unauthenticated: int = 512
    of_address: int = 64
    few_of_address: int = 16  # that it keeps for as long as a handshake may last, though others wait
    waiting: int = 4096
    waiting_of_address: int = 1024
    handshakes: int = 128  # at once, after a quiet time
    after_good: int = 64


@dataclass(slots=True)
class _Queue:
    """The connections of one address that wait to be let in."""

    lane: int
    visitors: deque[socket.socket] = field(default_factory=deque)


class ConnectionLimiter:
    """Lets the connections of a port in as far as the limits allow.

    Args:
        enter: begins the handshake of a connection that is let in. Its owner calls `note_settled` with the address once
        the connection is authenticated or gone.
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
        self._inside: Counter[str] = Counter()  # unauthenticated connections by address
        self._unauthenticated = 0
        self._waiting: dict[str, _Queue] = {}  # by address
        # Addresses that wait, by how many handshakes they have wasted: 0, 1, 2 or 3, 4 to 7 ...; in each lane the
        # address whose turn it is comes first.
        self._lanes: tuple[OrderedDict[str, None], ...] = tuple(OrderedDict() for _ in range(LANES))
        self._queued = 0
        self._budget = float(limits.handshakes)
        self._counted_at = self._forgot_at = float("-inf")  # by the loop's clock
        self._wasted: Counter[str] = Counter()  # handshakes by address
        self._next: asyncio.TimerHandle | None = None  # lets in when the budget has room again
        self._listening: Listening | None = None

    async def serve(self, listening: Listening) -> None:
        """Accept and let in connections until this is cancelled; then close those that still wait."""
        self._listening = listening
        try:
            await listening.serve(self.enqueue)
        finally:
            if self._next is not None:
                self._next.cancel()
                self._next = None
            for queue in self._waiting.values():
                for visitor in queue.visitors:
                    visitor.close()
            self._waiting.clear()
            for lane in self._lanes:
                lane.clear()

    def enqueue(self, visitor: socket.socket, host: str) -> None:
        """Queue a new connection, and let in those whose turn it is.

        Where too many wait, one is closed: the new one, if its address has more than an equal share of the queue.
        Otherwise the last one of the address with the most is closed. So a flood costs no search among those that wait.

        Args:
            visitor: the accepted socket, before its handshake.
            host: the IPv4 address, or the IPv6 network of 64 bits, that it comes from.
        """
        if host not in self._waiting:
            self._begin_waiting(host, _Queue(0))
        self._waiting[host].visitors.append(visitor)
        self._queued += 1
        self._let_in()
        own = self._length(host)
        if own > self._limits.waiting_of_address:
            self._send_away(host)
        elif self._queued > self._limits.waiting:
            share = self._limits.waiting // len(self._waiting)
            self._send_away(host if own > share else max(self._waiting, key=self._length))

    def note_settled(self, host: str, *, is_known: bool = False) -> None:
        """Note that a connection of this address is authenticated or closed, and let in others in its place.

        Args:
            host: the address or network that was handed to `enter`.
            is_known: whether its token was good. Then the handshake does not count against the budget.
        """
        self._unauthenticated -= 1
        self._inside[host] -= 1
        if not self._inside[host]:
            del self._inside[host]
        if is_known:
            self._budget = min(self._budget + 1, self._limits.handshakes)
            if self._listening is not None and self._limits.after_good:
                self._listening.note_good(host, self._limits.after_good)
        else:
            self._wasted[host] += 1
            if host in self._waiting:
                self._requeue(host)
        self._let_in()

    def too_many_of(self) -> str | None:
        """The address that should give up unauthenticated connections to let others in; None while there is no need.

        It is an address at its limit of which more connections wait. Otherwise, while all places are taken and an
        address waits without any, it is the address with the most places. That one is spared while it has only a few.
        """
        full = (host for host, places in self._inside.items() if places >= self._limits.of_address)
        at_limit = next((host for host in full if host in self._waiting), None)
        if at_limit is not None or not self.keeps_others_out():
            return at_limit
        host, places = self._inside.most_common(1)[0]
        return host if places > self._limits.few_of_address else None

    def keeps_others_out(self) -> bool:
        """Whether all places for unauthenticated connections are taken while an address without any place waits."""
        return self._unauthenticated >= self._limits.unauthenticated and any(
            not self._inside[host] for host in self._waiting
        )

    def _let_in(self) -> None:
        if self._next is not None and self._budget < 1:  # the timer lets in
            return
        loop = asyncio.get_running_loop()
        self._count(loop.time())
        while self._unauthenticated < self._limits.unauthenticated:
            host = self._first()
            if host is None:
                return
            if self._budget < 1:
                if self._next is None:
                    pause = max((1 - self._budget) / self._per_second(), SHORTEST_PAUSE_SECONDS)
                    self._next = loop.call_later(pause, self._let_in_next)
                return
            self._let_in_from(host)

    def _first(self) -> str | None:
        """The address that is let in next; None where no address that waits may have another place.

        Addresses that wasted the fewest handshakes go first, and among them those without a place.
        """
        for lane in filter(None, self._lanes):
            host = next((host for host in lane if not self._inside[host]), None)
            host = host or next((host for host in lane if self._inside[host] < self._limits.of_address), None)
            if host is not None:
                return host
        return None

    def _let_in_next(self) -> None:
        self._next = None
        self._let_in()

    def _count(self, now: float) -> None:
        """Add to the handshake budget what the time since the last call is worth, and halve old counts of wasted
        handshakes."""
        if now - self._forgot_at >= FORGETTING_SECONDS:
            self._forgot_at = now
            self._wasted = Counter({host: wasted // 2 for host, wasted in self._wasted.items() if wasted > 1})
            for host in list(self._waiting):
                self._requeue(host)
        gained = max(now - self._counted_at, 0.0) * self._per_second()
        self._budget, self._counted_at = min(self._budget + gained, self._limits.handshakes), now

    def _begin_waiting(self, host: str, queue: _Queue) -> None:
        """Put an address at the end of its lane. The lane follows from the number of handshakes that the address has
        wasted."""
        queue.lane = min(self._wasted[host].bit_length(), LANES - 1)
        self._waiting[host] = queue
        self._lanes[queue.lane][host] = None

    def _requeue(self, host: str) -> None:
        """Move a waiting address to the lane that fits its changed number of wasted handshakes."""
        queue = self._waiting[host]
        self._end_waiting(host)
        self._begin_waiting(host, queue)

    def _end_waiting(self, host: str) -> None:
        del self._lanes[self._waiting.pop(host).lane][host]

    def _next_of(self, host: str, queue: _Queue) -> socket.socket:
        """Remove the connection of an address whose turn it is: the oldest one, of a flooded address the newest."""
        self._queued -= 1
        return queue.visitors.pop() if self._is_flooded(host, queue) else queue.visitors.popleft()

    def _is_flooded(self, host: str, queue: _Queue) -> bool:
        """Whether an address has wasted handshakes, and more of its connections wait than a launcher waits for."""
        return self._wasted[host] > 0 and len(queue.visitors) > NEWEST_FIRST_SECONDS * self._per_second()

    def _length(self, host: str) -> int:
        return len(self._waiting[host].visitors) if host in self._waiting else 0

    def _send_away(self, host: str) -> None:
        """Close one waiting connection of an address: the one that would come last."""
        queue = self._waiting[host]
        (queue.visitors.popleft() if self._is_flooded(host, queue) else queue.visitors.pop()).close()
        self._queued -= 1
        if not queue.visitors:
            self._end_waiting(host)

    def _let_in_from(self, host: str) -> None:
        """Let in the next waiting connection of an address whose client has not hung up."""
        queue = self._waiting[host]
        self._end_waiting(host)
        while queue.visitors:
            visitor = self._next_of(host, queue)
            if _has_hung_up(visitor):
                visitor.close()
                continue
            self._unauthenticated += 1
            self._inside[host] += 1
            self._budget -= 1
            if queue.visitors:
                self._begin_waiting(host, queue)
            if self._listening is not None:
                self._listening.note_let_in(host)
            self._enter(visitor, host)
            return


def _has_hung_up(visitor: socket.socket) -> bool:
    """Whether the client has closed the connection, even if it sent something before."""
    poll = select.poll()
    poll.register(visitor, select.POLLRDHUP)
    return any(events & select.POLLRDHUP for _, events in poll.poll(0))

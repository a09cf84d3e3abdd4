"""Count what TLS computes for connections without a good token: a client makes it compute as much as it likes.

A handshake is a millisecond, but its messages may come in thousands of records of one byte. So may a request's head, or
what a refused client still sends. New keys, for which a client may ask as often as it likes, reach no program at all.
So a connection without a good token has a few milliseconds, and all of them together a share of a core. Once that is
used up, fewer handshakes are let in until it has grown again.

A launcher pays with the time until its pod's next request. Between two requests its connection has a tenth of a second,
fifty times what the longest body takes.
"""

import asyncio
import math
import ssl
import time
from collections.abc import Callable
from typing import Any

from muster.coordinator import connection_limiter
from muster.serve import CpuShare

UNAUTHENTICATED_SHARE = 0.03  # of a core; the budget for handshakes is half of it, on a core of today
# At once, after a quiet time: so many unauthenticated connections as there may be have their handshakes, before the
# first good token gives back what its own took.
BURST_SECONDS = 0.3
READ_SECONDS = 0.00004  # that asyncio takes around each read of TLS, which has 2 KiB at most
RECORD_SECONDS = 0.000005  # the same around each record of a client with a good token, which may have one byte
MAX_SECONDS = 0.008  # of a core for one connection: ten times what its handshake takes
MAX_BODY_SECONDS = 0.1  # of a core for what comes on a connection with a good token before a request is complete
EXHAUSTED_FACTOR = 0.1  # of the usual handshakes while the share is used up: a launcher waits for half a second


class TlsMeter:
    """Counts what TLS computes for connections of some contexts.

    Args:
        clock: monotonic seconds.
        cpu_clock: seconds that the thread has computed so far.
        max_body_seconds: for a connection with a good token between two calls of `collect_seconds`.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
        max_body_seconds: float = math.inf,
    ) -> None:
        self.max_body_seconds = max_body_seconds
        self._share = CpuShare(UNAUTHENTICATED_SHARE, BURST_SECONDS, clock)
        self.cpu_clock = cpu_clock

    def watch(self, context: ssl.SSLContext) -> None:
        """Count what the context's new connections compute from now on."""
        context.sslobject_class = type("MeteredTls", (_MeteredTls,), {"meter": self})

    def charge(self, seconds: float) -> None:
        """Count seconds of a connection without a good token."""
        self._share.charge(seconds)

    def handshakes_per_second(self) -> float:
        """How many handshakes without a good token there may be in a second, as things are."""
        return connection_limiter.HANDSHAKES_PER_SECOND * (EXHAUSTED_FACTOR if self._share.pause_seconds() > 0 else 1.0)

    def note_authenticated(self, transport: asyncio.BaseTransport | None, *, is_free: bool) -> None:
        """Note that a connection's token is good, so that TLS computes for it what it needs.

        Args:
            is_free: whether what it has taken is given back.
        """
        counted = _counted(transport)
        if counted is not None and not counted.is_authenticated:
            counted.is_authenticated = True
            if is_free:
                self._share.charge(-counted.seconds)
            counted.seconds = 0.0

    def collect_seconds(self, transport: asyncio.BaseTransport | None) -> float:
        """Return what a connection with a good token has taken since the last call."""
        counted = _counted(transport)
        if counted is None:
            return 0.0
        seconds, counted.seconds = counted.seconds, 0.0
        return seconds


class _MeteredTls(ssl.SSLObject):
    """The TLS of one connection, which asyncio makes of the context."""

    meter: TlsMeter
    seconds = 0.0
    is_authenticated = False

    def do_handshake(self) -> None:
        begun = self._begin()
        try:
            super().do_handshake()
        finally:
            self._end(begun)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002 - as in the class above
        begun = self._begin()
        try:
            return super().read(len, buffer)
        finally:
            self._end(begun)

    def _begin(self) -> float:
        if self.seconds > (self.meter.max_body_seconds if self.is_authenticated else MAX_SECONDS):
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "a client makes TLS compute too much")
        return self.meter.cpu_clock()

    def _end(self, begun: float) -> None:
        seconds = self.meter.cpu_clock() - begun
        seconds += RECORD_SECONDS if self.is_authenticated else READ_SECONDS
        if not self.is_authenticated:
            self.meter.charge(seconds)
        self.seconds += seconds


def _counted(transport: asyncio.BaseTransport | None) -> _MeteredTls | None:
    found = transport.get_extra_info("ssl_object") if transport is not None else None
    return found if isinstance(found, _MeteredTls) else None

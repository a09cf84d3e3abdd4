"""Bound what TLS computes for one connection without a good token: a client makes it compute as much as it likes.

A handshake is a millisecond, but its messages may come in thousands of records of one byte. So may a request's head, or
what a refused client still sends. New keys, for which a client may ask as often as it likes, reach no program at all.
So a connection without a good token has a few milliseconds.

A launcher pays with the time until its pod's next request. Between two requests its connection has a tenth of a second,
fifty times what the longest body takes.
"""

import asyncio
import math
import ssl
import time
from collections.abc import Callable
from typing import Any

READ_SECONDS = 0.00004  # that asyncio takes around each read of TLS, which has 2 KiB at most
RECORD_SECONDS = 0.000005  # the same around each record of a client with a good token, which may have one byte
MAX_SECONDS = 0.008  # of a core for one connection: ten times what its handshake takes
MAX_BODY_SECONDS = 0.1  # of a core for what comes on a connection with a good token before a request is complete


class TlsMeter:
    """Counts what TLS computes for connections of some contexts.

    Args:
        cpu_clock: seconds that the thread has computed so far.
        max_body_seconds: for a connection with a good token between two calls of `collect_seconds`.
    """

    def __init__(self, cpu_clock: Callable[[], float] = time.thread_time, max_body_seconds: float = math.inf) -> None:
        self.cpu_clock = cpu_clock
        self.max_body_seconds = max_body_seconds

    def watch(self, context: ssl.SSLContext) -> None:
        """Count what the context's new connections compute from now on."""
        context.sslobject_class = type("MeteredTls", (_MeteredTls,), {"meter": self})

    def note_authenticated(self, transport: asyncio.BaseTransport | None) -> None:
        """Note that a connection's token is good, so that TLS computes for it what it needs."""
        counted = _counted(transport)
        if counted is not None and not counted.is_authenticated:
            counted.is_authenticated, counted.seconds = True, 0.0

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
        begin_seconds = self._begin()
        try:
            super().do_handshake()
        finally:
            self._end(begin_seconds)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002 - as in the class above
        begin_seconds = self._begin()
        try:
            return super().read(len, buffer)
        finally:
            self._end(begin_seconds)

    def _begin(self) -> float:
        if self.seconds > (self.meter.max_body_seconds if self.is_authenticated else MAX_SECONDS):
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, "a client makes TLS compute too much")
        return self.meter.cpu_clock()

    def _end(self, begin_seconds: float) -> None:
        self.seconds += (
            self.meter.cpu_clock() - begin_seconds + (RECORD_SECONDS if self.is_authenticated else READ_SECONDS)
        )


def _counted(transport: asyncio.BaseTransport | None) -> _MeteredTls | None:
    try:
        tls = transport.get_extra_info("ssl_object") if transport is not None else None
    except AttributeError:  # asyncio has given the connection up, and its transport cannot answer any more
        return None
    return tls if isinstance(tls, _MeteredTls) else None

"""Gives memory back after a burst of connections, and tells the collector's time from that of others.

A thousand TLS handshakes at once take twice the memory that the open connections keep.

glibc keeps freed memory that lies between what is in use, and nothing here ever needs as much again, so without this
the operator's memory would for ever be that of its busiest second. And a connection that is gone is a circle of
objects: some fifty kilobytes that nothing frees before the collector looks at old objects, which it does after tens of
millions of new ones.
"""

import ctypes
import gc
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

BURST_CONNECTIONS = 256  # connections opened or lost that make giving memory back worth while
# After the start and after a burst has gone memory is given back once more: what a first listing of the fleet leaves
# behind is as much, and the pods and records of a gang go later than its connections.
AFTERMATH_SECONDS = 30.0


class _Collector(threading.local):
    """What the collector has computed in one thread."""

    began_at = 0.0
    seconds = 0.0


_collector = _Collector()


def _note_collection(phase: str, _: Mapping[str, Any]) -> None:
    if phase == "start":
        _collector.began_at = time.thread_time()
    else:
        _collector.seconds += time.thread_time() - _collector.began_at


gc.callbacks.append(_note_collection)


def working_seconds() -> float:
    """Return the seconds that the calling thread has computed so far, without those of the garbage collector.

    The collector runs for tens of milliseconds within whatever happens to need one object more. What that costs is no
    fault of it: a pod would be kept out for seconds, and the start of its gang with it.
    """
    return time.thread_time() - _collector.seconds


def release_memory(*, garbage: bool) -> bool:
    """Return freed memory to the system, in some milliseconds; False where the C library cannot (it is not glibc).

    Args:
        garbage: whether to collect cycles of dead objects first: about 50 ms with 2,048 nodes and their workers.
    """
    if garbage:
        gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))


class BurstDetector:
    """Notices when very many connections were opened or lost within a short time, and gives their memory back.

    Args:
        now: seconds of the clock whose times `check_burst` is given.
        forget: drops what is cached for connections that are gone.
    """

    def __init__(self, now: float, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._seen = self._settled = (0, 0)
        self._again_at: float | None = now + AFTERMATH_SECONDS

    def check_burst(self, opened: int, lost: int, now: float) -> None:
        """Give memory back after a burst of opened or lost connections; to be called about every second.

        Args:
            opened: the number of connections opened since the process began.
            lost: the number of those that are closed.
            now: seconds of the clock that the constructor was given.
        """
        counts = (opened, lost)
        has_come, has_gone = (
            count - settled >= BURST_CONNECTIONS for count, settled in zip(counts, self._settled, strict=True)
        )
        if (has_come or has_gone) and counts == self._seen:  # the last ones have come, or gone
            self._settled = counts
            if has_gone:
                self._forget()
                self._again_at = now + AFTERMATH_SECONDS
            release_memory(garbage=has_gone)
        elif self._again_at is not None and now >= self._again_at:
            self._again_at = None
            release_memory(garbage=True)
        self._seen = counts

"""Reads each of several devices, so that one that never answers delays no other.

The sysfs of a network card whose firmware is dead can take a minute to be read, or for ever, and no thread can be
ended. A thread that does not return is therefore left with its device, and another thread reads the rest. That device
is not read again until the first thread has returned.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class _Round:
    """The devices that one thread reads, one after the other."""

    def __init__(self, names: Iterable[str]) -> None:
        self.left = deque(names)
        self.now = ""
        self.since = 0.0
        self.abandoned = False


class Apart(Generic[T]):
    """Calls `read` for each name in threads of its own. `each` is called by one thread.

    Args:
        read: reads one device.
        patience_seconds: how long the other devices wait for one.
        monotonic: the clock that measures it.
    """

    def __init__(
        self, read: Callable[[str], T], patience_seconds: float, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._monotonic = monotonic
        self._patience = patience_seconds
        self._turned = threading.Condition()
        self._found: dict[str, T] = {}
        self._held: dict[str, float] = {}

    @property
    def overdue_devices(self) -> Mapping[str, float]:
        """Return the devices whose reading has not ended in time, and since when (monotonic)."""
        with self._turned:
            return dict(self._held)

    def each(self, names: Iterable[str]) -> dict[str, T]:
        """Return what was read of each device; a result that took too long is returned by a later call."""
        with self._turned:
            left = [name for name in names if name not in self._held]
        while left:
            left = self._read_until_delay(left)
        with self._turned:
            results, self._found = self._found, {}
        return results

    def _read_until_delay(self, names: list[str]) -> list[str]:
        """Read these devices, and return those that are left because one of them has delayed the thread."""
        work = _Round(names)
        work.since = self._monotonic()
        thread = threading.Thread(target=self._run, args=(work,), name="sysfs", daemon=True)
        thread.start()
        with self._turned:
            while work.left or work.now:
                waited = self._monotonic() - work.since
                if work.now and waited >= self._patience:
                    work.abandoned = True
                    self._held[work.now] = work.since
                    return list(work.left)
                self._turned.wait(max(0.0, self._patience - waited) if work.now else self._patience)
        return []

    def _run(self, work: _Round) -> None:
        while True:
            with self._turned:
                work.now = "" if work.abandoned or not work.left else work.left.popleft()
                work.since = self._monotonic()
                self._turned.notify_all()
            if not work.now:
                return
            result = self._read(work.now)
            with self._turned:
                self._found[work.now] = result
                self._held.pop(work.now, None)

"""Looks at something again and again from a thread of its own: reading a dead network card's sysfs can take a minute."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from muster.agent.facts import Signal

_MAX_WAITING = 16


class Sampler:
    """Calls `looks`, each at its period, and keeps what they see until it is taken."""

    def __init__(self, looks: Iterable[tuple[float, Callable[[], list[Signal]]]], wake: Callable[[], None]) -> None:
        self._looks = tuple(looks)
        self._wake = wake
        self._seen: deque[list[Signal]] = deque(maxlen=_MAX_WAITING)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether it still looks; one look that hangs is a look."""
        return self._thread.is_alive()

    def end(self) -> None:
        """See nothing any more; a look that hangs is left alone."""
        self._ended.set()
        self._seen.clear()

    def take(self) -> list[Signal]:
        """What has been seen since the last time, oldest first."""
        signals: list[Signal] = []
        while self._seen and not self._ended.is_set():
            signals += self._seen.popleft()
        return signals

    def _run(self) -> None:
        due = [0.0] * len(self._looks)
        while not self._ended.is_set():
            now = time.monotonic()
            for number, (period, look) in enumerate(self._looks):
                if now >= due[number]:
                    due[number] = now + period
                    self._seen.append(look())
                    self._wake()
            self._ended.wait(max(0.0, min(due) - time.monotonic()))

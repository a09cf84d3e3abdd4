"""Polls something repeatedly from a thread of its own: reading a dead network card's sysfs can take a minute.

Tests: tests/unit/agent/test_infiniband.py.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from muster.node.agent.facts import Signal

_MAX_WAITING = 16


class Sampler:
    """Calls each of `looks` at its period, and keeps the signals until they are taken."""

    def __init__(
        self,
        looks: Iterable[tuple[float, Callable[[], list[Signal]]]],
        wake: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._looks = tuple(looks)
        self._wake = wake
        self._monotonic = monotonic
        self._seen: deque[list[Signal]] = deque(maxlen=_MAX_WAITING)
        self._ended = threading.Event()
        self._disturbed = threading.Event()
        self._asked = 0
        self._answered = -1
        self._began: float | None = None
        self.looked_at: float | None = None
        """When a poll last returned, on the monotonic clock; None: not yet."""
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Whether the thread still polls; a poll that hangs counts as polling."""
        return self._thread.is_alive()

    @property
    def has_looked(self) -> bool:
        """Whether each poll has been made since `poll_again` was last called, and its signals can be taken."""
        return self._answered == self._asked

    def under_way_seconds(self, now: float) -> float:
        """Return for how long the present poll has been running; 0 where there is none."""
        began = self._began
        return 0.0 if began is None else now - began

    def poll_again(self) -> None:
        """Make each poll now: its basis of comparison has changed, and a running poll may have used the old one."""
        self._asked += 1
        self._disturbed.set()

    def end(self) -> None:
        """Stop polling; a poll that hangs is left alone."""
        self._ended.set()
        self._disturbed.set()
        self._seen.clear()

    def pop_signals(self) -> list[Signal]:
        """Return and remove the signals since the last call, oldest first."""
        signals: list[Signal] = []
        while self._seen and not self._ended.is_set():
            signals += self._seen.popleft()
        return signals

    def _run(self) -> None:
        due = [0.0] * len(self._looks)
        while True:
            self._disturbed.clear()
            if self._ended.is_set():
                return
            asked = self._asked
            if asked != self._answered:
                due = [0.0] * len(self._looks)
            now = self._monotonic()
            for number, (period, look) in enumerate(self._looks):
                if now >= due[number]:
                    due[number] = now + period
                    self._began = self._monotonic()
                    self._seen.append(look())
                    self._began, self.looked_at = None, self._monotonic()
                    self._wake()
            if asked != self._answered:
                self._answered = asked
                self._wake()
            self._disturbed.wait(max(0.0, min(due) - self._monotonic()))

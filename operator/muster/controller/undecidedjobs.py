"""The jobs that a new leader decides about once before it goes on: before the queue makes its first plan, or it would
serve first the job that it happens to see first, and before a node without orders of a job counts as one of which no
job wants any.

Tests: tests/unit/controller/test_queue.py, tests/unit/controller/test_reconciler.py.
"""

from collections.abc import Callable

from muster.controller.bus import Key

# The first plan waits this long at most for the API server's answers about templates.
CHECKS_SECONDS = 15.0


class UndecidedJobs:
    """The jobs that are awaited. `all_decided` is called once there are none."""

    def __init__(self, clock: Callable[[], float], all_decided: Callable[[], None]) -> None:
        self._clock = clock
        self._all_decided = all_decided
        self._unseen: set[Key] = set()
        self._unchecked: set[Key] = set()
        self._checks_until = float("-inf")

    def expect(self, keys: list[Key]) -> None:
        """Await these jobs until each has been decided about once."""
        self._unseen = set(keys)
        self._checks_until = self._clock() + CHECKS_SECONDS
        if not keys:
            self._all_decided()

    def await_check(self, key: Key) -> None:
        """Await the next decision about a job, too: it can wait for nodes once the API server has accepted its
        template. The job whose answer comes first would otherwise be served first."""
        if self._clock() < self._checks_until:
            self._unchecked.add(key)

    def note_decided(self, key: Key) -> None:
        """Note that a job has been decided about, or is gone."""
        if self._unseen or self._unchecked:
            self._unseen.discard(key)
            self._unchecked.discard(key)
            if not self.are_awaited:
                self._all_decided()

    @property
    def are_awaited(self) -> bool:
        """Whether jobs of `expect` have not been decided about, or may soon wait for nodes."""
        return bool(self._unseen or (self._unchecked and self._clock() < self._checks_until))

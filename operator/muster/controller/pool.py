"""A bounded pool of passes, with a share for each namespace, recoveries first.

A namespace may wait for a slow admission webhook, or for a quota to be looked up: that must not hold up the others. So
no namespace has more than its share. One that has nothing under way is let in even when the pool is full: however many
namespaces hang, the next one does not. A part of each share, and of all, is kept for recoveries: thousands of first
starts that are refused again and again leave them room.
"""

from collections import Counter, deque
from collections.abc import Callable

PASSES = 64
SHARE = 16
KEPT = 0.25  # of a share, and of all passes, for recoveries


class Pool:
    """Starts passes when there is room. Only the event loop's thread may touch it.

    Args:
        passes: the largest number of passes at once.
        share: the largest number of them for one namespace.
    """

    def __init__(self, passes: int = PASSES, share: int = SHARE) -> None:
        # How many at once, and of a namespace: by whether they recover.
        self._limits = {
            urgent: (passes - int(passes * kept), share - int(share * kept)) for urgent, kept in _KEPT_FROM.items()
        }
        self._held: Counter[str] = Counter()
        self._under_way = 0  # of all namespaces: to add them up for each one takes the square of their number
        # By namespace: those that recover, and those that start. The namespace that was served last is last.
        self._waiting: dict[str, tuple[deque[Callable[[], None]], deque[Callable[[], None]]]] = {}

    @property
    def waiting(self) -> int:
        """The number of passes that wait for room."""
        return sum(len(urgent) + len(others) for urgent, others in self._waiting.values())

    def enter(self, namespace: str, *, urgent: bool) -> bool:
        """Take room for one pass at once, before all that wait in other namespaces; returns False if there is none."""
        if namespace in self._waiting or not self._has_room(namespace, urgent):
            return False
        self._admit(namespace)
        return True

    def wait(self, namespace: str, *, urgent: bool, start: Callable[[], None]) -> None:
        """Call `start` once there is room, which is then taken; `start` must only begin a task."""
        lanes = self._waiting.setdefault(namespace, (deque(), deque()))
        lanes[0 if urgent else 1].append(start)
        self._start()

    def release(self, namespace: str) -> None:
        """Give back the room of a pass that has ended."""
        self._under_way -= 1
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        self._start()

    def close(self) -> None:
        """Begin no more passes."""
        self._waiting.clear()

    def _admit(self, namespace: str) -> None:
        self._held[namespace] += 1
        self._under_way += 1

    def _has_room(self, namespace: str, urgent: bool) -> bool:
        held, (passes, share) = self._held.get(namespace, 0), self._limits[urgent]
        return held == 0 or (held < share and self._under_way < passes)

    def _start(self) -> None:
        while (namespace := self._next()) is not None:
            urgent, others = self._waiting.pop(namespace)
            start = (urgent or others).popleft()
            if urgent or others:
                self._waiting[namespace] = (urgent, others)
            self._admit(namespace)
            start()

    def _next(self) -> str | None:
        """The namespace that comes next: one with a recovery first, then the one that was served longest ago; None =
        none."""
        first = None
        for namespace, (urgent, _) in self._waiting.items():
            if not self._has_room(namespace, bool(urgent)):
                continue
            if urgent:
                return namespace
            first = first or namespace
        return first


_KEPT_FROM = {True: 0.0, False: KEPT}

"""What has happened in a life, for those who have to understand it."""

from collections import deque
from collections.abc import Callable

MOST_LINES = 4000


class Journal:
    """The last lines, each with its moment."""

    def __init__(self, now: Callable[[], float], most: int = MOST_LINES) -> None:
        self._now = now
        self._lines: deque[tuple[float, str, str]] = deque(maxlen=most)

    def note(self, who: str, text: str) -> None:
        self._lines.append((self._now(), who, text))

    def lines(self, last: int = MOST_LINES) -> list[str]:
        return [f"{moment:10.2f} {who:9} {text}" for moment, who, text in list(self._lines)[-last:]]

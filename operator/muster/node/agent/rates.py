"""Measures how fast counters grow, and how often something was true, over a window of time. Bounded; a counter may be
reset."""

from collections import deque

_POINTS = 128


class Windows:
    """Counters and yes-or-no samples by name."""

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[float, float]]] = {}

    def clear(self) -> None:
        """Forget everything, e.g. after a boot."""
        self._points.clear()

    def increase(self, name: str, value: float, mono: float, window_seconds: float) -> tuple[float, float]:
        """Return by how much a counter has grown in the window, and in how many seconds; (0, 0) where that is not known
        yet."""
        points = self._add(name, value, mono, window_seconds)
        if len(points) >= 2 and value < points[-2][1]:  # the counter was reset: its present value is all new
            points.clear()
            points.append((mono, value))
        return value - points[0][1], mono - points[0][0]

    def share(self, name: str, yes: bool, mono: float, window_seconds: float) -> float | None:
        """Return the share of samples with `yes`; None before nearly a whole window has been seen."""
        points = self._add(name, float(yes), mono, window_seconds)
        if mono - points[0][0] < 0.9 * window_seconds:
            return None
        return sum(value for _, value in points) / len(points)

    def _add(self, name: str, value: float, mono: float, window_seconds: float) -> deque[tuple[float, float]]:
        points = self._points.setdefault(name, deque())
        # Old points go, but the newest of them stays: without it slow samples would never span the window.
        while len(points) >= 2 and points[1][0] <= mono - window_seconds:
            points.popleft()
        # Points that lie closer than needed make room: the last one moves instead.
        if len(points) >= 2 and mono - points[-2][0] < window_seconds / _POINTS:
            points.pop()
        points.append((mono, value))
        return points

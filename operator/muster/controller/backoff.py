"""How long to wait before the next try."""

MAX_DOUBLINGS = 32


def doubled(first_seconds: float, times: int, limit_seconds: float) -> float:
    """The pause after so many doublings, however many there were."""
    return min(first_seconds * 2.0 ** min(times, MAX_DOUBLINGS), limit_seconds)

"""Computes how long to wait before the next try."""

MAX_DOUBLINGS = 32


def doubled(first_seconds: float, times: int, limit_seconds: float) -> float:
    """The seconds to pause after `times` doublings of the first pause, at most `limit_seconds`."""
    return min(first_seconds * 2.0 ** min(times, MAX_DOUBLINGS), limit_seconds)

"""Pauses between tries double, up to a limit."""

import pytest

from muster.controller.backoff import doubled


@pytest.mark.parametrize(
    ("times", "seconds"),
    [(0, 1.5), (1, 3.0), (4, 24.0), (5, 40.0), (10_000, 40.0)],
    ids=["the first", "twice as long", "doubled four times", "up to the limit", "tried for weeks"],
)
def test_a_pause_doubles_up_to_its_limit(times: int, seconds: float) -> None:
    assert doubled(1.5, times, 40.0) == seconds

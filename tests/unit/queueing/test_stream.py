"""No large gang starves: a stream of jobs, priorities off, against a bound that follows from the longest job.

The stream is drawn before anything is decided, so that a change of the queue does not move it. More of them:
tests/unit/nightly/queueing/test_stream.py.
"""

import pytest
from tests.unit.queueing.short_streams import (
    every_large_gang_starts_in_time,
    without_reservations_large_gangs_would_starve,
)

SEED = 4


def test_every_large_gang_starts_in_time() -> None:
    every_large_gang_starts_in_time(SEED)


def test_without_reservations_large_gangs_would_starve(monkeypatch: pytest.MonkeyPatch) -> None:
    without_reservations_large_gangs_would_starve(SEED, monkeypatch)

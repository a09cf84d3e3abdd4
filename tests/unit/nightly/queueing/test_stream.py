"""No large gang starves in short streams, of which the gate has one."""

import pytest
from tests.unit.queueing.short_streams import (
    every_large_gang_starts_in_time,
    without_reservations_large_gangs_would_starve,
)

SEEDS = (1, 4, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_large_gang_starts_in_time(seed: int) -> None:
    every_large_gang_starts_in_time(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_without_reservations_large_gangs_would_starve(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    without_reservations_large_gangs_would_starve(seed, monkeypatch)

"""Short streams of jobs, each with a large gang early enough to starve: what has to hold of each of them."""

import functools
from collections.abc import Generator

import pytest
from tests.unit.queueing.stream import Outcome, check, played

from muster.placement.space import Space


@functools.cache
def reserved(seed: int) -> Outcome:
    """A stream as it is shipped."""
    return played(seed, 150, load=1.1)


def every_large_gang_starts_in_time(seed: int) -> None:
    outcome = reserved(seed)
    check(outcome)
    assert any(not able for able in outcome.able.values()), (
        "the stream has jobs that can never start, and they stop nobody"
    )
    assert sum(job.passed for job in outcome.large()) > 0, "small jobs go ahead on what a large one cannot use"
    assert outcome.utilisation > 0.7


def reserves_nothing(*_: object) -> Generator[None, None, tuple[str, ...]]:
    yield
    return ()


def without_reservations_large_gangs_would_starve(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with_them = reserved(seed)
    monkeypatch.setattr(Space, "reservation", reserves_nothing)
    without = played(seed, 150, load=1.1)
    assert without.too_late() != []
    assert max(without.waits("large")) > max(with_them.waits("large"))
    assert with_them.utilisation > without.utilisation - 0.1, "what reservations cost"

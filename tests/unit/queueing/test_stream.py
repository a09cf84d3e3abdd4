"""No large gang starves: long random streams of jobs, priorities off, against a bound that follows from the longest job."""

from random import Random
from statistics import mean

import pytest
from tests.unit.queueing.stream import LONGEST, Outcome, a_random_fleet, a_stream, play

from muster.placement.space import Space

# Nothing has started or ended for so long: nothing ever will again.
PATIENCE = LONGEST + 1
# Short streams, each with a large gang early enough to starve.
SEEDS = (1, 2, 4)


def played(seed: int, count: int, load: float) -> Outcome:
    random = Random(seed)
    fleet = a_random_fleet(random)
    return play(fleet, a_stream(random, fleet, count, load), PATIENCE)


def check(outcome: Outcome) -> None:
    assert outcome.large()
    assert outcome.starved() == []
    assert outcome.too_late() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_every_large_gang_starts_in_time(seed: int) -> None:
    outcome = played(seed, 150, load=1.1)
    check(outcome)
    assert any(not able for able in outcome.able.values()), (
        "the stream has jobs that can never start, and they stop nobody"
    )
    assert sum(job.passed for job in outcome.large()) > 0, "small jobs go ahead on what a large one cannot use"
    assert outcome.utilisation > 0.7


@pytest.mark.parametrize("seed", SEEDS)
def test_without_reservations_large_gangs_would_starve(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with_them = played(seed, 150, load=1.1)
    monkeypatch.setattr(Space, "reservation", lambda *_: ())
    without = played(seed, 150, load=1.1)
    assert without.too_late() != []
    assert max(without.waits("large")) > max(with_them.waits("large"))
    assert with_them.utilisation > without.utilisation - 0.1, "what reservations cost"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("load", [0.8, 1.0, 1.2])
def test_every_large_gang_starts_in_time_over_many_fleets(load: float, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [played(seed, 400, load) for seed in range(100, 120)]
    for outcome in outcomes:
        check(outcome)
    print(f"\n{row(load, 'yes', outcomes)}")
    monkeypatch.setattr(Space, "reservation", lambda *_: ())
    print(row(load, "no", [played(seed, 400, load) for seed in range(100, 120)]))


def row(load: float, reservations: str, outcomes: list[Outcome]) -> str:
    """A row of the table in docs/queueing.md; waits in longest running times."""
    waits = {kind: [wait / LONGEST for o in outcomes for wait in o.waits(kind)] for kind in ("large", "small")}
    of_kind = [f"{mean(found):.2f} | {max(found):.1f}" for found in waits.values()]
    return f"| {load:.0%} | {reservations} | {' | '.join(of_kind)} | {mean(o.utilisation for o in outcomes):.0%} |"

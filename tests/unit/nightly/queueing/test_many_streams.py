"""No large gang starves over many fleets; prints the rows of the table in docs/queueing.md."""

from statistics import mean

import pytest
from tests.unit.queueing.short_streams import reserves_nothing
from tests.unit.queueing.stream import LONGEST, Outcome, check, played

from muster.placement.space import Space


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("load", [0.8, 1.0, 1.2])
def test_every_large_gang_starts_in_time_over_many_fleets(load: float, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [played(seed, 400, load) for seed in range(100, 120)]
    for outcome in outcomes:
        check(outcome)
    print(f"\n{row(load, 'yes', outcomes)}")
    monkeypatch.setattr(Space, "reservation", reserves_nothing)
    print(row(load, "no", [played(seed, 400, load) for seed in range(100, 120)]))


def row(load: float, reservations: str, outcomes: list[Outcome]) -> str:
    """A row of the table in docs/queueing.md; waits in longest running times."""
    waits = {kind: [wait / LONGEST for o in outcomes for wait in o.waits(kind)] for kind in ("large", "small")}
    of_kind = [f"{mean(found):.2f} | {max(found):.1f}" for found in waits.values()]
    return f"| {load:.0%} | {reservations} | {' | '.join(of_kind)} | {mean(o.utilisation for o in outcomes):.0%} |"

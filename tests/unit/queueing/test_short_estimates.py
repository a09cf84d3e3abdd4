"""Which namespaces pass no reservation for a while, and until when: one row each."""

from datetime import timedelta

import pytest
from tests.unit.lifecycle.builders import at

from muster.queueing.short_estimates import ShortEstimates

HOUR = 3600.0
DAY = 24 * HOUR


def closed(*noted: tuple[str, str, float], now: float) -> dict[str, float]:
    """Until how many seconds each namespace is closed, after what the records of jobs say."""
    estimates = ShortEstimates()
    for namespace, uid, seconds in noted:
        estimates.note(namespace, uid, [at(seconds)], at(now))
    return {name: (end - at(0)) / timedelta(seconds=1) for name, end in estimates.closed(at(now)).items()}


@pytest.mark.parametrize(
    ("noted", "now", "expected"),
    [
        pytest.param([("n", "a", 0), ("n", "a", HOUR)], 2 * HOUR, {}, id="two are too few"),
        pytest.param([("n", "a", 0), ("n", "a", 1), ("n", "b", 2)], HOUR, {"n": DAY}, id="three close it for a day"),
        pytest.param([("n", "a", 0), ("n", "a", 1), ("n", "b", 2)], DAY, {}, id="it is opened again"),
        pytest.param([("n", "a", 0)] * 3, HOUR, {}, id="each counts once"),
        pytest.param([("n", "a", 0), ("n", "b", 0), ("m", "c", 0)], HOUR, {}, id="each namespace by itself"),
        pytest.param(
            [("n", "a", number * HOUR) for number in range(5)], 5 * HOUR, {"n": DAY + 2 * HOUR}, id="the newest count"
        ),
        pytest.param([("n", uid, 10 * DAY) for uid in "abc"], 0, {"n": DAY}, id="none lies ahead"),
    ],
)
def test_closed(noted: list[tuple[str, str, float]], now: float, expected: dict[str, float]) -> None:
    assert closed(*noted, now=now) == expected


def test_no_more_are_kept_than_count() -> None:
    estimates = ShortEstimates()
    for number in range(1000):
        estimates.note("n", f"job-{number}", [at(number)], at(number))
    assert len(estimates._times["n"]) == 3

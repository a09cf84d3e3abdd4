"""How often ranks fail: the bounds are those of the chi squared distribution, as tables have them."""

import pytest

from muster.goodput.failure_rate import time_between

TABLE = [  # failures, chi squared of 2n+2 at 97.5 %, of 2n at 2.5 %
    (1, 11.1433, 0.0506),
    (4, 20.4832, 2.1797),
    (20, 61.7768, 24.4330),
]


@pytest.mark.parametrize(("failures", "most", "least"), TABLE)
def test_the_bounds_are_those_of_the_table(failures: int, most: float, least: float) -> None:
    found = time_between(96 * 3600, failures)
    assert found is not None
    assert found.high is not None
    assert found.mean == pytest.approx(96 / failures)
    assert found.low == pytest.approx(2 * 96 / most, rel=1e-3)
    assert found.high == pytest.approx(2 * 96 / least, rel=1e-3)


def test_bounds_go_on_where_the_approximation_begins() -> None:
    exact, nearly = time_between(3600, 999), time_between(3600, 1001)
    assert exact is not None
    assert exact.high is not None
    assert nearly is not None
    assert nearly.high is not None
    assert nearly.low / nearly.mean == pytest.approx(exact.low / exact.mean, rel=1e-4)
    assert nearly.high / nearly.mean == pytest.approx(exact.high / exact.mean, rel=1e-4)


@pytest.mark.parametrize("failures", [0.01, 0.5, 2**31])
def test_parts_of_failures_and_very_many_have_bounds(failures: float) -> None:
    """A job that is cut has a part of its failures."""
    found = time_between(3600, failures)
    assert found is not None
    assert 0 < found.low < found.mean
    assert found.high is None if failures < 1 else found.high is not None and found.mean < found.high


@pytest.mark.parametrize(("exposed", "failures"), [(0, 4), (10, 0)])
def test_without_time_or_failures_there_is_none(exposed: float, failures: float) -> None:
    assert time_between(exposed, failures) is None

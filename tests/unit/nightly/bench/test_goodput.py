"""The bench of accounting: what accounting costs, beside what deciding does."""

from bench.goodput import MANY_FAILURES, growth, measure


def test_every_part_is_measured_and_deciding_takes_more_than_accounting_in_it() -> None:
    found = measure(301.0, ((2, 3), (1, 1)))
    assert (found["jobs"], found["workers"]) == (3, 7)
    calls = found["calls"]
    assert calls["told"] == 2 * (calls["deciding"] - _commits(calls))
    assert calls["committed"] >= 2 * 10  # a failure each half minute, and the go after it
    assert 3 * 9 <= calls["written"] <= 3 * 11
    assert (calls["scraped"], calls["noted"]) == (10, 1)
    assert found["core_percent_of"]["told"] < found["core_percent_of_deciding"]


def _commits(calls: dict[str, int]) -> int:
    """Decisions that committed something tell nothing: of each failure one, that settles it."""
    return calls["committed"] - 2 * 10


def test_more_failures_do_not_make_a_record_larger() -> None:
    """300 failures are more than a record keeps."""
    assert growth(MANY_FAILURES // 2)["record_growth_percent"] < 1.0

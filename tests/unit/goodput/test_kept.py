"""Which accounts of ended jobs are kept: each namespace has its share, whatever others do."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from muster.api.fleetpolicy import History
from muster.goodput.kept import Kept, competing_ends, is_kept, outdated_names, surplus_names

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def known(**counts: int) -> dict[str, Kept]:
    """So many accounts of each namespace, an hour apart; the newest ended now."""
    return {
        f"{namespace}-{number}": Kept(NOW - timedelta(hours=number), namespace)
        for namespace, count in counts.items()
        for number in range(count)
    }


@pytest.mark.parametrize(
    ("counts", "limit", "most", "gone"),
    [
        pytest.param({"a": 3, "b": 2}, 5, 9, [], id="there is room"),
        pytest.param({"a": 5}, 3, 9, ["a-4", "a-3"], id="one namespace alone: its oldest"),
        pytest.param({"a": 5}, 3, 1, ["a-4"], id="no more than asked for"),
        pytest.param({"flood": 6, "b": 2}, 5, 9, ["flood-5", "flood-4", "flood-3"], id="those of the largest"),
        pytest.param({"a": 4, "b": 4}, 6, 9, ["a-3", "b-3"], id="equals give up the oldest in turn"),
        pytest.param({"a": 9, "b": 9}, 0, 9, [], id="switched off: it stays as it is"),
    ],
)
def test_the_largest_namespace_gives_up_its_oldest(
    counts: dict[str, int], limit: int, most: int, gone: list[str]
) -> None:
    assert surplus_names(known(**counts), History(max_jobs=limit), most) == gone


def test_a_flood_pushes_out_its_own_once_it_is_as_large_as_the_largest_other() -> None:
    policy, there = History(max_jobs=100), known(quarter=60, month=30, week=10)
    for number in range(1000):  # short jobs, each ends later than all before
        one = Kept(NOW + timedelta(seconds=number), "flood")
        if is_kept(one, competing_ends(there.values(), policy).get("flood"), policy, NOW):
            there[f"flood-{number}"] = one
        for name in surplus_names(there, policy, 10):
            del there[name]
    assert Counter(one.namespace for one in there.values()) == {"quarter": 30, "month": 30, "week": 10, "flood": 30}
    assert "flood-999" in there
    assert "quarter-0" in there


def test_an_account_that_would_be_deleted_at_once_is_not_written() -> None:
    policy, there = History(max_jobs=5), known(a=4, b=1)
    competing = competing_ends(there.values(), policy)
    older = NOW - timedelta(hours=10)
    assert not is_kept(Kept(older, "a"), competing.get("a"), policy, NOW)
    assert is_kept(Kept(NOW, "a"), competing.get("a"), policy, NOW)
    assert is_kept(Kept(older, "b"), competing.get("b"), policy, NOW), "another namespace has more"
    assert is_kept(Kept(older, "new"), competing.get("new"), policy, NOW)
    assert competing_ends(list(there.values())[:4], policy) == {}, "there is room"


def test_what_is_too_old_is_not_kept() -> None:
    policy = History(max_age_days=1)
    old = Kept(NOW - timedelta(days=2), "a")
    assert not is_kept(old, None, policy, NOW)
    assert outdated_names({"old": old, "new": Kept(NOW, "a")}, policy, NOW) == {"old"}
    assert not is_kept(Kept(NOW, "a"), None, History(max_jobs=0), NOW)

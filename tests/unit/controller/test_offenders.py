"""Machines that come back sick: only the worst have a row, and an account fades while nobody writes it."""

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from muster.api.nodehealth import Offences
from muster.controller import offenders
from muster.controller.offenders import Offenders

TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)
WEEK = 7 * 86400


def shown(node: str) -> float | None:
    return REGISTRY.get_sample_value("muster_node_offence_score", {"node": node})


def account(score: str, since: datetime = TIME) -> Offences:
    return Offences(hardware="abc:", score=score, as_of=since)


def test_only_who_comes_back_sick_has_a_row_and_it_fades() -> None:
    now = [TIME]
    kept = Offenders(lambda: WEEK, lambda: now[0])
    kept.set_account("once", account("1"))
    kept.set_account("again", account("1.9"))
    kept.set_account("often", account("4"))
    assert [shown(name) for name in ("once", "again", "often")] == [None, 1.9, 4]
    now[0] += timedelta(seconds=WEEK)
    assert [shown(name) for name in ("once", "again", "often")] == [None, None, 2]
    kept.set_account("often", None)
    assert shown("often") is None


@pytest.mark.parametrize("score", ["NaN", "-3", "lots", "", "Infinity"])
def test_an_account_that_makes_no_sense_has_no_row(score: str) -> None:
    kept = Offenders(lambda: WEEK, lambda: TIME)
    kept.set_account("n", account(score))
    kept.set_account("m", Offences(score="5"))
    assert kept.worst() == []


def test_only_so_many_nodes_have_rows_the_worst_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offenders, "MAX_NODES", 2)
    kept = Offenders(lambda: WEEK, lambda: TIME)
    for number in range(5):
        kept.set_account(f"n{number}", account(str(2 + number)))
    assert kept.worst() == [(6.0, "n4"), (5.0, "n3")]

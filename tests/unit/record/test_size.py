"""A record stays small enough for etcd: what is old goes first."""

from datetime import timedelta

import pytest
from tests.unit.lifecycle.builders import EPOCH, an_incident

from muster.api.gang import GangSpec, Level, Member
from muster.record import size
from muster.record.size import FEW_INCIDENTS, MAX_EXCLUDED, SURELY_SMALL, within_etcd_limit

INCIDENTS = [an_incident(attempt) for attempt in range(FEW_INCIDENTS + 8)]
EXCLUDED = {f"n{number}": EPOCH + timedelta(seconds=number) for number in range(MAX_EXCLUDED + 3)}


def a_record(members: int, **changes: object) -> GangSpec:
    record = GangSpec(job_uid="u", attempt=1, time=EPOCH, level=Level.IN_PLACE, reason="x")
    placed = [Member(index=index, node=f"node-{index}") for index in range(members)]
    return record.model_copy(update={"members": placed, "incidents": INCIDENTS, **changes})


def test_of_many_excluded_nodes_the_latest_stay() -> None:
    kept = within_etcd_limit(a_record(2, excluded_nodes=EXCLUDED)).excluded_nodes
    assert list(kept) == [f"n{number}" for number in range(3, MAX_EXCLUDED + 3)]


@pytest.mark.parametrize(("members", "limit", "is_cut"), [(SURELY_SMALL, 0, False), (SURELY_SMALL + 1, 0, True)])
def test_a_large_record_loses_its_oldest_incidents(
    monkeypatch: pytest.MonkeyPatch, members: int, limit: int, is_cut: bool
) -> None:
    monkeypatch.setattr(size, "MAX_BYTES", limit)
    record = a_record(members, excluded_nodes={"n1": EPOCH})
    kept = within_etcd_limit(record)
    assert kept.incidents == (INCIDENTS[-FEW_INCIDENTS:] if is_cut else INCIDENTS)
    assert kept.excluded_nodes == ({} if is_cut else {"n1": EPOCH})


def test_a_record_that_fits_stays_as_it_is() -> None:
    record = a_record(SURELY_SMALL + 1)
    assert within_etcd_limit(record) is record

"""What the record keeps of a leave for another job: whole lives are in tests/unit/lifecycle/test_preempted.py."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import Scene, a_job, at

from muster.api.gang import MAX_PREEMPTIONS, Evacuation, GangPreemption, GangSpec
from muster.record.preemptions import (
    PREEMPTED,
    after_preemption,
    gives_way_text,
    is_giving_way,
    of_last_day,
    was_estimate_short,
    with_short_estimate,
    with_withdrawn_preemption,
)
from muster.world.queuedecision import Preemptor

DAY = 86400.0
LEAVES = Evacuation(reason=PREEMPTED, since=at(60), deadline=at(160))
DRAINS = Evacuation(reason="NodeMaintenance", since=at(60), deadline=at(160))


def preempted(*seconds: float) -> list[GangPreemption]:
    return [GangPreemption(time=at(each), answered=True) for each in seconds]


def left(seconds: float = 100.0, answered: bool = True, **gang: Any) -> GangSpec:
    """The record of a gang that has left for another job so many seconds into the test."""
    world = Scene(a_job(), seconds=seconds).fleet().gang(**({"evacuation": LEAVES} | gang)).world()
    assert world.gang is not None
    return after_preemption(world, world.gang.spec, answered=answered)


def asked(**gang: Any) -> GangSpec:
    """The record of a gang on lent nodes that is asked to leave."""
    record = Scene(a_job()).fleet().gang(evacuation=LEAVES, backfilled=True, **gang).record
    assert record is not None
    return with_short_estimate(record)


@pytest.mark.parametrize("answered", [True, False])
def test_a_leave_from_nodes_of_its_own_counts(answered: bool) -> None:
    record = left(answered=answered)
    assert (record.reason, record.members, record.evacuation) == (PREEMPTED, [], None)
    assert record.preemptions == [GangPreemption(time=at(100), answered=answered)]


def test_a_leave_from_lent_nodes_does_not_count() -> None:
    assert left(backfilled=True).preemptions == []


def test_those_of_the_last_day_are_kept() -> None:
    record = left(DAY + 100, preemptions=preempted(100, 101))
    assert [each.time for each in record.preemptions] == [at(101), at(DAY + 100)]
    many = preempted(*range(MAX_PREEMPTIONS))
    assert left(preemptions=many).preemptions == [*many[1:], GangPreemption(time=at(100), answered=True)]


def test_none_is_of_the_last_day_by_a_clock_that_was_a_day_ahead() -> None:
    assert of_last_day(preempted(DAY + 100, DAY + 99, 100), at(100)) == preempted(DAY + 99, 100)


@pytest.mark.parametrize(
    ("evacuation", "backfilled", "counts"),
    [(LEAVES, False, 1), (LEAVES, True, 0), (DRAINS, False, 0), (None, False, 0)],
)
def test_a_request_that_is_withdrawn_counts_too(evacuation: Evacuation | None, backfilled: bool, counts: int) -> None:
    world = Scene(a_job()).fleet().gang(evacuation=evacuation, backfilled=backfilled).world()
    assert world.gang is not None
    assert len(with_withdrawn_preemption(world, world.gang.spec).preemptions) == counts


@pytest.mark.parametrize(("until", "short"), [(59, [at(60)]), (60, []), (None, [])])
def test_an_estimate_was_too_short_where_it_was_over_at_the_request(until: float | None, short: list[Any]) -> None:
    record = asked(backfill_until=None if until is None else at(until))
    assert record.short_estimates == short
    assert was_estimate_short(record) == bool(short)
    assert with_short_estimate(record) == record, "once for each loan, however often it is asked"


def test_the_newest_three_short_estimates_are_kept() -> None:
    record = asked(backfill_until=at(59), short_estimates=[at(1), at(2), at(3)])
    assert record.short_estimates == [at(2), at(3), at(60)]


@pytest.mark.parametrize(
    ("gang", "gives"),
    [
        ({"evacuation": LEAVES}, True),
        ({"evacuation": DRAINS}, False),
        ({}, False),
        ({"reason": PREEMPTED}, False),
        ({"reason": PREEMPTED, "members": []}, True),
        ({"reason": "Suspended", "members": []}, False),
    ],
)
def test_a_gang_gives_way_from_the_request_until_it_has_nodes_again(gang: dict[str, Any], gives: bool) -> None:
    record = Scene(a_job()).fleet().gang(**gang).record
    assert record is not None
    assert is_giving_way(record) is gives


@pytest.mark.parametrize(
    ("spec", "backfilled", "text"),
    [
        ({}, False, "has a lower priority"),
        ({}, True, "backfills"),
        ({"queueing": {"preemptible": True}}, True, "is preemptible"),
    ],
)
def test_the_text_says_why_it_gives_way_and_to_which_jobs(spec: dict[str, Any], backfilled: bool, text: str) -> None:
    scene = Scene(a_job(**spec)).fleet().gang(backfilled=backfilled)
    assert scene.record is not None
    preemptors = (Preemptor("team-a/llama"), Preemptor("team-b/t5", "gold"))
    told = gives_way_text(scene.job, scene.record, preemptors)
    assert told == f"{text} and gives way to team-a/llama, team-b/t5 (PriorityClass gold)"
    assert gives_way_text(scene.job, scene.record, ()) == f"{text} and gives way to another job"

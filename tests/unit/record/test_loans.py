"""What the record says of lent nodes."""

from typing import Any

import pytest
from tests.unit.lifecycle.builders import Scene, a_job, at

from muster.record.attempts import with_new_placement, without_nodes
from muster.record.loans import holds_lent_nodes
from muster.world.queuedecision import Backfill, Placed


@pytest.mark.parametrize(("nodes", "lent"), [(("n0",), True), (("n1",), False)])
def test_nodes_that_its_pods_have_not_left_stay_lent(nodes: tuple[str, ...], lent: bool) -> None:
    scene = Scene(a_job(), seconds=500.0).fleet(6).gang(go=False, members=[], reason="Suspended", backfilled=True)
    world = scene.world()
    world.fleet.occupy("pod", world.uid, frozenset({"n0"}))
    assert with_new_placement(world, Placed(nodes), "Resumed").backfilled is lent


@pytest.mark.parametrize("ahead", [-3600, 0, 3600])
def test_the_record_says_until_when_nodes_are_lent_whatever_the_clock_and_the_delay(ahead: float) -> None:
    world = Scene(a_job(), seconds=100.0 + ahead).fleet(6).but(ahead_seconds=ahead).world()
    record = with_new_placement(world, Placed(("n0",), backfill=Backfill(60.0, at(95))), "InitialStart")
    assert record.lent_until == at(95)


def test_without_nodes_no_time_of_the_loan_stays() -> None:
    scene = Scene(a_job()).fleet().gang(backfilled=True, backfill_until=at(500), lent_until=at(300))
    world = scene.world()
    assert world.gang is not None
    left = without_nodes(world, world.gang.spec)
    assert (left.backfilled, left.backfill_until, left.lent_until) == (True, None, None)


@pytest.mark.parametrize(
    ("spec", "backfilled", "lent"),
    [({}, False, False), ({}, True, True), ({"queueing": {"preemptible": True}}, False, True)],
)
def test_nodes_are_lent_to_who_backfills_and_who_is_preemptible(
    spec: dict[str, Any], backfilled: bool, lent: bool
) -> None:
    scene = Scene(a_job(**spec)).fleet().gang(backfilled=backfilled)
    assert scene.record is not None
    assert holds_lent_nodes(scene.job, scene.record) is lent

"""By which stable reason a job leaves nodes: by what is known of them, never by what their names or messages happen to
say."""

import pytest
from tests.unit.lifecycle.builders import Scene, a_job, running

from muster.lifecycle import evacuating
from muster.world.fleet import Cause, Evacuate, Exclusion, Removal

MAINTENANCE = Exclusion("MaintenanceAhead", "", Evacuate.AFTER_CHECKPOINT, words="kept free", cause=Cause.MAINTENANCE)
REMOVAL = Exclusion(
    "NodeDeleted", "", Evacuate.AFTER_CHECKPOINT, words="going", removal=Removal("x"), cause=Cause.REMOVAL
)
# The condition is another system's, which chooses its name.
DEGRADED = Exclusion("UnderMaintenance", "this fleet's maintenance found it", Evacuate.AFTER_CHECKPOINT)


def reason(**excluded: Exclusion | None) -> str:
    """The reason of the leave that begins when n0 to n2 are excluded so; None: the node is cordoned."""
    scene = Scene(a_job()).fleet(6).gang().pods().all(running(1, step=7))
    for name, exclusion in excluded.items():
        if exclusion is None:
            scene.node(name, unschedulable=True)
    world = scene.world()
    for name, exclusion in excluded.items():
        if exclusion is not None:
            world.fleet.exclude(name, exclusion)
    assert world.gang is not None
    due = evacuating.due(world, world.gang.spec)
    assert due is not None
    return due.reason


@pytest.mark.parametrize(
    ("excluded", "expected"),
    [
        ({"n1": MAINTENANCE}, "NodeMaintenance"),
        ({"n1": REMOVAL}, "NodeRemoval"),
        ({"n1": DEGRADED}, "NodeDegraded"),
        ({"n1": None}, "NodeCordoned"),
        ({"n0": None, "n1": MAINTENANCE}, "NodeMaintenance"),
        ({"n0": MAINTENANCE, "n1": REMOVAL}, "NodeRemoval"),
        ({"n0": MAINTENANCE, "n1": REMOVAL, "n2": DEGRADED}, "NodeDegraded"),
    ],
)
def test_the_reason_is_that_of_the_gravest_mark(excluded: dict[str, Exclusion | None], expected: str) -> None:
    assert reason(**excluded) == expected


@pytest.mark.parametrize("name", ["maintenance-1", "n1-is-degraded"])
def test_a_cordoned_node_is_cordoned_whatever_its_name(name: str) -> None:
    scene = Scene(a_job()).fleet(6).gang().node(name, unschedulable=True)
    assert scene.record is not None
    first, *others = scene.record.members
    scene.record = scene.record.model_copy(update={"members": [first.model_copy(update={"node": name}), *others]})
    world = scene.pods().all(running(1, step=7)).world()
    assert world.gang is not None
    due = evacuating.due(world, world.gang.spec)
    assert due is not None
    assert (due.reason, due.why) == ("NodeCordoned", {name: f"{name} is cordoned"})

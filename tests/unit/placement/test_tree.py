"""What a decision may do in passing on a large fleet, and what is made beforehand, in parts."""

import pytest
from tests.unit.lifecycle.builders import a_node

from muster.placement.eligibility import Requirements
from muster.placement.fleet_index import PART, FleetIndex, NodeEvaluator
from muster.placement.tree import Tree, UnpreparedError
from muster.world.fleet import Fleet, KnownAges

NEEDS = Requirements(8, {}, {})


def a_live_fleet(size: int) -> Fleet:
    fleet = Fleet()
    for number in range(size):
        fleet.put_node(a_node(f"n{number}"))
    return fleet


def look(fleet: Fleet) -> Tree:
    """As a decision does."""
    return Tree.up_to_date(fleet.snapshot(KnownAges({})), NEEDS)


def test_a_small_fleet_is_looked_through_in_passing() -> None:
    assert look(a_live_fleet(PART)).root.free == PART


def test_the_tree_of_a_large_fleet_is_made_beforehand_in_parts() -> None:
    fleet = a_live_fleet(3 * PART)
    with pytest.raises(UnpreparedError) as missing:
        look(fleet)
    assert missing.value.needs == NEEDS
    assert len(list(Tree.prepare(fleet, missing.value.needs))) >= 9, "index, states and layout, a part each"
    assert look(fleet).root.free == 3 * PART


@pytest.mark.parametrize("changed", [PART, 2 * PART + 5])
def test_a_tree_that_has_fallen_far_behind_catches_up_in_parts(changed: int) -> None:
    fleet = a_live_fleet(3 * PART)
    list(Tree.prepare(fleet, NEEDS))
    for number in range(changed):
        fleet.occupy(number, "somebody", frozenset({f"n{number}"}))
    if changed > PART:
        with pytest.raises(UnpreparedError):
            look(fleet)
        steps = Tree.prepare(fleet, NEEDS)
        next(steps)
        fleet.occupy("late", "somebody", frozenset({f"n{3 * PART - 1}"}))
        rest = len(list(steps))
        assert rest >= 2 * 2
        changed += 1
    assert look(fleet).root.free == 3 * PART - changed
    assert look(fleet).held == {"somebody": changed}


@pytest.mark.parametrize(
    ("selector", "answers"),
    [
        ({}, {"in-a": "", "in-b": "", "away": "not ready"}),
        (
            {"zone": "a"},
            {"in-a": "", "in-b": "excluded by the template's node selector or affinity", "away": "not ready"},
        ),
    ],
)
def test_nodes_that_differ_in_their_labels_alone_are_selected_one_by_one(
    selector: dict[str, str], answers: dict[str, str]
) -> None:
    fleet = Fleet()
    for name, zone in (("in-a", "a"), ("in-b", "b"), ("away", "b")):
        fleet.put_node(a_node(name, labels={"zone": zone}, ready=name != "away"))
    evaluator = NodeEvaluator(fleet, Requirements(8, {"nodeSelector": selector}, {}))
    found = {name: evaluator.evaluate(spot).why for name, spot in FleetIndex.up_to_date(fleet).spots.items()}
    assert {name: why.message if why else "" for name, why in found.items()} == answers

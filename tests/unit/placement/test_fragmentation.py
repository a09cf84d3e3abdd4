"""How broken up the free part of a fleet is called."""

import pytest
from tests.unit.lifecycle.builders import BLOCK, RACK, a_fleet, a_node

from muster.placement import fragmentation as module
from muster.placement.fragmentation import fragmentation
from muster.placement.parts import at_once
from muster.world.fleet import Fleet


def fleet(held: set[str]) -> Fleet:
    """Two racks of two in one block, one rack of two in another, and two nodes whose labels are not complete."""
    made = a_fleet(
        [
            *(a_node(f"r1-{n}", "b1", "r1") for n in range(2)),
            *(a_node(f"r2-{n}", "b1", "r2") for n in range(2)),
            *(a_node(f"r3-{n}", "b2", "r3") for n in range(2)),
            a_node("no-block-0", labels={RACK: "r9"}),
            a_node("no-block-1", labels={RACK: "r9"}),
            a_node("no-rack", labels={BLOCK: "b1"}),
        ]
    )
    for name in held:
        made.occupy(("gang", "team", name), f"job-{name}", frozenset({name}))
    return made


def shares(of: Fleet) -> dict[str, float]:
    return at_once(fragmentation(of))


@pytest.mark.parametrize(
    ("held", "block", "rack"),
    [
        pytest.param(set(), 0, 0, id="nothing is in use"),
        pytest.param({"r1-0"}, 4 / 8, 1 / 8, id="one node of a rack"),
        pytest.param({"r1-0", "r1-1"}, 3 / 7, 0, id="a whole rack"),
        pytest.param({"r1-0", "r3-0"}, 5 / 7, 2 / 7, id="one node in each block"),
        pytest.param({"no-block-0"}, 0, 0, id="beside a node that is near to nothing"),
        pytest.param({"no-rack"}, 4 / 8, 0, id="a node of a block that has no rack"),
    ],
)
def test_free_nodes_beside_held_ones_are_counted(held: set[str], block: float, rack: float) -> None:
    assert shares(fleet(held)) == pytest.approx({"block": block, "rack": rack})


def test_a_fleet_that_is_full_is_not_fragmented() -> None:
    assert shares(fleet(set(fleet(set()).nodes))) == {"block": 0, "rack": 0}


def test_a_large_fleet_is_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PART", 2)
    assert len(list(fragmentation(fleet(set())))) == 4

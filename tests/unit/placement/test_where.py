"""Where nodes are, and in how many domains: how that agrees with what the solver chose is in test_exhaustive.py."""

import pytest
from tests.unit.lifecycle.builders import BLOCK, RACK, a_fleet, a_node

from muster.placement.where import domain_counts, domain_path

FLEET = a_fleet(
    [
        a_node("a", "b1", "r1"),
        a_node("b", "b1", "r2"),
        a_node("c", "b2", "r1"),
        a_node("no-rack", labels={BLOCK: "b1"}),
        a_node("no-rack-either", labels={BLOCK: "b1", RACK: ""}),
        a_node("no-block", labels={RACK: "r1"}),
        a_node("nowhere", labels={}),
        a_node("b1", labels={}),
    ]
)


@pytest.mark.parametrize(
    ("node", "want"),
    [
        pytest.param("a", ("b1", "r1"), id="both labels"),
        pytest.param("no-rack", ("b1", ""), id="none within"),
        pytest.param("no-block", ("", "r1"), id="none further out"),
    ],
)
def test_a_path_has_a_name_for_each_level(node: str, want: tuple[str, ...]) -> None:
    assert domain_path(FLEET.nodes[node], [BLOCK, RACK]) == want


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param(["a"], {"block": 1, "rack": 1}, id="one node"),
        pytest.param(["a", "b"], {"block": 1, "rack": 2}, id="two racks of a block"),
        pytest.param(["a", "c"], {"block": 2, "rack": 2}, id="racks of one name in two blocks"),
        pytest.param(["a", "a"], {"block": 1, "rack": 1}, id="a node named twice"),
        pytest.param(["no-rack", "no-rack-either"], {"block": 1, "rack": 2}, id="without a rack each is one"),
        pytest.param(["a", "no-block"], {"block": 2, "rack": 2}, id="a rack of no known block is none"),
        pytest.param(["a", "nowhere", "b1"], {"block": 3, "rack": 3}, id="a node may have the name of a domain"),
        pytest.param(["a", "gone"], {"block": 1, "rack": 1}, id="who is gone counts for nothing"),
        pytest.param(["gone"], {}, id="all are gone"),
    ],
)
def test_how_many_domains_nodes_are_in(nodes: list[str], want: dict[str, int]) -> None:
    assert domain_counts(FLEET, nodes) == want


def test_levels_are_counted_from_the_outside_in() -> None:
    fleet = a_fleet([a_node("a")], [("row", RACK), ("hall", BLOCK)])
    assert list(domain_counts(fleet, ["a"])) == ["row", "hall"]
    assert domain_counts(a_fleet([a_node("a")], []), ["a"]) == {}

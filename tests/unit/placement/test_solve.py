"""The gang solver: all or nothing, near together; one row each. test_exhaustive.py has what holds of every fleet."""

import pytest
from tests.unit.lifecycle.builders import BLOCK, a_fleet, a_node

from muster.placement.eligibility import Requirements
from muster.placement.request import Request
from muster.placement.space import solve, unknown_level
from muster.world.fleet import Fleet
from muster.world.turn import NotPlaced, Placed

NEEDS = Requirements(8, {}, {})


def tree(text: str) -> Fleet:
    """`b1/r1:3 b1/r2:1+2` as a fleet of so many free nodes; those behind `+` are not ready."""
    nodes = []
    for part in text.split():
        path, count = part.split(":")
        block, rack = path.split("/")
        free = int(count.split("+")[0])
        broken = int(count.split("+")[1]) if "+" in count else 0
        nodes += [a_node(f"{block}-{rack}-{n}", block, rack, ready=n < free) for n in range(free + broken)]
    return a_fleet(nodes)


def ask(count: int, **changes: object) -> Request:
    return Request(count=count, needs=NEEDS, job_uid="me", **changes)  # type: ignore[arg-type]


def racks(answer: Placed | NotPlaced) -> list[str]:
    assert isinstance(answer, Placed), answer
    return sorted({name.rsplit("-", 1)[0] for name in answer.nodes})


@pytest.mark.parametrize(
    ("fleet", "request_", "expected"),
    [
        pytest.param("b1/r1:4", ask(3), ["b1-r1"], id="one rack is enough"),
        pytest.param("b1/r1:2 b1/r2:3", ask(3), ["b1-r2"], id="the rack that holds all"),
        pytest.param("b1/r1:8 b1/r2:3", ask(3), ["b1-r2"], id="the smallest that fits: least fragmentation"),
        pytest.param("b1/r1:3 b1/r2:3 b2/r1:4", ask(5), ["b1-r1", "b1-r2"], id="few blocks before few racks"),
        pytest.param("b1/r1:4+4 b2/r1:5", ask(5), ["b2-r1"], id="broken nodes do not count"),
        pytest.param("b1/r1:1 b2/r1:1", ask(2, preferred="rack"), ["b1-r1", "b2-r1"], id="preferred is a wish"),
        pytest.param("b1/r1:2 b1/r2:2 b2/r1:3", ask(3, preferred="rack"), ["b2-r1"], id="preferred, and possible"),
        pytest.param("b1/r1:2 b1/r2:2 b2/r1:3", ask(4, required="block"), ["b1-r1", "b1-r2"], id="required"),
        pytest.param("b1/r1:1 b2/r1:5", ask(1, kept=("b1-r1-9",)), ["b1-r1"], id="an anchor that is gone counts not"),
    ],
)
def test_where(fleet: str, request_: Request, expected: list[str]) -> None:
    assert racks(solve(tree(fleet), request_)) == expected


def test_a_replacement_comes_from_the_domains_in_use() -> None:
    fleet = tree("b1/r1:1 b1/r2:3 b2/r1:4")
    answer = solve(fleet, ask(1, kept=("b1-r2-0", "b1-r2-1")))
    assert answer == Placed(("b1-r2-2",), domains={"block": 1, "rack": 1})
    full = tree("b1/r1:1 b1/r2:2 b2/r1:1")
    assert solve(full, ask(1, kept=("b1-r2-0", "b1-r2-1"))) == Placed(("b1-r1-0",), domains={"block": 1, "rack": 2})


def test_required_binds_a_replacement_to_the_domain_of_the_rest() -> None:
    fleet = tree("b1/r1:2 b1/r2:3")
    answer = solve(fleet, ask(1, required="rack", kept=("b1-r1-0", "b1-r1-1")))
    assert isinstance(answer, NotPlaced)
    assert answer.reason == "TopologyUnsatisfied"


def test_equal_rack_names_in_two_blocks_are_two_racks() -> None:
    fleet = tree("b1/r1:2 b2/r1:2")
    assert isinstance(solve(fleet, ask(3, required="rack")), NotPlaced)


def test_a_node_without_the_label_is_in_no_domain_that_is_required() -> None:
    fleet = a_fleet([a_node(f"n{i}", labels={BLOCK: "b1"}) for i in range(3)])
    assert isinstance(solve(fleet, ask(2, required="rack")), NotPlaced)
    assert isinstance(solve(fleet, ask(2, required="block")), Placed)


def test_without_levels_every_node_is_as_near_as_any_other() -> None:
    fleet = a_fleet([a_node(f"n{i}") for i in range(3)], levels=[])
    assert solve(fleet, ask(2)) == Placed(("n0", "n1"))


def test_unknown_level_names_the_first() -> None:
    assert unknown_level(tree("b1/r1:1"), None, "rack", "row") == "row"
    assert unknown_level(tree("b1/r1:1"), None, "rack") is None

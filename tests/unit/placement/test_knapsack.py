"""What is chosen costs what the tables say, however few choices are followed. Nightly there are ten times as many
fleets (tests/unit/nightly/placement/test_knapsack.py)."""

from random import Random

import pytest
from tests.unit.placement.cases import NEEDS
from tests.unit.placement.streams import a_fleet_of
from tests.unit.placement.tables import costs_what_the_tables_say

from muster.placement.allot import Site, allot
from muster.placement.domain import Domain, Entry
from muster.placement.knapsack import Choice, Knapsack, Singles
from muster.placement.natural import natural
from muster.placement.parts import at_once
from muster.placement.points import Room, Shape
from muster.placement.tree import Tree


def test_the_choice_costs_what_the_tables_say() -> None:
    for seed in range(30):
        costs_what_the_tables_say(Random(seed))


@pytest.mark.parametrize("spares", [0, 3])
def test_a_small_request_makes_no_table_of_a_large_one_wider(spares: int) -> None:
    """What lies between the two is never added up, whichever comes first."""
    root = Tree.up_to_date(a_fleet_of(Random(0))[0], NEEDS).root
    shape, large, small = Shape(1, spares), root.free - spares, 2
    alone = points_of(Knapsack(3, shape), root, large) + points_of(Knapsack(3, shape), root, small)
    for first, second in ((small, large), (large, small)):
        knapsack = Knapsack(3, shape)
        assert points_of(knapsack, root, first) + points_of(knapsack, root, second) == alone


def points_of(knapsack: Knapsack, root: Domain, nodes: int) -> int:
    """The number of points in the table that answers a request for so many nodes."""
    assert at_once(knapsack.best(root, Room(nodes, nodes + knapsack.shape.spares))) is not None
    return sum(map(len, at_once(knapsack.table(root, nodes, nodes)).sums))


def test_what_was_asked_before_changes_no_answer() -> None:
    for seed in range(20):
        random = Random(seed)
        fleet, _ = a_fleet_of(random)
        for name in [name for name in fleet.nodes if random.random() < 0.4]:
            fleet.occupy(name, "other", frozenset({name}))
        root, levels = Tree.up_to_date(fleet, NEEDS).root, len(fleet.policy.topology.levels)
        shape = Shape(random.choice([1, 2]), random.choice([0, 2]))
        asked = Knapsack(levels, shape)
        for _ in range(12):
            segments = random.randint(1, root.free)
            room = Room(segments, segments * shape.segment_size + shape.spares)
            assert at_once(asked.best(root, room)) == at_once(Knapsack(levels, shape).best(root, room))


def test_of_tables_that_are_made_in_turns_none_is_wrong() -> None:
    for seed in range(20):
        random = Random(seed)
        root = Tree.up_to_date(a_fleet_of(random)[0], NEEDS).root
        knapsack, wanted = Knapsack(3, Shape(1, 0)), [random.randint(1, root.free) for _ in range(4)]
        steps = [knapsack.table(root, count, count) for count in wanted]
        while steps:
            turn = random.choice(steps)
            if next(turn, True):
                steps.remove(turn)
        for count in wanted:
            room = Room(count, count)
            assert at_once(knapsack.best(root, room)) == at_once(Knapsack(3, Shape(1, 0)).best(root, room))


def test_numbers_in_names() -> None:
    names = ["gpu-10", "gpu-2", "gpu", "10", "2", "a2b10", "a2b9"]
    assert sorted(names, key=natural) == ["2", "10", "a2b9", "a2b10", "gpu", "gpu-2", "gpu-10"]


def a_site(name: str, count: int, *, workers: bool, kept: bool) -> Site:
    names = [f"{name}{number}" for number in range(count)]
    return Site((name,), [Entry(0, natural(node), node) for node in names], workers, kept)


@pytest.mark.parametrize(("workers", "kept", "spare"), [(True, False, "b0"), (False, True, "b0"), (False, False, "a0")])
def test_a_spare_goes_first_where_workers_may_be_or_the_gang_is(workers: bool, kept: bool, spare: str) -> None:
    unused = a_site("a", 1, workers=False, kept=False)
    other, full = a_site("b", 3, workers=workers, kept=kept), a_site("c", 2, workers=True, kept=True)
    found = allot([unused, other, full], 1, 2, 1)
    assert found == (["c0", "c1"], [spare])


@pytest.mark.parametrize(("has_workers", "wanted"), [(True, [True, False]), (False, [False, False])])
def test_single_nodes_of_spares_are_no_sites_for_workers(has_workers: bool, wanted: list[bool]) -> None:
    nodes = a_site("n", 3, workers=True, kept=False).nodes
    sites = list(Knapsack(1, Shape(1, 1)).sites(Domain((), {}, nodes, 3), Choice(Singles(1, 1), None), has_workers))
    assert [site.workers for site in sites] == wanted
    assert [[entry.name for entry in site.nodes] for site in sites] == [["n0"], ["n1"]]

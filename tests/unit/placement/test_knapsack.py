"""What is chosen costs what the tables say, however few choices are followed. Nightly there are ten times as many
fleets (tests/unit/nightly/placement/test_knapsack.py)."""

from random import Random

import pytest
from tests.unit.placement.tables import costs_what_the_tables_say

from muster.placement.allot import Site, allot
from muster.placement.domain import Domain, Entry
from muster.placement.knapsack import Choice, Knapsack, Singles
from muster.placement.natural import natural
from muster.placement.points import Shape


def test_the_choice_costs_what_the_tables_say() -> None:
    for seed in range(30):
        costs_what_the_tables_say(Random(seed))


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

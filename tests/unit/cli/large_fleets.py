"""Fleets of many domains, and what is shown of them."""

from collections.abc import Callable

from tests.unit.lifecycle.builders import a_fleet, a_node, at

from muster.answers.health import HealthRow
from muster.answers.tree import TreeQuery, tree_of
from muster.api.nodehealth import VerdictState
from muster.cli.nodes import render
from muster.world.fleet import Fleet
from muster.world.views import NodeView

NOW = at(0)
BLOCKS, RACKS = 16, 8


def a_large_fleet(blocks: int, racks: int, size: int) -> Fleet:
    nodes: list[NodeView] = []
    for block in range(blocks):
        for rack in range(racks):
            nodes += [a_node(f"n-{block}-{rack}-{i}", f"b{block}", f"r{rack}") for i in range(size)]
    return a_fleet(nodes)


def assert_that_the_sick_are_listed(printed: Callable[..., str], size: int) -> None:
    name = f"n-3-1-{min(7, size - 1)}"
    sick = {name: HealthRow(state=VerdictState.SUSPECT, reason="EccCorrected", since=NOW)}
    tree = tree_of(a_large_fleet(BLOCKS, RACKS, size), TreeQuery(unhealthy=True), healths=sick)
    lines = printed(lambda console: render(console, tree, now=NOW, unhealthy=True)).splitlines()
    assert [line.split()[0] for line in lines if line] == ["DOMAIN", "(fleet)", "b3", "r1", "NODE", name, "what"]


def assert_that_a_large_fleet_is_summed_up(printed: Callable[..., str], size: int, first: list[str]) -> None:
    tree = tree_of(a_large_fleet(BLOCKS, RACKS, size), TreeQuery())
    assert len(tree.domains) == 1 + 16 + 128
    text = printed(lambda console: render(console, tree, now=NOW))
    assert text.splitlines()[:3] == first
    assert text.splitlines()[-1] == "more domains: --level rack or --domain PATH"
    assert len(text.splitlines()) == 1 + 17 + 1
    asked_for = printed(lambda console: render(console, tree, now=NOW, chosen_level=True))
    assert len(asked_for.splitlines()) == 1 + 145 + 1
    everything = printed(lambda console: render(console, tree, now=NOW, wide=True))
    assert len(everything.splitlines()) == 1 + 145 + 2 + 128 * size

"""The fleet in numbers: every node is in one state, and every domain is the sum of what is in it."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.cli.large_fleets import (
    NOW,
    a_large_fleet,
    assert_that_a_large_fleet_is_summed_up,
    assert_that_the_sick_are_listed,
)
from tests.unit.lifecycle.builders import BLOCK, GPU, RACK, a_fleet, a_node, at, tainted

from muster.answers.health import HealthRow
from muster.answers.tree import DomainRow, FleetTree, TreeQuery, UnknownDomainError, UnknownLevelError, tree_of
from muster.api.fleetpolicy import Scope
from muster.api.nodehealth import Decision, HumanDecision, NodeExclusion, VerdictState
from muster.cli.nodes import render
from muster.health.verdict import OUT
from muster.world.fleet import Fleet


def small_fleet() -> Fleet:
    """Two blocks of two racks of two nodes, and one node that is nowhere."""
    nodes = [a_node(f"n{i}", f"b{i // 4 + 1}", f"r{i // 2 % 2 + 1}") for i in range(8)]
    nodes[1] = replace(nodes[1], unschedulable=True)
    nodes[2] = tainted(nodes[2], "example.org/repair")
    nodes[3] = tainted(nodes[3], GPU)
    nodes[4] = replace(nodes[4], ready=False)
    nodes.append(a_node("n10", labels={}))
    fleet = a_fleet(
        nodes,
        holders={"n0": ["uid-1"], "n1": ["uid-1"], "n6": ["pod/team-b/notebook", "uid-1"]},
        lease_age_seconds={"n5": 21.0, "n7": 19.0},
    )
    fleet.names["uid-1"] = "team-a/llama"
    return fleet


def healths() -> dict[str, HealthRow]:
    """Of the small fleet: one well, one suspect, three out by verdict (two of them otherwise, too), one by a human."""
    cordon = HumanDecision(decision=Decision.CORDON, reason="liquid", user="ann", time=NOW)
    of = {
        "n3": ("Healthy", "", 86400),
        "n7": ("Suspect", "EccCorrected", 7200),
        "n0": ("Unhealthy", "Xid79", 65),
        "n5": ("Degraded", "IbPortFlap", 600),
        "n1": ("Suspect", "IbCounters", 30),
    }
    made = {
        name: HealthRow(
            state=VerdictState(state),
            reason=reason,
            since=at(-age),
            exclusion=NodeExclusion(reason=reason) if VerdictState(state) in OUT else None,
        )
        for name, (state, reason, age) in of.items()
    }
    return {**made, "n10": HealthRow(override=cordon), "gone": made["n0"]}


def rows(tree: FleetTree) -> dict[str, DomainRow]:
    return {row.domain: row for row in tree.domains}


def test_every_node_is_in_one_state_and_has_its_holders() -> None:
    tree = tree_of(small_fleet(), TreeQuery())
    told = {node.name: (node.domain, node.state, node.reason, node.used_by) for node in tree.nodes}
    assert told == {
        "n0": ("b1/r1", "Used", "", ["team-a/llama"]),
        "n1": ("b1/r1", "Excluded", "cordoned", ["team-a/llama"]),
        "n2": ("b1/r2", "Excluded", "taint example.org/repair", []),
        "n3": ("b1/r2", "Free", "", []),
        "n4": ("b2/r1", "Excluded", "not ready", []),
        "n5": ("b2/r1", "Excluded", "without a heartbeat", []),
        "n6": ("b2/r2", "Used", "", ["pod team-b/notebook", "team-a/llama"]),
        "n7": ("b2/r2", "Free", "", []),
        "n10": ("", "Free", "", []),
    }


def test_domains_add_up_and_come_before_what_is_in_them() -> None:
    tree = tree_of(small_fleet(), TreeQuery())
    assert [row.domain for row in tree.domains] == ["", "b1", "b1/r1", "b1/r2", "b2", "b2/r1", "b2/r2"]
    assert [row.level for row in tree.domains][:3] == ["", "block", "rack"]
    fleet, block = rows(tree)[""], rows(tree)["b1"]
    assert (fleet.nodes, fleet.free, fleet.used, fleet.excluded) == (9, 3, 2, 4)
    assert (fleet.accelerators, fleet.free_accelerators) == (72, 24)
    assert (block.nodes, block.free, block.used, block.excluded) == (4, 1, 1, 2)
    assert [(share.name, share.nodes) for share in fleet.used_by] == [("team-a/llama", 3), ("pod team-b/notebook", 1)]
    assert [(share.name, share.nodes) for share in block.excluded_for] == [
        ("cordoned", 1),
        ("taint example.org/repair", 1),
    ]


def test_who_is_excluded_for_its_health_says_so_first() -> None:
    tree = tree_of(small_fleet(), TreeQuery(), healths=healths())
    told = {node.name: (node.state, node.reason, node.used_by) for node in tree.nodes}
    assert told == {
        "n0": ("Excluded", "unhealthy: Xid79", ["team-a/llama"]),
        "n1": ("Excluded", "cordoned", ["team-a/llama"]),
        "n2": ("Excluded", "taint example.org/repair", []),
        "n3": ("Free", "", []),
        "n4": ("Excluded", "not ready", []),
        "n5": ("Excluded", "degraded: IbPortFlap", []),
        "n6": ("Used", "", ["pod team-b/notebook", "team-a/llama"]),
        "n7": ("Free", "", []),
        "n10": ("Excluded", "quarantined: Cordoned", []),
    }
    fleet, block = rows(tree)[""], rows(tree)["b1"]
    assert (fleet.nodes, fleet.free, fleet.used, fleet.excluded, fleet.not_healthy) == (9, 2, 1, 6, 4)
    assert (block.excluded, block.not_healthy) == (3, 2)
    assert ("unhealthy: Xid79", 1) in [(share.name, share.nodes) for share in block.excluded_for]


def test_a_node_outside_the_scope_says_that_and_nothing_else() -> None:
    fleet = small_fleet()
    scope = {"nodeSelector": {"matchLabels": {"topology.muster.dev/block": "b1"}}}
    fleet.set_policy(fleet.policy.model_copy(update={"scope": Scope.model_validate(scope)}))
    told = {node.name: (node.state, node.reason) for node in tree_of(fleet, TreeQuery(), healths=healths()).nodes}
    assert told["n3"] == ("Free", "")
    outside = ("Excluded", "outside spec.scope of FleetPolicy default")
    assert {told[name] for name in ("n4", "n5", "n6", "n7", "n10")} == {outside}


def test_only_what_something_stands_against() -> None:
    tree = tree_of(small_fleet(), TreeQuery(unhealthy=True), healths=healths())
    assert [node.name for node in tree.nodes] == ["n0", "n1", "n5", "n7"]
    assert [row.domain for row in tree.domains] == ["", "b1", "b1/r1", "b2", "b2/r1", "b2/r2"]
    both = tree_of(small_fleet(), TreeQuery(free=True, unhealthy=True), healths=healths())
    assert [node.name for node in both.nodes] == ["n7"]
    assert [row.domain for row in both.domains] == ["", "b1", "b2", "b2/r2"]
    assert tree_of(small_fleet(), TreeQuery(unhealthy=True)).nodes == []


def test_a_list_without_sick_nodes_says_so(printed: Callable[..., str]) -> None:
    says = "no node to list: none is Suspect or worse"
    tree = tree_of(small_fleet(), TreeQuery(unhealthy=True))
    assert printed(lambda console: render(console, tree, now=NOW, unhealthy=True)).splitlines()[-1] == says
    unread = tree.model_copy(update={"notes": ["the health of nodes may not be read"]})
    assert says not in printed(lambda console: render(console, unread, now=NOW, unhealthy=True))
    assert says not in printed(lambda console: render(console, tree, now=NOW))


def test_health_is_shown_beside_what_a_node_does(printed: Callable[..., str]) -> None:
    tree = tree_of(small_fleet(), TreeQuery(("b1",)), healths=healths())
    text = printed(lambda console: render(console, tree, now=NOW), width=110)
    assert text.splitlines()[-6:] == [
        "NODE  DOMAIN  STATE     HEALTH     FOR   GPU  USED BY       REASON",
        "n0    b1/r1   Excluded  Unhealthy  1m5s    8  team-a/llama  Xid79",
        "n1    b1/r1   Excluded  Suspect    30s     8  team-a/llama  cordoned; IbCounters",
        "n2    b1/r2   Excluded                     8                taint example.org/repair",
        "n3    b1/r2   Free      Healthy    1d      8",
        "what happened to a node, and what to do: kubectl describe nodehealth NODE",
    ]


def test_the_sick_of_a_large_fleet_are_listed(printed: Callable[..., str]) -> None:
    assert_that_the_sick_are_listed(printed, size=2)


Nodes = st.lists(
    st.tuples(
        st.sampled_from(["", "b1", "b2"]),
        st.sampled_from(["", "r1", "r2"]),
        st.booleans(),
        st.sampled_from(["", "uid-1", "uid-2"]),
    ),
    max_size=12,
)


@given(Nodes)
def test_numbers_add_up_whatever_the_labels(found: list[tuple[str, str, bool, str]]) -> None:
    nodes, holders = [], {}
    for index, (block, rack, cordoned, holder) in enumerate(found):
        labels = {key: value for key, value in ((BLOCK, block), (RACK, rack)) if value}
        nodes.append(a_node(f"n{index}", labels=labels, unschedulable=cordoned))
        holders[f"n{index}"] = [holder] if holder else []
    tree = tree_of(a_fleet(nodes, holders=holders), TreeQuery())
    by_path = rows(tree)
    assert tree.domains[0].domain == ""
    assert by_path[""].nodes == len(nodes) == len(tree.nodes)
    for row in tree.domains:
        assert row.nodes == row.free + row.used + row.excluded
        here = [node for node in tree.nodes if f"{node.domain}/".startswith(f"{row.domain}/" if row.domain else "")]
        assert len(here) == row.nodes
        assert sum(node.state == "Free" for node in here) == row.free
        alone = tree_of(a_fleet(nodes, holders=holders), TreeQuery(tuple(row.domain.split("/")) if row.domain else ()))
        assert alone.domains[0] == row
        assert alone.nodes == here


def test_a_part_of_the_tree() -> None:
    fleet = small_fleet()
    assert [row.domain for row in tree_of(fleet, TreeQuery(level="block")).domains] == ["", "b1", "b2"]
    inside = tree_of(fleet, TreeQuery(("b2",)))
    assert [row.domain for row in inside.domains] == ["b2", "b2/r1", "b2/r2"]
    assert [node.name for node in inside.nodes] == ["n4", "n5", "n6", "n7"]
    assert [row.domain for row in tree_of(fleet, TreeQuery(("b2", "r1"), level="block")).domains] == ["b2/r1"]


def test_only_what_is_free_most_free_first() -> None:
    fleet = small_fleet()
    fleet.occupy("more", "uid-2", frozenset({"n3"}))
    tree = tree_of(fleet, TreeQuery(free=True))
    assert [(row.domain, row.free) for row in tree.domains] == [("", 2), ("b2", 1), ("b2/r2", 1)]
    assert [node.name for node in tree.nodes] == ["n10", "n7"]
    fleet.occupy("more", "uid-2", frozenset({"n7"}))
    assert [row.domain for row in tree_of(fleet, TreeQuery(free=True)).domains] == ["", "b1", "b1/r2"]


def test_a_taint_that_is_tolerated_excludes_no_node() -> None:
    tree = tree_of(small_fleet(), TreeQuery(tolerated=("example.org/repair",)))
    assert next(node for node in tree.nodes if node.name == "n2").state == "Free"


def test_what_the_fleet_does_not_have() -> None:
    with pytest.raises(UnknownLevelError, match="row"):
        tree_of(small_fleet(), TreeQuery(level="row"))
    with pytest.raises(UnknownDomainError) as caught:
        tree_of(small_fleet(), TreeQuery(("b3",)))
    assert caught.value.paths == ["b1", "b1/r1", "b1/r2", "b2", "b2/r1", "b2/r2"]


def test_a_fleet_without_nodes_is_a_row_of_zeros() -> None:
    (row,) = tree_of(a_fleet([]), TreeQuery()).domains
    assert (row.domain, row.nodes, row.free) == ("", 0, 0)


def test_numbers_in_names_are_sorted_as_numbers() -> None:
    names = ["gpu-10", "gpu-2", "gpu-a", "gpu-02"]
    tree = tree_of(a_fleet([a_node(name, "b1", "r1") for name in names]), TreeQuery())
    assert [node.name for node in tree.nodes] == ["gpu-02", "gpu-2", "gpu-10", "gpu-a"]


def test_a_small_fleet_is_shown_with_its_nodes(printed: Callable[..., str]) -> None:
    tree = tree_of(small_fleet(), TreeQuery(), ["heartbeats may not be read"])
    text = printed(lambda console: render(console, tree, now=NOW), width=110)
    assert (
        text
        == """\
DOMAIN   NODES  FREE  USED  EXCLUDED    GPU  USED BY                         EXCLUDED FOR
(fleet)      9     3     2         4  24/72  3 team-a/llama, 1 other         1 cordoned, 3 others
  b1         4     1     1         2   8/32  2 team-a/llama                  1 cordoned, 1 other
    r1       2     0     1         1   0/16  2 team-a/llama                  1 cordoned
    r2       2     1     0         1   8/16                                  1 taint example.org/repair
  b2         4     1     1         2   8/32  1 pod team-b/notebook, 1 other  1 not ready, 1 other
    r1       2     0     0         2   0/16                                  1 not ready, 1 other
    r2       2     1     1         0   8/16  1 pod team-b/notebook, 1 other

NODE  DOMAIN  STATE     GPU  USED BY                            REASON
n10           Free        8
n0    b1/r1   Used        8  team-a/llama
n1    b1/r1   Excluded    8  team-a/llama                       cordoned
n2    b1/r2   Excluded    8                                     taint example.org/repair
n3    b1/r2   Free        8
n4    b2/r1   Excluded    8                                     not ready
n5    b2/r1   Excluded    8                                     without a heartbeat
n6    b2/r2   Used        8  pod team-b/notebook, team-a/llama
n7    b2/r2   Free        8
note: heartbeats may not be read"""
    )


def test_a_large_fleet_is_summed_up(printed: Callable[..., str]) -> None:
    first = [
        "DOMAIN   NODES  FREE  USED  EXCLUDED        GPU  USED BY  EXCLUDED FOR",
        "(fleet)    128   128     0         0  1024/1024",
        "  b0         8     8     0         0      64/64",
    ]
    assert_that_a_large_fleet_is_summed_up(printed, size=1, first=first)


def test_an_innermost_domain_is_shown_with_its_nodes_however_many(printed: Callable[..., str]) -> None:
    fleet = a_large_fleet(1, 2, 40)
    block = printed(lambda console: render(console, tree_of(fleet, TreeQuery(("b0",))), now=NOW))
    assert "n-0-1-39" not in block
    assert block.splitlines()[-1] == "single nodes: --domain b0/... down to an innermost domain, or --wide"
    rack = printed(lambda console: render(console, tree_of(fleet, TreeQuery(("b0", "r1"))), now=NOW))
    assert len(rack.splitlines()) == 2 + 2 + 40


def test_nodes_without_labels_or_accelerators_are_shown_as_that(printed: Callable[..., str]) -> None:
    bare: dict[str, Any] = {"labels": {}, "allocatable": {}}
    flat = tree_of(a_fleet([a_node("cpu-1", **bare), a_node("cpu-2", **bare)]), TreeQuery())
    text = printed(lambda console: render(console, flat, now=NOW))
    assert text.splitlines()[0] == "DOMAIN   NODES  FREE  USED  EXCLUDED  USED BY  EXCLUDED FOR"
    hint = "no node has a label of the fleet's levels (block, rack): every node counts as near to no other"
    assert " ".join(text.splitlines()[-2:]) == hint
    mixed = tree_of(a_fleet([a_node("a"), a_node("b", labels={RACK: "r9"})]), TreeQuery())
    assert [row.domain for row in mixed.domains] == ["", "-", "-/r9", "b1", "b1/r1"]
    assert "\n  (no block)" in printed(lambda console: render(console, mixed, now=NOW))


def test_the_shape_for_programs_is_what_the_page_says() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "cli.md").read_text().partition("## FleetTree")[2]
    parts = page.partition("\n## ")[0].split("\nOf each ")
    told = [
        {name for cell in re.findall(r"^\|([^|]*)\|", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}
        for part in parts
    ]
    found = healths()
    health = found["n0"].model_copy(update={"override": found["n10"].override})
    tree = tree_of(small_fleet(), TreeQuery(), healths={"n10": health}).to_json()
    node = tree["nodes"][0]
    assert told == [set(tree), set(tree["domains"][0]), set(node), set(node["health"])]

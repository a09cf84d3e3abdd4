"""The heat map: which node lies where, what stands against it, and who holds it."""

from tests.unit.page.conftest import NOW, a_health, a_job, a_node

from muster.api.fleetpolicy import TopologyLevel
from muster.page.fleet import HeatMap, heat_map, natural

LEVELS = [
    TopologyLevel(name="block", label="topology.muster.dev/block"),
    TopologyLevel(name="rack", label="topology.muster.dev/rack"),
]


def paths(found: HeatMap) -> list[tuple[list[str], list[str]]]:
    return [(group.path, [cell.name for cell in group.nodes]) for group in found.groups]


def test_nodes_lie_in_their_domains_in_the_order_of_their_numbers() -> None:
    nodes = [
        a_node("gpu-10"),
        a_node("gpu-9"),
        a_node("x", block="b10"),
        a_node("y", block="b2"),
        a_node("z", labels={}),
    ]
    found = heat_map(NOW, LEVELS, nodes, [], [])
    assert paths(found) == [
        (["", ""], ["z"]),
        (["b1", "r1"], ["gpu-9", "gpu-10"]),
        (["b2", "r1"], ["y"]),
        (["b10", "r1"], ["x"]),
    ]


def test_without_levels_there_is_one_group() -> None:
    assert paths(heat_map(NOW, [], [a_node("a"), a_node("b")], [], [])) == [([], ["a", "b"])]


def test_what_is_usual_is_left_out_and_what_is_not_is_said() -> None:
    nodes = [a_node("a"), a_node("b"), a_node("c", ready=False, ready_reason="KubeletStopped", unschedulable=True)]
    found = heat_map(
        NOW, LEVELS, nodes, [a_health("a", "Healthy"), a_health("b", "Suspect")], [a_job("j", nodes=["a"])]
    )
    cells = [cell.to_json() for cell in found.groups[0].nodes]
    assert cells == [
        {"name": "a", "job": "team-a/j"},
        {"name": "b", "state": "Suspect", "message": "suspect: Xid79: gone"},
        {"name": "c", "ready": False, "cordoned": True, "message": "not ready: KubeletStopped"},
    ]


def test_a_job_that_has_ended_holds_nothing() -> None:
    ended = {"result": "Failed", "reason": "x", "time": NOW.isoformat(), "attempt": 1}
    over, runs = a_job("over", nodes=["a"], completion=ended), a_job("runs", nodes=["b"])
    (group,) = heat_map(NOW, LEVELS, [a_node("a"), a_node("b")], [], [over, runs]).groups
    assert [cell.job for cell in group.nodes] == [None, "team-a/runs"]


def test_names_are_ordered_by_their_numbers() -> None:
    names = ["n10a", "n2b", "n2a", "", "n", "10", "9"]
    assert sorted(names, key=natural) == ["", "9", "10", "n", "n2a", "n2b", "n10a"]

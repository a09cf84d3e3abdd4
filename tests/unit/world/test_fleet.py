"""The fleet as one account: who holds and uses what, and which nodes have changed."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import a_fleet, a_node

from muster.api.fleetpolicy import FleetPolicySpec
from muster.placement.eligibility import Requirements
from muster.placement.request import Request
from muster.placement.space import solve
from muster.world.fleet import Exclusion, Fleet, KnownAges, Suspicion, claim_of
from muster.world.queuedecision import NotPlaced, Placed
from muster.world.resources import UNREADABLE
from muster.world.views import OccupantView

NODES = [a_node(f"n{i}") for i in range(3)]


def holders(fleet: Fleet) -> dict[str, frozenset[str]]:
    """Who holds what, nodes without holders left out."""
    return {name: found for name in fleet.nodes if (found := fleet.holders(name))}


def test_a_node_is_free_when_its_last_source_lets_go() -> None:
    fleet = a_fleet(NODES)
    assert not fleet.occupy("gang", "job-1", frozenset({"n0", "n1"}))
    assert not fleet.occupy("pod", "job-1", frozenset({"n0"}))
    assert not fleet.occupy("other", "job-2", frozenset({"n1"}))
    assert not fleet.occupy("gang", "job-1", frozenset()), "each of the two has another source"
    assert holders(fleet) == {"n0": {"job-1"}, "n1": {"job-2"}}
    assert fleet.occupy("pod", "job-1", frozenset({"n2"}))
    assert holders(fleet) == {"n1": {"job-2"}, "n2": {"job-1"}}
    assert set(fleet.nodes_of("job-1")) == {"n2"}


Changes = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["x", "y", ""]),
        st.frozensets(st.sampled_from(["n0", "n1", "n2"])),
        st.dictionaries(st.sampled_from(["cpu", "memory"]), st.integers(1, 5)),
    )
)


@given(Changes)
def test_the_account_is_what_the_sources_last_said(
    changes: list[tuple[str, str, frozenset[str], dict[str, int]]],
) -> None:
    fleet = a_fleet(NODES)
    said: dict[str, tuple[str, frozenset[str], dict[str, int]]] = {}
    for source, holder, nodes, uses in changes:
        before, version = holders(fleet), fleet.version
        was = {name: (fleet.holders(name), dict(fleet.used(name))) for name in fleet.nodes}
        freed = fleet.occupy(source, holder, nodes, uses)
        said[source] = (holder, nodes, uses)
        held: dict[str, set[str]] = {}
        used: dict[str, Counter[str]] = {}
        for who, where, amounts in said.values():
            for node in where:
                if who:
                    held.setdefault(node, set()).add(who)
                used.setdefault(node, Counter()).update(amounts)
        assert holders(fleet) == held
        assert {name: dict(fleet.used(name)) for name in fleet.nodes} == {
            name: dict(used.get(name, {})) for name in fleet.nodes
        }
        assert {who: set(fleet.nodes_of(who)) for who in "xy"} == {
            who: {node for node, several in held.items() if who in several} for who in "xy"
        }
        assert freed == bool(before.keys() - held.keys())
        differing = {name for name in fleet.nodes if was[name] != (fleet.holders(name), dict(fleet.used(name)))}
        assert fleet.changed_since(version) == differing


def test_what_makes_no_difference_is_no_change() -> None:
    fleet = a_fleet(NODES)
    fleet.occupy("gang", "job-1", frozenset({"n0"}))
    version = fleet.version
    fleet.occupy("pod", "job-1", frozenset({"n0"}))
    assert not fleet.put_node(a_node("n1", resource_version=99))
    assert fleet.version == version


def test_nodes_that_come_change_and_go_are_changes() -> None:
    fleet = a_fleet(NODES[:2])
    version = fleet.version
    assert fleet.put_node(a_node("n2"))
    assert fleet.put_node(a_node("n0", unschedulable=True))
    fleet.drop_node("n1")
    assert fleet.changed_since(version) == {"n0", "n1", "n2"}


def test_changes_of_long_ago_are_forgotten() -> None:
    fleet = a_fleet(NODES)
    start = fleet.version
    for turn in range(20_000):
        fleet.occupy("gang", "job", frozenset({f"n{turn % 3}"}))
    assert fleet.changed_since(start) is None
    assert fleet.changed_since(fleet.version) == set()


def test_derived_views_are_made_once_until_the_policy_changes() -> None:
    fleet, made = a_fleet(NODES), []

    def make(of: Fleet) -> int:
        made.append(of)
        return len(made)

    assert [fleet.derived("a", make), fleet.derived("a", make), fleet.derived("b", make)] == [1, 1, 2]
    fleet.set_policy(FleetPolicySpec.model_validate({"topology": {"levels": []}}))
    assert fleet.derived("a", make) == 3


@pytest.mark.parametrize(
    ("holder", "words"), [("uid-1", "default/llama"), ("pod/ns/x", "pod ns/x"), ("uid-2", "uid-2")]
)
def test_holders_have_names_for_people(holder: str, words: str) -> None:
    fleet = a_fleet(NODES)
    fleet.names["uid-1"] = "default/llama"
    assert fleet.name_of(holder) == words


def picture(fleet: Fleet) -> object:
    """All that a decision can see of it."""
    return {
        "nodes": dict(fleet.nodes),
        "names": dict(fleet.names),
        "policy": fleet.policy,
        "version": fleet.version,
        "seen": {
            name: (
                fleet.holders(name),
                dict(fleet.used(name)),
                fleet.exclusion(name),
                fleet.node_fault(name),
                fleet.suspicion_of(name),
            )
            for name in ("n0", "n1", "n2", "n3")
        },
        "held": {holder: set(fleet.nodes_of(holder)) for holder in ("x", "y")},
        "excluded": set(fleet.excluded),
        "ages": fleet.heartbeats.older_than(1.0),
    }


@given(Changes, Changes)
def test_a_snapshot_is_the_fleet_of_its_moment_for_ever(
    first: list[tuple[str, str, frozenset[str], dict[str, int]]],
    then: list[tuple[str, str, frozenset[str], dict[str, int]]],
) -> None:
    fleet = a_fleet(NODES)
    for change in first:
        fleet.occupy(*change)
    fleet.exclude("n0", Exclusion("Xid79"))
    fleet.set_name("x", "ns/x")
    taken = fleet.snapshot(KnownAges({"n1": 30.0}))
    expected = picture(taken)
    assert {**picture(fleet), "ages": ["n1"]} == expected  # type: ignore[dict-item]
    for change in then:
        fleet.occupy(*change)
    fleet.exclude("n0", None)
    fleet.set_node_fault("n1", "hot")
    fleet.set_suspicion("n1", Suspicion())
    fleet.set_name("x", "")
    fleet.put_node(a_node("n3"))
    fleet.drop_node("n2")
    fleet.set_policy(FleetPolicySpec.model_validate({"topology": {"levels": []}}))
    assert picture(taken) == expected
    assert {**picture(fleet.snapshot(KnownAges({}))), ("ages"): []} == {**picture(fleet), "ages": []}  # type: ignore[dict-item]


def test_a_snapshot_shares_what_is_derived_until_the_fleet_changes() -> None:
    fleet, made = a_fleet(NODES), []

    def make(of: Fleet) -> list[str]:
        made.append(sorted(of.nodes))
        return made[-1]

    shot = fleet.snapshot(KnownAges({}))
    assert shot.derived("a", make) is fleet.derived("a", make)
    fleet.put_node(a_node("n3"))
    assert shot.derived("a", make) == ["n0", "n1", "n2"]
    assert shot.derived("a", make) is shot.derived("a", make)
    assert len(made) == 2


def test_a_request_has_the_same_answer_in_a_snapshot_whatever_happens() -> None:
    request = Request(2, Requirements(8, {}, {}), "uid-1")
    fleet = a_fleet(NODES)
    shot = fleet.snapshot(KnownAges({"n0": 60.0}))
    first = solve(shot, request)
    assert first == Placed(("n1", "n2"))
    fleet.occupy("gang", "other", frozenset({"n1", "n2"}))
    assert isinstance(solve(fleet, request), NotPlaced)
    assert solve(shot, request) == first


def test_copies_are_made_once_for_all_decisions_until_something_changes() -> None:
    fleet = a_fleet(NODES)
    one, other = fleet.snapshot(KnownAges({})), fleet.snapshot(KnownAges({"n0": 1.0}))
    assert one.nodes is other.nodes
    fleet.occupy("gang", "job", frozenset({"n0"}))
    assert fleet.snapshot(KnownAges({})).nodes is not one.nodes


GPU, FUSE = "nvidia.com/gpu", "smarter-devices/fuse"


@pytest.mark.parametrize(
    ("requests", "holds"),
    [
        pytest.param({FUSE: 1}, False, id="another device"),
        pytest.param({"rdma/hca": 1, "cpu": 1000, "memory": 2**30}, False, id="network, CPU and memory"),
        pytest.param({"nvidia.com/hostdev": 1}, False, id="a network card of the same maker"),
        pytest.param({GPU: 1}, True, id="an accelerator"),
        pytest.param({f"{GPU}.shared": 1}, True, id="a share of one"),
        pytest.param({"nvidia.com/mig-1g.5gb": 1}, True, id="a part of one"),
        pytest.param({"amd.com/gpu": 1}, False, id="what the fleet does not count"),
        pytest.param({UNREADABLE: 1}, True, id="nobody knows what"),
    ],
)
def test_a_pod_of_others_holds_a_node_whole_by_accelerators_alone(requests: dict[str, int], holds: bool) -> None:
    node = a_node("n0", allocatable={GPU: 8, "cpu": 4000, **requests})
    pod = OccupantView("team", "p", "u", 1, "n0", requests)
    assert claim_of(pod, node, GPU) == ("pod/team/p" if holds else "", requests)


@pytest.mark.parametrize("allocatable", [{GPU: 8}, {}], ids=["with a device plugin, too", "with DRA only"])
def test_a_pod_of_others_with_a_resource_claim_holds_its_node_and_is_named(allocatable: dict[str, int]) -> None:
    node = a_node("n0", allocatable={"cpu": 4000, **allocatable})
    fleet = a_fleet([node])
    holder, uses = claim_of(OccupantView("team", "p", "u", 1, "n0", {"cpu": 1000}, "all-eight"), node, GPU)
    fleet.occupy("pod", holder, frozenset({"n0"}), uses)
    answer = solve(fleet, Request(1, Requirements(allocatable.get(GPU, 0), {}, {}), "uid-1"))
    assert isinstance(answer, NotPlaced)
    assert answer.shortfall
    assert answer.shortfall.holders == {"pod team/p (ResourceClaim all-eight)": 1}


@pytest.mark.parametrize(("cpu", "fuse", "placed"), [(3000, 0, True), (3001, 0, False), (0, 1, True), (0, 2, False)])
def test_beside_a_pod_with_another_device_a_worker_has_what_is_left(cpu: int, fuse: int, placed: bool) -> None:
    """The node has 4 cores and two of the devices; a pod of others takes one of each."""
    node = a_node("n0", allocatable={GPU: 8, "cpu": 4000, FUSE: 2})
    fleet = a_fleet([node])
    holder, uses = claim_of(OccupantView("team", "p", "u", 1, "n0", {"cpu": 1000, FUSE: 1}), node, GPU)
    fleet.occupy("pod", holder, frozenset({"n0"}), uses)
    needs = Requirements(8, {}, {}, requests={name: number for name, number in (("cpu", cpu), (FUSE, fuse)) if number})
    answer = solve(fleet, Request(1, needs, "uid-1"))
    assert isinstance(answer, Placed if placed else NotPlaced)


IN_CELL = FleetPolicySpec.model_validate({"scope": {"nodeSelector": {"matchLabels": {"cell": "a"}}}})


def test_the_policy_and_a_nodes_labels_decide_whether_it_is_in_scope() -> None:
    fleet = a_fleet([a_node("n0", labels={"cell": "a"}), a_node("n1")])
    assert (set(fleet.outside), len(fleet.in_scope())) == (set(), 2)
    fleet.set_policy(IN_CELL)
    before = fleet.snapshot(KnownAges({}))
    assert (set(fleet.outside), [node.name for node in fleet.in_scope()]) == ({"n1"}, ["n0"])
    assert [name for name in ("n0", "n1", "gone") if fleet.node_in_scope(name)] == ["n0"]
    fleet.put_node(a_node("n1", labels={"cell": "a"}))
    fleet.put_node(a_node("n0"))
    assert (set(fleet.outside), set(before.outside)) == ({"n0"}, {"n1"})
    fleet.drop_node("n0")
    assert not fleet.outside


def test_the_index_of_the_fleet_follows_a_node_into_the_scope_and_out_of_it() -> None:
    fleet = a_fleet([a_node("n0", labels={"cell": "a"}), a_node("n1")])
    fleet.set_policy(IN_CELL)
    one, two = (Request(count, Requirements(8, {}, {}), "me") for count in (1, 2))
    assert solve(fleet, one) == Placed(("n0",))
    assert isinstance(solve(fleet, two), NotPlaced)
    fleet.put_node(a_node("n1", labels={"cell": "a"}))
    assert solve(fleet, two) == Placed(("n0", "n1"))
    fleet.put_node(a_node("n0"))
    assert solve(fleet, one) == Placed(("n1",))

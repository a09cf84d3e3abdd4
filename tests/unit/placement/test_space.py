"""The gang solver: all or nothing, near together; one row each. test_exhaustive.py has what holds of every fleet."""

import pytest
from tests.unit.lifecycle.builders import BLOCK, GPU, RACK, a_fleet, a_node, tainted

from muster.placement.eligibility import Requirements
from muster.placement.names import reserved_refusal
from muster.placement.parts import at_once
from muster.placement.request import Request
from muster.placement.space import Space, solve, unknown_level
from muster.world.fleet import Exclusion, Fleet, Suspicion
from muster.world.queuedecision import NotPlaced, Placed

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
        pytest.param(
            "b1/r1:4 b1/r2:0+4 b2/r1:3+1 b2/r2:4", ask(3), ["b1-r1"], id="the fuller block, though its rack was whole"
        ),
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
    assert answer == Placed(("b1-r2-2",))
    full = tree("b1/r1:1 b1/r2:2 b2/r1:1")
    assert solve(full, ask(1, kept=("b1-r2-0", "b1-r2-1"))) == Placed(("b1-r1-0",))


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


def test_ranks_follow_the_fabric_and_numbers_in_names_count_as_such() -> None:
    labels = {BLOCK: "b1"}
    nodes = [a_node(f"gpu-{n}", labels=labels | {RACK: f"r{n % 2 * 8 + 2}"}) for n in (1, 2, 10, 11)]
    assert nodes_of(solve(a_fleet(nodes), ask(4))) == ("gpu-2", "gpu-10", "gpu-1", "gpu-11")


def test_ranks_of_blocks_that_differ_in_leading_zeros_alone_stay_together() -> None:
    places = [(block, rack) for rack in ("r1", "r2") for block in ("b1", "b01")]
    nodes = [a_node(f"{block}-{rack}", labels={BLOCK: block, RACK: rack}) for block, rack in places]
    assert nodes_of(solve(a_fleet(nodes), ask(4))) == ("b01-r1", "b01-r2", "b1-r1", "b1-r2")


def nodes_of(answer: Placed | NotPlaced) -> tuple[str, ...]:
    assert isinstance(answer, Placed), answer
    return answer.nodes


def test_spares_go_to_distinct_racks_of_the_gang() -> None:
    answer = solve(tree("b1/r1:4 b1/r2:4 b1/r3:4"), ask(5, spares=2))
    assert isinstance(answer, Placed)
    assert {name.rsplit("-", 1)[0] for name in answer.spares} == {"b1-r1", "b1-r2"}
    assert racks(answer) == ["b1-r1", "b1-r2"]


def test_fitting_nodes_of_a_mixed_pool_go_first() -> None:
    big = [a_node(f"a{n}", rack="r1", allocatable={GPU: 16}) for n in range(2)]
    fitting = [a_node(f"b{n}", rack="r2") for n in range(2)]
    assert racks_of(solve(a_fleet([*big, *fitting]), ask(2))) == {"b0", "b1"}
    assert racks_of(solve(a_fleet([*big, *fitting], []), ask(2))) == {"b0", "b1"}


def racks_of(answer: Placed | NotPlaced) -> set[str]:
    return set(nodes_of(answer))


def test_a_soft_taint_is_avoided_where_that_costs_no_domain() -> None:
    nodes = [a_node(f"n{n}", rack="r1") for n in range(3)]
    nodes[0] = tainted(nodes[0], "slow", effect="PreferNoSchedule")
    assert nodes_of(solve(a_fleet(nodes), ask(2))) == ("n1", "n2")
    other = a_node("n9", rack="r2")
    assert nodes_of(solve(a_fleet([*nodes, other]), ask(3))) == ("n0", "n1", "n2")


def test_a_suspect_node_is_avoided_where_that_costs_no_domain() -> None:
    """It is not avoided before and after the suspicion."""
    fleet = tree("b1/r1:3")
    assert solve(fleet, ask(2)) == Placed(("b1-r1-0", "b1-r1-1"))
    fleet.set_suspicion("b1-r1-0", Suspicion())
    assert solve(fleet, ask(2)) == Placed(("b1-r1-1", "b1-r1-2"))
    assert solve(fleet, ask(3)) == Placed(("b1-r1-0", "b1-r1-1", "b1-r1-2"))
    fleet.set_suspicion("b1-r1-0", None)
    assert solve(fleet, ask(2)) == Placed(("b1-r1-0", "b1-r1-1"))
    far = tree("b1/r1:2 b2/r1:1")
    far.set_suspicion("b1-r1-0", Suspicion())
    assert solve(far, ask(2)) == Placed(("b1-r1-0", "b1-r1-1"))


@pytest.mark.parametrize(("holders", "fits"), [({"me"}, True), ({"me", "other"}, False), ({"other"}, False)])
def test_a_node_that_another_job_holds_beside_this_one_is_not_free(holders: set[str], fits: bool) -> None:
    fleet = a_fleet([a_node("n0")], holders={"n0": frozenset(holders)})
    assert isinstance(solve(fleet, ask(1)), Placed) is fits


def test_a_node_that_changes_rack_is_where_it_is_now() -> None:
    fleet = tree("b1/r1:2 b1/r2:2")
    assert isinstance(solve(fleet, ask(3, required="rack")), NotPlaced)
    fleet.put_node(a_node("b1-r2-0", "b1", "r1"))
    assert nodes_of(solve(fleet, ask(3, required="rack"))) == ("b1-r1-0", "b1-r1-1", "b1-r2-0")


def test_labels_removed_under_a_running_job_bind_it_to_where_most_of_it_is() -> None:
    fleet = tree("b1/r1:4 b1/r2:4")
    kept = ("b1-r1-0", "b1-r1-1", "b1-r2-0")
    assert nodes_of(solve(fleet, ask(1, required="rack", kept=kept))) == ("b1-r1-2",)
    for name in kept:
        fleet.put_node(a_node(name, labels={}))
    answer = solve(fleet, ask(1, required="rack", kept=kept))
    assert isinstance(answer, NotPlaced)
    assert answer.reason == "TopologyUnsatisfied"


def test_one_node_in_each_domain_is_as_good_as_no_topology() -> None:
    """A level whose label is different on every node."""
    fleet = a_fleet([a_node(f"n{n}", labels={"host": f"n{n}"}) for n in range(4)], [("host", "host")])
    assert nodes_of(solve(fleet, ask(3))) == ("n0", "n1", "n2")
    assert isinstance(solve(fleet, ask(2, required="host")), NotPlaced)


def test_what_other_pods_leave_too_little_of_counts_at_once() -> None:
    needs = Requirements(8, {}, {}, {GPU: 8, "cpu": 4000})
    fleet = a_fleet([a_node("n0", allocatable={GPU: 8, "cpu": 8000})])
    request = Request(count=1, needs=needs, job_uid="me")
    assert nodes_of(solve(fleet, request)) == ("n0",)
    fleet.occupy("pod", "", frozenset({"n0"}), {"cpu": 4001})
    assert isinstance(solve(fleet, request), NotPlaced)
    fleet.occupy("pod", "", frozenset())
    assert nodes_of(solve(fleet, request)) == ("n0",)


def test_sixteen_levels() -> None:
    levels = [(f"level{n}", f"l{n}") for n in range(16)]
    nodes = [a_node(f"n{i}", labels={f"l{n}": str(i >> (15 - n)) for n in range(16)}) for i in range(64)]
    answer = solve(a_fleet(nodes, levels), ask(8, required="level12"))
    assert nodes_of(answer) == tuple(f"n{i}" for i in range(8))


class TestTheLastChoice:
    """Nodes that the breaker holds back."""

    HELD = Exclusion("IbPortDown", last_choice=True)

    def held(self, text: str, *names: str, exclusion: Exclusion = HELD) -> Fleet:
        fleet = tree(text)
        for name in names:
            fleet.exclude(name, exclusion)
        return fleet

    def test_is_not_taken_as_long_as_there_is_another_place_however_far_apart(self) -> None:
        fleet = self.held("b1/r1:2 b1/r2:1 b2/r1:1", "b1-r1-0")
        assert solve(fleet, ask(2)) == Placed(("b1-r1-1", "b1-r2-0"))

    def test_is_taken_where_no_other_node_is_left_and_no_more_of_it_than_needed(self) -> None:
        fleet = self.held("b1/r1:4", "b1-r1-0", "b1-r1-1", "b1-r1-2")
        assert solve(fleet, ask(2)) == Placed(("b1-r1-0", "b1-r1-3"))

    def test_a_false_alarm_on_every_node_stops_no_placement(self) -> None:
        fleet = self.held(
            "b1/r1:2 b1/r2:3", *(f"b1-r{rack}-{n}" for rack, size in ((1, 2), (2, 3)) for n in range(size))
        )
        assert racks(solve(fleet, ask(3, required="rack"))) == ["b1-r2"]

    def test_what_is_excluded_for_certain_is_never_taken(self) -> None:
        fleet = self.held("b1/r1:2", "b1-r1-0", exclusion=Exclusion("Xid79"))
        fleet.exclude("b1-r1-1", self.HELD)
        answer = solve(fleet, ask(2))
        assert isinstance(answer, NotPlaced)
        assert answer.shortfall is not None
        assert (answer.shortfall.free, [(str(n.why), n.count) for n in answer.shortfall.refused]) == (
            1,
            [("unhealthy (Xid79)", 1)],
        )

    def test_is_not_taken_by_who_only_hopes_for_a_better_node(self) -> None:
        fleet = self.held("b1/r1:1", "b1-r1-0")
        assert isinstance(solve(fleet, ask(1, may_use_last_choices=False)), NotPlaced)
        assert isinstance(solve(fleet, ask(1)), Placed)

    def test_ends_when_the_node_is_well_or_its_fault_certain(self) -> None:
        fleet = self.held("b1/r1:2", "b1-r1-0")
        assert isinstance(solve(fleet, ask(2)), Placed)
        fleet.exclude("b1-r1-0", Exclusion("IbPortDown"))
        assert isinstance(solve(fleet, ask(2)), NotPlaced)
        fleet.exclude("b1-r1-0", None)
        assert isinstance(solve(fleet, ask(2)), Placed)
        assert not fleet.has_last_choices


def test_what_is_reserved_in_a_copy_is_no_reason_in_the_original() -> None:
    space, first, second = Space(tree("b1/r1:4")), reserved_refusal("ns/first"), reserved_refusal("ns/second")

    def refused() -> dict[object, int]:
        answer = at_once(space.solve(ask(4)))
        assert isinstance(answer, NotPlaced)
        return {refusal.why: refusal.count for refusal in answer.shortfall.refused} if answer.shortfall else {}

    space.reserve_nodes(["b1-r1-0"], first)
    assert refused() == {first: 1}
    copy = space.copied()
    copy.reserve_nodes(["b1-r1-1"], second)
    assert at_once(copy.find(ask(3))) is None
    space.reserve_nodes(["b1-r1-2"], first)
    assert refused() == {first: 2}

"""An answer that is worked out in parts: it is the same as at once, and the fleet may change between two of them."""

from collections.abc import Generator, Iterator
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest
from tests.unit.lifecycle.builders import a_fleet, a_node
from tests.unit.placement.cases import LEVELS, NEEDS, Case, a_case

from muster.placement import candidates, knapsack, space
from muster.placement.names import promised_refusal
from muster.placement.parts import at_once
from muster.placement.points import Frontier
from muster.placement.request import Request
from muster.placement.space import Space
from muster.world.fleet import Fleet
from muster.world.queuedecision import NotPlaced, Placed

SEEDS = range(150)
T = TypeVar("T")


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (candidates, knapsack, space):
        monkeypatch.setattr(module, "PART", 1)


def a_space(case: Case, fleet: Fleet) -> Space:
    made = Space(fleet)
    made.reserve_nodes(case.taken, promised_refusal("default/big"))
    return made


def asked(case: Case, random: Random) -> Request:
    given_back = frozenset({"other"}) if random.random() < 0.5 else frozenset[str]()
    return replace(case.request, given_back=given_back)


def answers(seed: int) -> tuple[object, ...]:
    random = Random(seed)
    case = a_case(random, most_nodes=14)
    request, made = asked(case, random), a_space(case, case.fleet)
    return at_once(made.solve(request)), at_once(made.find(request)), at_once(made.reservation(request))


def test_parts_change_no_answer(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    whole = [answers(seed) for seed in SEEDS]
    request.getfixturevalue("small_parts")
    assert [answers(seed) for seed in SEEDS] == whole


def disturbed(steps: Generator[None, None, T], fleet: Fleet, random: Random) -> Iterator[T]:
    """Run the steps while jobs come and go, and nodes are moved and removed."""
    names = list(fleet.nodes)
    while True:
        try:
            next(steps)
        except StopIteration as made:
            yield made.value
            return
        name = random.choice(names)
        match random.randrange(4):
            case 0:
                fleet.drop_node(name)
            case 1:
                fleet.put_node(a_node(name, labels={"z": "x", "b": random.choice("xy"), "r": "x"}))
            case _:
                holder = random.choice(["other", "another"])
                fleet.occupy((holder, name), holder, frozenset({name} if random.random() < 0.5 else ()))


@pytest.mark.usefixtures("small_parts")
def test_no_node_is_given_twice_while_the_fleet_changes() -> None:
    placed = 0
    for seed in SEEDS:
        random = Random(seed)
        case = a_case(random, most_nodes=14)
        fleet, request = case.fleet, asked(case, random)
        made = a_space(case, fleet)
        for answer in disturbed(made.solve(request), fleet, random):
            if isinstance(answer, Placed):
                nodes = (*answer.nodes, *answer.spares)
                assert len(nodes) == len(set(nodes)) == request.count + request.spares
                assert not set(nodes) & set(case.taken)
                placed += 1
        for kept in disturbed(made.reservation(request), fleet, random):
            assert len(kept) == len(set(kept))
    assert placed > 20


def test_no_node_is_taken_for_what_it_was_under_another_policy() -> None:
    fleet = a_fleet([a_node("n0"), a_node("n1")], LEVELS)
    made, request = Space(fleet), Request(1, NEEDS, "job")
    at_once(made.solve(request))
    fleet.put_node(a_node("n0", ready=False))
    assert at_once(made.solve(request)) == Placed(("n1",))
    fleet.set_policy(a_fleet([], LEVELS[:1]).policy)
    assert at_once(made.solve(request)) == Placed(("n1",))


def test_that_there_is_no_place_is_found_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """So what explains it is of one moment."""
    monkeypatch.setattr(knapsack, "PART", 1)
    without_place = 0
    for seed in SEEDS:
        case = a_case(Random(seed), most_nodes=14)
        if isinstance(answers(seed)[0], NotPlaced):
            assert list(a_space(case, case.fleet).solve(case.request)) == []
            without_place += 1
    assert without_place > 20


def test_few_points_are_looked_at_in_one_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than PART, and those of one group of one domain."""
    counts, kept = [0], Frontier.kept

    def counted(self: Frontier, points: list[int]) -> list[int]:
        counts[-1] += len(points)
        return kept(self, points)

    random = Random(0)
    zones = [zone for zone in range(40) for _ in range(random.randint(1, 16))]
    nodes = [a_node(f"n{place}", labels={"z": f"z{zone}"}) for place, zone in enumerate(zones)]
    monkeypatch.setattr(knapsack, "PART", 16)
    monkeypatch.setattr(Frontier, "kept", counted)
    steps = Space(a_fleet(nodes, LEVELS[:1])).solve(Request(len(zones) // 2, NEEDS, "job", spares=2))
    counts.extend(0 for _ in steps)
    assert sum(counts) > 500
    assert max(counts) < 64

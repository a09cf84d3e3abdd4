"""What is reserved for a request without a place: all that it needs in its best domain, and with segments no more."""

from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import BLOCK, RACK
from tests.unit.placement.test_messages import BUSY
from tests.unit.placement.test_space import NEEDS, ask
from tests.unit.queueing.builders import tree

from muster.placement.names import promised_refusal
from muster.placement.parts import at_once
from muster.placement.request import Broken, Request
from muster.placement.space import Space, solve
from muster.world.fleet import Fleet
from muster.world.queuedecision import NotPlaced, Placed


def racks(fleet: Fleet, request: Request) -> dict[str, int]:
    """The number of reserved nodes by rack."""
    return dict(Counter(name.rsplit("-", 1)[0] for name in at_once(Space(fleet).reservation(request))))


def test_without_segments_it_is_all_that_can_be_used_in_the_best_domain() -> None:
    space = Space(BUSY)
    assert at_once(space.reservation(ask(4, required="rack"))) == ("b1-r2-0", "b1-r2-2", "b1-r2-3")
    assert at_once(space.reservation(ask(5, required="rack"))) == ()
    assert len(at_once(space.reservation(ask(8)))) == 5
    space.reserve_nodes(("b1-r2-0", "b1-r2-2"), promised_refusal("default/other"))
    assert at_once(space.reservation(ask(4, required="rack"))) == ("b1-r1-1", "b1-r1-3")


@pytest.mark.parametrize(
    ("fleet", "request_", "expected"),
    [
        pytest.param("b1/r1:2+2 b1/r2:3+1 b1/r3:3+1", ask(4, segment_size=4), {"b1-r2": 3}, id="one segment"),
        pytest.param("b1/r1:3+1 b1/r2:3", ask(4, segment_size=4), {"b1-r1": 3}, id="a rack that can hold none"),
        pytest.param(
            "b1/r1:5+1 b1/r2:3+1 b1/r3:1+3",
            ask(8, segment_size=4),
            {"b1-r1": 4, "b1-r2": 3},
            id="what is free for a segment, less what it can have no use for",
        ),
        pytest.param(
            "b1/r1:5+3 b1/r2:3+1 b1/r3:0+4", ask(12, segment_size=4), {"b1-r1": 5, "b1-r2": 3}, id="two are missing"
        ),
        pytest.param("b1/r1:3+1 b1/r2:3+1", ask(4, segment_size=4, spares=2), {"b1-r1": 3, "b1-r2": 2}, id="spares"),
        pytest.param("b1/r1:4 b1/r2:1+3", ask(4, segment_size=4, spares=2), {"b1-r1": 4, "b1-r2": 1}, id="all but one"),
        pytest.param(
            "b1/r1:3+1 b2/r2:2+2 b2/r3:2+2",
            ask(8, segment_size=4, required="block"),
            {"b2-r2": 2, "b2-r3": 2},
            id="the block that could hold all",
        ),
        pytest.param(
            "b1/r1:1+3 b1/r2:3+1",
            ask(3, segment_size=2, kept=("b1-r1-3",), broken=(Broken(2), Broken(1, ("b1-r1-3",)))),
            {"b1-r1": 1, "b1-r2": 2},
            id="beside what is left of a segment",
        ),
    ],
)
def test_with_segments_it_is_what_they_lack_least_with(fleet: str, request_: Request, expected: dict[str, int]) -> None:
    assert racks(tree(fleet), request_) == expected


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4), st.integers(1, 4))
def test_of_all_choices_of_racks_as_few_nodes_are_missing_as_can_be(sizes: list[tuple[int, int]], count: int) -> None:
    size = 3
    fleet = tree(" ".join(f"b1/r{n}:{free}+{held}" for n, (free, held) in enumerate(sizes)))
    request = ask(count * size, segment_size=size)
    choices = product(*(range((free + held) // size + 1) for free, held in sizes))
    found = [
        sum(min(free, segments * size) for (free, _), segments in zip(sizes, choice, strict=True))
        for choice in choices
        if sum(choice) == count
    ]
    most = max(found, default=0)
    assert len(at_once(Space(fleet).reservation(request))) == most
    assert isinstance(solve(fleet, request), Placed) == (most == request.count)


LONGEST = 4


@given(st.integers(0, 1 << 32))
def test_whatever_others_do_with_the_rest_the_request_starts_in_time(seed: int) -> None:
    """Others take and leave nodes that are not reserved as they like, each for at most so many ticks. What is reserved
    never becomes less; see `muster.queueing.queue` for the bound."""
    random = Random(seed)
    text = " ".join(f"b{random.randint(0, 1)}/r{n}:{random.randint(1, 5)}" for n in range(random.randint(1, 5)))
    fleet = tree(text)
    size = random.choice([2, 2, 3])
    level, spares = random.choice([None, "block"]), random.choice([0, 0, 1, 2])
    request = Request(size * random.randint(1, 3), NEEDS, "first", required=level, segment_size=size, spares=spares)
    ends = {name: random.randint(1, LONGEST) for name in fleet.nodes}
    for name in ends:
        fleet.occupy(name, name, frozenset({name}))
    answer = solve(fleet, request)
    if isinstance(answer, NotPlaced) and answer.shortfall is not None and not answer.shortfall.ever:
        return
    reserved, ticks = 0, 0
    while isinstance(solve(fleet, request), NotPlaced):
        kept = at_once(Space(fleet).reservation(request))
        assert reserved <= len(kept) < request.count + spares
        reserved = len(kept)
        for name in fleet.nodes:
            if name in ends and ends[name] <= ticks:
                fleet.occupy(name, name, frozenset())
                del ends[name]
            elif name not in ends and name not in kept and random.random() < 0.8:
                fleet.occupy(name, name, frozenset({name}))
                ends[name] = ticks + random.randint(1, LONGEST)
        ticks += 1
        assert ticks <= LONGEST * (request.count + spares) * places(fleet, size)


def places(fleet: Fleet, size: int) -> int:
    """The number of racks that can hold a segment, and of blocks."""
    in_rack = Counter((node.labels[BLOCK], node.labels[RACK]) for node in fleet.nodes.values())
    return sum(count >= size for count in in_rack.values()) + len({block for block, _ in in_rack})

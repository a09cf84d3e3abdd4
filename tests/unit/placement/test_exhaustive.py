"""What holds of every answer, checked against a solver that tries everything."""

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.cases import a_case
from tests.unit.placement.exhaustive import best, depth_of, home, labelled, place, usable
from tests.unit.placement.optimum import (
    answer_of,
    check_counts,
    left_behind_is_the_least_nearly_always,
    one_rack_is_the_one_that_leaves_least,
)

from muster.placement.candidates import OWN
from muster.placement.names import promised_refusal
from muster.placement.parts import at_once
from muster.placement.space import Space
from muster.world.fleet import KnownAges
from muster.world.queuedecision import NotPlaced, Placed

seeds = st.integers(0, 1 << 32)


@given(seeds)
def test_as_few_domains_as_any_choice_and_a_place_exactly_where_there_is_one(seed: int) -> None:
    check_counts(a_case(Random(seed)))


def test_what_is_left_behind_is_the_least_nearly_always() -> None:
    """Nightly among 5000 (tests/unit/nightly/placement/test_many_cases.py)."""
    left_behind_is_the_least_nearly_always(100)


def test_a_gang_of_one_rack_is_in_the_one_that_leaves_least_behind() -> None:
    counts = [one_rack_is_the_one_that_leaves_least(seed) for seed in range(60)]
    best, asked = (sum(numbers) for numbers in zip(*counts, strict=True))
    assert asked > 200
    assert best >= 0.99 * asked


@given(seeds)
def test_what_is_chosen_may_be_chosen(seed: int) -> None:
    case = a_case(Random(seed))
    answer, fleet, request = answer_of(case), case.fleet, case.request
    if isinstance(answer, NotPlaced):
        return
    chosen = (*answer.nodes, *answer.spares)
    assert (len(answer.nodes), len(answer.spares)) == (request.count, request.spares)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(usable(fleet, request, case.taken))
    depth = depth_of(fleet, request.required)
    within = {place(fleet, name)[:depth] for name in chosen}
    assert len(within) <= 1 or not depth
    if depth and request.kept:
        assert within == {home(fleet, request.kept, depth)}
    if depth:
        assert all(len(labelled(fleet, name)) >= depth for name in chosen)


@given(seeds)
def test_segments_are_whole(seed: int) -> None:
    case = a_case(Random(seed))
    answer, fleet, request = answer_of(case), case.fleet, case.request
    size, levels = request.segment_size, len(case.levels)
    if isinstance(answer, NotPlaced) or size == 1:
        return
    parts = [(broken.missing, broken.beside) for broken in request.broken] or [(size, ())] * (request.count // size)
    rest = list(answer.nodes)
    for missing, beside in parts:
        together = {labelled(fleet, name) for name in rest[:missing]}
        del rest[:missing]
        assert len(together) == 1
        assert all(len(path) == levels for path in together)
        if beside:
            assert together == {home(fleet, beside, levels)}


@given(seeds, st.randoms(use_true_random=False))
def test_the_answer_does_not_depend_on_the_order_of_nodes(seed: int, order: Random) -> None:
    case = a_case(Random(seed))
    names = list(case.nodes)
    order.shuffle(names)
    shuffled = replace(case, nodes={name: case.nodes[name] for name in names})
    assert answer_of(shuffled) == answer_of(case)


@given(seeds, seeds)
def test_a_fleet_that_has_changed_is_answered_like_a_new_one(seed: int, other: int) -> None:
    """The tree and the tables follow every change: nodes come, go, change; holders come and go; plans take nodes."""
    before, after = a_case(Random(other)), a_case(Random(seed))
    before = replace(before, levels=after.levels)
    fleet = before.fleet
    answer_of(replace(before, request=replace(before.request, required=None)), fleet)
    answer_of(replace(before, request=replace(after.request, kept=(), broken=())), fleet)
    for name in [*before.nodes]:
        fleet.occupy((name, next(iter(before.holders.get(name, ())), "")), "", frozenset())
        if name not in after.nodes:
            fleet.drop_node(name)
    for name, node in after.nodes.items():
        fleet.put_node(node)
        for holder in after.holders.get(name, ()):
            fleet.occupy((name, holder), holder, frozenset({name}))
    fleet.heartbeats = after.fleet.heartbeats
    assert answer_of(after, fleet) == answer_of(after)


@given(seeds)
def test_one_space_answers_like_new_ones(seed: int) -> None:
    """What earlier requests of a plan left behind (but for the nodes it took) changes nothing for the next."""
    random = Random(seed)
    case = a_case(random, most_nodes=14)
    space, taken = Space(case.fleet), list[str]()
    for _ in range(4):
        request = replace(a_case(random, most_nodes=14).request, kept=(), broken=())
        if request.required not in {None, *(name for name, _ in case.levels)} or request.count % request.segment_size:
            continue
        fresh = Space(case.fleet)
        fresh.reserve_nodes(taken, promised_refusal("default/big"))
        answer = at_once(space.solve(request))
        assert answer == at_once(fresh.solve(request))
        if isinstance(answer, Placed):
            assert not {*answer.nodes, *answer.spares} & {*taken}
            space.reserve_nodes((*answer.nodes, *answer.spares), promised_refusal("default/big"))
            taken += (*answer.nodes, *answer.spares)


@given(seeds)
def test_what_a_space_remembers_changes_no_answer(seed: int) -> None:
    """Requests come again while nodes are given away, holders and names change, and heartbeats grow old."""
    random = Random(seed)
    case = a_case(random, most_nodes=14)
    fleet, names = case.fleet, sorted(case.nodes)
    space = Space(fleet)
    lent = [f"lent-{number}" for number in range(4)]
    asked = case.request
    alike = [
        asked,
        replace(asked, spares=asked.spares + 1),
        replace(asked, job_uid="you"),
        replace(asked, kept=(), broken=()),
        replace(asked, needs=replace(asked.needs, avoid=dict.fromkeys(names[:2], OWN))),
        replace(asked, needs=replace(asked.needs, accelerators=16)),
        replace(asked, viewer="default"),
    ]
    requests = [replace(each, given_back=frozenset(lent[:count])) for each in alike for count in (0, 2, 4)]
    requests = random.sample(requests, 4)

    def change() -> None:
        name = random.choice(names)
        match random.randrange(12):
            case 0:
                space.reserve_nodes([name], promised_refusal("default/big"))
            case 1 | 2:
                fleet.occupy(
                    ("lent", name), random.choice(lent), frozenset(random.choices([name], k=random.randint(0, 1)))
                )
            case 3:
                fleet.set_name(random.choice(lent), random.choice(["", "default/a", "default/b"]))
            case 4:
                fleet.heartbeats = KnownAges({name: random.choice([0.0, 60.0])})

    for _ in range(40):
        change()
        request = random.choice(requests)
        forgetful = space.copied()
        assert at_once(space.find(request)) == at_once(forgetful.find(request))
        assert at_once(space.solve(request)) == at_once(forgetful.solve(request))
        assert at_once(space.reservation(request)) == at_once(forgetful.reservation(request))


@given(seeds)
def test_a_reservation_is_of_free_nodes_in_one_domain_that_could_hold_it(seed: int) -> None:
    case = a_case(Random(seed))
    space, fleet, request = Space(case.fleet), case.fleet, case.request
    space.reserve_nodes(case.taken, promised_refusal("default/big"))
    reserved = at_once(space.reservation(request))
    assert set(reserved) <= set(usable(fleet, request, case.taken))
    depth = depth_of(fleet, request.required)
    assert len({place(fleet, name)[:depth] for name in reserved}) <= 1
    answer = at_once(space.solve(request))
    if isinstance(answer, NotPlaced) and answer.reason == "NeverFits":
        assert reserved == ()
    if isinstance(answer, Placed) and not request.broken:
        assert len(reserved) >= request.count + request.spares


@given(seeds)
def test_a_refusal_adds_up(seed: int) -> None:
    case = a_case(Random(seed))
    answer = answer_of(case)
    if isinstance(answer, Placed):
        return
    short = answer.shortfall
    assert short is not None
    assert short.fleet == short.free + sum(each.count for each in short.refused)
    assert short.free == len(usable(case.fleet, case.request, case.taken))
    assert short.free <= short.suitable <= short.fleet
    assert sum(domain.free for domain in short.domains) <= short.free
    assert "\n" not in answer.message
    empty = replace(case, holders={}, taken=())
    if not case.request.kept:
        fits = best(empty.fleet, case.request) is not None
        assert short.ever == fits
        assert (answer.reason == "NeverFits") == (not fits)
    if answer.reason == "InsufficientNodes":
        assert short.free < short.needs
    if answer.reason == "TopologyUnsatisfied":
        assert short.free >= short.needs

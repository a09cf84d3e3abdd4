"""What holds of every plan, whatever the fleet, the queue and the limits are."""

from collections import Counter
from dataclasses import dataclass, replace
from random import Random

from hypothesis import event, given
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import at
from tests.unit.queueing.builders import NEEDS, tree, wants

from muster.placement.eligibility import refusal
from muster.placement.names import promised_refusal
from muster.placement.space import Space, solve
from muster.queueing.limits import OverLimit
from muster.queueing.queue import Behind, order, plan
from muster.queueing.waiting import Waiting
from muster.world.fleet import Fleet
from muster.world.queuedecision import NotPlaced, Placed

NAMESPACES = ["team-a", "team-b", "team-c"]


@dataclass
class Case:
    fleet: Fleet
    waiting: list[Waiting]
    limits: dict[str, int]
    held: dict[str, int]

    def answers(self, waiting: list[Waiting] | None = None) -> dict[str, Placed | NotPlaced]:
        turns = plan(self.fleet, self.waiting if waiting is None else waiting, self.limits, self.held)
        return {uid: turn.answer for uid, turn in turns.items()}


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    racks = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=6))
    blocks = draw(st.integers(1, 3))
    return tree(" ".join(f"b{n % blocks}/r{n}:{free}+{held}" for n, (free, held) in enumerate(racks)))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    fleet = draw(fleets())
    names = sorted(fleet.nodes)
    waiting = []
    for number in range(draw(st.integers(0, 8))):
        replacement = bool(names) and draw(st.integers(0, 3)) == 0
        segment_size = 1 if replacement else draw(st.sampled_from([1, 1, 1, 2, 3]))
        waiting.append(
            wants(
                f"j{number}",
                segment_size * draw(st.integers(1, 8 // segment_size)),
                segment_size=segment_size,
                spares=draw(st.sampled_from([0, 0, 0, 1, 2])),
                seconds=draw(st.integers(0, 3)),
                namespace=draw(st.sampled_from(NAMESPACES)),
                priority=draw(st.integers(-1, 1)),
                required=draw(st.sampled_from([None, None, "block", "rack"])),
                replacement=replacement,
                kept=(draw(st.sampled_from(names)),) if replacement else (),
            )
        )
    limits = draw(st.dictionaries(st.sampled_from(NAMESPACES), st.integers(0, 12)))
    held = draw(st.dictionaries(st.sampled_from(NAMESPACES), st.integers(0, 8)))
    return Case(fleet, waiting, limits, held)


def taken(answer: Placed | NotPlaced) -> tuple[str, ...]:
    return (*answer.nodes, *answer.spares) if isinstance(answer, Placed) else ()


@given(cases())
def test_no_node_is_given_twice_nor_one_that_is_not_free(case: Case) -> None:
    found = case.answers()
    given_away = Counter(node for answer in found.values() for node in taken(answer))
    assert set(given_away.values()) <= {1}
    for job in case.waiting:
        answer = found[job.job_uid]
        event(answer.reason if isinstance(answer, NotPlaced) else "Placed")
        assert not any(refusal(case.fleet.nodes[n], NEEDS, case.fleet, job.job_uid) for n in taken(answer))
        assert len(taken(answer)) == (job.needs if isinstance(answer, Placed) else 0)


@given(cases())
def test_no_limit_is_exceeded(case: Case) -> None:
    given_to = Counter[str]()
    found = case.answers()
    for job in case.waiting:
        given_to[job.namespace] += len(taken(found[job.job_uid]))
    for namespace, count in given_to.items():
        assert not count or case.held.get(namespace, 0) + count <= case.limits.get(namespace, 10**9)


@given(cases(), st.integers(0, 8))
def test_those_behind_change_nothing_for_those_before_them(case: Case, count: int) -> None:
    first = order(case.waiting)[:count]
    alone = case.answers(first)
    found = case.answers()
    assert alone == {job.job_uid: found[job.job_uid] for job in first}


@given(cases())
def test_the_first_gets_what_it_would_get_alone(case: Case) -> None:
    for first in order(case.waiting)[:1]:
        answer = case.answers()[first.job_uid]
        assert isinstance(answer, OverLimit) or answer == solve(case.fleet, first.request)


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_in_which_jobs_are_handed_in_does_not_matter(case: Case, random: Random) -> None:
    shuffled = list(case.waiting)
    random.shuffle(shuffled)
    assert plan(case.fleet, shuffled, case.limits, case.held) == plan(case.fleet, case.waiting, case.limits, case.held)


@given(cases())
def test_who_is_told_to_be_behind_would_have_a_place_otherwise(case: Case) -> None:
    found = case.answers()
    space, queue = Space(case.fleet), order(case.waiting)
    for job in queue:
        answer = found[job.job_uid]
        if isinstance(answer, Behind):
            assert isinstance(space.solve(job.request), Placed)
            before = {other.name for other in queue[: queue.index(job)] if not taken(found[other.job_uid])}
            assert set(answer.reserved_for) <= before
            assert all(answer.reserved_for.values())
        elif isinstance(answer, NotPlaced) and not isinstance(answer, OverLimit):
            assert isinstance(space.solve(job.request), NotPlaced)
        space.reserve_nodes(taken(answer), promised_refusal("default/big"))


@given(cases(), st.integers(1, 8), st.sampled_from([None, "block", "rack"]))
def test_a_job_that_waits_loses_no_free_node_of_its_best_domain(case: Case, count: int, level: str | None) -> None:
    first = replace(wants("first", count, required=level, replacement=True), created=at(-1), priority=2)
    found = case.answers([first, *case.waiting])
    if not taken(found[first.job_uid]):
        kept = (
            set(Space(case.fleet).reservation(first.request))
            if not isinstance(found[first.job_uid], OverLimit)
            else set()
        )
        assert not kept & {node for answer in found.values() for node in taken(answer)}

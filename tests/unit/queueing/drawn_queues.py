"""Random fleets with queues and limits, what is answered to each job, and what holds of the order of the answers."""

from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st
from tests.unit.queueing.builders import tree, wants
from tests.unit.queueing.planned import plan

from muster.placement.names import promised_refusal
from muster.placement.parts import at_once
from muster.placement.space import Space, solve
from muster.queueing.limits import OverLimit
from muster.queueing.queue import Behind, NamespaceRules, order
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.queuedecision import NotPlaced, Placed

NAMESPACES = ["team-a", "team-b", "team-c"]


@dataclass
class Case:
    fleet: Fleet
    waiting: list[WaitingJob]
    limits: dict[str, int]
    held: dict[str, int]

    def answers(self, waiting: list[WaitingJob] | None = None) -> dict[str, Placed | NotPlaced]:
        turns = plan(self.fleet, self.waiting if waiting is None else waiting, NamespaceRules(self.limits, self.held))
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
                held=1 + draw(st.sampled_from([0, 0, 1, 2])) if replacement else 0,
            )
        )
    limits = draw(st.dictionaries(st.sampled_from(NAMESPACES), st.integers(0, 12)))
    held = draw(st.dictionaries(st.sampled_from(NAMESPACES), st.integers(0, 8)))
    return Case(fleet, waiting, limits, held)


def taken(answer: Placed | NotPlaced) -> tuple[str, ...]:
    return (*answer.nodes, *answer.spares) if isinstance(answer, Placed) else ()


def those_behind_change_nothing_for_those_before_them(case: Case, count: int) -> None:
    first = order(case.waiting)[:count]
    alone = case.answers(first)
    found = case.answers()
    assert alone == {job.job_uid: found[job.job_uid] for job in first}


def the_first_gets_what_it_would_get_alone(case: Case) -> None:
    for first in order(case.waiting)[:1]:
        answer = case.answers()[first.job_uid]
        assert isinstance(answer, OverLimit) or answer == solve(case.fleet, first.request)


def the_order_in_which_jobs_are_handed_in_does_not_matter(case: Case, random: Random) -> None:
    shuffled = list(case.waiting)
    random.shuffle(shuffled)
    assert plan(case.fleet, shuffled, NamespaceRules(case.limits, case.held)) == plan(
        case.fleet, case.waiting, NamespaceRules(case.limits, case.held)
    )


def who_is_told_to_be_behind_would_have_a_place_otherwise(case: Case) -> None:
    found = case.answers()
    space, queue = Space(case.fleet), order(case.waiting)
    for job in queue:
        answer = found[job.job_uid]
        if isinstance(answer, Behind):
            assert isinstance(at_once(space.solve(job.request)), Placed)
            before = {other.name for other in queue[: queue.index(job)] if not taken(found[other.job_uid])}
            assert set(answer.reserved_for) <= before
            assert all(answer.reserved_for.values())
        elif isinstance(answer, NotPlaced) and not isinstance(answer, OverLimit):
            assert isinstance(at_once(space.solve(job.request)), NotPlaced)
        space.reserve_nodes(taken(answer), promised_refusal("default/big"))

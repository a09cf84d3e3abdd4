"""What holds of the order of a plan, whatever the fleet, the queue and the limits are."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.queueing.drawn_queues import Case, cases, taken

from muster.placement.names import promised_refusal
from muster.placement.space import Space, solve
from muster.queueing.limits import OverLimit
from muster.queueing.queue import Behind, order, plan
from muster.world.queuedecision import NotPlaced, Placed


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

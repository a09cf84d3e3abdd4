"""What holds of every plan, whatever the fleet, the queue and the limits are; more in tests/unit/nightly/queueing."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import TypeVar

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.unit.lifecycle.builders import at
from tests.unit.queueing.builders import NEEDS, wants
from tests.unit.queueing.drawn_queues import (
    Case,
    cases,
    taken,
    the_first_gets_what_it_would_get_alone,
    the_order_in_which_jobs_are_handed_in_does_not_matter,
    those_behind_change_nothing_for_those_before_them,
    who_is_told_to_be_behind_would_have_a_place_otherwise,
)

from muster.placement.eligibility import refusal
from muster.placement.parts import at_once
from muster.placement.request import Request
from muster.placement.space import Space
from muster.queueing.limits import OverLimit
from muster.queueing.preemption import Borrower, Preemption, Victim
from muster.queueing.queue import NamespaceRules, plan_steps
from muster.queueing.waiting import WaitingJob
from muster.world.queuedecision import NotPlaced, Placed

FEW = settings(max_examples=8)  # of what nightly tests try more often
T = TypeVar("T")
HOLDERS = ["lent-0", "lent-1", "lent-2", "victim-0", "victim-1", ""]


@given(cases(), st.lists(st.sampled_from(HOLDERS), max_size=16), st.integers(1, 16))
def test_what_a_plan_remembers_changes_no_answer(case: Case, holders: list[str], count: int) -> None:
    """Each request comes twice, and after so many answers nodes become free."""
    held = dict(zip(sorted(case.fleet.nodes), holders, strict=False))
    waiting = [*case.waiting, *map(_another, case.waiting)]

    def hold(held: Mapping[str, str]) -> None:
        for node, holder in held.items():
            case.fleet.occupy(("another", node), holder, frozenset({node} if holder else ()))

    def answers() -> object:
        hold(held)
        lent = {uid: Borrower(f"default/{uid}", at(0)) for uid in HOLDERS[:3]}
        victims = {uid: Victim(f"default/{uid}", -2, 2, at(0), at(0)) for uid in HOLDERS[3:5]}
        preemption = Preemption(lent, victims, at(9))
        steps = plan_steps(case.fleet, waiting, NamespaceRules(case.limits, case.held), preemption=preemption)
        answers = []
        for answer in filter(None, steps):
            answers.append(answer)
            if len(answers) == count:
                hold(dict.fromkeys(held, ""))
        return answers, preemption.preempted_by

    found = answers()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("solve", "find", "reservation"):
            patch.setattr(Space, name, _without_memory(getattr(Space, name)))
        assert answers() == found


def _another(job: WaitingJob) -> WaitingJob:
    """A younger job that asks for the same, and may preempt others."""
    uid = f"{job.job_uid}-again"
    request = replace(job.request, job_uid=uid)
    created = job.created + timedelta(seconds=9)
    return replace(job, job_uid=uid, name=f"{job.name}-again", created=created, request=request, preempts_by="urgent")


def _without_memory(method: Callable[[Space, Request], T]) -> Callable[[Space, Request], T]:
    return lambda space, request: method(space.copied(), request)


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
        given_to[job.namespace] += job.adds if taken(found[job.job_uid]) else 0
    for namespace, count in given_to.items():
        assert not count or case.held.get(namespace, 0) + count <= case.limits.get(namespace, 10**9)


@given(cases(), st.integers(1, 8), st.sampled_from([None, "block", "rack"]))
def test_a_job_that_waits_loses_no_free_node_of_its_best_domain(case: Case, count: int, level: str | None) -> None:
    first = replace(wants("first", count, required=level, replacement=True), created=at(-1), priority=2)
    found = case.answers([first, *case.waiting])
    if not taken(found[first.job_uid]):
        kept = (
            set(at_once(Space(case.fleet).reservation(first.request)))
            if not isinstance(found[first.job_uid], OverLimit)
            else set()
        )
        assert not kept & {node for answer in found.values() for node in taken(answer)}


@FEW
@given(cases(), st.integers(0, 8))
def test_those_behind_change_nothing_for_those_before_them(case: Case, count: int) -> None:
    those_behind_change_nothing_for_those_before_them(case, count)


@FEW
@given(cases())
def test_the_first_gets_what_it_would_get_alone(case: Case) -> None:
    the_first_gets_what_it_would_get_alone(case)


@FEW
@given(cases(), st.randoms(use_true_random=False))
def test_the_order_in_which_jobs_are_handed_in_does_not_matter(case: Case, random: Random) -> None:
    the_order_in_which_jobs_are_handed_in_does_not_matter(case, random)


@FEW
@given(cases())
def test_who_is_told_to_be_behind_would_have_a_place_otherwise(case: Case) -> None:
    who_is_told_to_be_behind_would_have_a_place_otherwise(case)

"""PriorityClasses come and go while jobs that name them wait or train. To change their value, people delete them."""

from collections.abc import Callable

import pytest
from tests.unit.lifecycle.test_outranked import URGENT, comes, may_preempt
from tests.unit.lifecycle.testbed import OneJob, steps

from simulate.apiserver import Where

Jobs = Callable[..., OneJob]


def delete_class(job: OneJob, name: str) -> None:
    job.server.delete(Where("priorityclasses", "", name, ""), None)


def waits_with_a_node(job: OneJob) -> str:
    """A job of three nodes waits for two of them, and the third is reserved for it. Then one of one node comes."""
    big = job.submit("big", 3, steps(20), priority_class="high")
    job.until(lambda: job.job("big").get("status", {}).get("waiting", {}).get("reserved") == 1)
    return big


@pytest.mark.parametrize("gap", [0.1, 2, 40])
def test_one_that_waits_keeps_its_place_while_its_class_is_made_again(training: Jobs, gap: float) -> None:
    job = training(script=steps(400))
    job.add_priority("high", 1000)
    big = waits_with_a_node(job)
    small = job.submit("small", 1, steps(2000))
    delete_class(job, "high")
    job.run(gap)
    job.add_priority("high", 2000)
    job.run(100)
    assert job.attempt_of(small) == 0
    job.until(lambda: job.attempt_of(big) == 1, 600)


def test_it_loses_its_place_where_the_class_stays_away(training: Jobs) -> None:
    job = training(script=steps(400))
    job.add_priority("high", 1000)
    waits_with_a_node(job)
    small = job.submit("small", 1, steps(2000))
    delete_class(job, "high")
    job.until(lambda: job.attempt_of(small) == 1, 100)


@pytest.mark.parametrize("gap", [0.1, 15, 1000])
def test_one_that_is_held_makes_nobody_leave(training: Jobs, gap: float) -> None:
    """Found by a script: a job that waits for its user had a place while its template was tried again."""
    job = training(script=steps(3000, every=10))
    may_preempt(job, URGENT, minRunSeconds=0)
    container = {"name": "main", "image": "trainer:1", "command": ["tune", "run", "full_finetune_distributed"]}
    job.submit("held", 3, steps(20), template={"spec": {"priorityClassName": "urgent", "containers": [container]}})
    job.run(60)
    assert job.state_of("held") == "Stalled"
    delete_class(job, "urgent")
    job.run(gap)
    job.add_priority("urgent", 1000)
    job.run(200)
    assert not job.notes("EvacuationPlanned")


def test_nobody_is_asked_to_leave_for_one_whose_class_is_gone(training: Jobs) -> None:
    job = training(script=steps(3000, every=10))
    may_preempt(job, URGENT, minRunSeconds=100)
    comes(job)
    job.run(60)
    delete_class(job, "urgent")
    job.run(200)
    assert not job.notes("EvacuationPlanned")
    assert job.notes("PriorityClassMissing")


def test_it_keeps_its_place_after_its_class_has_come(training: Jobs) -> None:
    """Found by a script: the next try of what was refused took the place of what was accepted since."""
    job = training(script=steps(400))
    big = job.submit("big", 3, steps(20), priority_class="high")
    job.run(10)
    assert job.notes("PriorityClassMissing")
    job.add_priority("high", 1000)
    job.until(lambda: job.job("big").get("status", {}).get("waiting", {}).get("reserved") == 1, 5)
    small = job.submit("small", 1, steps(2000))
    job.run(200)
    assert job.attempt_of(small) == 0
    job.until(lambda: job.attempt_of(big) == 1, 600)


@pytest.mark.parametrize("lag", [0.03, 0.5])
def test_the_api_server_sees_later_than_muster_that_a_class_is_gone(training: Jobs, lag: float) -> None:
    job = training(script=steps(60))
    job.server.admission_lag_seconds = lag
    job.add_priority("high", 1000)
    job.run(1)
    other = job.submit("other", 2, steps(20), priority_class="high")
    third = job.submit("third", 2, steps(20))
    job.run(20)
    delete_class(job, "high")
    job.succeeds()
    job.until(lambda: job.attempt_of(third) == 1, 100)
    assert job.attempt_of(other) == 0


@pytest.mark.parametrize("lag", [0.03, 0.5])
def test_and_that_one_is_there(training: Jobs, lag: float) -> None:
    job = training(script=steps(60))
    job.server.admission_lag_seconds = lag
    other = job.submit("other", 1, steps(20), priority_class="high")
    job.run(700)
    job.add_priority("high", 1000)
    job.until(lambda: job.attempt_of(other) == 1, 10)


def test_one_that_waits_takes_no_nodes_while_its_class_does_not_exist(training: Jobs) -> None:
    """Its pods would be refused: it would hold the nodes in vain."""
    job = training(script=steps(90))
    may_preempt(job)
    other = comes(job)
    job.run(5)
    delete_class(job, "urgent")
    job.succeeds()
    job.run(400)
    assert job.attempt_of(other) == 0
    assert ["no PriorityClass with name urgent was found" in note for note in job.notes("PriorityClassMissing")] == [
        True
    ]
    job.add_priority("urgent", 2000)
    job.until(lambda: job.attempt_of(other) == 1, 5)
    job.until(lambda: job.has_ended("other"))


def test_it_trains_on_where_its_own_class_is_made_again(submitted: Jobs) -> None:
    """The value of a class never changes: to change it, people delete the class."""
    job = submitted(script=steps(90), priority_class="top")
    job.add_priority("top", 5000)
    job.until_step(7)
    may_preempt(job, URGENT, minRunSeconds=0)
    job.add_priority("urgent", 1000)
    comes(job)
    job.run(5)
    delete_class(job, "top")
    job.run(20)
    assert any(
        "top does not exist: no other job preempts this one" in note for note in job.notes("PriorityClassMissing")
    )
    job.add_priority("top", 6000)
    job.succeeds()
    assert job.levels == ["Start"]
    assert not job.notes("EvacuationPlanned")

"""A running job leaves, after a save, for one of a higher priority whose class may preempt, and comes back."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.lifecycle.testbed import JOB, OneJob, steps

from simulate.apiserver import Where
from simulate.life import POLICY
from simulate.surroundings import NAMESPACE
from simulate.training import OnRequest

Jobs = Callable[..., OneJob]
URGENT = {"name": "urgent", "namespaces": [NAMESPACE]}


def may_preempt(job: OneJob, *classes: dict[str, Any], **preemption: Any) -> None:
    """There is a class that may preempt, after a minute."""
    if not list(job.server.all("priorityclasses")):
        job.add_priority("urgent", 1000)
    preemption = {"priorityClasses": list(classes), "minRunSeconds": 60, **preemption}
    job.server.patch(POLICY, {"spec": {"queueing": {"preemption": preemption}}}, "merge")


def comes(job: OneJob, name: str = "other", workers: int = 3, count: int = 20) -> str:
    return job.submit(name, workers, steps(count), priority_class="urgent")


def gives_way(job: OneJob, name: str = "other") -> None:
    other = comes(job, name)
    job.until(lambda: job.attempt_of(other) == 1, 500)


@pytest.mark.parametrize("answers", list(OnRequest))
def test_it_leaves_after_a_save_and_comes_back(training: Jobs, answers: OnRequest) -> None:
    job = training(script=steps(90, every=10, answers=answers))
    may_preempt(job, URGENT)
    gives_way(job)
    note = job.notes("Preempted")[0]
    assert f"the job has a lower priority and gives way to {NAMESPACE}/other (PriorityClass urgent)" in note
    assert [each.answered for each in job.record.preemptions] == [True]
    job.until(lambda: job.has_ended("other"))
    job.succeeds()
    assert answers is not OnRequest.ENDS_WELL or job.trainers[job.uid].made == 90, "no step is made twice"


def test_off_by_default(training: Jobs) -> None:
    job = training(script=steps(90))
    may_preempt(job)
    comes(job)
    job.succeeds()
    assert job.levels == ["Start"]


def test_a_class_of_another_team_only_orders_the_queue(training: Jobs) -> None:
    job = training(script=steps(90))
    may_preempt(job, {"name": "urgent", "namespaces": ["elsewhere"]})
    job.submit("before", 3, steps(20))
    urgent = comes(job)
    job.until(lambda: bool(job.notes("PreemptionNotAllowed")))
    assert "elsewhere" not in job.notes("PreemptionNotAllowed")[0]
    job.succeeds()
    assert job.levels == ["Start"]
    job.until(lambda: job.attempt_of(urgent) == 1)
    assert not job.has_ended("before")


def test_a_class_that_never_preempts(training: Jobs) -> None:
    job = training(script=steps(90))
    job.add_priority("urgent", 1000, preemptionPolicy="Never")
    may_preempt(job, URGENT)
    comes(job)
    job.succeeds()
    assert job.levels == ["Start"]
    assert not job.notes("PreemptionNotAllowed")


def test_it_keeps_its_nodes_for_a_while(training: Jobs) -> None:
    job = training(script=steps(900))
    may_preempt(job, URGENT, minRunSeconds=200)
    comes(job)
    job.until(lambda: "jobs of lower priority keep their nodes for a while" in str(job.job("other").get("status")), 60)
    job.run(140)
    assert job.record.evacuation is None
    job.until(lambda: job.record.evacuation is not None, 100)


def test_a_restart_does_not_prolong_that(training: Jobs) -> None:
    job = training(script=steps(900))
    may_preempt(job, URGENT, minRunSeconds=200)
    job.run(120)
    job.rank(1).kill()
    job.until_attempt(2)
    comes(job)
    job.until(lambda: job.record.reason == "Preempted", 150)


def test_it_is_preempted_so_many_times_a_day_at_most(training: Jobs) -> None:
    job = training(script=steps(3000, every=10))
    may_preempt(job, URGENT, preemptionsPerDay=2, minRunSeconds=0)
    for number in range(2):
        gives_way(job, f"urgent-{number}")
        job.until(lambda number=number: job.has_ended(f"urgent-{number}"))  # type: ignore[misc]
        job.until(lambda: bool(job.record.members) and job.record.start is not None)
    job.operator_dies()
    comes(job)
    job.run(300)
    assert not job.has_ended("other")
    assert len(job.record.preemptions) == 2
    assert job.record.members


def test_one_that_does_not_answer_has_its_time_and_that_is_kept(training: Jobs) -> None:
    job = training(script=steps(3000, every=10_000))
    may_preempt(job, URGENT)
    gives_way(job)
    assert [each.answered for each in job.record.preemptions] == [False]


def test_one_whose_worker_dies_while_it_saves_leaves_all_the_same(training: Jobs) -> None:
    job = training(script=steps(3000, every=10_000))
    may_preempt(job, URGENT)
    other = comes(job)
    job.until(lambda: job.record.evacuation is not None)
    job.rank(1).kill()
    job.until(lambda: job.attempt_of(other) == 1, 500)


def test_it_trains_on_where_the_class_is_deleted_meanwhile(training: Jobs) -> None:
    job = training(script=steps(300, every=250))
    may_preempt(job, URGENT)
    comes(job)
    job.until(lambda: job.record.evacuation is not None)
    job.server.delete(Where("priorityclasses", "", "urgent", ""), None)
    job.succeeds()
    assert job.levels == ["Start"]
    assert job.notes("EvacuationCancelled")


@pytest.mark.parametrize("writes", range(1, 13))
def test_the_operator_may_die_after_any_write(training: Jobs, writes: int) -> None:
    job = training(script=steps(90, every=10))
    may_preempt(job, URGENT)
    job.operator_dies_after(writes)
    gives_way(job)
    job.until(lambda: job.has_ended("other"))
    job.succeeds()
    assert len(job.record.preemptions) == 1


def test_who_has_it_leave_and_goes_away_loses_its_place(training: Jobs) -> None:
    job = training(script=steps(3000, every=10_000))
    may_preempt(job, URGENT, preemptionsPerDay=100, minRunSeconds=0)
    for number in range(3):
        comes(job, f"urgent-{number}")
        job.until(lambda: job.record.evacuation is not None)
        job.server.delete(Where("trainingjobs", NAMESPACE, f"urgent-{number}", ""), None)
        job.until(lambda: job.record.evacuation is None)
    comes(job)
    job.run(60)
    assert job.record.evacuation is None, "the third one is charged to the namespace"
    assert job.status.state == "Running"
    assert not job.has_ended(JOB)


@pytest.mark.parametrize(
    ("on", "off"),
    [
        ({"suspend": True}, {"suspend": False}),
        ({"placement": {"avoidNodes": ["n0", "n1"]}}, {"placement": {"avoidNodes": []}}),
    ],
    ids=["suspend", "avoidNodes"],
)
def test_who_has_others_asked_again_and_again_and_takes_no_nodes(
    training: Jobs, on: dict[str, Any], off: dict[str, Any]
) -> None:
    job = training(script=steps(3000, every=10_000, seconds=10.0, answers=OnRequest.ENDS_WELL))
    may_preempt(job, URGENT, preemptionsPerDay=2, minRunSeconds=0)
    comes(job)

    def is_asked() -> bool:
        return job.record.evacuation is not None and job.record.evacuation.reason == "Preempted"

    asked = 0
    while asked < 5 and job.run_until(is_asked, 120):
        asked += 1
        job.edit("other", on)
        job.until(lambda: job.record.evacuation is None and job.record.start is not None)
        job.edit("other", off)
    assert asked == (2 if "placement" in on else 1), "who suspends its job pays"
    why = "others were asked to leave for it and it did not start"
    assert (why in str(job.job("other")["status"])) is (asked == 1)
    assert len(job.record.preemptions) == asked
    assert job.record.members

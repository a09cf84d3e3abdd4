"""Jobs that are preemptible, or backfill, start on reserved nodes, give way after a save, and come back."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.lifecycle.testbed import JOB, OneJob, steps

from muster.api.base import rfc3339
from muster.api.trainingjob import CompletionResult
from simulate.apiserver import Where
from simulate.client import Way
from simulate.surroundings import NAMESPACE
from simulate.training import OnRequest, Script

Jobs = Callable[..., OneJob]
PREEMPTIBLE: dict[str, Any] = {"queueing": {"preemptible": True}}


def gives_way(job: OneJob, count: int = 20, workers: int = 3) -> None:
    """Another job comes that needs its nodes, and starts after it has left."""
    other = job.submit("other", workers, steps(count))
    job.until(lambda: not job.record.members, 400.0)
    assert job.record.reason == "Preempted"
    job.until(lambda: job.attempt_of(other) == 1)


@pytest.mark.parametrize("answers", list(OnRequest))
def test_it_gives_way_after_a_save_and_comes_back(training: Jobs, answers: OnRequest) -> None:
    job = training(script=steps(30, every=10, answers=answers), **PREEMPTIBLE)
    gives_way(job)
    assert job.paid == (answers is OnRequest.SAVES_HALF, 0)
    job.until(lambda: bool(job.notes("Preempted")))
    told = "the job is preemptible" if answers is OnRequest.SAVES_HALF else "stopped after checkpoint"
    assert job.notes("Preempted")[0].startswith(told)
    assert job.attempt <= 3, "it does not come back to nodes that its pods are about to leave"
    job.until(lambda: job.status.reason == "InsufficientNodes")
    job.until(lambda: job.has_ended("other"))
    job.succeeds()
    assert answers is not OnRequest.ENDS_WELL or job.trainers[job.uid].made == 30, "no step is made twice"


def test_one_whose_end_is_known_has_its_place_in_the_queue_at_once(training: Jobs) -> None:
    """Its status says that it trains until the queue has answered."""
    job = training(script=steps(30, every=10), queueing={"preemptible": True, "expectedDurationSeconds": 3600})
    gives_way(job)
    job.until(lambda: job.status.reason == "InsufficientNodes", 20.0)
    job.until(lambda: job.has_ended("other"))
    job.succeeds()


def test_it_does_not_give_way_where_that_helps_no_one(training: Jobs) -> None:
    job = training(script=steps(60), **PREEMPTIBLE)
    job.submit("other", 4, steps(20))
    job.submit("small", 1, steps(20), **PREEMPTIBLE)
    job.until(lambda: job.has_ended("small"))
    assert not job.has_ended(JOB)
    job.succeeds()
    assert job.levels == ["Start"]


def test_who_is_not_preemptible_does_not_give_way(training: Jobs) -> None:
    job = training(script=steps(60))
    job.submit("other", 3, steps(20))
    job.succeeds()
    assert job.levels == ["Start"]


def test_it_leaves_once_however_often_the_other_job_is_edited(training: Jobs) -> None:
    timeout = {"directory": f"/ckpt/{JOB}", "saveTimeoutSeconds": 30}
    job = training(script=steps(900, every=10_000), checkpoint=timeout, **PREEMPTIBLE)
    other = job.submit("other", 3, steps(20))
    job.until(lambda: job.record.evacuation is not None)
    deadline = job.record.evacuation.deadline
    for seconds in range(1, 11):
        job.edit("other", expects(seconds))
        job.run(3.0)
        assert job.record.evacuation is None or job.record.evacuation.deadline == deadline
    job.until(lambda: job.attempt_of(other) == 1, 30.0)
    assert not job.notes("EvacuationCancelled")


def test_what_is_reserved_for_a_job_stays_so_when_it_is_edited(training: Jobs) -> None:
    job = training(script=steps(200))
    job.submit("big", 3, steps(20))
    job.submit("small", 1, steps(20))
    for seconds in range(1, 11):
        job.edit("big", expects(seconds))
        job.run(3.0)
    assert not job.attempt_of(job.job("small")["metadata"]["uid"])


def test_one_that_has_not_started_gives_its_nodes_back_at_once(submitted: Jobs) -> None:
    job = submitted(script=steps(20), **PREEMPTIBLE)
    job.until(lambda: job.attempt == 1)
    assert job.record.start is None
    gives_way(job)
    job.succeeds()


def test_it_trains_on_where_the_other_job_goes_in_time(training: Jobs) -> None:
    job = training(script=steps(60, every=40), **PREEMPTIBLE)
    job.submit("other", 3, steps(20))
    job.until(lambda: job.record.evacuation is not None)
    assert job.record.evacuation.reason == "Preempted"
    job.until(lambda: job.status.reason == "Preempted")
    (running,) = [each.message for each in job.status.conditions if each.type == "Running"]
    assert f"gives way to {NAMESPACE}/other." in running
    job.server.delete(Where("trainingjobs", NAMESPACE, "other", ""), None)
    job.succeeds()
    assert job.levels == ["Start"]
    assert job.notes("EvacuationCancelled")


def test_a_new_leader_knows_that_it_was_withdrawn(training: Jobs) -> None:
    """The ranks save for longer than the job waits, and no replica leads at the deadline."""
    script = Script(60, 1.0, 10_000, save_seconds=100, answers=OnRequest.ENDS_WELL)
    job = training(script=script, checkpoint={"directory": "/ckpt/job", "saveTimeoutSeconds": 60}, **PREEMPTIBLE)
    job.submit("other", 3, steps(20))
    job.until(lambda: bool(job.trainers[job.uid].leaves))
    job.server.delete(Where("trainingjobs", NAMESPACE, "other", ""), None)
    job.until(lambda: job.status.reason == "LeaveWithdrawn", 20)
    job.operator_dies(away=70)
    job.until_go(2)
    assert (job.record.reason, job.levels) == ("LeaveWithdrawn", ["Start", "R0"])
    assert not job.notes("Preempted")


@pytest.mark.parametrize("writes", range(1, 13))
def test_the_operator_may_die_after_any_write(training: Jobs, writes: int) -> None:
    job = training(script=steps(30, every=10), **PREEMPTIBLE)
    job.operator_dies_after(writes)
    gives_way(job)
    job.until(lambda: job.has_ended("other"))
    job.succeeds()


@pytest.fixture
def slow_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook of namespace lab takes seconds to accept a pod."""
    latency_seconds = Way.latency_seconds

    def slow(way: Way, verb: str, path: str) -> float:
        return (
            4.0
            if verb == "POST" and path.startswith("/api/v1/namespaces/lab/pods")
            else latency_seconds(way, verb, path)
        )

    monkeypatch.setattr(Way, "latency_seconds", slow)


@pytest.mark.usefixtures("slow_checks")
def test_a_new_leader_withdraws_no_leave_before_it_knows_who_waits(training: Jobs) -> None:
    timeout = {"directory": f"/ckpt/{JOB}", "saveTimeoutSeconds": 60}
    job = training(script=steps(900, every=10_000), checkpoint=timeout, **PREEMPTIBLE)
    other = job.submit("lab/other", 3, steps(20))
    job.submit("small", 3, steps(20), **PREEMPTIBLE)
    job.until(lambda: job.record.evacuation is not None)
    job.operator_dies()
    job.until(lambda: job.attempt_of(other) == 1, 75.0)
    assert not job.notes("EvacuationCancelled")


@pytest.mark.usefixtures("slow_checks")
def test_a_new_leader_lets_no_job_pass_one_that_is_still_checked(training: Jobs) -> None:
    job = training(script=steps(200))
    big = job.submit("lab/big", 3, steps(20))
    job.run(15.0)
    small = job.submit("small", 1, steps(200))
    job.run(15.0)
    job.operator_dies()
    job.until(lambda: job.attempt_of(big) == 1, 400.0)
    assert not job.attempt_of(small)


def test_one_that_never_saves_has_its_time(training: Jobs) -> None:
    job = training(script=steps(900, every=10_000), **PREEMPTIBLE)
    gives_way(job)
    job.until(lambda: bool(job.notes("Preempted")))
    assert job.notes("Preempted")[0].startswith("stopped without a new checkpoint")


def expects(seconds: float) -> dict[str, Any]:
    return {"queueing": {"expectedDurationSeconds": seconds}}


def a_queue(training: Jobs, **small: Any) -> OneJob:
    """A job holds two of three nodes for some 200 s, one for all three waits, and then a small one comes."""
    job = training(script=steps(200), progress={"totalSteps": 200})
    job.submit("big", 3, steps(20))
    job.until(lambda: (job.job("big").get("status") or {}).get("startEstimate", {}).get("time") is not None)
    job.submit("small", 1, **small)
    return job


def test_who_ends_in_time_passes(training: Jobs) -> None:
    job = a_queue(training, script=steps(20), **expects(60))
    job.until(lambda: (job.job("small").get("status") or {}).get("backfilled"))
    job.until(lambda: job.has_ended("small"))
    assert not job.has_ended(JOB)
    assert not job.status.backfilled
    job.until(lambda: job.has_ended("big"))
    assert job.levels == ["Start"]


def test_who_would_end_later_or_says_nothing_does_not(training: Jobs) -> None:
    job = a_queue(training, script=steps(20), **expects(600))
    job.submit("silent", 1, steps(20))
    job.until(lambda: job.has_ended("big"))
    assert not job.has_ended("small")
    assert not job.has_ended("silent")


def test_who_does_not_end_as_it_said_leaves_after_a_save(training: Jobs) -> None:
    job = a_queue(training, script=steps(400, every=50, answers=OnRequest.ENDS_WELL), **expects(60))
    job.until(lambda: job.has_ended(JOB))
    job.until(lambda: job.has_ended("big"), 100.0)
    job.until(lambda: job.has_ended("small"), 600.0)
    uid = job.job("small")["metadata"]["uid"]
    assert job.trainers[uid].made == 400, "no step is made twice"
    assert job.notes("Preempted")[0].startswith("stopped after checkpoint")
    assert "backfills and gives way to team/big" in job.notes("Preempted")[0]
    assert "estimate was too short: 3 within a day close backfill to namespace team" in job.notes("Preempted")[0]
    assert len(record_of(job, "small")["spec"]["shortEstimates"]) == 1


def record_of(job: OneJob, name: str) -> dict[str, Any]:
    uid = job.job(name)["metadata"]["uid"]
    return next(gang for gang in job.server.all("gangs") if gang["spec"]["jobUid"] == uid)


def test_it_keeps_what_is_lent_to_it_until_the_time_is_over(training: Jobs) -> None:
    job = a_queue(training, script=steps(60, every=10, answers=OnRequest.ENDS_WELL), **expects(100))
    job.until(lambda: job.job("small").get("status", {}).get("backfilled"))
    assert record_of(job, "small")["spec"]["lentUntil"] <= record_of(job, "small")["spec"]["backfillUntil"]
    job.server.delete(Where("trainingjobs", NAMESPACE, JOB, ""), None)
    job.until(lambda: job.has_ended("small"))
    job.until(lambda: job.has_ended("big"))
    assert not job.notes("Preempted")


def test_one_that_is_made_preemptible_is_promised_no_time(training: Jobs) -> None:
    job = a_queue(training, script=steps(400), **expects(100))
    job.until(lambda: "lentUntil" in job.job("small").get("status", {}))
    job.edit("small", PREEMPTIBLE)
    job.until(lambda: "lentUntil" not in job.job("small")["status"], 30.0)


def test_a_leave_before_its_time_is_over_is_no_short_estimate(training: Jobs) -> None:
    job = a_queue(training, script=steps(400, every=10, answers=OnRequest.ENDS_WELL), **expects(100))
    job.until(lambda: job.job("small").get("status", {}).get("backfilled"))
    job.cut_off(job.record.members[0].node)
    job.until(lambda: job.notes("Preempted"), 90.0)
    assert "lentUntil" not in record_of(job, "small")["spec"]
    assert record_of(job, "small")["spec"]["shortEstimates"] == []
    assert "estimate" not in job.notes("Preempted")[0]


def test_one_that_becomes_preemptible_while_it_backfills_keeps_nothing(training: Jobs) -> None:
    job = a_queue(training, script=steps(900, every=10, answers=OnRequest.ENDS_WELL), **expects(150))
    job.until(lambda: job.job("small").get("status", {}).get("lentUntil"))
    job.edit("small", {"queueing": {"expectedDurationSeconds": 150, "preemptible": True}})
    job.until(lambda: "lentUntil" not in job.job("small")["status"], 30.0)
    job.server.delete(Where("trainingjobs", NAMESPACE, JOB, ""), None)
    job.until(lambda: job.notes("Preempted"), 60.0)
    assert "is preemptible and gives way to team/big" in job.notes("Preempted")[0]
    job.until(lambda: job.has_ended("big"), 200.0)


def test_a_suspension_makes_no_lent_nodes_its_own(training: Jobs) -> None:
    job = a_queue(training, script=steps(900, every=10, answers=OnRequest.ENDS_WELL), **expects(100))
    job.until(lambda: job.job("small").get("status", {}).get("backfilled"))
    job.edit("small", {"suspend": True})
    job.until(lambda: not record_of(job, "small")["spec"]["members"])
    job.edit("small", {"suspend": False})
    job.until(lambda: job.has_ended(JOB))
    job.until(lambda: job.has_ended("big"), 200.0)
    assert not job.has_ended("small")


def test_who_is_suspended_when_asked_to_leave_has_had_a_short_estimate(training: Jobs) -> None:
    job = a_queue(training, script=steps(400, every=50, answers=OnRequest.ENDS_WELL), **expects(60))
    job.until(lambda: job.has_ended(JOB))
    job.until(lambda: record_of(job, "small")["spec"]["evacuation"] is not None, 100.0)
    job.edit("small", {"suspend": True})
    job.until(lambda: job.has_ended("big"), 100.0)
    assert job.state_of("small") == "Suspended"
    assert len(record_of(job, "small")["spec"]["shortEstimates"]) == 1


def test_after_three_short_estimates_a_namespace_passes_no_more(training: Jobs) -> None:
    job = a_queue(training)
    times = [rfc3339(job.record.time + timedelta(seconds=number)) for number in range(3)]
    name = record_of(job, JOB)["metadata"]["name"]
    job.server.change("gangs", NAMESPACE, name, {"spec": {"shortEstimates": times}})
    job.operator_dies()
    job.submit("late", 1, script=steps(20), **expects(60))
    job.until(lambda: "backfill is closed to namespace team until 20" in str(job.job("late").get("status")))
    job.until(lambda: job.has_ended("big"))
    assert not job.has_ended("late")


def test_one_that_is_to_be_ejected_gives_way(training: Jobs) -> None:
    job = training(script=steps(900), **PREEMPTIBLE)
    job.edit(JOB, {"eject": True})
    job.until(lambda: job.status.reason == "EjectionWaits")
    gives_way(job)


def test_an_ejected_one_gives_nothing_back(training: Jobs) -> None:
    job = training(script=steps(900))
    job.edit(JOB, {"eject": True})
    job.until(lambda: job.record.ejected)
    job.edit(JOB, PREEMPTIBLE)
    job.submit("other", 3, steps(20))
    job.run(60)
    told = {condition["type"]: condition["reason"] for condition in job.job("other")["status"]["conditions"]}
    assert told["Running"] == "InsufficientNodes"


def test_a_held_failure_is_held_no_longer(training: Jobs) -> None:
    job = training(script=steps(30), recovery={"onFailure": "Hold", "holdSeconds": 600}, **PREEMPTIBLE)
    job.rank(1).kill()
    job.until(lambda: job.status.state == "Held", 20)
    other = job.submit("other", 3, steps(20))
    job.until(lambda: job.attempt_of(other) == 1, 60)
    job.until(lambda: job.has_ended("other"))
    job.succeeds()


def test_who_suspends_and_resumes_it_gains_no_time(training: Jobs) -> None:
    checkpoint = {"directory": "/ckpt/job", "saveTimeoutSeconds": 60}
    job = training(script=steps(900, every=10_000), checkpoint=checkpoint, **PREEMPTIBLE)
    other = job.submit("other", 3, steps(20))
    job.until(lambda: job.record.evacuation is not None)
    for number in range(5):
        job.run(10)
        job.edit(JOB, {"suspend": number % 2 == 0})
    job.until(lambda: job.attempt_of(other) == 1, 30)


def test_a_second_job_that_waits_for_its_nodes_has_them_when_the_first_goes_away(training: Jobs) -> None:
    checkpoint = {"directory": "/ckpt/job", "saveTimeoutSeconds": 60}
    job = training(script=steps(900, every=10_000), checkpoint=checkpoint, **PREEMPTIBLE)
    job.submit("other", 3, steps(20))
    second = job.submit("second", 3, steps(20))
    job.until(lambda: job.record.evacuation is not None)
    evacuation = job.record.evacuation
    job.run(10)
    job.server.delete(Where("trainingjobs", NAMESPACE, "other", ""), None)
    job.run(5)
    assert job.record.evacuation == evacuation
    job.until(lambda: job.attempt_of(second) == 1, 80)


@pytest.mark.parametrize("is_suspended", [False, True], ids=["preempted", "suspended"])
def test_one_that_is_about_to_fail_does_not_wait_for_nodes_again(training: Jobs, is_suspended: bool) -> None:
    job = training(recovery={"applicationRestartsPerDay": 0}, **PREEMPTIBLE)
    job.rank(1).kill()
    job.until_attempt(2)
    other = job.submit("other", 3, steps(20))
    if is_suspended:
        job.edit(JOB, {"suspend": True})
    end = job.ends(15)
    assert (end.result, end.reason) == (CompletionResult.FAILED, "ApplicationRestartsExhausted")
    assert job.levels == ["Start", "R0"]
    job.until(lambda: job.attempt_of(other) == 1, 60)


def test_it_gives_way_once_it_is_made_preemptible(training: Jobs) -> None:
    job = training(script=steps(90))
    other = job.submit("other", 3, steps(20))
    job.run(30)
    assert job.attempt_of(other) == 0
    job.edit(JOB, PREEMPTIBLE)
    job.until(lambda: job.attempt_of(other) == 1, 60)
    job.until(lambda: job.has_ended("other"))
    job.succeeds()

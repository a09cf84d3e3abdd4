"""A failure that is held for people (spec.recovery.onFailure): when it is, what ends it, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.lifecycle.builders import SETTINGS, Scene, a_job, at, failed, running
from tests.unit.lifecycle.testbed import JOB, OneJob, steps

from muster.api.gang import GangSpec, HeldFailure
from muster.api.goodput import Bucket
from muster.api.trainingjob import CompletionResult, LaunchMode
from muster.lifecycle.plan import CommitGang
from muster.lifecycle.situation import Failing, Held, Training, situation_of
from muster.lifecycle.step import decide
from simulate.apiserver import Where
from simulate.life import POLICY
from simulate.surroundings import NAMESPACE

Jobs = Callable[..., OneJob]
HOLD = {"onFailure": "Hold", "holdSeconds": 120}
LIMITS = {"progress": {"stepTimeoutSeconds": 30, "startTimeoutSeconds": 60}}


def is_held(job: OneJob) -> bool:
    return job.status.state == "Held"


def held(training: Jobs, index: int = 1, **settings: Any) -> OneJob:
    """A job of which a rank has just been killed, and whose failure is held."""
    spec = {"recovery": HOLD, "script": steps(40), **settings}
    job = training(**spec)
    job.rank(index).kill()
    job.until(lambda: is_held(job), 20)
    return job


# Lives.


def test_pods_stay_until_the_time_is_over(training: Jobs) -> None:
    job = held(training)
    began, workers, nodes = job.agenda.now, [job.worker(0), job.worker(1)], job.nodes
    job.run(100)
    assert is_held(job)
    assert ([job.worker(0), job.worker(1)], job.nodes, job.attempt) == (workers, nodes, 1)
    job.until_attempt(2, 30)
    assert 110 < job.agenda.now - began < 125
    job.succeeds()
    assert job.levels == ["Start", "R0"]
    (incident,) = job.record.incidents
    assert incident.held_seconds == pytest.approx(120, abs=3)
    assert len(job.notes("FailureHeld")) == 1


def test_the_hold_has_a_bucket_of_its_own(training: Jobs) -> None:
    job = held(training)
    job.succeeds()
    goodput = job.status.goodput
    assert goodput is not None
    assert goodput.amount(Bucket.HELD) == pytest.approx(120, abs=3)
    assert goodput.amount(Bucket.UNDETECTED) < 10
    assert sum(goodput.seconds.values()) == goodput.wall_seconds


def test_the_failure_that_uses_up_the_budget_is_held_too(training: Jobs) -> None:
    """A job that fails again and again is held once for each restart that it has, and once more."""
    job = training(script=steps(40, crashes_after=8), recovery={**HOLD, "applicationRestartsPerDay": 1})
    assert job.ends().result is CompletionResult.FAILED
    assert [incident.held_seconds for incident in job.record.incidents] == pytest.approx([120, 120], abs=3)
    assert len(job.notes("FailureHeld")) == 2


@pytest.mark.parametrize(
    "change",
    [
        {"recovery": {"onFailure": "Recover"}},
        {"recovery": {"holdSeconds": 60}},
        {"placement": {"avoidNodes": ["n1"]}},
    ],
    ids=["recover", "shorter", "avoided-node"],
)
def test_a_change_of_the_spec_ends_it(training: Jobs, change: dict[str, Any]) -> None:
    job = held(training)
    job.run(65)
    job.edit(JOB, change)
    job.until_attempt(2, 10)
    job.succeeds()


def test_a_policy_that_allows_less_ends_it(training: Jobs) -> None:
    job = held(training)
    job.server.patch(POLICY, {"spec": {"jobLimits": {"holdSeconds": 0}}}, "merge")
    job.until_attempt(2, 10)
    job.succeeds()


def test_a_suspension_ends_it(training: Jobs) -> None:
    job = held(training)
    job.edit(JOB, {"suspend": True})
    job.until(lambda: job.status.state == "Suspended" and not job.pods, 30)
    job.edit(JOB, {"suspend": False})
    job.succeeds()


def test_a_deletion_ends_it(training: Jobs) -> None:
    job = held(training)
    job.server.delete(Where("trainingjobs", NAMESPACE, JOB, ""), None)
    job.until(lambda: not job.pods, 60)


@pytest.mark.parametrize("event", ["cordon", "window", "removal"])
def test_a_node_that_has_to_be_left_ends_it(training: Jobs, event: str) -> None:
    job = held(training)
    {
        "cordon": lambda: job.cordon("n1"),
        "window": lambda: job.plan_window("n1", 3600),
        "removal": lambda: job.take("n1", 600),
    }[event]()
    job.until_attempt(2, 20)
    job.succeeds()
    assert "n1" not in job.nodes


@pytest.mark.parametrize("event", ["node", "pod"])
def test_a_lost_worker_ends_it(training: Jobs, event: str) -> None:
    job = held(training)
    if event == "node":
        job.machine(1).cut_power()
    else:
        job.delete_pod(1)
    job.until_attempt(2, 90)
    job.succeeds()
    assert "n1" not in job.nodes or event == "pod"


def test_a_hang_is_held_with_its_ranks(training: Jobs) -> None:
    job = training(script=steps(40), recovery=HOLD, **LIMITS)
    rank = job.rank(1)
    rank.hung = True
    job.until(lambda: is_held(job), 60)
    job.run(60)
    assert is_held(job)
    assert rank.alive
    job.until_attempt(2, 80)
    job.succeeds()


def test_a_hang_that_ends_by_itself_ends_the_hold(training: Jobs) -> None:
    """Such an attempt is held no second time."""
    job = training(script=steps(60), recovery=HOLD, **LIMITS)
    job.rank(1).hung = True
    job.until(lambda: is_held(job), 60)
    job.rank(1).hung = False
    job.until(lambda: job.status.state == "Running", 20)
    assert job.attempt == 1
    job.rank(1).kill()
    job.until_attempt(2, 10)
    job.succeeds()
    assert [incident.held_seconds for incident in job.record.incidents] == [None]


def test_a_raised_time_out_ends_the_hold_of_a_hang(training: Jobs) -> None:
    job = training(script=steps(40), recovery=HOLD, **LIMITS)
    job.rank(1).hung = True
    job.until(lambda: is_held(job), 60)
    job.edit(JOB, {"progress": {"stepTimeoutSeconds": 400}})
    job.until(lambda: job.status.state == "Running", 130)
    job.until_attempt(2, 400)
    job.succeeds()


@pytest.mark.parametrize("writes", range(1, 10))
def test_the_operator_may_die_after_any_write(training: Jobs, writes: int) -> None:
    job = training(script=steps(40), recovery=HOLD)
    job.operator_dies_after(writes)
    job.rank(1).kill()
    job.until(lambda: is_held(job), 40)
    job.succeeds()
    assert job.levels == ["Start", "R0"]
    (incident,) = job.record.incidents
    assert incident.held_seconds == pytest.approx(120, abs=25)
    assert job.paid == (1, 0)


@pytest.mark.parametrize("seconds", range(20, 130, 15))
def test_the_operator_may_die_at_any_time_of_a_hold(training: Jobs, seconds: float) -> None:
    job = held(training)
    job.run(seconds)
    job.operator_dies(away=30)
    job.run(45)
    assert is_held(job) or seconds > 70
    job.succeeds()
    (incident,) = job.record.incidents
    assert incident.held_seconds == pytest.approx(120, abs=45)
    assert job.levels == ["Start", "R0"]


# Single decisions.

BEGAN = 90.0


def a_scene(seconds: float = 100.0, since: float | None = BEGAN, **recovery: Any) -> Scene:
    job = a_job(recovery={"onFailure": "Hold", "holdSeconds": 60, **recovery})
    failure = (
        None if since is None else HeldFailure(since=at(since), reason="RankFailed", index=0, message="no", step=6)
    )
    return Scene(job, seconds=seconds).fleet(6).gang(held_failure=failure).pods()


def committed(scene: Scene) -> GangSpec | None:
    commits = [action for action in decide(scene.world(), SETTINGS).actions if isinstance(action, CommitGang)]
    return commits[0].spec if commits else None


def broken(scene: Scene) -> Scene:
    return scene.all(running(1, step=6)).launcher(0, failed(1, step=6, age=5.0))


def test_the_beginning_is_one_commit_within_the_attempt() -> None:
    record = committed(broken(a_scene(since=None)))
    assert record is not None
    assert (record.attempt, record.incidents) == (1, [])
    assert record.held_failure is not None
    assert (record.held_failure.since, record.held_failure.index, record.held_failure.step) == (at(100), 0, 6)
    assert "ValueError: no" in record.held_failure.message


@pytest.mark.parametrize(("seconds", "situation"), [(149.9, Held), (150, Failing), (40, Held), (29, Failing)])
def test_it_lasts_by_a_clock_that_can_be_right(seconds: float, situation: type) -> None:
    assert isinstance(situation_of(broken(a_scene(seconds)).world()), situation)


def test_its_end_is_the_recovery_of_any_failure() -> None:
    record = committed(broken(a_scene(150)))
    assert record is not None
    assert (record.attempt, record.held_failure) == (2, None)
    assert [incident.held_seconds for incident in record.incidents] == [60]


def test_it_lasts_where_launchers_have_ended_ranks_without_a_leader() -> None:
    """They stay, with what is on their disks. By itself such an end is repaired at once."""
    for since, situation in ((BEGAN, Held), (None, Failing)):
        scene = a_scene(since=since).all(running(1, step=6, fenced=True, state="Reclaiming"))
        assert isinstance(situation_of(scene.world()), situation)
        record = committed(scene)
        assert (record is None) is (since is not None)
        assert record is None or record.attempt == 2


def test_a_new_leader_waits_for_reports() -> None:
    """Whatever the time: who has not heard of the failure cannot repair it."""
    for seconds in (100, 500):
        scene = a_scene(seconds).but(leader_age_seconds=1.0)
        assert isinstance(situation_of(scene.world()), Held)
        assert committed(scene) is None


@pytest.mark.parametrize(("seconds", "step", "over"), [(100, 6, False), (100, 7, True), (500, 6, True)])
def test_without_a_failure_the_attempt_goes_on(seconds: float, step: int, over: bool) -> None:
    scene = a_scene(seconds).all(running(1, step=step))
    record = committed(scene)
    assert (record is not None and record.held_failure is not None and record.held_failure.over) is over
    if record is not None:
        scene.record = record
        assert isinstance(situation_of(scene.world()), Training)
        assert record.attempt == 1
        assert isinstance(situation_of(broken(scene).world()), Failing)


@pytest.mark.parametrize(
    "changes",
    [
        {"suspend": True},
        {"eject": True},
        {"recovery": {"on_failure": "Recover"}},
    ],
    ids=["suspended", "ejected", "recover"],
)
def test_what_is_not_held(changes: dict[str, Any]) -> None:
    for since in (None, BEGAN):
        scene = broken(a_scene(since=since))
        recovery = scene.job.spec.recovery.model_copy(update=changes.get("recovery", {}))
        scene.job = scene.job.model_copy(
            update={"spec": scene.job.spec.model_copy(update={**changes, "recovery": recovery})}
        )
        assert isinstance(situation_of(scene.world()), Failing)
        record = committed(scene)
        assert record is not None
        assert record.attempt == 2


def test_a_failure_of_a_node_is_repaired_at_once() -> None:
    scene = broken(a_scene(since=None))
    del scene.nodes["n1"]
    record = committed(scene)
    assert record is not None
    assert (record.attempt, record.held_failure) == (2, None)


def test_mode_plain_holds_nothing() -> None:
    """The API refuses it; a job that was stored otherwise recovers."""
    scene = a_scene(since=None).ended(0)
    launch = scene.job.spec.launch.model_copy(update={"mode": LaunchMode.PLAIN})
    scene.job = scene.job.model_copy(update={"spec": scene.job.spec.model_copy(update={"launch": launch})})
    record = committed(scene)
    assert record is not None
    assert record.held_failure is None


def test_the_status_says_until_when_and_how_to_end_it() -> None:
    status = decide(broken(a_scene()).world(), SETTINGS).status
    assert status is not None
    assert (status.state, status.reason) == ("Held", "FailureHeld")
    (message,) = [condition.message for condition in status.conditions if condition.type == "Running"]
    for part in ("until 2026-", "shell default/", "--worker 0", "spec.recovery.onFailure", "cancel", "no"):
        assert part in message


def test_another_attempt_can_be_held_again() -> None:
    scene = broken(a_scene(since=None))
    assert scene.record is not None
    scene.record = scene.record.model_copy(update={"attempt": 2})
    scene.launchers = {uid: replace(view, attempt=2) for uid, view in scene.launchers.items()}
    record = committed(scene)
    assert record is not None
    assert record.held_failure is not None

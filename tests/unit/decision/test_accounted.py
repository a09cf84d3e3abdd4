"""The account is added to what was decided: it is in the same write, and changes nothing else."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.decision.unaccounted import (
    bare_plan,
    crash_loop,
    lost_node_and_new_leader,
    no_decision_reads_the_account,
    only_pod_deleted,
    progress_between_failures,
    silent_node_of_a_plain_job,
    story,
)
from tests.unit.lifecycle.builders import EPOCH, SETTINGS, Scene, a_job, an_incident, at, failed, idle, running

from muster.api.gang import AttemptStart, GangSpec
from muster.api.goodput import Account, Goodput
from muster.api.trainingjob import TrainingJobStatus
from muster.decision import accounted
from muster.decision.accounted import plan_with_goodput, record_with_account
from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.step import decide
from muster.record import size
from muster.record.size import FEW_INCIDENTS
from muster.status import figures
from muster.world.job import JobWorld


def committed(plan: Plan) -> GangSpec:
    (action,) = plan.actions
    assert isinstance(action, CommitGang)
    return action.spec


def broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def crashed() -> JobWorld:
    """A rank of a gang that trains has failed."""
    scene = Scene(a_job()).fleet().gang(account=Account(creation_time=at(0), counted_until=at(50)))
    return scene.pods().all(running(1, step=9)).launcher(0, failed(1, step=9)).world()


def test_a_record_with_its_go_counts_each_millisecond_until_then_once() -> None:
    job = a_job()
    job = job.model_copy(update={"metadata": job.metadata.model_copy(update={"creation_timestamp": EPOCH})})
    world = Scene(job).fleet().gang(go=False).pods().all(idle(1)).world()
    assert world.gang is not None
    go = AttemptStart(time=world.now, master_address="10.0.0.1", master_port=20001)
    account = record_with_account(world, world.gang.spec.model_copy(update={"start": go})).account
    assert account is not None
    assert (account.creation_time, account.counted_until) == (EPOCH, world.now)
    assert sum(account.milliseconds.values()) == (world.now - EPOCH).total_seconds() * 1000 > 0


def test_what_is_decided_has_no_account_and_what_is_committed_has() -> None:
    world = Scene(a_job()).fleet().world()
    plan = decide(world, SETTINGS)
    kept = plan_with_goodput(world, plan)
    assert (committed(plan).account, [member.gpus for member in committed(plan).members]) == (None, [None] * 3)
    assert committed(kept).account is not None
    assert [member.gpus for member in committed(kept).members] == [8] * 3
    assert bare_plan(kept) == plan


def test_a_status_is_decided_without_goodput_and_written_with_it() -> None:
    scene = Scene(a_job()).fleet().gang(account=Account(creation_time=at(0), counted_until=at(50)))
    world = scene.pods().all(running(1, step=9, first_step=1, first_step_age_seconds=9.0)).world()
    plan = decide(world, SETTINGS)
    kept = plan_with_goodput(world, plan)
    assert plan.status is not None
    assert kept.status is not None
    assert (plan.status.goodput is None, kept.status.goodput is not None) == (True, True)
    assert bare_plan(kept) == plan


@pytest.mark.parametrize("name", ["goodput_of_status", "incidents_of_status"])
def test_figures_that_fail_leave_the_status_as_decided(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_logged", set())
    monkeypatch.setattr(accounted, name, broken)
    published = Goodput(creation_time=at(0), counted_until=at(20))
    scene = Scene(a_job()).fleet().gang(2, incidents=[an_incident(1, resumed_step=1, settled=True)])
    scene.job = scene.job.model_copy(update={"status": TrainingJobStatus(goodput=published)})
    world = scene.pods().all(running(2, step=9)).world()
    plan = decide(world, SETTINGS)
    assert plan.status is not None
    assert plan.status.incidents
    status = plan_with_goodput(world, plan).status
    assert status is not None
    assert status.incidents == plan.status.incidents
    assert (status.goodput == published) is (name == "goodput_of_status")


def test_an_account_that_fails_leaves_the_record_as_decided(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(figures, "_logged", set())
    monkeypatch.setattr(accounted, "with_account", broken)
    world = crashed()
    plan = decide(world, SETTINGS)
    assert plan.commits
    assert plan_with_goodput(world, plan) == plan
    assert "the account could not be computed, which is a defect of Muster" in caplog.text


def test_an_account_that_a_user_has_edited_keeps_no_job_from_its_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the API server would refuse is not committed."""
    monkeypatch.setattr(figures, "_logged", set())
    edited = Account(creation_time=at(0), counted_until=at(0), milliseconds={f"bucket-{n}": 1 for n in range(15)})
    world = Scene(a_job(), seconds=500).fleet().gang(go=False, account=edited).world()
    assert world.gang is not None
    spec = world.gang.spec.model_copy(update={"attempt": 2})
    assert record_with_account(world, spec) == spec


def test_the_size_of_a_record_is_that_with_its_account(monkeypatch: pytest.MonkeyPatch) -> None:
    world = crashed()
    assert world.gang is not None
    incidents = [an_incident(number, resumed_step=1) for number in range(FEW_INCIDENTS + 8)]
    spec = world.gang.spec.model_copy(update={"attempt": 2, "start": None, "incidents": incidents})
    monkeypatch.setattr(size, "SURELY_SMALL", 0)
    monkeypatch.setattr(size, "MAX_BYTES", size._bytes(spec))
    kept = record_with_account(world, spec)
    assert kept.account is not None
    assert len(kept.incidents) == FEW_INCIDENTS
    monkeypatch.setattr(size, "MAX_BYTES", size._bytes(record_with_account(world, spec)) * 2)
    assert len(record_with_account(world, spec).incidents) == FEW_INCIDENTS + 8


def test_whether_a_step_was_seen_is_the_record_s_to_say() -> None:
    """The account counts by more: a start has failed where no report of a step can be true."""
    scene = Scene(a_job()).fleet().gang(account=Account(creation_time=at(0), counted_until=at(50)))
    world = scene.pods().all(running(1)).launcher(0, failed(1, step=9)).world()
    kept = committed(plan_with_goodput(world, decide(world, SETTINGS)))
    assert kept.account is not None
    assert (kept.account.failed_starts, kept.incidents[-1].trained) == (1, True), "the step has no age"


@pytest.mark.parametrize(
    "life",
    [crash_loop, progress_between_failures, lost_node_and_new_leader, only_pod_deleted, silent_node_of_a_plain_job],
)
def test_no_decision_of_a_life_reads_the_account(life: Callable[[], object]) -> None:
    no_decision_reads_the_account(life)


def test_in_a_story_no_decision_reads_what_the_account_has_written() -> None:
    no_decision_reads_the_account(lambda: story("old-refund"))

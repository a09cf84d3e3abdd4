"""Decisions as they are without the goodput account: what it adds to records and statuses is taken away."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.lifecycle.lives import saving
from tests.unit.lifecycle.testbed import PLAIN, OneJob, steps

from muster.api.gang import GangSpec
from muster.api.trainingjob import TrainingJob, TrainingJobStatus
from muster.controller import reconciler
from muster.decision.accounted import plan_with_goodput
from muster.lifecycle.plan import Action, CommitGang, Plan
from muster.lifecycle.step import decide
from muster.pods.worker_pod import WorkerSettings
from muster.recovery import budgets
from muster.world.job import JobWorld
from simulate import stories
from simulate.play import play

STORIES = Path(__file__).parents[1] / "simulate" / "stories"


def bare_record(spec: GangSpec) -> GangSpec:
    figures: dict[str, Any] = {"lost_milliseconds": None, "resumed_time": None, "account_offset_milliseconds": 0}
    changes: dict[str, Any] = {
        "account": None,
        "members": [member.model_copy(update={"gpus": None}) for member in spec.members],
        "incidents": [incident.model_copy(update=figures) for incident in spec.incidents],
    }
    return spec.model_copy(update=changes)


def bare_status(status: TrainingJobStatus) -> TrainingJobStatus:
    figures = {"lost_seconds": None, "resumed_time": None, "lost_steps": None}
    incidents = [incident.model_copy(update=figures) for incident in status.incidents]
    return status.model_copy(update={"goodput": None, "incidents": incidents})


def bare_job(job: TrainingJob) -> TrainingJob:
    return job.model_copy(update={"status": bare_status(job.status)})


def bare_world(world: JobWorld) -> JobWorld:
    gang = world.gang and world.gang.model_copy(update={"spec": bare_record(world.gang.spec)})
    return replace(world, gang=gang, job=bare_job(world.job))


def bare_plan(plan: Plan) -> Plan:
    actions: list[Action] = [
        replace(action, spec=bare_record(action.spec)) if isinstance(action, CommitGang) else action
        for action in plan.actions
    ]
    return replace(plan, actions=tuple(actions), status=plan.status and bare_status(plan.status))


def budgets_of(world: JobWorld) -> tuple[int, int]:
    """Restarts that count against the budgets."""
    if world.gang is None:
        return 0, 0
    record, now = world.gang.spec, world.now
    return budgets.application_restarts(record, now), budgets.hardware_restarts(record, now)


def no_decision_reads_the_account(live: Callable[[], object]) -> None:
    """Each decision of a life, restart budgets included, is the same without what the account has written; and the
    account changes nothing else. So a life without accounts would have the same decisions from its first one on."""
    differing: list[tuple[object, object]] = []
    commits: list[GangSpec] = []

    def twice(world: JobWorld, settings: WorkerSettings) -> Plan:
        plan, bare = decide(world, settings), bare_world(world)
        again = decide(bare, settings)
        if bare_plan(plan) != bare_plan(again) or budgets_of(world) != budgets_of(bare):
            differing.append((plan, again))
        return plan

    def accounted(world: JobWorld, plan: Plan) -> Plan:
        kept = plan_with_goodput(world, plan)
        if bare_plan(plan) != bare_plan(kept):
            differing.append((plan, kept))
        commits.extend(action.spec for action in kept.actions if isinstance(action, CommitGang))
        return kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reconciler, "decide", twice)
        patch.setattr(reconciler, "plan_with_goodput", accounted)
        live()
    assert differing == []
    assert any(spec.incidents for spec in commits)
    assert all(spec.account is not None for spec in commits)


def story(name: str) -> None:
    assert not play(stories.read(STORIES / f"{name}.json")).violation


def crash_loop() -> None:
    """The program fails at one step again and again, until the job has failed."""
    with closing(OneJob(script=steps(crashes_after=0))) as job:
        job.ends()


def progress_between_failures() -> None:
    """The program fails at another step each time, beyond a new checkpoint: each failure is refunded."""
    with closing(OneJob(script=steps(25), recovery={"applicationRestartsPerDay": 1})) as job:
        for step in (7, 12, 17):
            job.until_step(step)
            job.rank(0).exit(3, "ValueError: no")
            job.until_attempt(job.attempt + 1)
        job.succeeds()


def lost_node_and_new_leader() -> None:
    """A node loses power; the leader dies with it, and the next one has heard of no step."""
    with closing(OneJob(lag=1.0)) as job:
        job.until_step(7)
        job.machine(1).cut_power()
        job.operator_dies()
        job.succeeds()


def only_pod_deleted() -> None:
    """Of a job of one worker: no launcher is left that reports its steps."""
    with closing(OneJob(workers=1)) as job:
        job.until_step(7)
        job.delete_pod(0, by_force=True)
        job.until(lambda: job.attempt == 2 and job.step >= 8)
        job.delete_pod(0)
        job.succeeds()


def silent_node_of_a_plain_job() -> None:
    with closing(OneJob(**PLAIN)) as job:
        job.until_step(7)
        job.machine(1).cut_power()
        job.run(60)
        job.machine(1).boot_up()
        job.succeeds()


def node_left_for_maintenance() -> None:
    with closing(OneJob(script=steps(200), **saving(60))) as job:
        job.until_step(7)
        job.plan_window(job.nodes[1], 300)
        job.until_go(2)
        job.succeeds()

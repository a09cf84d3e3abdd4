"""Decisions as they are without the goodput account: what it adds to records and statuses is taken away."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.lifecycle import lives
from tests.unit.lifecycle import theatre as stage
from tests.unit.lifecycle.builders import a_job
from tests.unit.lifecycle.theatre import Theatre

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

Decision = tuple[datetime, Plan, tuple[int, int]]


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


def decisions_of(life: Callable[[], object], *, accounts: bool) -> tuple[list[Decision], list[JobWorld]]:
    """All decisions of a life with what the restart budgets count before each, and what they are made of.

    Args:
        life: on the stage.
        accounts: whether records get their account.
    """
    decisions: list[Decision] = []
    worlds: list[JobWorld] = []

    def noted(world: JobWorld, settings: WorkerSettings) -> Plan:
        plan = decide(world, settings)
        charged = (0, 0)
        if world.gang is not None:
            record, now = world.gang.spec, world.now
            charged = budgets.application_restarts(record, now), budgets.hardware_restarts(record, now)
        decisions.append((world.now, bare_plan(plan), charged))
        worlds.append(world)
        return plan

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "decide", noted)
        if not accounts:
            patch.setattr(stage, "plan_with_goodput", lambda _world, plan: plan)
            patch.setattr(Theatre, "_check_account", lambda *_: None)
        life()
    return decisions, worlds


def the_same_is_decided_without_accounts(life: Callable[[], object]) -> None:
    """Restart budgets included: with the account replaced by nothing, each plan of the life is the same."""
    with_accounts, worlds = decisions_of(life, accounts=True)
    without, bare_worlds = decisions_of(life, accounts=False)
    assert with_accounts == without
    assert len(without) > 20
    records = [world.gang.spec for world in worlds if world.gang is not None]
    assert records
    assert all(record.account is not None for record in records)
    assert all(world.gang.spec.account is None for world in bare_worlds if world.gang is not None)


def no_decision_of_a_story_reads_the_account(name: str) -> None:
    """Each decision is the same without what the account has written, and the account changes nothing else."""
    differing: list[tuple[Plan, Plan]] = []
    commits: list[GangSpec] = []

    def twice(world: JobWorld, settings: WorkerSettings) -> Plan:
        plan = decide(world, settings)
        again = decide(bare_world(world), settings)
        if bare_plan(plan) != bare_plan(again):
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
        outcome = play(stories.read(STORIES / f"{name}.json"))
    assert not outcome.violation
    assert differing == []
    assert any(spec.incidents for spec in commits)
    assert all(spec.account is not None for spec in commits)


def crash_loop() -> None:
    """The program fails at one step again and again, until the job has failed."""
    theatre = Theatre()
    job = a_job(recovery={"applicationRestartsPerDay": 3})
    play = theatre.submit(job, fails=lambda _attempt, step: (1, 3, "ValueError: no") if step == 8 else None)
    theatre.finish(play)


def progress_between_failures() -> None:
    """The program fails at another step each time, beyond a new checkpoint: each failure is refunded."""
    theatre = Theatre()
    job = a_job(recovery={"applicationRestartsPerDay": 1})
    play = theatre.submit(
        job, fails=lambda attempt, step: (1, 3, "ValueError: no") if step == 7 * attempt and attempt < 5 else None
    )
    theatre.finish(play)


def lost_node_and_new_leader() -> None:
    """A node loses power; the leader dies with it, and the next one has heard of no step."""
    theatre = Theatre(nodes=5, lag_seconds=1.0)
    play = theatre.submit(a_job())
    theatre.until(lambda: play.step >= 12)
    theatre.power_cut(theatre.node_of(play, 1).name)
    theatre.kill_operator()
    theatre.finish(play)


def only_pod_deleted() -> None:
    """Of a job of one worker: no launcher is left that reports its steps."""
    theatre = Theatre()
    play = theatre.submit(a_job(nodes=1))
    theatre.until(lambda: play.step >= 8)
    theatre.force_delete_pod(play, 0)
    theatre.until(lambda: play.record.attempt == 2 and play.step >= 10)
    theatre.delete_pod(play, 0)
    theatre.finish(play)


def silent_node_of_a_plain_job() -> None:
    lives.plain_job_waits_for_a_lost_node(60)


def node_left_for_maintenance() -> None:
    lives.stops_in_time_saved_and_waits(300, 60)

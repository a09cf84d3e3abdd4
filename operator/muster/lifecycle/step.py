"""The one step of a job's life: from the state of the world to a plan. Pure, so that operator, simulator and tests
share it.

The situation of the job is found once (`situation`), what deals with that situation plans, and at the end the status
is made. A step either commits the Gang (one guarded update, nothing else) or brings pods into line with the record,
never both. So after a crash the next step finds a state that an earlier step has left on purpose.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from collections.abc import Mapping
from dataclasses import replace

from muster.burnin import progress as burnin
from muster.lifecycle import ending, evacuating, holding, pending, recovering, starting, training
from muster.lifecycle.commit import commit
from muster.lifecycle.plan import CommitGang, Plan
from muster.lifecycle.situation import (
    BlameDue,
    Deleting,
    Ejected,
    Ending,
    Failing,
    Finished,
    Held,
    Leaving,
    Pending,
    Starting,
    Training,
    situation_of,
)
from muster.placement.tree import UnpreparedError
from muster.pods.worker_pod import WorkerSettings
from muster.record.incidents import with_incidents_settled
from muster.status import job_status
from muster.status.report import State, StatusReport
from muster.world.checks import NodeChecks
from muster.world.job import JobWorld


def decide(world: JobWorld, settings: WorkerSettings) -> Plan:
    """Return the plan for one job: what to do next, with the checkers' tasks and the job's status.

    Where the fleet is large and the solver is not prepared, the plan names what it has to be prepared for, and nothing
    else.
    """
    try:
        plan = _plan(world, settings)
    except UnpreparedError as missing:
        return Plan(unprepared=missing.needs)
    return with_status(world, replace(plan, checks=checks_of(world, plan)))


def with_status(world: JobWorld, plan: Plan) -> Plan:
    """Return the plan with the job's status made of its report, and with Events where the reason is new."""
    if plan.status_report is None:
        return plan
    now, events = job_status.status_of(world, plan.status_report)
    return replace(plan, status=now, announcements=(*plan.announcements, *events))


def checks_of(world: JobWorld, plan: Plan) -> Mapping[str, NodeChecks] | None:
    """Return the checkers' tasks, as long as the attempt lasts that is tested; None: they have none.

    A job that is over has given its nodes back, whatever its record says.
    """
    gang, report = world.gang, plan.status_report
    is_over = (
        (report is not None and report.completion is not None)
        or world.job.status.completion is not None
        or world.job.metadata.deletion_timestamp is not None
    )
    if gang is None or gang.spec.start is not None or is_over:
        return None
    tested = (gang.spec.attempt, None)
    records = (action.spec for action in plan.actions if isinstance(action, CommitGang))
    if any((spec.attempt, spec.start) != tested for spec in records):
        return None
    state = burnin.burn_in_state(world)
    return None if state is None else state.checks


def _plan(world: JobWorld, settings: WorkerSettings) -> Plan:
    match situation_of(world):
        case Deleting():
            return Plan()
        case Finished(end):
            return ending.clean_up(world, end)
        case Pending():
            return pending.plan(world, settings)
        case Ejected():
            return Plan((), StatusReport(State.EJECTED))  # which launchers know of it; nothing is done
        case Ending(gang, end):
            return ending.record_end(world, gang, end)
        case Held(gang, failures):
            return holding.plan(world, gang, failures, settings)
        case Failing(gang, failures):
            return recovering.plan(world, gang, failures)
        case BlameDue(gang):
            return commit(world, with_incidents_settled(world, gang))
        case Leaving(gang, step):
            return evacuating.plan(world, gang.spec, step)
        case Starting(gang):
            return starting.plan(world, gang, settings)
        case Training(gang, without_place):
            return training.plan(world, gang, settings, without_place)

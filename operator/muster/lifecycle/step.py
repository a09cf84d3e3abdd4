"""The one step of a job's life: from the state of the world to a plan. Pure, so that operator, simulator and tests
share it.

The situation of the job is found once (`situation`), what deals with that situation plans, and at the end the status
is made. A step either commits the Gang (one guarded update, nothing else) or brings pods into line with the record,
never both. So after a crash the next step finds a state that an earlier step has left on purpose.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from muster.lifecycle import burnin, ending, evacuating, pending, record, recovering, starting, status, training
from muster.lifecycle.commit import commit
from muster.lifecycle.plan import Plan
from muster.lifecycle.situation import (
    BlameDue,
    Deleting,
    Ending,
    Failing,
    Finished,
    Leaving,
    Starting,
    Training,
    Waiting,
    situation_of,
)
from muster.lifecycle.worker_pod import WorkerSettings
from muster.world.job import JobWorld


def decide(world: JobWorld, settings: WorkerSettings) -> Plan:
    """Return the plan for one job: what to do next, with the checkers' tasks and the job's status."""
    return status.with_status(world, burnin.with_checks(world, _plan(world, settings)))


def _plan(world: JobWorld, settings: WorkerSettings) -> Plan:
    match situation_of(world):
        case Deleting():
            return Plan()
        case Finished(end):
            return ending.clean_up(world, end)
        case Waiting():
            return pending.plan(world, settings)
        case Ending(gang, end):
            return ending.record_end(world, gang, end)
        case Failing(gang, failures):
            return recovering.plan(world, gang, failures)
        case BlameDue(gang):
            return commit(world, record.with_incidents_settled(world, gang))
        case Leaving(gang, step):
            return evacuating.plan(world, gang.spec, step)
        case Starting(gang):
            return starting.plan(world, gang, settings)
        case Training(gang):
            return training.plan(world, gang, settings)

"""The one step of a job's life: from the state of the world to a plan. Pure, so that operator, simulator and tests
share it.

The facts are derived once (`derive`), the phase is chosen once (`phase`), that phase plans, and at the end the status
is made. A step either commits the Gang (one guarded update, nothing else) or brings pods into line with the record,
never both. So after a crash the next step finds a state that an earlier step has left on purpose.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from collections.abc import Callable, Mapping

from muster.lifecycle import assembling, burnin, ending, evacuating, pending, recovering, status, training
from muster.lifecycle.derive import derive
from muster.lifecycle.facts import Facts
from muster.lifecycle.phase import Phase, phase_of
from muster.lifecycle.plan import Plan
from muster.lifecycle.worker_pod import WorkerSettings
from muster.world.job import JobWorld

_PLANNERS: Mapping[Phase, Callable[[JobWorld, Facts, WorkerSettings], Plan]] = {
    Phase.GOING: lambda world, facts, settings: Plan(),
    Phase.FINISHED: ending.clean_up,
    Phase.PENDING: pending.plan,
    Phase.ENDING: ending.record_end,
    Phase.RECOVERING: recovering.plan,
    Phase.EVACUATING: evacuating.plan,
    Phase.ASSEMBLING: assembling.plan,
    Phase.TRAINING: training.plan,
}


def decide(world: JobWorld, settings: WorkerSettings) -> Plan:
    """Return the plan for one job: what to do next, with the checkers' tasks and the job's status."""
    facts = derive(world)
    return status.with_status(world, burnin.with_checks(world, _PLANNERS[phase_of(facts)](world, facts, settings)))

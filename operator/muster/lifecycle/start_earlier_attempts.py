"""The gates of a start that are about earlier attempts: their ranks have to end, and repeated failures cost a pause.
Pure.

Tests: tests/unit/fencing/test_survivors.py, tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from muster.api.gang import GangSpec
from muster.checkpoints.resume import Missing
from muster.fencing.survivors import awaited_proof_message, is_fenced
from muster.lifecycle.commit import commit, leftovers
from muster.lifecycle.plan import Plan
from muster.lifecycle.start_context import StartContext
from muster.lifecycle.start_wait import TICK_SECONDS, plan_of_wait
from muster.record.attempts import budget_exhausted
from muster.record.starts import after_all_fenced
from muster.recovery import budgets, holds
from muster.recovery.stacks import is_printing
from muster.status.report import State, StatusReport
from muster.world.job import JobWorld


def list_checkpoints_again(start: StartContext) -> Plan | None:
    """Return the plan that makes launchers list the checkpoints once more after all unfenced workers are fenced; None:
    some may still save, or there are none."""
    if not _are_all_fenced(start.world, start.spec):
        return None
    return commit(start.world, after_all_fenced(start.world, start.spec))


def _are_all_fenced(world: JobWorld, spec: GangSpec) -> bool:
    """Whether all unfenced workers are fenced, so that launchers have to list the checkpoints again."""
    return (
        world.job.spec.checkpoint.directory is not None
        and bool(spec.unfenced_workers)
        and all(is_fenced(world, unfenced_worker) for unfenced_worker in spec.unfenced_workers)
        and not any(is_printing(world, member.pod_uid) for member in spec.members)
    )


def await_fences(start: StartContext) -> Plan | None:
    """Return the plan of a gang in mode Plain that has unfenced workers; None: there are none.

    No new pod is made before each of them is fenced, and the record says so first.
    """
    world, spec = start.world, start.spec
    if not spec.unfenced_workers:
        return None
    alive = next((worker for worker in spec.unfenced_workers if not is_fenced(world, worker)), None)
    if alive is None:
        return commit(world, after_all_fenced(world, spec))
    return plan_of_wait(world, Missing("OldRanksNotFenced", awaited_proof_message(world, alive)), leftovers(world))


def back_off(start: StartContext) -> Plan | None:
    """Return the plan of a start that has to wait because of earlier failures; None: it need not wait."""
    world, spec = start.world, start.spec
    if budget_exhausted(world, spec):
        message = (
            "the restart budget is used up: Muster waits a few seconds for evidence that the job did not cause its "
            "failures, and otherwise ends the job"
        )
        report = StatusReport(State.STARTING, "AwaitingEvidence", message)
        return Plan(leftovers(world), report, wake_in_seconds=TICK_SECONDS)
    until = holds.held_until(world, spec)
    if until:
        text = f"failed {budgets.CRASH_LOOP} times or more without a new checkpoint; next start at {until:%H:%M:%S} UTC"
        pause = (until - world.now).total_seconds()
        return Plan(leftovers(world), StatusReport(State.STARTING, "CrashLoopBackOff", text), wake_in_seconds=pause)
    return None

"""The last gates of a start: the barrier opens, or all pods run that start their ranks themselves. Pure.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py, tests/unit/checkpoints/test_resume.py.
"""

from collections.abc import Sequence
from dataclasses import replace

from muster.api.gang import GangSpec, Resume
from muster.burnin import progress as burnin
from muster.burnin.state import INCONCLUSIVE
from muster.checkpoints import node_local, resume, resume_preset
from muster.checkpoints.resume import Missing
from muster.lifecycle import move_incomplete
from muster.lifecycle.commit import commit
from muster.lifecycle.plan import Plan
from muster.lifecycle.start_context import StartContext
from muster.lifecycle.start_missing import not_running, resume_point
from muster.lifecycle.start_wait import TICK_SECONDS, plan_of_wait
from muster.protocol.checkpoint_names import above
from muster.protocol.resuming import is_own
from muster.record.burn_in import after_burn_in_passed
from muster.record.starts import with_attempt_beyond_fence_file, with_barrier_open, with_plain_start
from muster.recovery import verification
from muster.status.report import Announcement, State, StatusReport


def open_barrier(start: StartContext) -> Plan:
    """Return the plan that opens the start barrier, or waits for what is missing for that."""
    world, spec = start.world, start.spec
    changed = with_attempt_beyond_fence_file(world, spec) or resume.without_cleared_request(world.job, spec)
    if changed is not None:
        return commit(world, changed)
    point = resume_point(world, spec)
    if isinstance(point, Missing):
        return _plan_before_start(start, point)
    where, preset = point
    opened = with_barrier_open(world, spec, where, preset)
    ordered = move_incomplete.with_move_ordered(world, spec, opened)
    if ordered is not None:
        return commit(world, ordered)
    move = move_incomplete.awaited_move(world, spec)
    if move is not None:
        return _plan_before_start(start, move)
    resumed = opened.start.resume if opened.start else None
    passed_over, how = resume.passed_over_text(world, spec, resumed), resume_preset.resume_text(world.job, opened)
    parts = (f"attempt {spec.attempt} starts {_from_where(start, opened, resumed)}", passed_over, how, where.warning)
    started = Announcement("Started", "; ".join(filter(None, parts)), warning=bool(where.warning))
    return _plan_of_start(start, opened, started, move_incomplete.move_events(world, spec))


def await_all_pods(start: StartContext) -> Plan:
    """Return the plan of a gang without a start barrier (mode Plain): the attempt has begun once all pods run."""
    world, spec = start.world, start.spec
    late = next((worker_view for worker_view in world.worker_views if not worker_view.runs), None)
    if late is not None:
        return plan_of_wait(world, not_running(world, late))
    started = Announcement("Started", f"attempt {spec.attempt} runs")
    return _plan_of_start(start, with_plain_start(world, spec), started)


def _from_where(start: StartContext, opened: GangSpec, resumed: Resume | None) -> str:
    """Return from which checkpoint the ranks start, and where that was asked for, for people."""
    job, spec = start.world.job, start.spec
    where = f"from checkpoint {resumed.step} ({resumed.path})" if resumed else "without a checkpoint from Muster"
    where += node_local.local_start_text(resumed, job, opened)
    if resumed and spec.checkpoint is None and not node_local.is_local(job, resumed):
        own = is_own(resumed.path, job.spec.checkpoint.directory or "")
        where += f", found in {'spec.checkpoint.directory' if own else above(resumed.path)}"
    if opened.branch and opened.branch.resume_from not in ("", spec.branch.resume_from if spec.branch else ""):
        where += ", as spec.checkpoint.resumeFrom asks"
    return where


def _plan_of_start(
    start: StartContext, opened: GangSpec, started: Announcement, others: Sequence[Announcement] = ()
) -> Plan:
    """Return the plan that records the start, with the results of the burn-in in the record and as Events.

    Args:
        start: what the gates of the start are given.
        opened: the record of the gang that has started.
        started: the Event about the start.
        others: other Events about it.
    """
    world, events = start.world, [*others]
    tested = burnin.burn_in_state(world)
    if tested is not None and tested.missing is None:
        profile = str(burnin.profile_of(world))
        opened = after_burn_in_passed(world, opened, profile, tested.untested, tested.message, tested.measured)
        if tested.untested:
            nodes = f"{len(tested.untested)} of {len(opened.members)} nodes"
            note = f"the ranks start, though the tests of {nodes} have no result: {tested.message}"
            events.append(Announcement(INCONCLUSIVE, note, warning=True))
        elif tested.message:
            events.append(Announcement("BurnInWarning", tested.message, warning=True))
        if tested.measured and not tested.is_odd:
            started = replace(started, note=f"{started.note}; {tested.measured}")
    if start.spec.open_corruption is not None:
        opened, note = burnin.with_test_results(world, opened)
        events.append(Announcement("CorruptionExamined", note, warning=True))
    return commit(world, opened, started, *events)


def _plan_before_start(start: StartContext, missing: Missing) -> Plan:
    """Return the plan of a start that is still waiting: other verifiers are asked where that may help.

    After ten minutes the job is reported as Stalled, with what a user can do.
    """
    world, spec = start.world, start.spec
    others = verification.with_other_verifiers(world, spec, missing.reason)
    if others is not None:
        note = f"attempt {spec.attempt}: other workers verify the checkpoints now ({missing.message})"
        return commit(world, others, Announcement("VerifiersChanged", note, warning=True))
    overdue = verification.is_overdue(world, spec, missing.reason)
    if missing.stalled or overdue:
        message = missing.message + (verification.REMEDIES[missing.reason] if overdue else "")
        return Plan((), StatusReport(State.STALLED, missing.reason, message), wake_in_seconds=TICK_SECONDS)
    return plan_of_wait(world, missing)

"""What is done at each step of a planned evacuation: `evacuation_step` has when each is due. Pure."""

from collections.abc import Mapping

from muster.api.gang import MAX_SHORT_ESTIMATES, GangSpec, Level
from muster.checkpoints import resume
from muster.lifecycle import leavers, moves, placing
from muster.lifecycle.commit import commit
from muster.lifecycle.evacuation_step import (
    MAINTENANCE_STARTS,
    STOPS,
    BeginEvacuation,
    CancelEvacuation,
    EndEvacuation,
    EvacuationStep,
    FollowLateAnswer,
    GiveUpEvacuation,
    MoveMembers,
    ReleaseNodes,
    StartAgain,
)
from muster.lifecycle.plan import Plan
from muster.record import incidents, members
from muster.record.attempts import NextAttempt, next_attempt, without_nodes
from muster.record.evacuation import LEAVE_WITHDRAWN, with_evacuation_begun, with_late_answer, without_evacuation
from muster.record.preemptions import (
    PREEMPTED,
    after_preemption,
    gives_way_text,
    was_estimate_short,
    with_short_estimate,
    with_withdrawn_preemption,
)
from muster.recovery.words import on_nodes
from muster.status.report import Announcement
from muster.world.job import JobWorld
from muster.world.names import shortened


def plan(world: JobWorld, spec: GangSpec, step: EvacuationStep) -> Plan:
    """Return the plan for a step of a planned evacuation."""
    match step:
        case CancelEvacuation():
            event = Announcement("EvacuationCancelled", "The job no longer has to leave a node. It trains on.")
            return commit(world, without_evacuation(with_withdrawn_preemption(world, spec)), event)
        case GiveUpEvacuation():
            return commit(world, without_evacuation(spec))  # the status says that there is no place
        case ReleaseNodes(reason):
            if reason != PREEMPTED:
                return commit(world, without_nodes(world, spec, reason))
            note = f"{_reason_text(world, spec, reason, {})}; it had not started, and waits for nodes in the queue"
            return commit(world, after_preemption(world, spec, answered=True), Announcement("Preempted", note))
        case MoveMembers():
            return _plan_move(world, spec, step)
        case BeginEvacuation():
            return _plan_begin(world, spec, step)
        case EndEvacuation():
            return _plan_end(world, spec, step)
        case FollowLateAnswer(saves_until):
            return commit(world, with_late_answer(world, with_withdrawn_preemption(world, spec), saves_until))
        case StartAgain():
            return _plan_start_again(world, spec, step)


def _plan_move(world: JobWorld, spec: GangSpec, step: MoveMembers) -> Plan:
    moved = moves.with_members_moved(world, spec, members.indices_on(spec, step.why), step.reason)
    note = f"{', '.join(step.why.values())}: attempt {moved.attempt} starts without it: {on_nodes(moved)}"
    return commit(world, moved, Announcement("NodeEvacuated", note))


def _plan_begin(world: JobWorld, spec: GangSpec, step: BeginEvacuation) -> Plan:
    reason_text = _reason_text(world, spec, step.reason, step.why)
    evacuating_record = with_evacuation_begun(world, spec, step.reason, sorted(step.why), step.saves_until)
    if step.reason == PREEMPTED:
        evacuating_record = with_short_estimate(evacuating_record)
    limit = (evacuating_record.evacuation.deadline - world.now).total_seconds() if evacuating_record.evacuation else 0.0
    note = f"{reason_text}. The job stops after its next complete checkpoint, at the latest in {limit:.0f} s."
    if unsaved := resume.saves_unseen(world.job):
        note = f"{reason_text}. The job stops at once, without waiting for a checkpoint: {unsaved}."
    elif (needs := _save_seconds(world)) is not None and needs > limit:
        note += f" The newest save took {needs:.0f} s: one that begins now may be incomplete by then."
    if step.reason in STOPS:
        note += " No other node is free, so the job then waits in the queue."
    elif step.reason == PREEMPTED:
        note += " Then it waits in the queue."
    elif step.remaining:
        note += f" It stays on {shortened(step.remaining)} until other suitable nodes are free."
    return commit(world, evacuating_record, Announcement("EvacuationPlanned", note))


def _plan_end(world: JobWorld, spec: GangSpec, step: EndEvacuation) -> Plan:
    evacuation, is_saved, nodes = step.evacuation, step.is_saved, ", ".join(step.why.values())
    after = _after_which_save(world, spec, step)
    if evacuation.reason == PREEMPTED:
        reason_text = _reason_text(world, spec, PREEMPTED, step.why)
        note = f"stopped {after}: {reason_text}; the job waits for nodes in the queue"
        left = after_preemption(world, spec, answered=is_saved or leavers.follow(world, spec))
        if was_estimate_short(spec):
            closes = f"close backfill to namespace {world.job.metadata.namespace}"
            note += f". Its estimate was too short: {MAX_SHORT_ESTIMATES} within a day {closes}"
        return commit(world, left, Announcement("Preempted", note, warning=not is_saved))
    if not step.why:
        event = Announcement("Suspended", f"stopped {after}; its nodes are free", warning=not is_saved)
        return commit(world, without_nodes(world, spec), event)
    leaving = members.indices_on(spec, step.why)
    if evacuation.reason in STOPS and not placing.are_replaceable(world, spec, leaving):
        note = f"stopped {after}: {nodes}, and no other node is free; the job waits for nodes in the queue"
        name = "StoppedForMaintenance" if evacuation.reason == MAINTENANCE_STARTS else "StoppedForRemoval"
        released = without_nodes(world, spec, evacuation.reason)
        return commit(world, released, Announcement(name, note, warning=not is_saved))
    choice = placing.move(world, spec, members.indices_on(spec, evacuation.nodes))
    incident = incidents.planned_incident(world, spec, choice.level, evacuation, after)
    moved = next_attempt(world, spec, choice, evacuation.reason, incident)
    note = f"attempt {moved.attempt} leaves {', '.join(evacuation.nodes)} {after}: {on_nodes(moved)}"
    return commit(world, moved, Announcement("NodeEvacuated", note, warning=not is_saved))


def _reason_text(world: JobWorld, spec: GangSpec, reason: str, why: Mapping[str, str]) -> str:
    """Return why nodes are left, for people."""
    if reason == PREEMPTED:
        return f"the job {gives_way_text(world.job, spec, world.preempted_by)}"
    return ", ".join(why.values()) if why else "the job is suspended"


def _plan_start_again(world: JobWorld, spec: GangSpec, step: StartAgain) -> Plan:
    choice = NextAttempt(placing.least_level(world, Level.IN_PLACE), spec.members)
    restarted = next_attempt(world, with_withdrawn_preemption(world, spec), choice, LEAVE_WITHDRAWN)
    newest = resume.newest_checkpoint(world, spec)
    after = f"after checkpoint {newest.step}" if step.is_saved and newest else "without a new checkpoint"
    note = (
        f"The request to leave was withdrawn, but the ranks follow it, and stop {after}. Attempt {restarted.attempt} "
        f"starts {on_nodes(restarted)}."
    )
    return commit(world, restarted, Announcement("EvacuationCancelled", note, warning=not step.is_saved))


def _after_which_save(world: JobWorld, spec: GangSpec, step: EndEvacuation) -> str:
    """Return after which checkpoint the ranks stop, or why after none, for people."""
    if unsaved := resume.saves_unseen(world.job):
        return f"without waiting for a checkpoint ({unsaved})"
    newest = resume.newest_checkpoint(world, spec)
    if step.is_saved and newest:
        asked = ", which it saved when asked" if leavers.follow(world, spec) else ""
        return f"after checkpoint {newest.step}{asked}"
    if step.in_vain:
        return "without a new checkpoint: the program did not answer the request to save, and saves too seldom"
    return "without a new checkpoint: the time to save was over"


def _save_seconds(world: JobWorld) -> float | None:
    """Return how many seconds the newest save took whose time is known; None: none is known."""
    checkpoint = world.job.status.checkpoint
    times = (save.save_seconds for save in reversed(checkpoint.saves)) if checkpoint is not None else ()
    return next((float(seconds) for seconds in times if seconds is not None), None)

"""The job's status for users, projected from the record and from what is seen.

Decisions read three of its fields back. `completion` says that the job has ended. `checkpoint` is the newest complete
checkpoint that is known: while all goes well the record is not written. `attempt` is where a new record counts from if
a user deletes the Gang. The figures of `muster.goodput` go on from `goodput`, from `incidents` and from the condition
Suspended. Estimates of when jobs end and start go by what is published, and decide nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from muster.api.gang import CorruptionStatus, Gang, GangIncident, GangSpec, Level
from muster.api.trainingjob import (
    MAX_WARNINGS,
    RESUMED,
    SUSPENDED,
    CheckpointStatus,
    CompletionRecord,
    CompletionResult,
    Condition,
    ConditionStatus,
    Incident,
    JobWarning,
    ProgressPreset,
    TrainingJob,
    TrainingJobStatus,
    Waiting,
)
from muster.burnin.state import BURNING_IN
from muster.checkpoints import resume, resume_preset
from muster.fencing.proofs import WHOLE_GANG_SECONDS, unproved_seconds
from muster.placement.eligibility import unhealthy
from muster.pods.warned import Warned
from muster.protocol.checkpoint_names import is_url
from muster.protocol.checkpoints import ERROR_KINDS
from muster.protocol.messages import readable
from muster.protocol.numerals import significant
from muster.protocol.presets import BY_NAME
from muster.queueing import explain
from muster.record.attempts import budget_exhausted
from muster.record.evacuation import LEAVE_WITHDRAWN
from muster.record.held_failure import ends_at
from muster.record.incidents import newest_step, steps_made_again
from muster.record.preemptions import PREEMPTED, gives_way_text
from muster.record.save_request import new_step
from muster.recovery.failure import Kind
from muster.recovery.failures import age_at_report, runs_behind
from muster.recovery.modes import mode_of
from muster.recovery.verification import verifiers
from muster.recovery.words import after_corruption, on_nodes
from muster.status import ejection, save_health, start_estimate, warnings
from muster.status.figures import compute_or_fallback
from muster.status.report import ASSEMBLING, Announcement, State, StatusReport
from muster.status.suspect_success import success_warnings
from muster.world.fleet import STALE_HEARTBEAT_SECONDS
from muster.world.job import JobWorld
from muster.world.names import MAX_IN_NOTE, shortened
from muster.world.queuedecision import NotPlaced
from muster.world.redact import without_secrets
from muster.world.views import FRESH_SECONDS, LauncherView

MAX_INCIDENTS = 16
_CHANGED_HOW = "suspend the job for that"
_MOST_NAMED = 3

JOB_LIMIT_APPLIED = "JobLimitApplied"
NO_NODE_TO_MOVE_TO = "NoNodeToMoveTo"
FAILURE_HELD = "FailureHeld"
FORMER_PODS = "FormerPodsEnding"
LOSS_NOT_FINITE = "LossNotFinite"
# Reasons of waiting that are a normal part of every start and need no Event.
_QUIET = frozenset({ASSEMBLING, BURNING_IN, FORMER_PODS, "RanksStarted", "Training", "AwaitingEvidence"})
# After so long without one, a checkpoint directory is more likely wrong than the interval long.
UNSAVED_SECONDS = 600.0
# After so long without a step, or without a sign of life of any rank, something is more likely wrong than slow.
UNSEEN_SECONDS = QUIET_SECONDS = STOPPED_SECONDS = 600.0
# Of the longest time between two reported steps of this attempt, which has the evaluations and saves that it has made.
STOPPED_TIMES = 5.0
# Where lines come that look like steps and do not count, there is nothing to wait for.
LIKELY_SECONDS = 60.0
# What was told of the loss stays for so long.
STEADY_SECONDS = 60.0

_Facts = dict[str, tuple[bool | None, str, str]]
_ACCEPTED = (True, "Accepted", "")  # `_build` adds what a reader should know about the job's spec


def status_of(world: JobWorld, report: StatusReport) -> tuple[TrainingJobStatus, tuple[Announcement, ...]]:
    """Return the job's status made of a report, and the Events about what is new in it."""
    now = _TELLERS[report.state](world, report)
    events = () if report.state is State.SUSPENDED else _new_warnings(world, now)
    if report.state not in (State.COMPLETED, State.SUSPENDED):
        events = (*_changes(world, now), *events, *_troubles(world, now), *_limits_applied(world, now))
    return now, events


def _pending(world: JobWorld, report: StatusReport) -> TrainingJobStatus:
    """Return the status of a job that waits for nodes."""
    reason, message, decision = report.reason, report.message, world.queue_decision
    if report.answer is not None and decision is not None:
        reason, message = report.answer.reason, explain.message(world.job, decision)
        if _is_held_by_former_pods(world.job, report.answer):
            reason, message = FORMER_PODS, f"the pods of the former job of this name have not ended yet: {message}"
    facts: _Facts = {
        "TemplateAccepted": _ACCEPTED,
        "Placed": (False, reason, message),
        "Running": (False, reason, message),
        "Reconciling": (True, reason, message),
    }
    now = _build(world, "Pending", reason, facts)
    return now.model_copy(update={"waiting": _waiting(world, report)})


def _is_held_by_former_pods(job: TrainingJob, answer: NotPlaced) -> bool:
    """Whether a node that the job could use is held by a pod of a deleted job of the same name."""
    former = re.compile(
        rf"pod {re.escape(job.metadata.namespace)}/{re.escape(job.metadata.name)}-[0-9a-f]{{5}}-\d+-\d+(?:\Z| \()"
    )
    return answer.shortfall is not None and any(map(former.match, answer.shortfall.holders))


def _stalled(world: JobWorld, report: StatusReport) -> TrainingJobStatus:
    """Return the status of a job that cannot go on until a user changes something."""
    reason, message = report.reason, report.message
    facts: _Facts = {"Stalled": (True, reason, message), "Running": (False, reason, message)}
    if report.template_refused:
        facts["TemplateAccepted"] = (False, reason, message)
    if world.gang and world.gang.spec.members:
        facts["Placed"] = (True, "Placed", on_nodes(world.gang.spec))
    return _build(world, "Stalled", reason, facts)


def _suspended(world: JobWorld, report: StatusReport) -> TrainingJobStatus:
    """Return the status of a job that the user has suspended; its nodes are released."""
    message = "set spec.suspend to false to continue from the newest complete checkpoint"
    if resume.requested_resume(world.job, world.gang.spec if world.gang else None):
        message = (
            f"set spec.suspend to false to continue from {world.job.spec.checkpoint.resume_from}, as resumeFrom asks"
        )
    # It is suspended for that: the way on stays in sight.
    lasting = [
        Warned(warning.reason, warning.message)
        for warning in world.job.status.warnings
        if warning.reason == LOSS_NOT_FINITE
    ]
    return _build(
        world,
        "Suspended",
        "Suspended",
        {"Suspended": (True, "Suspended", message), "Running": (False, "Suspended", message)},
        troubles=lasting,
    )


def _starting(world: JobWorld, report: StatusReport) -> TrainingJobStatus:
    """Return the status of a job that is on nodes and whose ranks have not started in this attempt."""
    assert world.gang is not None
    spec, decision, reason, message = world.gang.spec, world.queue_decision, report.reason, report.message
    if report.answer is not None:
        reason, message = report.answer.reason, report.answer.message
        message = explain.message(world.job, decision) if decision else message
    state = "Starting" if spec.level is Level.START else "Recovering"
    placed = all(member.node for member in spec.members)
    shown = spec.reason if reason == ASSEMBLING and state == "Recovering" else reason
    facts: _Facts = {
        "TemplateAccepted": _ACCEPTED,
        "Placed": (True, "Placed", _where(world, spec)) if placed else (False, reason, message),
        "Running": (False, reason, message),
        "Reconciling": (True, reason, message),
    }
    return _build(world, state, shown, facts).model_copy(update={"waiting": _waiting(world, report)})


def _where(world: JobWorld, spec: GangSpec) -> str:
    """Return where the gang is, with up to three of its nodes that are a last choice for their health."""
    exclusions = ((name, world.fleet.exclusion(name)) for name in sorted(member.node for member in spec.members))
    last = [
        f"{name} is {unhealthy(exclusion)}"
        for name, exclusion in exclusions
        if exclusion is not None and exclusion.last_choice
    ]
    why = ": the breaker holds it back, and new workers come there only where no other node is left"
    return on_nodes(spec) + (f"; {shortened(last, _MOST_NAMED)}{why}" if last else "")


def _waiting(world: JobWorld, report: StatusReport) -> Waiting | None:
    return (
        explain.waiting(world.job, world.queue_decision, world.now)
        if report.answer is not None and world.queue_decision
        else None
    )


def _training(world: JobWorld, report: StatusReport) -> TrainingJobStatus:
    """Return the status of a job whose ranks have started."""
    gang = world.gang
    assert gang is not None
    evacuation = gang.spec.evacuation
    stepping = newest_step(world, gang.spec) is not None
    state, reason = (
        ("Saving", evacuation.reason) if evacuation else ("Running", "Training" if stepping else "RanksStarted")
    )
    message = f"attempt {gang.spec.attempt} {on_nodes(gang.spec)}"
    preset = next(
        (
            worker_view.launcher.progress_preset
            for worker_view in world.worker_views
            if worker_view.launcher and worker_view.launcher.step
        ),
        "",
    )
    if preset:
        message += f"; steps as {preset} prints them"
    resume_message = resume_preset.resume_text(world.job, gang.spec)
    if resume_message:
        message += f"; {resume_message}"
    request = gang.spec.save_request
    if request is not None and not request.over:
        message += f"; asked to save ({request.name}), until {request.deadline:%H:%M:%S} UTC"
    troubles: list[Warned] = []
    stopped = _stopped(world, gang)
    stuck = _held_up(world, report.without_place)
    for trouble, words in (
        (ejection.EJECTION_WAITS, ejection.obstacle(world, gang.spec) if world.job.spec.eject else ""),
        (NO_NODE_TO_MOVE_TO, stuck),
        ("SaveRequestUnanswered", _unanswered(world, gang)),
        ("CheckpointsIncomplete", _checkpoint_warning(world)),
        ("CheckpointStoreUnreachable", _unverified(world, gang)),
        ("NoCheckpointSeen", _unsaved(world, gang)),
        ("CheckpointOrderUnclear", resume.order_warning(world, gang.spec)),
        ("StepsNotSeen", _unseen(world, gang)),
        ("RanksQuiet", "" if stopped else _quiet(world, gang)),
        ("StepsStopped", stopped),
        ("StepsNotCounted", _uncounted(world)),
        (LOSS_NOT_FINITE, _not_finite(world, gang)),
        (Kind.RESUMED_BEHIND, _behind(world, gang)),
        ("WorkersSilent", _silence(world)),
        ("NodeSilent", _silent_nodes(world)),
    ):
        if words and trouble not in world.job.spec.accepted_warnings:
            reason, message = str(trouble), words
            troubles.append(Warned(reason, message))
    if evacuation:
        when = f"after its next complete checkpoint, at {evacuation.deadline:%H:%M:%S} UTC at the latest"
        if unsaved := resume.saves_unseen(world.job):
            when = f"at once, without waiting for a checkpoint: {unsaved}"
        message = f"The job leaves {', '.join(evacuation.nodes) or 'all nodes'} {when}."
        if evacuation.reason == PREEMPTED:
            message += f" It {gives_way_text(world.job, gang.spec, world.preempted_by)}. Then it waits in the queue."
        if evacuation.reason == LEAVE_WITHDRAWN:
            message = (
                "The ranks follow a request to leave that was withdrawn. They start again after their next complete "
                f"checkpoint, at {evacuation.deadline:%H:%M:%S} UTC at the latest."
            )
    if evacuation and stuck:  # the place is gone since
        reason, message = NO_NODE_TO_MOVE_TO, stuck
    facts: _Facts = {
        "TemplateAccepted": _ACCEPTED,
        "Placed": (True, "Placed", _where(world, gang.spec)),
        "Running": (True, reason, message),
    }
    return _build(world, state, reason, facts, troubles=troubles[::-1])


def _held(world: JobWorld, report: StatusReport) -> TrainingJobStatus:
    """Return the status of a job whose failure is held."""
    assert world.gang is not None
    spec, held = world.gang.spec, world.gang.spec.held_failure
    assert held is not None
    job, ends = world.job.metadata, ends_at(world, held)
    worker = "" if held.index is None else f" --worker {held.index}"
    message = (
        f"Attempt {spec.attempt} is held until {ends:%Y-%m-%d %H:%M:%S} UTC, so that you can look into it: kubectl "
        f"muster shell {job.namespace}/{job.name}{worker}. Pods and ranks stay as they are. Set "
        f"spec.recovery.onFailure to Recover to go on now, or end the job with kubectl muster cancel. What happened: "
        f"{held.message}"
    )
    facts: _Facts = {
        "TemplateAccepted": _ACCEPTED,
        "Placed": (True, "Placed", _where(world, spec)),
        "Running": (False, FAILURE_HELD, message),
        "Reconciling": (True, FAILURE_HELD, message),
    }
    return _build(world, "Held", FAILURE_HELD, facts)


def _unanswered(world: JobWorld, gang: Gang) -> str:
    """Return the message that nothing came of the newest request to save; "" where it is not so, or not any more."""
    request = gang.spec.save_request
    if request is None or not request.over or request.saved_step is not None:
        return ""
    if request.name != world.job.spec.checkpoint.save_request or new_step(world, gang.spec, request) is not None:
        return ""
    seconds = (request.deadline - request.since).total_seconds()
    return (
        f"no new checkpoint was complete within {seconds:.0f} s of the request to save ({request.name}): the program "
        "does not look for requests at the end of its steps, or its save takes longer. Training goes on"
    )


def _ejected(world: JobWorld, report: StatusReport) -> TrainingJobStatus:
    """Return the status of a job whose gang has left Muster, while the job itself is still there."""
    assert world.gang is not None
    waiting, ended = ejection.unacknowledged(world), ejection.has_ended(world)
    reason, message = ejection.progress(world.job, waiting, ended=ended)
    facts: _Facts = {
        "TemplateAccepted": _ACCEPTED,
        "Placed": (True, "Placed", on_nodes(world.gang.spec)),
        "Running": (not ended, reason, message),
        ejection.EJECTED: (not waiting, reason, message),
    }
    if ended:
        facts["Stalled"] = (True, reason, message)
    return _build(world, "Stalled" if ended else "Running", reason, facts)


def _completed(world: JobWorld, report: StatusReport) -> TrainingJobStatus:
    """Return the status of a job that has ended."""
    completion = report.completion
    assert completion is not None
    good = completion.result is CompletionResult.SUCCEEDED
    facts: _Facts = {
        "Succeeded": (good, completion.reason, completion.message),
        "Running": (False, completion.reason, "the job has ended"),
    }
    if not good:
        facts["Stalled"] = (True, completion.reason, completion.message)
    return _build(world, completion.result.value, completion.reason, facts, completion)


_TELLERS: Mapping[State, Callable[[JobWorld, StatusReport], TrainingJobStatus]] = {
    State.PENDING: _pending,
    State.STALLED: _stalled,
    State.SUSPENDED: _suspended,
    State.STARTING: _starting,
    State.TRAINING: _training,
    State.HELD: _held,
    State.EJECTED: _ejected,
    State.COMPLETED: _completed,
}


def _changes(world: JobWorld, now: TrainingJobStatus) -> tuple[Announcement, ...]:
    """Return the Event about a new reason for waiting or stalling; empty where the reason is not new, or needs no
    Event."""
    previous = world.job.status
    if (
        (previous.state, previous.reason) == (now.state, now.reason)
        or now.reason in _QUIET
        or now.state == "Suspended"
        or (now.state == "Saving" and now.reason != NO_NODE_TO_MOVE_TO)
    ):
        return ()
    message = next((c.message for c in now.conditions if c.reason == now.reason and c.message), "")
    if now.state == "Recovering" and world.gang and now.reason == world.gang.spec.reason:
        return ()
    return (Announcement(now.reason, message, warning=now.state != "Pending"),)


def _new_warnings(world: JobWorld, now: TrainingJobStatus) -> tuple[Announcement, ...]:
    """Return an Event for each warning that is new and that the job's reason does not say already."""
    previous_reasons = {warning.reason for warning in world.job.status.warnings}
    return tuple(
        Announcement(warning.reason, warning.message, warning=True)
        for warning in now.warnings
        if warning.reason not in previous_reasons and warning.reason != now.reason
    )


def _troubles(world: JobWorld, now: TrainingJobStatus) -> tuple[Announcement, ...]:
    """Return an Event for each concern about saving that is new."""
    previous = world.job.status.checkpoint
    previous_reasons = {concern.reason for concern in previous.concerns} if previous is not None else set()
    concerns = now.checkpoint.concerns if now.checkpoint is not None else []
    return tuple(
        Announcement(c.reason.value, c.message, warning=True) for c in concerns if c.reason not in previous_reasons
    )


def _limits_applied(world: JobWorld, now: TrainingJobStatus) -> tuple[Announcement, ...]:
    """Return the Event that the FleetPolicy applies less than the job asks for; empty where that is not new."""
    previous, current = _accepted_message(world.job.status), _accepted_message(now)
    if not world.lowered or world.lowered not in current or world.lowered in previous:
        return ()
    return (Announcement(JOB_LIMIT_APPLIED, f"{world.lowered}.", warning=True),)


def _accepted_message(status: TrainingJobStatus) -> str:
    return next((condition.message for condition in status.conditions if condition.type == "TemplateAccepted"), "")


def _build(
    world: JobWorld,
    state: str,
    reason: str,
    facts: _Facts,
    completion: CompletionRecord | None = None,
    troubles: Sequence[Warned] = (),
) -> TrainingJobStatus:
    previous = world.job.status
    record = world.gang.spec if world.gang else None
    generation = world.job.metadata.generation
    previous_conditions = {condition.type: condition for condition in previous.conditions}
    defaults: _Facts = {
        "Succeeded": (None, "NotFinished", ""),
        "Stalled": (False, "NotStalled", ""),
        "Reconciling": (False, "Settled", ""),
        SUSPENDED: (False, _not_suspended(previous_conditions.get(SUSPENDED)), ""),
    }
    wanted, end = {**defaults, **facts}, completion or previous.completion
    of_spec = warnings.of_spec(world) if end is None else []
    if wanted.get("TemplateAccepted") == _ACCEPTED:
        messages = (world.lowered, *(warned.message for warned in of_spec))
        wanted["TemplateAccepted"] = (True, "Accepted", "; ".join(filter(None, messages)))
    conditions = [
        _condition(world, kind, *fact, previous_conditions.get(kind), generation) for kind, fact in wanted.items()
    ]
    conditions += [
        condition
        for kind, condition in previous_conditions.items()
        if kind not in wanted and kind == "TemplateAccepted"
    ]
    checkpoint = _checkpoint(world, record)
    if checkpoint is not None and record is not None and end is None:
        trains, bare = state in ("Running", "Saving"), checkpoint
        checkpoint = compute_or_fallback(
            "saves", lambda: save_health.with_save_concerns(world, record, bare, trains=trains), bare
        )
    step = _step(world, record, checkpoint, ended=end is not None)
    return TrainingJobStatus(
        observed_generation=generation,
        state=state,
        reason=reason,
        attempt=_attempt(record, ended=end is not None) if record else previous.attempt,
        nodes_ready=_ready(world, record),
        nodes=[member.node for member in record.members] if record else [],
        topology=record.topology if record and record.members else [],
        backfilled=bool(record.members) and record.backfilled if record else False,
        lent_until=record.lent_until if record and not world.job.spec.queueing.preemptible else None,
        start_estimate=start_estimate.as_status(world, waits=state == "Pending"),
        step=step,
        checkpoint=checkpoint,
        restarts=sum(i.resumed_step is not None for i in record.incidents) if record else previous.restarts,
        incidents=published_incidents(record.incidents) if record else previous.incidents,
        corruption=_corruption(world, record, ended=end is not None) if record else previous.corruption,
        conditions=sorted(conditions, key=lambda condition: condition.type),
        warnings=_warnings(world, end, of_spec, troubles),
        goodput=previous.goodput,
        completion=end,
    )


def _warnings(
    world: JobWorld, end: CompletionRecord | None, of_spec: Sequence[Warned], troubles: Sequence[Warned]
) -> list[JobWarning]:
    """Return the warnings of the job. Of one that ends they stay, behind those about its end."""
    previous = world.job.status
    if end is None:
        return warnings.as_status(world, (*of_spec, *warnings.of_attempt(world), *troubles))
    if previous.completion is not None or world.gang is None:
        return previous.warnings
    end_warnings = warnings.as_status(world, success_warnings(world, world.gang.spec, end))
    return [*end_warnings, *previous.warnings][:MAX_WARNINGS]


def _not_suspended(previous: Condition | None) -> str:
    """Return the reason of the condition Suspended where it is False.

    After a suspension the reason stays Resumed, because the time of the suspension is counted by it.
    """
    was = previous is not None and (previous.status is ConditionStatus.TRUE or previous.reason == RESUMED)
    return RESUMED if was else "NotSuspended"


def _condition(
    world: JobWorld,
    kind: str,
    value: bool | None,
    reason: str,
    message: str,
    previous: Condition | None,
    generation: int,
) -> Condition:
    status = {True: ConditionStatus.TRUE, False: ConditionStatus.FALSE, None: ConditionStatus.UNKNOWN}[value]
    same = previous is not None and previous.status is status
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=readable(message[:1024]),  # it may quote the template
        observed_generation=generation,
        last_transition_time=previous.last_transition_time if same and previous else world.now,
    )


def _attempt(record: GangSpec, *, ended: bool) -> int:
    """Return the number of the newest attempt; once the job has ended without a start of it, that of the one before."""
    if ended and record.start is None and record.incidents:
        return record.incidents[-1].attempt
    return record.attempt


def _step(world: JobWorld, record: GangSpec | None, checkpoint: CheckpointStatus | None, *, ended: bool) -> int | None:
    """Return the newest finished step of this attempt; before its first one, the step from which it resumed.

    None: no step is known. That is no step 0: the program may print its steps in a way that Muster does not read.
    The launchers of a job that has ended report no step any more: then the last step on the status stands. Between two
    attempts it is the step at which the last one failed, which may be newer than the status.
    """
    newest = newest_step(world, record) if record else None
    failed = record.incidents[-1] if record and record.start is None and record.incidents else None
    if newest is None and failed is not None and failed.resumed_step is None:
        newest = failed.step
    is_known = ended and record is not None and world.job.status.attempt == record.attempt
    if newest is None and record and record.start and not (is_known and world.job.status.step is not None):
        return record.start.resume.step if record.start.resume else None
    steps = (newest if newest is not None else world.job.status.step, checkpoint.step if checkpoint else None)
    return max((step for step in steps if step is not None), default=None)


def _ready(world: JobWorld, record: GangSpec | None) -> str:
    members = record.members if record else []
    running = sum(
        worker_view.pod is not None and worker_view.pod.phase == "Running" and not worker_view.over
        for worker_view in world.worker_views
    )
    return f"{running if members else 0}/{world.job.spec.nodes}"


def _checkpoint(world: JobWorld, record: GangSpec | None) -> CheckpointStatus | None:
    previous = world.job.status.checkpoint
    newest = resume.newest_checkpoint(world, record) if record else None
    if newest is None:
        return previous if record is None else None
    if previous and (previous.step, previous.path) == (newest.step, newest.path):
        return previous
    kind = resume_preset.format_of(world, newest)
    carried = {"saves": previous.saves, "concerns": previous.concerns} if previous else {}
    return CheckpointStatus(step=newest.step, path=newest.path, format=kind, time=world.now, **carried)


def _unsaved(world: JobWorld, gang: Gang) -> str:
    """Return the message that training goes on for long without a complete checkpoint that Muster sees; "" when all is
    well."""
    directory, go = world.job.spec.checkpoint.directory, gang.spec.start
    if directory is None or go is None or resume.newest_checkpoint(world, gang.spec) is not None:
        return ""
    seconds, step = (world.now - go.time).total_seconds(), newest_step(world, gang.spec)
    if step is None or seconds < UNSAVED_SECONDS:
        return ""
    return (
        f"no complete checkpoint below {directory} after {seconds / 60:.0f} min and {step} steps: a fault now loses "
        "everything. "
        + (
            _checkpoint_warning(world)
            or _unverified(world, gang)
            or "Is it the directory that the trainer writes to"
            f"{'' if is_url(directory) else ', on a volume that the worker container mounts'}?"
        )
    )


def _checkpoint_warning(world: JobWorld) -> str:
    """Return the message that the newest checkpoint is not what users or the trainer may take it for; "" = all is
    well."""
    messages = (worker_view.launcher.checkpoint_warning for worker_view in world.worker_views if worker_view.launcher)
    return next(filter(None, messages), "")


def _held_up(world: JobWorld, without_place: Mapping[str, str]) -> str:
    """Return the message that the gang should leave nodes and none of its workers has one to move to; "" otherwise.

    Args:
        world: the state of the job.
        without_place: by node, the reason to leave it.
    """
    if not without_place:
        return ""
    nodes = shortened([f"{name} ({reason})" for name, reason in without_place.items()])
    together = len(without_place) > 1 and mode_of(world.job).starts_with_pods
    note = " In launch.mode Plain all of them are left at once." if together else ""
    if avoided := [name for name in world.job.spec.placement.avoid_nodes if name not in without_place]:
        note += f" It avoids {shortened(avoided)} (spec.placement.avoidNodes)."
    return (
        f"The job should leave {nodes}, but no other suitable node is free.{note} Training goes on; a worker moves at "
        "a checkpoint once a node is free. Free one to let it move."
    )


def _unverified(world: JobWorld, gang: Gang) -> str:
    """Return the message that no verifier can reach the store with the checkpoints; "" while one can."""
    launchers = [worker_view.launcher for worker_view in verifiers(world, gang.spec) if worker_view.launcher]
    if not launchers or not all(launcher.checkpoint_error_kind in ERROR_KINDS for launcher in launchers):
        return ""
    newest = resume.newest_checkpoint(world, gang.spec)
    sentence = f"The newest that is known is {newest.step} ({newest.path})" if newest else "None is known"
    return f"{launchers[0].checkpoint_error}. {sentence}; a fault now waits until the store is seen again"


def _behind(world: JobWorld, gang: Gang) -> str:
    """Return the message that the trainer does not resume from its checkpoint, for the second time; "" while it
    does."""
    behind = next(
        (
            worker_view
            for worker_view in world.worker_views
            if worker_view.launcher and runs_behind(gang, worker_view.launcher)
        ),
        None,
    )
    if behind is None or behind.launcher is None or gang.spec.start is None or gang.spec.start.resume is None:
        return ""
    resumed = gang.spec.start.resume
    return (
        f"{behind.where} began with step {behind.launcher.first_step}, but was given the checkpoint of step "
        f"{resumed.step} ({resumed.path}). It repeats work, or its step numbers mean something else. Muster restarted "
        "it once for that, and does not again. Let the trainer load what MUSTER_RESUME_PATH names"
        f"{resume_preset.preset_hint(world.job, gang.spec, resume_preset.format_of(world, resumed))}"
    )


def _unseen(world: JobWorld, gang: Gang) -> str:
    """Return the message that no step has been seen, and what to change; "" when all is well.

    Where lines come that rise and do not count, it comes after a minute, else after ten. It is also "" where the user
    has switched presets off.
    """
    progress, go = world.job.spec.progress, gang.spec.start
    launchers = [
        worker_view.launcher
        for worker_view in world.worker_views
        if worker_view.launcher and worker_view.launcher.attempt == gang.spec.attempt
    ]
    if go is None or not launchers or newest_step(world, gang.spec) is not None:
        return ""
    remedy = _likely_steps(world, launchers)
    least = LIKELY_SECONDS if remedy else UNSEEN_SECONDS
    if (world.now - go.time).total_seconds() < least or progress.preset is ProgressPreset.OFF:
        return ""
    # The same words all the time: a status that changes is a write.
    opening = (
        f"Muster has seen no finished step since the ranks started at {go.time:%Y-%m-%d %H:%M:%S} UTC. Training goes "
        "on, and Muster does not notice a hang: "
    )
    if remedy:
        return opening + remedy
    preset = BY_NAME.get(progress.preset.value) if progress.preset is not None else None
    if progress.step_pattern is not None:
        return opening + (
            "progress.stepPattern finds no step in what is printed. Compare it with the log, or write the steps to the "
            "file in MUSTER_PROGRESS"
        )
    if preset is not None:
        return opening + (
            f"no line is printed that preset {preset.name} reads, such as `{preset.lines[0].sample.strip()[:200]}` "
            f"({preset.needs}). Compare it with the log; else take another preset, a stepPattern, or write the steps "
            "to the file in MUSTER_PROGRESS"
        )
    return opening + (
        "the trainer writes no step to the file in MUSTER_PROGRESS, and prints none that a preset reads "
        f"(docs/reference/progress.md). Let it do one of these, or set progress.stepPattern ({_CHANGED_HOW}); "
        "progress.preset: Off stops this message"
    )


def _likely_steps(world: JobWorld, launchers: Sequence[LauncherView]) -> str:
    """Return what would let the printed lines count, where some look like steps; "" where none do."""
    likely = BY_NAME.get(next((view.likely_preset for view in launchers if view.likely_preset), ""))
    if likely is not None:
        return (
            f"what is printed looks like {likely.name}. If it is, set progress.preset: {likely.name} "
            f"({_CHANGED_HOW}; {likely.needs})"
        )
    view = next((view for view in launchers if view.likely_pattern), None)
    if view is None:
        return ""
    pattern, line = (
        without_secrets(text, world.job.spec.containers) for text in (view.likely_pattern, view.likely_line)
    )
    if pattern != view.likely_pattern:  # what would not match is no proposal
        return ""
    return (
        f"a number rises in printed lines such as `{line}`. If it is that of the step, over the whole training and as "
        f"the checkpoints are numbered, set progress.stepPattern: '{pattern}' ({_CHANGED_HOW})"
    )


def _not_finite(world: JobWorld, gang: Gang) -> str:
    """Return the message that the loss is printed as NaN or infinite, since which step, and how to go on from before;
    "" while it is finite."""
    published = next((warning for warning in world.job.status.warnings if warning.reason == LOSS_NOT_FINITE), None)
    begin = gang.spec.start.time if gang.spec.start is not None else world.now
    # A loss that is a number again and again would be a write and an Event each time.
    if (
        published is not None
        and published.since >= begin
        and (world.now - published.since).total_seconds() < STEADY_SECONDS
    ):
        return published.message
    views = [view for view in world.views.values() if view.attempt == gang.spec.attempt]
    since = min((view.loss_not_finite_since for view in views if view.loss_not_finite_since is not None), default=None)
    if since is None:
        return ""
    job, saved = world.job.metadata, world.job.status.checkpoint
    fork = f"kubectl muster fork {job.namespace}/{job.name} --from-step"
    first = min((view.first_step for view in views if view.first_step is not None), default=since)
    resumed = gang.spec.start.resume if gang.spec.start is not None else None
    if resumed is not None and since <= first:
        return (
            f"the loss is printed as NaN or infinite since the first step of attempt {gang.spec.attempt}, {since}: the "
            f"checkpoint from which it resumed, {resumed.step}, is suspect, too. Muster stops nothing. See the log of "
            "earlier attempts for the last loss that is a number, repair the cause, suspend this job, and run, with a "
            f"checkpoint from before: {fork} STEP"
        )
    good = [checkpoint.step for view in views for checkpoint in view.checkpoints if checkpoint.verified]
    good += [save.step for save in saved.saves] if saved is not None else []
    step = max((step for step in good if step < since), default=None)
    return (
        f"the loss is printed as NaN or infinite since step {since}. Checkpoints that were saved from there on are "
        "suspect. Muster stops nothing, and a restart would go on from the newest one. To go on from before, repair "
        f"the cause, suspend this job, and run: {fork} {step or f'STEP, a checkpoint before step {since}'}"
    )


def _quiet(world: JobWorld, gang: Gang) -> str:
    """Return the message that no rank has printed or written anything for ten minutes; "" when one has."""
    if gang.spec.start is None:
        return ""
    views = [view for view in world.views.values() if view.attempt == gang.spec.attempt]
    ages = [view.quiet_age_seconds for view in views if view.quiet_age_seconds is not None]
    if len(ages) < world.job.spec.nodes or min(ages) < QUIET_SECONDS:  # fewer: not all have told yet
        return ""
    saved = _checkpoint(world, gang.spec)
    if saved is not None and (world.now - saved.time).total_seconds() < QUIET_SECONDS:
        return ""
    step = newest_step(world, gang.spec)
    where = "before the first step" if step is None else f"after step {step}"
    return (
        f"no rank has printed or written anything for more than {QUIET_SECONDS / 60:.0f} min, {where}: it hangs, or "
        "compiles, evaluates or saves for long. See what a rank does, e.g. with py-spy dump in its pod. If it "
        "hangs, delete the pod of a worker, and the gang restarts; with progress.stepTimeoutSeconds that happens by "
        "itself"
    )


def _stopped(world: JobWorld, gang: Gang) -> str:
    """Return the message that no step comes any more where one was due by those before; "" when all is well.

    It is also "" where the job has a limit of its own, after which it restarts.
    """
    if gang.spec.start is None or world.job.spec.progress.step_timeout_seconds is not None:
        return ""
    views = [
        view
        for view in world.views.values()
        if view.attempt == gang.spec.attempt and view.heard_age_seconds < FRESH_SECONDS and not view.progress_error
    ]
    if not any(rank.alive for view in views for rank in view.ranks):
        return ""
    longest = max((view.longest_wait_seconds for view in views if view.longest_wait_seconds is not None), default=None)
    step = newest_step(world, gang.spec)
    if longest is None or step is None:
        return ""
    limit = max(STOPPED_SECONDS, STOPPED_TIMES * longest)
    ages = (age_at_report(view, view.step_age_seconds) for view in views if view.step_age_seconds is not None)
    if min(ages, default=0.0) < limit:
        return ""
    saved = _checkpoint(world, gang.spec)
    if saved is not None and (world.now - saved.time).total_seconds() < limit:
        return ""
    usual = max((view.step_seconds for view in views if view.step_seconds is not None), default=longest)
    # The same words all the time: a status that changes is a write.
    return (
        f"no step was finished for more than {limit / 60:.0f} min after step {step}. A step takes "
        f"{significant(usual)} s, and the longest wait for one in this attempt was {significant(longest)} s. It hangs, "
        "or evaluates or saves for long. Muster does nothing about it. See what a rank does, e.g. with py-spy dump in "
        "its pod. If it hangs, delete the pod of a worker, and the gang restarts; with progress.stepTimeoutSeconds "
        "that happens by itself, and each rank prints its stack before"
    )


def _uncounted(world: JobWorld) -> str:
    """Return the message that finished steps cannot be read any more, so that no hang is noticed; "" while they can."""
    for worker_view in world.worker_views:
        if worker_view.launcher is not None and worker_view.launcher.progress_error:
            error = without_secrets(
                worker_view.launcher.progress_error, world.job.spec.containers
            )  # it may quote a line
            return f"{worker_view.where}: {error}, and a hang is not noticed"
    return ""


def _silence(world: JobWorld) -> str:
    """Return the message that workers are silent, and why Muster does not act yet; "" when all are heard."""
    timeout = world.job.spec.recovery.unreachable_timeout_seconds
    silent = [index for index, view in world.views.items() if view.heard_age_seconds >= timeout]
    if not silent:
        return ""
    who = (
        f"silent for {timeout} s or more: {len(silent)} of {world.job.spec.nodes} workers, the first is worker "
        f"{silent[0]}"
    )
    if world.silence.widespread:
        total = f"{world.silence.silent} of all {world.silence.total} launchers are silent at once"
        return (
            f"{who}; {total}. The network or the operator is the likelier cause, so Muster waits "
            f"{WHOLE_GANG_SECONDS:.0f} s before it counts a node as lost"
        )
    if len(silent) == world.job.spec.nodes:
        return (
            f"{who}; their nodes report, so they may train on. If that lasts, check their logs and the network "
            "policies between them and the Service muster-coordinator. To have a worker replaced, delete its pod"
        )
    return f"{who}; waiting for a second sign or for a step"


def _silent_nodes(world: JobWorld) -> str:
    """Return the message that nodes of a job without launchers are silent, and what to do; "" while all are heard."""
    nodes = [worker_view.node for worker_view in world.worker_views if mode_of(world.job).starts_with_pods]
    silent = [
        node.name
        for node in nodes
        if node and not node.ready and world.heartbeat_age_seconds(node.name) >= STALE_HEARTBEAT_SECONDS
    ]
    if not silent:
        return ""
    limit = unproved_seconds(world)
    until = "by itself" if limit is None else f"until they have been silent for {limit:.0f} s"
    setting = ", or set spec.recovery.unfencedTimeoutSeconds" if limit is None else ""
    # The same words all the time: a status that changes is a write.
    return (
        f"no heartbeat of {shortened(silent)}, not ready. In launch.mode Plain nothing shows whether the ranks "
        f"there have ended, so Muster does not restart the job {until}. Bring the machines back. If they are dead, "
        f"run: kubectl muster lost {' '.join(silent[:MAX_IN_NOTE])}{setting}"
    )


def _corruption(world: JobWorld, record: GangSpec, *, ended: bool) -> CorruptionStatus | None:
    corruption = record.corruption
    if corruption is None:
        return None
    is_last = corruption.open and bool(budget_exhausted(world, record))
    parts = [corruption.message, after_corruption(record, budget_exhausted=is_last, ended=ended)]
    if corruption.resumed_step is not None:
        parts.append(f"it went on from step {corruption.resumed_step}")
    values = {name: getattr(corruption, name) for name in CorruptionStatus.model_fields}
    return CorruptionStatus(**{**values, "message": "; ".join(part for part in parts if part)[:1024]})


def published_incidents(incidents: Sequence[GangIncident]) -> list[Incident]:
    """Return the newest incidents of a record as the status has them."""
    return [
        Incident(
            attempt=incident.attempt,
            time=incident.time,
            level=incident.level.value,
            fault_class=incident.fault_class.value,
            reason=incident.reason,
            node=incident.node,
            message=incident.message[:1024],
            lost_steps=steps_made_again(incident),
            fault_time=incident.fault_time,
            held_seconds=incident.held_seconds,
            asked_time=incident.asked_time,
            resumed_time=incident.resumed_time,
            lost_seconds=None if incident.lost_milliseconds is None else incident.lost_milliseconds // 1000,
        )
        for incident in incidents[-MAX_INCIDENTS:]
    ]

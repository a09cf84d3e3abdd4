"""The incidents of the record: how one is made, goes on, and becomes final. Pure."""

from collections.abc import Sequence
from datetime import timedelta

from muster.api.gang import Evacuation, FaultClass, Gang, GangIncident, GangSpec, Level
from muster.checkpoints import unloadable
from muster.checkpoints.resume import Start
from muster.recovery import blame, budgets, exits
from muster.recovery.failure import Failure, Kind, is_hang, kinds_with
from muster.recovery.failures import fault_time
from muster.recovery.modes import greater_level
from muster.recovery.stacks import stacks_of
from muster.recovery.words import and_more_workers
from muster.world.job import JobWorld, WorkerView

MAX_INCIDENTS = 256
# The newest incidents keep their whole messages; of older ones the budgets need numbers.
TOLD_WHOLE = 16
MAX_OTHERS = 4096
SHORT_MESSAGE_CHARACTERS = 160
# Of the newest hangs; one takes up to 18 KB of the record.
STACKS_KEPT = 2
# Failures of one cause (a rack, a network, a bad image) are all seen within this time.
TOGETHER_SECONDS = 10.0
_OF_LOST_NODES = kinds_with(lambda traits: traits.lost_node)
_STEPS = ("step", "checkpoint_step", "resumed_step")


def new_incident(
    world: JobWorld,
    record: GangSpec,
    level: Level,
    cause: Failure,
    failures: Sequence[Failure],
) -> GangIncident:
    """Return the incident of failures that begin one.

    Args:
        world: the state of the job.
        record: of the failed attempt.
        level: by which they are repaired.
        cause: the culprit among them.
        failures: all of them.
    """
    is_known = not cause.unlocated or bool(cause.node_fault)
    is_alone = record.node_count == 1 and is_hang(cause.kind)  # with what no other worker does, it cannot be compared
    return GangIncident(
        attempt=record.attempt,
        time=world.now,
        fault_time=fault_time(world, cause),
        held_seconds=_held_seconds(world, record),
        level=level,
        fault_class=blame.fault_class(cause),
        reason=cause.kind,
        node=cause.node if is_known else "",
        index=cause.index if is_known else None,
        rank=cause.rank,
        exit_code=cause.exit_code,
        signal=cause.signal,
        step=last_step(world, record),
        trained=newest_step(world, record) is not None,
        checkpoint_step=record.checkpoint.step if record.checkpoint else None,
        message=message_of_all(world, failures)[:2048],
        other_workers=None if is_alone else _count_other_failures(failures, cause.index),
        own_exception=cause.own_exception,
    )


def _held_seconds(world: JobWorld, record: GangSpec) -> int | None:
    """Return for how long the failure of the attempt was held; None: it was not."""
    held = record.held_failure
    return None if held is None or held.over else max(int((world.now - held.since).total_seconds()), 0)


def message_of_all(world: JobWorld, failures: Sequence[Failure]) -> str:
    """Return the message of the culprit among failures, with how many other workers failed, and which other nodes were
    lost at the same time."""
    cause = blame.culprit(failures)
    others = 0 if cause.unlocated else len(failures) - 1
    lost = {failure.node for failure in failures if failure.kind in _OF_LOST_NODES} - {cause.node}
    return exits.with_more(exits.message_of(world, cause), and_more_workers(others, sorted(lost)))


def planned_incident(
    world: JobWorld, record: GangSpec, level: Level, evacuation: Evacuation, after: str
) -> GangIncident:
    """Return the incident of a planned evacuation that ends.

    Args:
        world: the state of the job.
        record: of the gang.
        level: of the recovery.
        evacuation: as recorded.
        after: after which checkpoint the ranks stop, or why after none, for people.
    """
    return GangIncident(
        attempt=record.attempt,
        time=world.now,
        level=level,
        fault_class=FaultClass.PLANNED,
        reason=evacuation.reason,
        node=evacuation.nodes[0],
        step=last_step(world, record),
        message=f"left {', '.join(evacuation.nodes)} {after}"[:2048],
        asked_time=evacuation.since,
        settled=True,
    )


def is_same_incident(world: JobWorld, record: GangSpec, failures: Sequence[Failure]) -> bool:
    """Whether the failures belong to the incident that is being repaired, as workers that fail together are not seen at
    once.

    Only workers that were there when the incident happened count: a failure in a new pod is a new incident. Before the
    first start, and of members that were replaced since the last one, the record does not name the pods (in mode Plain
    it does, before they are bound): these were there if this process had seen them by then, and a pod that does not
    exist yet was not. A rank's report of wrong results belongs to the end of its attempt, however late it is heard. One
    start follows, and the job is charged once.
    """
    last = record.incidents[-1] if record.incidents else None
    if record.start is not None or last is None or last.resumed_step is not None:
        return False
    if all(failure.kind is Kind.CORRUPTION for failure in failures):
        return record.open_corruption is not None or last.fault_class in budgets.OWN_DOING
    since = (world.now - last.time).total_seconds()
    workers = (world.by_index[failure.index] for failure in failures if failure.kind is not Kind.CORRUPTION)
    return since <= TOGETHER_SECONDS and all(_was_there(world, worker_view, since) for worker_view in workers)


def _was_there(world: JobWorld, worker_view: WorkerView, seconds: float) -> bool:
    """Whether the worker's pod is known to have existed this long ago."""
    if worker_view.member.pod_uid:
        return True
    pod = worker_view.pod
    return pod is not None and 0 <= seconds < world.ages_of(pod).there


def with_later_failures(
    world: JobWorld, record: GangSpec, heard: GangIncident, level: Level, failures: Sequence[Failure]
) -> GangSpec:
    """Return the record; its last incident with what has failed since it was recorded.

    Args:
        world: the state of the job.
        record: of the gang.
        heard: the last incident as it was recorded first.
        level: by which the new failures are repaired.
        failures: the new failures.
    """
    cause, last = blame.culprit(failures), record.incidents[-1]
    more = f"; then {message_of_all(world, failures)}"
    changes: dict[str, object] = {
        "level": greater_level(level, last.level),
        "message": (last.message + more)[:2048],
    }
    if last.other_workers is not None and last.index is not None:
        changes["other_workers"] = min(last.other_workers + _count_other_failures(failures, last.index), MAX_OTHERS)
    last = last.model_copy(update=changes)
    if blame.is_cause_of(cause, heard):
        last = _with_later_cause(world, last, heard, cause, failures)
    return record.model_copy(update={"incidents": [*record.incidents[:-1], last]})


def with_open_blame(record: GangSpec, cause: Failure) -> GangSpec:
    """Return the record in which a new cause explains open incidents, too."""
    fault_class = blame.fault_class(cause)
    upgraded = blame.upgrade(record.incidents, first_open(record), fault_class, cause.kind, cause.node)
    return record.model_copy(update={"incidents": upgraded})


def _with_later_cause(
    world: JobWorld,
    incident: GangIncident,
    heard: GangIncident,
    cause: Failure,
    failures: Sequence[Failure],
) -> GangIncident:
    """Return an incident with the cause that was heard later than its consequences.

    Args:
        world: the state of the job.
        incident: with what has failed since.
        heard: the incident as it was recorded first.
        cause: the failure from which the incident follows.
        failures: the new failures.
    """
    words = f"{exits.message_of(world, cause)}; heard before: {heard.message}"
    others = min((heard.other_workers or 0) + _count_other_failures(failures, cause.index), MAX_OTHERS)
    updated = _with_culprit(incident, cause, blame.fault_class(cause), words)
    return updated.model_copy(update={"other_workers": others})


def _with_culprit(incident: GangIncident, cause: Failure, fault_class: FaultClass, message: str) -> GangIncident:
    """Return the incident with another culprit."""
    return incident.model_copy(
        update={
            "reason": cause.kind,
            "fault_class": fault_class,
            "node": cause.node,
            "index": cause.index,
            "rank": cause.rank,
            "exit_code": cause.exit_code,
            "signal": cause.signal,
            "own_exception": cause.own_exception,
            "message": message[:2048],
        }
    )


def _count_other_failures(failures: Sequence[Failure], index: int) -> int:
    """Return how many workers other than this one failed by themselves, and not because they lost a peer."""
    return len({failure.index for failure in failures if not failure.victim} - {index})


def shortened(incidents: Sequence[GangIncident]) -> list[GangIncident]:
    """Return the newest incidents; old ones without their stacks and with short messages."""
    newest = incidents[-MAX_INCIDENTS:]
    return _without_old_stacks([*map(_shorten_incident, newest[:-TOLD_WHOLE]), *newest[-TOLD_WHOLE:]])


def _shorten_incident(incident: GangIncident) -> GangIncident:
    if len(incident.message) <= SHORT_MESSAGE_CHARACTERS:
        return incident
    return incident.model_copy(update={"message": incident.message[: SHORT_MESSAGE_CHARACTERS - 1] + "…"})


def _without_old_stacks(incidents: list[GangIncident]) -> list[GangIncident]:
    hangs = [place for place, incident in enumerate(incidents) if incident.stacks]
    old = set(hangs[:-STACKS_KEPT])
    return [
        incident.model_copy(update={"stacks": []}) if place in old else incident
        for place, incident in enumerate(incidents)
    ]


def incidents_to_settle(world: JobWorld, record: GangSpec) -> list[GangIncident]:
    """Return the incidents whose class and blame are due to be made final."""
    settle = timedelta(seconds=blame.SETTLE_SECONDS)
    return [i for i in record.incidents if not i.settled and world.now - i.time >= settle]


def with_incidents_settled(world: JobWorld, gang: Gang) -> GangSpec:
    """Return the record in which the class and blame of the incidents that are due are final.

    The worker that was seen to fail first may have been a victim of one that reported later.
    """
    record, due = gang.spec, incidents_to_settle(world, gang.spec)
    incidents = [
        with_stacks(world, _with_blame(world, incident)).model_copy(update={"settled": True})
        if incident in due
        else incident
        for incident in record.incidents
    ]
    return record.model_copy(update={"incidents": incidents})


def _with_blame(world: JobWorld, incident: GangIncident) -> GangIncident:
    if incident.fault_class not in budgets.OWN_DOING:
        return incident
    late = exits.late_rank_failures(world, incident.attempt) if incident.reason == Kind.RANK_FAILED else []
    culprits = [failure for failure in late if not failure.victim]
    if late and not culprits and (cut_off := exits.find_fenced_worker(world, incident.attempt)) is not None:
        # Workers that lost a peer were heard before those that had ended their own ranks.
        words = f"{incident.message} (worker {cut_off.index} had lost contact with Muster and ended its ranks before)"
        return incident.model_copy(update={"fault_class": FaultClass.INFRASTRUCTURE, "message": words[:2048]})
    cause = blame.culprit(culprits) if culprits else None
    if cause is None or (cause.index, cause.rank) == (incident.index, incident.rank):
        return _as_node_fault(world, _with_failed_peers(world, incident, culprits))
    words = exits.message_of(world, cause)
    return _with_culprit(_with_failed_peers(world, incident, culprits), cause, blame.fault_class(cause), words)


def with_stacks(world: JobWorld, incident: GangIncident) -> GangIncident:
    """Return a hang with where its ranks stood, as far as launchers have reported it; other incidents as they are.

    With the next start launchers forget that, and those of pods that the record drops are forgotten.
    """
    if incident.stacks or incident.resumed_step is not None or not is_hang(incident.reason):
        return incident
    groups, summary = stacks_of(world, incident.attempt)
    if not groups:
        return incident
    return incident.model_copy(update={"stacks": groups, "message": f"{incident.message}; {summary}"[:2048]})


def _with_failed_peers(world: JobWorld, incident: GangIncident, culprits: Sequence[Failure]) -> GangIncident:
    """Return the incident with the number of other workers that are known by now to have failed by themselves."""
    if not culprits:
        return incident
    others = len({failure.index for failure in culprits}) - 1
    if world.gang is not None and world.gang.spec.node_count == 1:
        others = sum(exits.count_own_failures(world, failure.index, incident.attempt) for failure in culprits) - 1
    return incident.model_copy(update={"other_workers": min(max(others, incident.other_workers or 0), MAX_OTHERS)})


def _as_node_fault(world: JobWorld, incident: GangIncident) -> GangIncident:
    """Return the incident as the node's fault, if the node is known to be unhealthy by now.

    What ranks see at once is found by the node's agent a moment later.
    """
    if incident.reason not in blame.OF_A_SICK_NODE:
        return incident
    is_unlocated = is_hang(incident.reason) and not incident.node
    nodes = [member.node for member in world.gang.spec.members] if is_unlocated and world.gang else [incident.node]
    node = next((node for node in nodes if world.fleet.node_fault(node)), None)
    if node is None:
        return incident
    which = f"node {node}" if is_unlocated else "its node"
    words = f"{incident.message} ({which} is unhealthy: {world.fleet.node_fault(node)})"
    return incident.model_copy(update={"fault_class": FaultClass.HARDWARE, "node": node, "message": words[:2048]})


def with_later_steps(world: JobWorld, record: GangSpec) -> list[GangIncident]:
    """Return the incidents; the one that ended what ran last with a step that was reported only after it.

    Checkpoints refill the restart budgets only beyond that step.
    """
    attempt = first_open(record)
    last = exits.last_step_of(world, record, attempt)
    if last is None:
        return record.incidents
    return [
        incident.model_copy(update={"step": max(incident.step or 0, last)})
        if incident.attempt == attempt and incident.resumed_step is None
        else incident
        for incident in record.incidents
    ]


def with_resume_step(record: GangSpec, where: Start) -> list[GangIncident]:
    """Return the incidents; the last one with the step from which the ranks resume.

    Where another branch begins, the steps of all incidents are lowered to its first step, so that progress on it
    counts.
    """
    incidents = list(record.incidents)
    if incidents and incidents[-1].resumed_step is None:
        changes = {
            "resumed_step": where.resume.step if where.resume else 0,
            "message": exits.with_more(incidents[-1].message, unloadable.fallback_text(where))[:2048],
        }
        incidents[-1] = incidents[-1].model_copy(update=changes)
    asked = record.branch.resume_from if record.branch else ""
    if where.branch is None or where.branch.resume_from in ("", asked):
        return incidents
    # Another history begins: what failed in the one before is refunded by what this one wins.
    most = max(where.branch.step, 0)
    return [
        incident.model_copy(
            update={
                **{name: min(getattr(incident, name) or 0, most) for name in _STEPS},
                "lost_steps": steps_made_again(incident),
            }
        )
        for incident in incidents
    ]


def steps_made_again(incident: GangIncident) -> int | None:
    """Return the number of steps that an incident has cost; None where they are not known, or not yet."""
    if incident.lost_steps is not None or incident.step is None or incident.resumed_step is None:
        return incident.lost_steps
    return max(incident.step - incident.resumed_step, 0)


def newest_step(world: JobWorld, record: GangSpec) -> int | None:
    """Return the newest step that any worker has finished in this attempt; None: none is known."""
    steps = (view.step for view in world.views.values() if view.attempt == record.attempt)
    return max((step for step in steps if step is not None), default=None)


def last_step(world: JobWorld, record: GangSpec) -> int | None:
    """Return the newest step known to be finished, or the one from which the attempt resumed; None: from scratch."""
    resumed = record.start.resume if record.start else record.checkpoint
    step = newest_step(world, record)
    return step if step is not None else (resumed.step if resumed else None)


def first_open(record: GangSpec) -> int:
    """Return the lowest attempt whose failure no start of the ranks has followed.

    It is this attempt, or an earlier one if the ranks have not started since.
    """
    if record.start is not None:
        return record.attempt
    first = record.attempt
    for incident in reversed(record.incidents):
        if incident.resumed_step is not None:
            break
        first = incident.attempt
    return first

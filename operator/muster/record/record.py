"""Writes the next Gang record: every way in which an attempt begins, starts its ranks, or ends. Pure.

Each function returns a whole new spec, to be committed by one guarded update. Members never change within an attempt:
any change of them also takes the next number.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from muster.api.gang import (
    FENCE_SECONDS,
    AttemptStart,
    BurnIn,
    BurnInAllReduce,
    BurnInFailure,
    Evacuation,
    Examination,
    FaultClass,
    Gang,
    GangIncident,
    GangSpec,
    Level,
    Member,
    UnfencedWorker,
)
from muster.checkpoints import local, resume, resuming, unloadable
from muster.checkpoints.resume import Missing, Start
from muster.fencing.proofs import BOOT_CHARACTERS
from muster.fencing.survivors import awaited_proof_message, is_fenced, unfenced_workers
from muster.pods.requirements import mounted_names
from muster.pods.worker_pod import PLAIN_MASTER_PORT
from muster.preflight.outcomes import Fail
from muster.protocol.fence import doubled_seconds, wanted_fence_seconds
from muster.protocol.messages import IDLE
from muster.record import corruption, members
from muster.recovery import blame, budgets, exits, holds
from muster.recovery.failure import Failure, Kind, is_hang, kinds_with
from muster.recovery.failures import fault_time
from muster.recovery.modes import mode_of
from muster.recovery.stacks import stacks_of
from muster.recovery.verification import LAUNCHER_SILENT, NOT_LISTED
from muster.recovery.words import and_more_workers
from muster.world.job import JobWorld, WorkerView
from muster.world.queuedecision import NotPlaced, Placed
from muster.world.views import FRESH_SECONDS

MAX_INCIDENTS = 256
# The newest incidents keep their whole messages; of older ones the budgets need numbers.
TOLD_WHOLE = 16
MAX_OTHERS = 4096
SHORT_MESSAGE_CHARACTERS = 160
# Of the newest hangs; one takes up to 18 KB of the record.
STACKS_KEPT = 2
# A number in the fence file that is this far beyond the attempt is of no attempt of this job.
FENCE_FILE_REACH = 10_000
MASTER_PORTS = range(20000, 30000)
_HEAR = "if that lasts, check its log and the network policies between it and the Service muster-coordinator"

# A gang that could not be assembled waits this long before its next try, twice as long each time.
FIRST_RELEASE_SECONDS = 60.0
# Failures of one cause (a rack, a network, a bad image) are all seen within this time.
TOGETHER_SECONDS = 10.0
ASSEMBLY_TIMED_OUT = "AssemblyTimedOut"
GAVE_WAY = "NodesYielded"
SUSPENDED = "Suspended"
BURN_IN_FAILED = "BurnInFailed"
MAX_BURN_IN_FAILURES = 64
MAX_MOUNTED = 8  # objects that a message names
_NODES_TO_AVOID = kinds_with(lambda traits: traits.avoids_node)

_ORDER = [Level.START, Level.IN_PLACE, Level.POD, Level.REPLACE, Level.REBUILD]


def with_new_placement(world: JobWorld, placed: Placed, reason: str) -> GangSpec:
    """Return the record of an attempt on entirely new nodes: the first one, or the first after the nodes were given
    back.

    Args:
        world: the state of the job.
        placed: the nodes that the queue has promised.
        reason: of the first attempt; a later record names it, too.
    """
    record = world.gang.spec if world.gang else None
    worker_views = members.members_on(
        placed.nodes, 1 + max((pod.incarnation for pod in world.pods.values()), default=0)
    )
    if record is not None and record.open_corruption is not None:  # those on which it happened are left
        record = corruption.with_test_results(record, Examination.NOT_TESTED)
    if record is None:
        return GangSpec(
            job_uid=world.uid,
            attempt=1 + world.job.status.attempt,
            time=world.now,
            level=Level.START,
            reason=reason,
            members=worker_views,
            topology=members.topology(world, worker_views),
        )
    return _next(world, record, Level.START, reason, worker_views)


def after_failures(world: JobWorld, record: GangSpec, found: Sequence[Failure]) -> GangSpec:
    """Return the record after failures: the next attempt, by the lowest level that repairs all of them at once.

    Args:
        world: the state of the job.
        record: of the failed attempt.
        found: the failures; at least one.
    """
    cause = blame.culprit(found)
    fault_class = blame.fault_class(cause)
    excluded = {node: until for node, until in record.excluded_nodes.items() if until > world.now}
    for failure in found:
        if (
            failure.node_fault
            or failure.suspected
            or (failure.kind in _NODES_TO_AVOID and failure.level is Level.REPLACE)
        ):
            excluded[failure.node] = world.now + members.EXCLUSION
    if cause.kind is Kind.NODE_CONFLICT:  # the strongest of all: nothing has failed
        return _after_refused_pods(world, record.model_copy(update={"excluded_nodes": excluded}), found)
    before = record.incidents
    incidents = blame.upgrade(before, _first_open(record), fault_class, cause.kind, cause.node)
    record = record.model_copy(
        update={
            "incidents": incidents,
            "excluded_nodes": excluded,
            "checkpoint": resume.newest_checkpoint(world, record),  # what it has won counts before what it has lost
        }
    )
    goes_on, taken_over = _is_same_incident(world, record, found), bool(before) and blame.is_cause_of(cause, before[-1])
    record = unloadable.with_failed_start(world, record, fault_class, cause.kind)
    record = corruption.with_new_reports(world, record, _last_step(world, record) or 0)
    level, worker_views = _repair_members(world, record, found)
    reason = cause.kind if worker_views else record.reason  # without nodes it waits for what it waited for before
    stays = {member.node for member in worker_views}
    avoided = {node: until for node, until in excluded.items() if node not in stays}
    record = record.model_copy(update={"excluded_nodes": avoided})
    left = unfenced_workers(world, record, worker_views)
    if goes_on:
        incidents = _with_later_failures(world, record, level, cause, found)
        if taken_over:
            incidents[-1] = _with_later_cause(world, incidents[-1], before[-1], fault_class, cause, found)
        record = record.model_copy(update={"incidents": incidents})
        return _next(world, record, level, reason, worker_views, unfenced=left)
    incident = _incident(world, record, level, cause, fault_class, found)
    spec = _next(world, record, level, reason, worker_views, incident, left)
    pause = budgets.back_off_seconds(spec) if worker_views else 0.0
    return spec.model_copy(update={"hold_until": world.now + timedelta(seconds=pause)}) if pause else spec


def _repair_members(world: JobWorld, record: GangSpec, found: Sequence[Failure]) -> tuple[Level, list[Member]]:
    lost = {failure.index for failure in found if failure.level is Level.POD}
    moved = {failure.index for failure in found if failure.level is Level.REPLACE and not failure.if_free}
    optional = {
        failure.index: failure.node for failure in found if failure.if_free or failure.node_fault or failure.suspected
    }
    first = blame.culprit(found).index
    moved |= members.movable_indices(
        world, record, moved, sorted(optional.keys() - moved, key=lambda i: (i != first, i))
    )
    # A member that has to stay on an unhealthy node may have a new pod there.
    stay = {node for index, node in optional.items() if index not in moved}
    avoided = {node: until for node, until in record.excluded_nodes.items() if node not in stay}
    record = record.model_copy(update={"excluded_nodes": avoided})
    level = Level.REPLACE if moved else Level.POD if lost else Level.IN_PLACE
    return members.next_members(world, record, _at_least(world, level), lost, moved)


def _at_least(world: JobWorld, level: Level) -> Level:
    return max(level, mode_of(world.job).least_level, key=_ORDER.index)


def _is_same_incident(world: JobWorld, record: GangSpec, found: Sequence[Failure]) -> bool:
    """Whether the failures belong to the incident that is being repaired, as workers that fail together are not seen at
    once.

    Only workers that were there when the incident happened count: a failure in a new pod is a new incident. Before the
    first start, and of members that were replaced since the last one, the record does not name the pods: these were
    there if this process had seen them by then. A rank's report of wrong results belongs to the end of its attempt,
    however late it is heard. One start follows, and the job is charged once.
    """
    last = record.incidents[-1] if record.incidents else None
    if record.start is not None or last is None or last.resumed_step is not None:
        return False
    if all(failure.kind is Kind.CORRUPTION for failure in found):
        return record.open_corruption is not None or last.fault_class in budgets.OWN_DOING
    since = (world.now - last.time).total_seconds()
    workers = (world.by_index[failure.index] for failure in found if failure.kind is not Kind.CORRUPTION)
    return since <= TOGETHER_SECONDS and all(_was_there(world, worker_view, since) for worker_view in workers)


def _was_there(world: JobWorld, worker_view: WorkerView, seconds: float) -> bool:
    """Whether the worker's pod is known to have existed this long ago."""
    if worker_view.member.pod_uid:
        return True
    pod = worker_view.pod
    return pod is not None and 0 <= seconds < world.ages_of(pod).there


def _with_later_failures(
    world: JobWorld, record: GangSpec, level: Level, cause: Failure, found: Sequence[Failure]
) -> list[GangIncident]:
    """Return the incidents; the last one with what has failed since it was recorded.

    Args:
        world: the state of the job.
        record: of the gang.
        level: by which the new failures are repaired.
        cause: the culprit among the new failures.
        found: the new failures.
    """
    last, count = record.incidents[-1], len(found)
    more = f"; then {exits.with_more(exits.message_of(world, cause), and_more_workers(count - 1))}"
    changes: dict[str, object] = {
        "level": max(level, last.level, key=_ORDER.index),
        "message": (last.message + more)[:2048],
    }
    if last.other_workers is not None and last.index is not None:
        changes["other_workers"] = min(last.other_workers + _count_other_failures(found, last.index), MAX_OTHERS)
    return [*record.incidents[:-1], last.model_copy(update=changes)]


def _with_later_cause(
    world: JobWorld,
    incident: GangIncident,
    heard: GangIncident,
    fault_class: FaultClass,
    cause: Failure,
    found: Sequence[Failure],
) -> GangIncident:
    """Return an incident with the cause that was heard later than its consequences.

    Args:
        world: the state of the job.
        incident: with what has failed since.
        heard: the incident as it was recorded first.
        fault_class: of the cause.
        cause: the failure from which the incident follows.
        found: the new failures.
    """
    words = f"{exits.message_of(world, cause)}; heard before: {heard.message}"
    others = min((heard.other_workers or 0) + _count_other_failures(found, cause.index), MAX_OTHERS)
    told = _with_culprit(incident, cause, fault_class, words)
    return told.model_copy(update={"reason": cause.kind, "other_workers": others})


def _with_culprit(incident: GangIncident, cause: Failure, fault_class: FaultClass, message: str) -> GangIncident:
    """Return the incident with another culprit."""
    return incident.model_copy(
        update={
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


def _after_refused_pods(world: JobWorld, record: GangSpec, conflicts: Sequence[Failure]) -> GangSpec:
    """Return the record after kubelets refused pods that Muster had bound because another pod was faster.

    The refusal is no failure, and no budget is charged.
    """
    level, worker_views = _move_members(world, record, {failure.index for failure in conflicts})
    level = Level.START if record.level is Level.START else level
    return _next(
        world, record, level, Kind.NODE_CONFLICT, worker_views, unfenced=unfenced_workers(world, record, worker_views)
    )


def _move_members(world: JobWorld, record: GangSpec, indices: Collection[int]) -> tuple[Level, list[Member]]:
    """Return the level and the members of the next attempt, with the given members on other nodes."""
    return members.next_members(world, record, _at_least(world, Level.REPLACE), (), indices)


def with_queued_nodes(world: JobWorld, record: GangSpec) -> GangSpec | NotPlaced | None:
    """Return the record with nodes for the members that have none; None before the queue has answered.

    Where the queue has no nodes, its answer is returned, which says why.
    """
    answer = world.queue_decision.answer if world.queue_decision else None
    if answer is None:
        return None
    if isinstance(answer, NotPlaced):
        elsewhere = members.rebuild_elsewhere(world, record) if answer.reason == members.TOPOLOGY_UNSATISFIED else None
        if elsewhere is None:
            return answer
        level, worker_views = elsewhere
    else:
        found = members.with_queued_nodes(record, answer)
        if found is None or not members.are_still_free(world, answer):
            return None
        level, worker_views = Level.REPLACE, found
    return _next(
        world, record, level, record.reason, worker_views, unfenced=unfenced_workers(world, record, worker_views)
    )


def after_late_workers(world: JobWorld, record: GangSpec, indices: Collection[int]) -> GangSpec:
    """Return the record after some workers did not come to run in time: they move, and the others keep their nodes.

    Args:
        world: the state of the job.
        record: of the gang.
        indices: of those workers.
    """
    nodes = (world.by_index[index].member.node for index in indices)
    excluded = {**record.excluded_nodes, **dict.fromkeys(nodes, world.now + members.EXCLUSION)}
    return with_members_moved(
        world, record.model_copy(update={"excluded_nodes": excluded}), indices, ASSEMBLY_TIMED_OUT
    )


def with_members_moved(world: JobWorld, record: GangSpec, indices: Collection[int], reason: str) -> GangSpec:
    """Return the record with some members on other nodes before the ranks have started; a member may then have no node.

    Args:
        world: the state of the job.
        record: of the gang.
        indices: of the members that move.
        reason: of the next attempt.
    """
    level, worker_views = _move_members(world, record, indices)
    level = Level.START if record.level is Level.START else level
    return _next(world, record, level, reason, worker_views, unfenced=unfenced_workers(world, record, worker_views))


def after_burn_in_failed(world: JobWorld, record: GangSpec, fails: Sequence[Fail], profile: str) -> GangSpec:
    """Return the record after nodes failed the burn-in: their members move, the others keep their nodes and passes.

    Args:
        world: the state of the job.
        record: of the gang.
        fails: the failed nodes.
        profile: of the burn-in.
    """
    nodes = {fail.node for fail in fails}
    excluded = {**record.excluded_nodes, **dict.fromkeys(nodes, world.now + members.FAILED_EXCLUSION)}
    changes = {"excluded_nodes": excluded, "burn_in": _failed(world, record, fails, profile)}
    other = corruption.with_culprits(record, fails).model_copy(update=changes)
    return with_members_moved(world, other, members.indices_on(record, nodes), BURN_IN_FAILED)


def after_burn_in_release(world: JobWorld, record: GangSpec, fails: Sequence[Fail], profile: str) -> GangSpec:
    """Return the record of a gang that gives its nodes back, because too many in a row have failed the burn-in.

    The next try is held back for a while.
    """
    record = corruption.with_culprits(record, fails)
    spec = after_assembly_failed(world, record, members.indices_on(record, {fail.node for fail in fails}))
    excluded = {**spec.excluded_nodes, **dict.fromkeys((f.node for f in fails), world.now + members.FAILED_EXCLUSION)}
    told = _failed(world, record, fails, profile).model_copy(update={"tries": 0})
    return spec.model_copy(update={"reason": BURN_IN_FAILED, "excluded_nodes": excluded, "burn_in": told})


def after_inconclusive(
    world: JobWorld, record: GangSpec, nodes: Collection[str], profile: str, reason: str
) -> GangSpec:
    """Return the record after the tests of some nodes have given no answer for too long: their members move.

    Nothing is held against the nodes.

    Args:
        world: the state of the job.
        record: of the gang.
        nodes: those that are not proved.
        profile: of the burn-in.
        reason: of the next attempt.
    """
    excluded = {**record.excluded_nodes, **dict.fromkeys(nodes, world.now + members.EXCLUSION)}
    changes = {"excluded_nodes": excluded, "burn_in": _failed(world, record, (), profile)}
    return with_members_moved(world, record.model_copy(update=changes), members.indices_on(record, nodes), reason)


def after_inconclusive_release(
    world: JobWorld, record: GangSpec, nodes: Collection[str], message: str, reason: str
) -> GangSpec:
    """Return the record of a gang that gives its nodes back, because the tests of some nodes have given no answer.

    The next try is held back for a while.
    """
    told = (record.burn_in or BurnIn(time=world.now)).model_copy(
        update={"time": world.now, "tries": 0, "message": message[:512]}
    )
    spec = after_assembly_failed(world, record, members.indices_on(record, nodes), reason)
    return spec.model_copy(update={"burn_in": told})


def _failed(world: JobWorld, record: GangSpec, fails: Sequence[Fail], profile: str) -> BurnIn:
    before = record.burn_in
    found = [
        BurnInFailure(
            node=fail.node,
            boot=node.boot_id if (node := world.fleet.nodes.get(fail.node)) else "",
            time=world.now,
            probe=fail.probe,
            message=fail.message[:512],
            partners=list(fail.partners[:16]),
        )
        for fail in fails
    ]
    return BurnIn(
        profile=profile,
        time=world.now,
        tries=1 + (before.tries if before else 0),
        since_attempt=before.since_attempt if before is not None and before.tries else record.attempt,
        failures=[*(before.failures if before else ()), *found][-MAX_BURN_IN_FAILURES:],
        untested=before.untested if before else [],
        all_reduce=before.all_reduce if before else None,
    )


def after_burn_in_passed(
    world: JobWorld, record: GangSpec, profile: str, untested: Sequence[str], words: str, measured: str
) -> GangSpec:
    """Return the record with the results of the burn-in before a start; nodes that failed in the last day stay in it.

    Args:
        world: the state of the job.
        record: with the start barrier open.
        profile: of the burn-in.
        untested: nodes of which nothing is proved.
        words: why not; "" if all are proved.
        measured: the result of the all-reduce of the whole gang; "": none was made, and an earlier one stays.
    """
    before = record.burn_in
    whole = BurnInAllReduce(time=world.now, message=measured) if measured else before.all_reduce if before else None
    recent = [f for f in before.failures if world.now - f.time < members.FAILED_EXCLUSION] if before else []
    if not recent and not untested and whole is None:
        return record.model_copy(update={"burn_in": None})
    told = BurnIn(
        profile=profile,
        time=world.now,
        failures=recent,
        untested=sorted(untested),
        message=words[:512],
        all_reduce=whole,
    )
    return record.model_copy(update={"burn_in": told})


def came_to_nothing(record: GangSpec) -> bool:
    """Whether the record is of a gang that held nodes and gave them back because its pods did not come to run."""
    return record.reason == ASSEMBLY_TIMED_OUT and not record.members


def after_assembly_failed(
    world: JobWorld, record: GangSpec, late: Collection[int], reason: str = ASSEMBLY_TIMED_OUT
) -> GangSpec:
    """Return the record of a gang that gives its nodes back because it could not be assembled on them.

    The next try is held back, twice as long each time, up to an hour.

    Args:
        world: the state of the job.
        record: of the gang.
        late: indices of the workers whose nodes are avoided for that time.
        reason: of the next attempt.
    """
    releases = record.releases + 1
    pause = min(FIRST_RELEASE_SECONDS * 2.0 ** (releases - 1), holds.LONGEST_SECONDS)
    nodes = (world.by_index[index].member.node for index in late)
    # For as long as it waits and a little longer, or it would come back to them.
    until = world.now + timedelta(seconds=pause) + members.EXCLUSION
    excluded = {**record.excluded_nodes, **dict.fromkeys(filter(None, nodes), until)} if late else record.excluded_nodes
    update = {"hold_until": world.now + timedelta(seconds=pause), "releases": releases, "excluded_nodes": excluded}
    return without_nodes(world, record, reason).model_copy(update=update)


def budget_exhausted(world: JobWorld, record: GangSpec) -> str:
    """Return the reason of the restart budget that is exhausted, given the newest checkpoint seen; "" if none is."""
    seen = record.model_copy(update={"checkpoint": resume.newest_checkpoint(world, record)})
    return budgets.exhausted(seen, world.job.spec.recovery, world.now)


def with_evacuation_begun(
    world: JobWorld, record: GangSpec, reason: str, nodes: Sequence[str], deadline: datetime
) -> GangSpec:
    """Return the record with a planned evacuation begun; the attempt goes on until a new checkpoint, or the deadline.

    Args:
        world: the state of the job.
        record: of the gang.
        reason: of the evacuation.
        nodes: to leave; empty: all.
        deadline: after which the gang waits for no checkpoint.
    """
    if record.evacuation and record.evacuation.reason == reason:  # more nodes to leave: the deadline stays
        return record.model_copy(update={"evacuation": record.evacuation.model_copy(update={"nodes": sorted(nodes)})})
    newest = resume.newest_checkpoint(world, record)
    # One for a step that was finished before is not new: it may have been complete already, only not yet seen.
    steps = (newest.step if newest else None, (newest_step(world, record) or 0) - 1)
    after = max(step for step in steps if step is not None)
    evacuation = Evacuation(
        reason=reason,
        nodes=sorted(nodes),
        since=world.now,
        deadline=deadline,
        after_step=after if after >= 0 else None,
    )
    return record.model_copy(update={"evacuation": evacuation, "checkpoint": newest})


def after_evacuation(world: JobWorld, record: GangSpec, evacuation: Evacuation) -> GangSpec:
    """Return the record after a planned evacuation: the members on its nodes move, the others restart in place."""
    level, worker_views = _move_members(world, record, members.indices_on(record, evacuation.nodes))
    incident = GangIncident(
        attempt=record.attempt,
        time=world.now,
        level=level,
        fault_class=FaultClass.PLANNED,
        reason=evacuation.reason,
        node=evacuation.nodes[0],
        step=_last_step(world, record),
        message=f"left {', '.join(evacuation.nodes)}"[:2048],
        settled=True,
    )
    return _next(
        world, record, level, evacuation.reason, worker_views, incident, unfenced_workers(world, record, worker_views)
    )


def without_nodes(world: JobWorld, record: GangSpec, reason: str = SUSPENDED) -> GangSpec:
    """Return the record without members, so that the nodes are free."""
    record = record.model_copy(update={"checkpoint": resume.newest_checkpoint(world, record)})
    spec = _next(world, record, Level.START, reason, [], unfenced=unfenced_workers(world, record, []))
    return spec.model_copy(update={"hold_until": None})


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
        _with_stacks(world, _with_blame(world, incident)).model_copy(update={"settled": True})
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


def _with_stacks(world: JobWorld, incident: GangIncident) -> GangIncident:
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


def with_longer_fences(world: JobWorld, record: GangSpec) -> GangSpec | None:
    """Return the record with longer fences where steps take longer than the fences allow for; None where they do not.

    The record is written before launchers get the new value, so that no leader counts less than a launcher does. Fences
    become shorter only with the next start, when every launcher has reported that it has no rank.
    """
    if record.start is None:
        return None
    steps = (view.step_seconds for view in world.views.values() if view.attempt == record.attempt)
    wanted = wanted_fence_seconds(FENCE_SECONDS, max((step for step in steps if step is not None), default=None))
    # Never less than a launcher says that it counts by.
    own = max((view.fence_seconds for view in world.views.values() if view.attempt == record.attempt), default=0.0)
    wanted = doubled_seconds(wanted, own)
    if all(member.fence_seconds >= wanted for member in record.members):
        return None
    return record.model_copy(
        update={
            "members": [
                member.model_copy(update={"fence_seconds": max(member.fence_seconds, wanted)})
                for member in record.members
            ]
        }
    )


def with_barrier_open(world: JobWorld, record: GangSpec) -> tuple[GangSpec, str] | Missing:
    """Return the record with the start barrier open, and a warning about where the ranks resume, "" if none.

    The barrier opens once every member is idle and every unfenced worker is fenced. Before that, what is missing is
    returned.
    """
    missing = _awaited_by_start(world, record)
    if missing:
        return missing
    where = local.local_start(world, record)
    if isinstance(where, Missing):
        return where
    preset = resuming.preset_for(world, where.resume)
    if isinstance(preset, Missing) and where.local_attempt:
        where = local.from_shared_instead(where, preset.message)
        preset = resuming.preset_for(world, where.resume)
    if isinstance(preset, Missing):
        return preset
    first = world.first
    address = (first.launcher.address if first.launcher else "") or (first.pod.pod_ip if first.pod else "")
    port = MASTER_PORTS[record.attempt % len(MASTER_PORTS)]
    go = AttemptStart(
        time=world.now, master_address=address, master_port=port, resume=where.resume, resume_preset=preset
    )
    fence_file = _fence_file_of_most(world)
    incidents = [_with_stacks(world, incident) for incident in _with_later_steps(world, record)]
    spec = record.model_copy(
        update={
            "members": [_member_at_start(worker_view, fence_file) for worker_view in world.worker_views],
            "start": go,
            "unfenced_workers": [],
            "fence_file_id": fence_file,
            "hold_until": None,
            "releases": 0,
            "incidents": _with_resume_step(record.model_copy(update={"incidents": incidents}), where),
            "branch": where.branch,
            "checkpoint": where.lasting if where.branch != record.branch else where.lasting or record.checkpoint,
            "local_since_attempt": local.local_saves_since(world, record, where),
            "last_published_checkpoint": resume.published_checkpoint(world),
            "corruption": corruption.close_report(record.corruption, where),
            "suspect_checkpoint": unloadable.after_start(record, where),
        }
    )
    return spec, where.warning


def _awaited_by_start(world: JobWorld, record: GangSpec) -> Missing | None:
    """Return what keeps the ranks from starting, apart from where they resume; None: nothing."""
    alive = next(
        (unfenced_worker for unfenced_worker in record.unfenced_workers if not is_fenced(world, unfenced_worker)), None
    )
    if alive is not None:
        return Missing("OldRanksNotFenced", awaited_proof_message(world, alive))
    for worker_view in world.worker_views:
        launcher = worker_view.launcher
        if not worker_view.runs:
            return not_running(world, worker_view)
        if launcher is None or launcher.heard_age_seconds > FRESH_SECONDS:
            return Missing(LAUNCHER_SILENT, f"waiting for the launcher of {worker_view.where} to report: {_HEAR}")
        if launcher.attempt != record.attempt or launcher.state != IDLE:
            return Missing("OldRanksAlive", f"waiting for {worker_view.where} to end its old ranks")
        if world.job.spec.checkpoint.directory and worker_view.index not in world.listed:
            why = f": {launcher.checkpoint_error}" if launcher.checkpoint_error else ""
            return Missing(NOT_LISTED, f"waiting for {worker_view.where} to list the checkpoints{why}")
    return None


def not_running(world: JobWorld, worker_view: WorkerView) -> Missing:
    """Return that the start waits for the pod of this worker to run, and where the cause stands.

    It stands in the kubelet's Events, which Muster has no right to read.
    """
    message, pod = f"waiting for the pod of {worker_view.where} to run", worker_view.pod
    if pod is None or not pod.node or any(each.running or each.terminated for each in pod.containers):
        return Missing("PodNotRunning", message)
    names = mounted_names(world.job)
    more = f" and {len(names) - MAX_MOUNTED} more" if len(names) > MAX_MOUNTED else ""
    mounts = f", or mounts {', '.join(names[:MAX_MOUNTED])}{more}" if names else ""
    return Missing(
        "PodNotRunning",
        f"{message}. Its kubelet has created no container of it yet: it pulls images{mounts}. What fails stands at the "
        f"end of: kubectl describe pod -n {pod.namespace} {pod.name}",
    )


def _fence_file_of_most(world: JobWorld) -> str:
    """Return the identity of the fence file that most launchers read; "" for none.

    A launcher that reads another one sees another directory.
    """
    told = Counter(view.fence_file_id for view in world.views.values() if view.fence_file_id)
    return max(told, key=told.__getitem__, default="")


def with_fence_file(world: JobWorld, record: GangSpec) -> GangSpec | None:
    """Return the record with the fence file that every launcher has come to read since the start; None: nothing is new.

    The start does not wait for that, as only a gang that falls silent altogether needs the file. A launcher that could
    not read it at its start obeys it once it has seen its own attempt in it.
    """
    if record.start is None or all(record.obeys_fence_file(member) for member in record.members):
        return None
    told = {worker_view.launcher.fence_file_id if worker_view.launcher else None for worker_view in world.worker_views}
    if len(told) != 1 or not (identity := told.pop()):
        return None
    views = world.views.values()
    if not all(
        v.attempt == record.attempt and v.reads_fence_file and v.fence_file_attempt >= record.attempt for v in views
    ):
        return None
    members = [member.model_copy(update={"reads_fence_file": True}) for member in record.members]
    return record.model_copy(update={"fence_file_id": identity, "members": members})


def with_attempt_beyond_fence_file(world: JobWorld, record: GangSpec) -> GangSpec | None:
    """Return the record with an attempt number beyond that in the fence file; None where it is beyond already.

    The number can be too low after a Gang was deleted by hand and the status, from which the new one counts, was old.
    Ranks of a lower attempt than the file names end as soon as the coordinator is silent.
    """
    told = (view.fence_file_attempt for view in world.views.values())
    highest = max((n for n in told if n < record.attempt + FENCE_FILE_REACH), default=0)
    if highest <= record.attempt:
        return None
    return record.model_copy(update={"attempt": highest + 1, "time": world.now})


def with_pod_uids(world: JobWorld, record: GangSpec) -> GangSpec:
    """Return the record with the UIDs of its pods.

    In mode Plain pods are bound after that, so that no pod that ran is missing in the record.
    """
    uids = {worker_view.index: worker_view.pod.uid for worker_view in world.worker_views if worker_view.pod is not None}
    return record.model_copy(
        update={"members": [m.model_copy(update={"pod_uid": uids.get(m.index, m.pod_uid)}) for m in record.members]}
    )


def after_all_fenced(world: JobWorld, record: GangSpec) -> GangSpec:
    """Return the record without unfenced workers, all of which are fenced.

    Launchers list the checkpoints again, because an unfenced worker may have saved until its end. In mode Plain the
    time to assemble the gang begins now, and a hold of the start is restated by this leader's clock.
    """
    if not mode_of(world.job).starts_with_pods:
        incidents = [_with_stacks(world, incident) for incident in record.incidents]
        changes = {"unfenced_workers": [], "listing_round": record.listing_round + 1, "incidents": incidents}
        return record.model_copy(update=changes)
    return record.model_copy(
        update={"unfenced_workers": [], "time": world.now, "hold_until": holds.held_until(world, record)}
    )


def _member_at_start(worker_view: WorkerView, fence_file: str = "") -> Member:
    """Return the member as its ranks start: with its pod, its boot, and a new fence.

    Args:
        worker_view: the worker.
        fence_file: the identity of the fence file that the gang obeys; "": none.
    """
    view = worker_view.launcher
    return worker_view.member.model_copy(
        update={
            "pod_uid": worker_view.pod.uid if worker_view.pod else "",
            "boot_id": worker_view.node.boot_id[:BOOT_CHARACTERS] if worker_view.node else "",
            "fence_seconds": FENCE_SECONDS,
            "is_replacement": False,
            "reads_fence_file": bool(fence_file)
            and view is not None
            and view.reads_fence_file
            and view.fence_file_id == fence_file,
        }
    )


def _with_later_steps(world: JobWorld, record: GangSpec) -> list[GangIncident]:
    """Return the incidents; the one that ended what ran last with a step that was reported only after it.

    Checkpoints refill the restart budgets only beyond that step.
    """
    attempt = _first_open(record)
    last = exits.last_step_of(world, record, attempt)
    if last is None:
        return record.incidents
    return [
        incident.model_copy(update={"step": max(incident.step or 0, last)})
        if incident.attempt == attempt and incident.resumed_step is None
        else incident
        for incident in record.incidents
    ]


def _with_resume_step(record: GangSpec, where: Start) -> list[GangIncident]:
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


_STEPS = ("step", "checkpoint_step", "resumed_step")


def with_plain_start(world: JobWorld, record: GangSpec) -> GangSpec:
    """Return the record of a started attempt in mode Plain: the pods have started their ranks themselves."""
    first = world.first.pod
    go = AttemptStart(time=world.now, master_address=first.pod_ip if first else "", master_port=PLAIN_MASTER_PORT)
    worker_views = [
        _member_at_start(worker_view) if worker_view.pod else worker_view.member for worker_view in world.worker_views
    ]
    return record.model_copy(update={"members": worker_views, "start": go, "hold_until": None, "releases": 0})


def newest_step(world: JobWorld, record: GangSpec) -> int | None:
    """Return the newest step that any worker has finished in this attempt; None: none is known."""
    steps = (view.step for view in world.views.values() if view.attempt == record.attempt)
    return max((step for step in steps if step is not None), default=None)


def _last_step(world: JobWorld, record: GangSpec) -> int | None:
    """Return the newest step known to be finished, or the one from which the attempt resumed; None: from scratch."""
    resumed = record.start.resume if record.start else record.checkpoint
    step = newest_step(world, record)
    return step if step is not None else (resumed.step if resumed else None)


def _first_open(record: GangSpec) -> int:
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


def _count_other_failures(found: Sequence[Failure], index: int) -> int:
    """Return how many workers other than this one failed by themselves, and not because they lost a peer."""
    return len({failure.index for failure in found if not failure.victim} - {index})


def _incident(
    world: JobWorld,
    record: GangSpec,
    level: Level,
    cause: Failure,
    fault_class: FaultClass,
    found: Sequence[Failure],
) -> GangIncident:
    is_known = not cause.unlocated or bool(cause.node_fault)
    others = 0 if cause.unlocated else len(found) - 1
    is_alone = record.node_count == 1 and is_hang(cause.kind)  # with what no other worker does, it cannot be compared
    return GangIncident(
        attempt=record.attempt,
        time=world.now,
        fault_time=fault_time(world, cause),
        level=level,
        fault_class=fault_class,
        reason=cause.kind,
        node=cause.node if is_known else "",
        index=cause.index if is_known else None,
        rank=cause.rank,
        exit_code=cause.exit_code,
        signal=cause.signal,
        step=_last_step(world, record),
        trained=newest_step(world, record) is not None,
        checkpoint_step=record.checkpoint.step if record.checkpoint else None,
        message=exits.with_more(exits.message_of(world, cause), and_more_workers(others))[:2048],
        other_workers=None if is_alone else _count_other_failures(found, cause.index),
        own_exception=cause.own_exception,
    )


def _next(
    world: JobWorld,
    record: GangSpec,
    level: Level,
    reason: str,
    worker_views: Sequence[Member],
    incident: GangIncident | None = None,
    unfenced: Sequence[UnfencedWorker] | None = None,
) -> GangSpec:
    incidents = [*record.incidents, *([incident] if incident else [])][-MAX_INCIDENTS:]
    return record.model_copy(
        update={
            "attempt": record.attempt + 1,
            "time": world.now,
            "level": level,
            "reason": reason,
            "members": _with_replacements_marked(record, worker_views),
            "topology": members.topology(world, worker_views),
            "start": None,
            "evacuation": None,
            "hold_until": holds.held_until(world, record),
            "incidents": _without_old_stacks(
                [*map(_shorten_incident, incidents[:-TOLD_WHOLE]), *incidents[-TOLD_WHOLE:]]
            ),
            "unfenced_workers": list(record.unfenced_workers if unfenced is None else unfenced),
            "listing_round": 0,
            "move_incomplete_beyond": None,
            "local_since_attempt": local.since_without_progress(world, record, newest_step(world, record)),
            "suspect_checkpoint": unloadable.after_attempt(world, record),
        }
    )


def _with_replacements_marked(record: GangSpec, worker_views: Sequence[Member]) -> list[Member]:
    """Return the members, marked as replacements where the node had no member when the ranks ran last."""
    there = {member.node for member in record.members if not member.is_replacement}
    return [
        member if member.is_replacement is new else member.model_copy(update={"is_replacement": new})
        for member in worker_views
        for new in (member.node not in there,)
    ]


def _shorten_incident(incident: GangIncident) -> GangIncident:
    if len(incident.message) <= SHORT_MESSAGE_CHARACTERS:
        return incident
    return incident.model_copy(update={"message": incident.message[: SHORT_MESSAGE_CHARACTERS - 1] + "…"})


def _without_old_stacks(incidents: list[GangIncident]) -> list[GangIncident]:
    hangs = [place for place, incident in enumerate(incidents) if incident.stacks]
    old = set(hangs[:-STACKS_KEPT])
    return [each.model_copy(update={"stacks": []}) if place in old else each for place, each in enumerate(incidents)]

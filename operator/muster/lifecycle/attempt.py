"""Writes the next Gang record: every way in which an attempt begins, leaves or gets its go. Pure.

Each function returns a whole new spec, to be committed by one guarded update. Members never change within an attempt:
whatever changes them also takes the next number.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from muster.api.base import LevelCount
from muster.api.gang import FaultClass, Gang, GangIncident, GangSpec, Ghost, Go, Leave, Level, Member, Resume
from muster.api.trainingjob import LaunchMode
from muster.lifecycle.template import problem, requirements
from muster.lifecycle.worker_pod import PLAIN_MASTER_PORT
from muster.placement.eligibility import refusal
from muster.placement.request import Broken, Request
from muster.placement.space import solve
from muster.placement.where import domain_counts
from muster.protocol.messages import IDLE
from muster.recovery import blame, budgets, failures
from muster.recovery.failures import FRESH_SECONDS, Failure, Kind
from muster.world.job import JobWorld, VerdictKind
from muster.world.turn import NotPlaced, Placed
from muster.world.views import LauncherView

MAX_INCIDENTS = 256
EXCLUSION = timedelta(minutes=10)
# So soon a node with a failure is taken again when there is no other.
RETRY_EXCLUDED = timedelta(minutes=1)
# Beyond the launcher's own limit: what its clock and ours may differ by within one fence.
FENCE_MARGIN_SECONDS = 2.0
DEFAULT_FENCE_SECONDS = 15.0
MASTER_PORTS = range(20000, 30000)

# How long a start waits for a checkpoint that is known and that some worker does not see (yet).
NOT_VISIBLE_SECONDS = 60.0
_HEAR = "if that lasts, look at its log and at network policies between it and the Service muster-coordinator"

# A gang that could not be assembled waits so long before its next try, twice as long each time.
FIRST_RELEASE_SECONDS = 60.0
MAX_RELEASE_SECONDS = 3600.0
# What has one cause (a rack, a network, a bad image) reaches the workers, and us, within this time.
TOGETHER_SECONDS = 10.0
TOPOLOGY_UNSATISFIED = "TopologyUnsatisfied"
_NODES_TO_AVOID = frozenset(
    {Kind.NODE_UNREACHABLE, Kind.POD_REJECTED, Kind.NODE_CONFLICT, Kind.POD_STUCK, Kind.POD_START_TIMEOUT}
)

_ORDER = [Level.START, Level.IN_PLACE, Level.POD, Level.REPLACE, Level.REBUILD]


def wanted(world: JobWorld) -> Request | None:
    """The nodes that this job waits for; None while it waits for none: it has them, or something else is in its way."""
    job, record, verdict = world.job, world.gang.spec if world.gang else None, world.template_verdict
    if job.metadata.deletion_timestamp is not None or job.status.completion is not None or job.spec.suspend:
        return None
    if record is not None and record.members:
        open_places = {index for index, member in enumerate(record.members) if not member.node}
        return _replacement(world, record, open_places, _firmly(world, record)) if open_places else None
    refused = verdict is not None and verdict.kind is VerdictKind.REFUSED
    if problem(job, world.fleet) or (refused and verdict and verdict.generation == job.metadata.generation):
        return None
    if record is None and any(not pod.terminal and pod.uid not in world.proved_dead for pod in world.pods.values()):
        return None
    if record is not None and record.hold_until and world.now < record.hold_until:
        return None
    return _whole(world, _firmly(world, record) if record else None)


def to_be_had(world: JobWorld, placed: Placed) -> bool:
    """Whether the nodes that the queue has promised are still free for this job."""
    record = world.gang.spec if world.gang else None
    needs = requirements(world, _firmly(world, record) if record else None)
    nodes = (world.fleet.nodes.get(name) for name in placed.nodes)
    return all(node is not None and not refusal(node, needs, world.fleet, world.uid) for node in nodes)


def placed_anew(world: JobWorld, placed: Placed, reason: str) -> GangSpec:
    """The record of an attempt on entirely new nodes: the first one, or the first after they were given back."""
    record = world.gang.spec if world.gang else None
    incarnation = 1 + max((pod.incarnation for pod in world.pods.values()), default=0)
    members = [Member(node=node, incarnation=incarnation) for node in placed.nodes]
    if record is None:
        return GangSpec(
            job_uid=world.uid,
            attempt=1 + world.job.status.attempt,
            time=world.now,
            level=Level.START,
            reason=reason,
            members=members,
            topology=_topology(world, members),
        )
    return _next(world, record, Level.START, reason, members)


def recovered(world: JobWorld, record: GangSpec, failures: Sequence[Failure]) -> GangSpec:
    """The record after failures: the shortest way back that mends all of them at once."""
    cause = blame.culprit(failures)
    plain = world.job.spec.launch.mode is LaunchMode.PLAIN
    level = Level.REBUILD if plain else max((failure.level for failure in failures), key=_ORDER.index)
    fault_class = blame.fault_class(cause)
    excluded = {node: until for node, until in record.excluded_nodes.items() if until > world.now}
    for failure in failures:
        if failure.kind in _NODES_TO_AVOID:
            excluded[failure.node] = world.now + EXCLUSION
    if cause.kind is Kind.NODE_CONFLICT:  # the strongest of all: nothing has failed
        return _elsewhere(world, record.model_copy(update={"excluded_nodes": excluded}), failures)
    incidents = blame.upgrade(record.incidents, _first_open(record), fault_class, cause.kind, cause.node)
    record = record.model_copy(
        update={
            "incidents": incidents,
            "excluded_nodes": excluded,
            "checkpoint": newest_checkpoint(world, record),  # what it has won counts before what it has lost
        }
    )
    lost = {failure.index for failure in failures if failure.level is Level.POD}
    moved = {failure.index for failure in failures if failure.level is Level.REPLACE}
    level, members = _remade(world, record, level, lost, moved)
    ghosts = _ghosts(world, record, members)
    if _same_story(world, record, failures):
        record = record.model_copy(update={"incidents": _continued(record, level, cause, len(failures))})
        return _next(world, record, level, cause.kind, members, ghosts=ghosts)
    incident = _incident(world, record, level, cause, fault_class, len(failures))
    spec = _next(world, record, level, cause.kind, members, incident, ghosts)
    pause = budgets.back_off_seconds(spec)
    return spec.model_copy(update={"hold_until": world.now + timedelta(seconds=pause)}) if pause else spec


def _same_story(world: JobWorld, record: GangSpec, failures: Sequence[Failure]) -> bool:
    """Whether these failures belong to the incident that is being repaired: what fails together is not seen at once.

    Only of workers that were there when it happened. Whoever fails anew in his new pod has a story of his own.
    """
    last = record.incidents[-1] if record.incidents else None
    if record.go is not None or last is None or last.resumed_step is not None:
        return False
    together = (world.now - last.time).total_seconds() <= TOGETHER_SECONDS
    return together and all(record.members[failure.index].pod_uid for failure in failures)


def _continued(record: GangSpec, level: Level, cause: Failure, count: int) -> list[GangIncident]:
    """The incidents, the last one with what has failed since."""
    last = record.incidents[-1]
    more = f"; then {cause.message}" + (f" (and {count - 1} more workers)" if count > 1 else "")
    changes = {"level": max(level, last.level, key=_ORDER.index), "message": (last.message + more)[:2048]}
    return [*record.incidents[:-1], last.model_copy(update=changes)]


def _elsewhere(world: JobWorld, record: GangSpec, conflicts: Sequence[Failure]) -> GangSpec:
    """The record after kubelets refused pods that Muster had bound: somebody was faster. No failure, and nobody pays."""
    moved = {failure.index for failure in conflicts}
    level, members = _remade(world, record, Level.REPLACE, set(), moved)
    ghosts = _ghosts(world, record, members)
    level = Level.START if record.level is Level.START else level
    return _next(world, record, level, Kind.NODE_CONFLICT, members, ghosts=ghosts)


def filled(world: JobWorld, record: GangSpec) -> GangSpec | NotPlaced | None:
    """The record with nodes for the members that have none, once there are some; None before the queue has answered."""
    open_places = sorted(index for index, member in enumerate(record.members) if not member.node)
    answer = world.turn.answer if world.turn else None
    if answer is None:
        return None
    members = list(record.members)
    level = Level.REPLACE
    if isinstance(answer, NotPlaced):
        elsewhere = _rebuilt(world, record) if answer.reason == TOPOLOGY_UNSATISFIED else None
        if elsewhere is None:
            return answer
        level, members = elsewhere
    elif len(answer.nodes) != len(open_places) or not to_be_had(world, answer):
        return None
    else:
        for index, node in zip(open_places, answer.nodes, strict=True):
            members[index] = members[index].model_copy(update={"node": node})
    return _next(world, record, level, record.reason, members, ghosts=_ghosts(world, record, members))


def unassembled(world: JobWorld, record: GangSpec) -> GangSpec:
    """The record of a gang that gives its nodes back because it could not be assembled on them; it waits a while."""
    releases = record.releases + 1
    pause = min(FIRST_RELEASE_SECONDS * 2.0 ** (releases - 1), MAX_RELEASE_SECONDS)
    update = {"hold_until": world.now + timedelta(seconds=pause), "releases": releases}
    return released(world, record, "AssemblyTimedOut").model_copy(update=update)


def leaving(world: JobWorld, record: GangSpec, reason: str, nodes: Sequence[str]) -> GangSpec:
    """The record with a planned leave begun; the attempt goes on until a new checkpoint is complete."""
    if record.leave and record.leave.reason == reason:  # more nodes to leave: nobody waits longer for that
        return record.model_copy(update={"leave": record.leave.model_copy(update={"nodes": sorted(nodes)})})
    deadline = world.now + timedelta(seconds=world.job.spec.checkpoint.save_timeout_seconds)
    newest = newest_checkpoint(world, record)
    # One for a step that was finished before is not new: it may have been complete already, only not yet seen.
    steps = (newest.step if newest else None, (newest_step(world, record) or 0) - 1)
    after = max(step for step in steps if step is not None)
    leave = Leave(
        reason=reason,
        nodes=sorted(nodes),
        since=world.now,
        deadline=deadline,
        after_step=after if after >= 0 else None,
    )
    return record.model_copy(update={"leave": leave, "checkpoint": newest})


def replacement_exists(world: JobWorld, record: GangSpec, nodes: Collection[str]) -> bool:
    """Whether the members on these nodes could move elsewhere now."""
    moved = {index for index, member in enumerate(record.members) if member.node in nodes}
    _, members = _remade(world, record, Level.REPLACE, set(), moved)
    return all(member.node for member in members)


def left(world: JobWorld, record: GangSpec, leave: Leave) -> GangSpec:
    """The record after a planned leave of some nodes: their members elsewhere, the others in place."""
    moved = {index for index, member in enumerate(record.members) if member.node in leave.nodes}
    level, members = _remade(world, record, Level.REPLACE, set(), moved)
    incident = GangIncident(
        attempt=record.attempt,
        time=world.now,
        level=level,
        fault_class=FaultClass.PLANNED,
        reason=leave.reason,
        node=leave.nodes[0],
        step=_last_step(world, record),
        message=f"left {', '.join(leave.nodes)}"[:2048],
        settled=True,
    )
    return _next(world, record, level, leave.reason, members, incident, _ghosts(world, record, members))


def released(world: JobWorld, record: GangSpec, reason: str = "Suspended") -> GangSpec:
    """The record without members: the nodes are free."""
    record = record.model_copy(update={"checkpoint": newest_checkpoint(world, record)})
    return _next(world, record, Level.START, reason, [], ghosts=_ghosts(world, record, []))


def settled(world: JobWorld, gang: Gang) -> GangSpec | None:
    """The record with class and blame of recent incidents made final, when their time has come.

    The worker that was seen to fail first may have been a victim of one that reported later.
    """
    record = gang.spec
    settle = timedelta(seconds=blame.SETTLE_SECONDS)
    due = [i for i in record.incidents if not i.settled and world.now - i.time >= settle]
    if not due:
        return None
    incidents = [
        _blamed(world, gang, incident).model_copy(update={"settled": True}) if incident in due else incident
        for incident in record.incidents
    ]
    return record.model_copy(update={"incidents": incidents})


def _blamed(world: JobWorld, gang: Gang, incident: GangIncident) -> GangIncident:
    late = failures.late(world, gang, incident.attempt) if incident.reason == Kind.RANK_FAILED else []
    culprits = [failure for failure in late if not failure.victim]
    if not culprits or incident.fault_class not in budgets.OWN_DOING:
        return incident
    cause = blame.culprit(culprits)
    if cause.rank == incident.rank:
        return incident
    return incident.model_copy(
        update={
            "fault_class": blame.fault_class(cause),
            "node": cause.node,
            "index": cause.index,
            "rank": cause.rank,
            "exit_code": cause.exit_code,
            "signal": cause.signal,
            "message": cause.message[:2048],
        }
    )


@dataclass(frozen=True, slots=True)
class Missing:
    """What a start waits for: a stable reason, and the worker or pod in words."""

    reason: str
    message: str


def started(world: JobWorld, record: GangSpec) -> GangSpec | Missing:
    """The record with its go, once every member is idle and no rank of before can be alive; else what is missing."""
    alive = [ghost for ghost in record.ghosts if not _laid(world, ghost)]
    if alive:
        return Missing("OldRanksNotProvedDead", f"waiting for proof that the ranks of pod {alive[0].pod} have ended")
    members, addresses = [], []
    for index, member in enumerate(record.members):
        pod, launcher = world.pod(index, member), world.launcher(index, member)
        if pod is None or pod.phase == "Pending":
            return Missing("PodNotRunning", f"waiting for the pod of worker {index} on {member.node} to run")
        if launcher is None or launcher.heard_age_seconds > FRESH_SECONDS:
            return Missing(
                "LauncherSilent", f"waiting for the launcher of worker {index} on {member.node} to report: {_HEAR}"
            )
        if launcher.attempt != record.attempt or launcher.state != IDLE:
            return Missing("OldRanksAlive", f"waiting for worker {index} on {member.node} to end its old ranks")
        if world.job.spec.checkpoint.directory and launcher.scanned_for_attempt != record.attempt:
            why = f": {launcher.checkpoint_error}" if launcher.checkpoint_error else ""
            return Missing(
                "CheckpointsNotListed", f"waiting for worker {index} on {member.node} to list the checkpoints{why}"
            )
        members.append(member.model_copy(update={"pod_uid": pod.uid}))
        addresses.append(launcher.address or pod.pod_ip)
    resume = _common_checkpoint(world)
    known = record.checkpoint
    if resume is None and known and (world.now - record.time).total_seconds() < NOT_VISIBLE_SECONDS:
        blind = next((i for i, view in world.views.items() if (known.step, known.path) not in view.checkpoints), 0)
        where = f"worker {blind} on {record.members[blind].node}"
        return Missing("CheckpointNotVisible", f"{where} does not see {known.path}, nor any other that all workers see")
    port = MASTER_PORTS[record.attempt % len(MASTER_PORTS)]
    go = Go(time=world.now, master_address=addresses[0], master_port=port, resume=resume)
    incidents = list(record.incidents)
    if incidents and incidents[-1].resumed_step is None:
        incidents[-1] = incidents[-1].model_copy(update={"resumed_step": resume.step if resume else 0})
    return record.model_copy(
        update={
            "members": members,
            "go": go,
            "ghosts": [],
            "hold_until": None,
            "releases": 0,
            "incidents": incidents,
            "checkpoint": resume or record.checkpoint,
        }
    )


def plain_started(world: JobWorld, record: GangSpec) -> GangSpec:
    """The record with its go in Plain mode: the pods have started their ranks themselves."""
    pods = [world.pod(index, member) for index, member in enumerate(record.members)]
    members = [
        member.model_copy(update={"pod_uid": pod.uid}) if pod else member
        for member, pod in zip(record.members, pods, strict=True)
    ]
    first = pods[0].pod_ip if pods[0] else ""
    go = Go(time=world.now, master_address=first, master_port=PLAIN_MASTER_PORT)
    return record.model_copy(update={"members": members, "go": go, "hold_until": None, "releases": 0})


def newest_step(world: JobWorld, record: GangSpec) -> int | None:
    """The newest step that any worker has finished in this attempt."""
    steps = (view.step for view in world.views.values() if view.attempt == record.attempt)
    return max((step for step in steps if step is not None), default=None)


def _last_step(world: JobWorld, record: GangSpec) -> int | None:
    """The newest step known to be finished: an attempt that has finished none stands where it resumed."""
    resumed = record.go.resume if record.go else record.checkpoint
    step = newest_step(world, record)
    return step if step is not None else (resumed.step if resumed else None)


def newest_checkpoint(world: JobWorld, record: GangSpec) -> Resume | None:
    """The newest complete checkpoint that any worker sees, or that the record knows."""
    seen = (view.checkpoints[0] for view in world.views.values() if view.checkpoints)
    step, path = max(seen, key=lambda checkpoint: checkpoint[0], default=(-1, ""))
    if record.checkpoint and record.checkpoint.step >= step:
        return record.checkpoint
    return Resume(step=step, path=path) if step >= 0 else None


def _common_checkpoint(world: JobWorld) -> Resume | None:
    """The newest checkpoint that is complete in the eyes of every worker: each of them will have to read it."""
    if not world.job.spec.checkpoint.directory:
        return None
    listings = [set(view.checkpoints) for view in world.views.values()]
    step, path = max(set.intersection(*listings), default=(-1, ""))
    return Resume(step=step, path=path) if step >= 0 else None


def _firmly(world: JobWorld, record: GangSpec) -> GangSpec:
    """The record with those nodes excluded whose failure is recent: the others are taken where there is nothing else."""
    latest = world.now + EXCLUSION - RETRY_EXCLUDED
    return record.model_copy(
        update={"excluded_nodes": {node: until for node, until in record.excluded_nodes.items() if until > latest}}
    )


def _solve(world: JobWorld, record: GangSpec, ask: Callable[[GangSpec], Request]) -> Placed | NotPlaced:
    """Nodes at once, before everybody who waits; those with a failure only where no others are left."""
    answer = solve(world.fleet, ask(record))
    if isinstance(answer, Placed):
        return answer
    second = solve(world.fleet, ask(_firmly(world, record)))
    return second if isinstance(second, Placed) else answer


def _whole(world: JobWorld, record: GangSpec | None) -> Request:
    """Nodes for the whole gang."""
    placement = world.job.spec.placement
    return Request(
        count=world.job.spec.nodes,
        needs=requirements(world, record),
        job_uid=world.uid,
        required=placement.required,
        preferred=placement.preferred,
        segment_size=placement.segment_size or 1,
    )


def _replacement(world: JobWorld, record: GangSpec, moved: Collection[int], excluded: GangSpec) -> Request:
    """Nodes for some members, beside those of the others."""
    kept = tuple(m.node for index, m in enumerate(record.members) if m.node and index not in moved)
    size = world.job.spec.placement.segment_size or 1
    broken = []
    for segment in sorted({index // size for index in moved}) if size > 1 else ():
        several = range(segment * size, (segment + 1) * size)
        beside = tuple(record.members[index].node for index in several if index not in moved)
        broken.append(Broken(size - len(beside), beside))
    whole = _whole(world, excluded)
    return replace(whole, count=len(moved), kept=kept, broken=tuple(broken))


def _remade(
    world: JobWorld, record: GangSpec, level: Level, lost: set[int], moved: set[int]
) -> tuple[Level, list[Member]]:
    """Members after losing some pods and some nodes. A lost pod moves, too, where its node takes no new one."""
    needs = requirements(world, record)
    for index in lost:
        place = world.fleet.nodes.get(record.members[index].node)
        if place is None or refusal(place, needs, world.fleet, world.uid):
            moved = moved | {index}
    if level is Level.REBUILD:
        return _rebuilt(world, record) or (level, _without_nodes(world, record, set(range(len(record.members)))))
    if moved:
        level = Level.REPLACE
    members = _without_nodes(world, record, moved)
    for index in lost - moved:
        members[index] = Member(node=record.members[index].node, incarnation=_next_incarnation(world, record, index))
    if not moved:
        return level, members
    answer = _solve(world, record, lambda excluded: _replacement(world, record, moved, excluded))
    if isinstance(answer, Placed):
        for index, node in zip(sorted(moved), answer.nodes, strict=True):
            members[index] = members[index].model_copy(update={"node": node})
        return level, members
    elsewhere = _rebuilt(world, record) if answer.reason == TOPOLOGY_UNSATISFIED else None
    return elsewhere or (level, members)


def _rebuilt(world: JobWorld, record: GangSpec) -> tuple[Level, list[Member]] | None:
    """The whole gang placed anew, or None where there is no room."""
    answer = _solve(world, record, lambda excluded: _whole(world, excluded))
    if isinstance(answer, NotPlaced):
        return None
    incarnation = max(_next_incarnation(world, record, index) for index in range(len(record.members)))
    return Level.REBUILD, [Member(node=node, incarnation=incarnation) for node in answer.nodes]


def _without_nodes(world: JobWorld, record: GangSpec, moved: set[int]) -> list[Member]:
    return [
        Member(node="", incarnation=_next_incarnation(world, record, index))
        if index in moved and member.node
        else member
        for index, member in enumerate(record.members)
    ]


def _next_incarnation(world: JobWorld, record: GangSpec, index: int) -> int:
    used = [pod.incarnation for pod in world.others.get(index, ())]
    return 1 + max([record.members[index].incarnation, *used])


def _ghosts(world: JobWorld, record: GangSpec, members: Sequence[Member]) -> list[Ghost]:
    """Pods that the new record drops and whose ranks may be alive: the next start has to outwait them."""
    if world.job.spec.launch.mode is LaunchMode.PLAIN:
        return []
    ghosts = [ghost for ghost in record.ghosts if not _laid(world, ghost)]
    views = [view for i, member in enumerate(record.members) if (view := world.launchers.get(member.pod_uid))]
    # A launcher that this leader has not heard has the same steps, and so the same fence, as the others.
    usual = max([DEFAULT_FENCE_SECONDS, *(view.fence_seconds for view in views)])
    for index, old in enumerate(record.members):
        kept = index < len(members) and members[index].incarnation == old.incarnation
        if kept or not old.pod_uid or old.pod_uid in world.proved_dead:
            continue
        view = world.launchers.get(old.pod_uid)
        if record.go is None and view and view.state == IDLE and view.attempt == record.attempt:
            continue
        limit = (view.fence_seconds if view else usual) + FENCE_MARGIN_SECONDS
        fenced = world.now + timedelta(seconds=limit - _cut_off_seconds(world, record, index, view))
        ghosts.append(Ghost(pod=world.pod_name(index, old), pod_uid=old.pod_uid, node=old.node, fenced_time=fenced))
    return ghosts


def _cut_off_seconds(world: JobWorld, record: GangSpec, index: int, view: LauncherView | None) -> float:
    """For how long this worker's fence has been counting, at least.

    The launcher counts from the last of three: an answer of the coordinator, the first neighbour that fell silent, a
    step. Pings are round trips, so what the neighbours say of their side holds for its side.
    """
    if view is None or world.gang is None:
        return 0.0
    if record.go is None:  # the others have ended their ranks since this attempt was committed; nobody pings
        return min(view.heard_age_seconds, (world.now - record.time).total_seconds())
    complaints = world.complaints.get(index, ())
    silent = [seconds for other, seconds in complaints if other.heard_age_seconds < FRESH_SECONDS]
    return min(
        view.heard_age_seconds,
        world.newest_step_age_seconds,
        (world.now - record.go.time).total_seconds(),
        max(silent, default=float("inf")),
    )


def _laid(world: JobWorld, ghost: Ghost) -> bool:
    """Whether no rank of this pod can be alive any more."""
    view = world.launchers.get(ghost.pod_uid)
    # Heard again after the time was set: its fence begins anew. The time was set on another leader's clock, perhaps: one
    # that this leader has never heard gets a whole fence on its own.
    quiet = (
        (view is None and world.leader_age_seconds >= DEFAULT_FENCE_SECONDS + FENCE_MARGIN_SECONDS)
        or (view is not None and view.heard_age_seconds > view.fence_seconds + FENCE_MARGIN_SECONDS)
        or (view is not None and not any(rank.alive for rank in view.ranks))
    )
    return ghost.pod_uid in world.proved_dead or (world.now >= ghost.fenced_time and quiet)


def _first_open(record: GangSpec) -> int:
    """Lowest attempt whose failure no start of the ranks has followed: this one, and those before it without a go."""
    if record.go is not None:
        return record.attempt
    first = record.attempt
    for incident in reversed(record.incidents):
        if incident.resumed_step is not None:
            break
        first = incident.attempt
    return first


def _incident(
    world: JobWorld, record: GangSpec, level: Level, cause: Failure, fault_class: FaultClass, count: int
) -> GangIncident:
    others = f" (and {count - 1} more workers)" if count > 1 else ""
    return GangIncident(
        attempt=record.attempt,
        time=world.now,
        level=level,
        fault_class=fault_class,
        reason=cause.kind,
        node=cause.node,
        index=cause.index,
        rank=cause.rank,
        exit_code=cause.exit_code,
        signal=cause.signal,
        step=_last_step(world, record),
        message=(cause.message + others)[:2048],
    )


def _topology(world: JobWorld, members: Sequence[Member]) -> list[LevelCount]:
    """How many domains of each level the members are in."""
    counts = domain_counts(world.fleet, [member.node for member in members])
    return [LevelCount(level=name, domains=count) for name, count in counts.items()]


def _next(
    world: JobWorld,
    record: GangSpec,
    level: Level,
    reason: str,
    members: Sequence[Member],
    incident: GangIncident | None = None,
    ghosts: Sequence[Ghost] | None = None,
) -> GangSpec:
    incidents = [*record.incidents, *([incident] if incident else [])][-MAX_INCIDENTS:]
    return record.model_copy(
        update={
            "attempt": record.attempt + 1,
            "time": world.now,
            "level": level,
            "reason": reason,
            "members": list(members),
            "topology": _topology(world, members),
            "go": None,
            "leave": None,
            "hold_until": None,
            "incidents": incidents,
            "ghosts": list(record.ghosts if ghosts is None else ghosts),
        }
    )

"""Which nodes the members of a gang get: asks the solver, or the queue for them. Pure.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from muster.api.gang import GangSpec, Level, Member
from muster.placement.eligibility import is_out_of_service, refusal
from muster.placement.reasons import TOPOLOGY_UNSATISFIED
from muster.placement.request import Broken, Request
from muster.placement.space import solve
from muster.pods.requirements import requirements
from muster.queueing.limits import NAMESPACE_LIMIT
from muster.record import members
from muster.record.attempts import NextAttempt
from muster.record.exclusions import with_firm_exclusions
from muster.recovery.modes import greater_level, mode_of
from muster.world.job import JobWorld
from muster.world.queuedecision import NotPlaced, Placed

# Of one decision to move members of a gang with segments.
MOST_TRIES = 32


def are_still_free(world: JobWorld, placed: Placed) -> bool:
    """Whether the nodes that the queue has promised are still free for this job."""
    record = world.gang.spec if world.gang else None
    kept = [member.node for member in record.members if member.node] if record else []
    if over_limit(world, kept, len(placed.nodes)) is not None:
        return False
    needs = replace(requirements(world, with_firm_exclusions(world, record) if record else None), takes_last=True)
    nodes = (world.fleet.nodes.get(name) for name in placed.nodes)
    return all(node is not None and not refusal(node, needs, world.fleet, world.uid) for node in nodes)


def over_limit(world: JobWorld, kept: Collection[str], count: int) -> NotPlaced | None:
    """Return why the namespace's limit keeps the job from this many more nodes; None if it does not.

    A gang keeps its size whatever the limit is now, and whether or not its namespace is still enabled.

    Args:
        world: the state of the job.
        kept: names of the nodes that the job keeps.
        count: how many more nodes it needs.
    """
    limit, own = world.limit, count_held(world, kept)
    size = len(world.gang.spec.members) if world.gang else 0
    if limit is None or own + count <= size or limit.beside + own + count <= limit.nodes:
        return None
    held = limit.beside + own
    namespace = world.job.metadata.namespace
    text = f"needs {count} more: namespace {namespace} holds {held} of the {limit.nodes} nodes that its limit allows"
    return NotPlaced(NAMESPACE_LIMIT, text)


def count_held(world: JobWorld, kept: Collection[str]) -> int:
    """Return the number of nodes that the job holds if it keeps these.

    A node that it leaves counts while a pod of the job is on it, unless the node is out of service.
    """
    pods = {pod.place for pod in world.pods.values() if not pod.terminal}
    left = (pods & set(world.fleet.nodes_of(world.uid))) - set(kept)
    return len(kept) + sum(not is_out_of_service(node, world.fleet) for node in left)


def move(world: JobWorld, record: GangSpec, indices: Collection[int]) -> NextAttempt:
    """Return the level and the members of the next attempt, with the given members on other nodes.

    Where no node is free, a member has none.
    """
    return next_members(world, record, least_level(world, Level.REPLACE), (), indices)


def least_level(world: JobWorld, level: Level) -> Level:
    """Return a level that repairs a failure of this job: the given one, or the least of the job's mode."""
    return greater_level(level, mode_of(world.job).least_level)


def next_members(
    world: JobWorld,
    record: GangSpec,
    level: Level,
    lost: Collection[int],
    moved: Collection[int],
    *,
    takes_last: bool = True,
) -> NextAttempt:
    """Return the level and the members of the next attempt, after some pods and some nodes were lost.

    The member of a lost pod moves, too, where its node takes no new pod. Where only the node's health prevents that,
    the member moves only if another node is free.

    Args:
        world: the state of the job.
        record: of the gang.
        level: the least level that is needed.
        lost: indices of the members whose pods are lost.
        moved: indices of the members that leave their nodes.
        takes_last: whether nodes that are a last choice for their health may be used where there are no others.
    """
    if level is Level.REBUILD:
        elsewhere = rebuild_elsewhere(world, record, takes_last=takes_last)
        return elsewhere or NextAttempt(level, _rebuild_in_place(world, record, moved))
    away = set(moved) | _closed_nodes(world, record, lost, is_there=True).keys()
    away |= movable_indices(world, record, away, sorted(_closed_nodes(world, record, lost).keys() - away))
    if away:
        level = Level.REPLACE
    staying = members.without_nodes(world, record, away)
    if not away:
        return NextAttempt(level, members.with_new_pods(world, staying, lost))

    def ask(excluded: GangSpec) -> Request:
        return replace(replacement_request(world, record, away, excluded), may_use_last_choices=takes_last)

    answer = _solve(world, record, ask)
    if isinstance(answer, Placed):
        staying = members.with_answer(staying, away, answer)
    elif answer.reason == TOPOLOGY_UNSATISFIED and (
        elsewhere := rebuild_elsewhere(world, record, takes_last=takes_last)
    ):
        return elsewhere
    return NextAttempt(level, members.with_new_pods(world, staying, set(lost) - away))


def rebuild_elsewhere(world: JobWorld, record: GangSpec, *, takes_last: bool = True) -> NextAttempt | None:
    """Return the whole gang on new nodes; None where there are not enough."""
    answer = _solve(
        world, record, lambda excluded: replace(gang_request(world, excluded), may_use_last_choices=takes_last)
    )
    if isinstance(answer, NotPlaced):
        return None
    incarnation = max(members.next_incarnation(world, member) for member in record.members)
    return NextAttempt(Level.REBUILD, members.members_on(answer.nodes, incarnation))


def _rebuild_in_place(world: JobWorld, record: GangSpec, moved: Collection[int]) -> list[Member]:
    """Return the members with new pods on the same nodes, if every node takes one; else without nodes."""
    all_workers = {member.index for member in record.members}
    if moved or _closed_nodes(world, record, all_workers, is_there=True):
        return members.without_nodes(world, record, all_workers)
    return members.with_new_pods(world, record.members, all_workers)


def movable_indices(world: JobWorld, record: GangSpec, away: Collection[int], optional: Sequence[int]) -> set[int]:
    """Return the indices of those members for which other nodes are free, beside those that need one in any case.

    One that moves keeps no member before it in `optional` from moving, however many there are behind it.

    Args:
        world: the state of the job.
        record: of the gang.
        away: indices of the members that need another node.
        optional: indices of the members that may stay if necessary, those first that should move first.
    """

    def can_move(indices: Collection[int]) -> bool:
        return are_replaceable(world, record, {*away, *indices})

    if not optional or can_move(optional):
        return set(optional)
    if (world.job.spec.placement.segment_size or 1) > 1:
        return _movable_of_segments(world, record, away, optional)
    # One member is as good as another: only their number counts.
    return set(optional[: bisect_left(range(1, len(optional)), True, key=lambda count: not can_move(optional[:count]))])


def _movable_of_segments(world: JobWorld, record: GangSpec, away: Collection[int], optional: Sequence[int]) -> set[int]:
    """Return what `movable_indices` does for a gang with segments.

    A member finds a place beside the rest of its segment, or all of the segment moves. Once all of it moves, the places
    beside it are free for others, which are tried again. It ends after `MOST_TRIES`: a gang that has to leave all its
    nodes decides each second, and what moves at all makes room for the rest.
    """
    size = world.job.spec.placement.segment_size or 1
    leaving, moved = {*away, *optional}, set(away)
    segment_of = {member.index: member.rank // size for member in record.members}
    stuck: set[int] = set()
    for _ in range(MOST_TRIES):
        index = next((i for i in optional if i not in moved and segment_of[i] not in stuck), None)
        if index is None:
            break
        segment = {i for i, number in segment_of.items() if number == segment_of[index]}
        sets = [{index}, segment] if segment <= leaving else [{index}]
        more = next((candidate for candidate in sets if are_replaceable(world, record, moved | candidate)), None)
        if more is None:
            stuck.add(segment_of[index])
            continue
        moved |= more
        if segment <= moved:
            stuck.clear()
    return moved.intersection(optional)


def are_replaceable(world: JobWorld, record: GangSpec, indices: Collection[int]) -> bool:
    """Whether these members could move to healthy nodes now; a node that is a last choice for its health does not
    count."""
    # Ranks that start with their pods all get new ones, and these come to no node that has to be left.
    level = Level.REBUILD if mode_of(world.job).starts_with_pods else Level.REPLACE
    moved = next_members(world, record, level, (), indices, takes_last=False)
    return all(member.node for member in moved.members)


def gang_request(world: JobWorld, record: GangSpec | None) -> Request:
    """Return the request for nodes for the whole gang."""
    placement = world.job.spec.placement
    return Request(
        count=world.job.spec.nodes,
        needs=requirements(world, record),
        job_uid=world.uid,
        required=placement.required,
        preferred=placement.preferred,
        segment_size=placement.segment_size or 1,
    )


def replacement_request(world: JobWorld, record: GangSpec, moved: Collection[int], excluded: GangSpec) -> Request:
    """Return the request for nodes for some members, beside the nodes of the others.

    Segments are made of members with neighbouring ranks.

    Args:
        world: the state of the job.
        record: of the gang.
        moved: indices of the members that need a node.
        excluded: the record with the nodes to avoid.
    """
    in_order = sorted(record.members, key=members.by_rank)
    kept = tuple(member.node for member in in_order if member.node and member.index not in moved)
    size = world.job.spec.placement.segment_size or 1
    segments = [in_order[first : first + size] for first in range(0, len(in_order), size)] if size > 1 else []
    broken = []
    for segment in segments:
        beside = tuple(member.node for member in segment if member.index not in moved)
        if len(beside) < len(segment):
            broken.append(Broken(len(segment) - len(beside), beside))
    return replace(gang_request(world, excluded), count=len(moved), kept=kept, broken=tuple(broken))


def _closed_nodes(
    world: JobWorld,
    record: GangSpec,
    indices: Collection[int],
    *,
    is_there: bool = False,
    takes_last: bool = False,
) -> dict[int, str]:
    """Return, by index, why the node of a member takes no new pod of this job; members whose node takes one are absent.

    Args:
        world: the state of the job.
        record: of the gang.
        indices: of the members to look at.
        is_there: see `Requirements`.
        takes_last: see `Requirements`.
    """
    if not indices:
        return {}
    needs = replace(requirements(world, record), is_there=is_there, takes_last=takes_last)
    places = ((m.index, world.fleet.nodes.get(m.node)) for m in record.members if m.index in indices)
    reasons = ((i, "gone" if node is None else refusal(node, needs, world.fleet, world.uid)) for i, node in places)
    return {index: str(why) for index, why in reasons if why}


def closed_before_binding(world: JobWorld, record: GangSpec) -> dict[int, str]:
    """Return, by index, why a member's pod that is on no node yet cannot come to the node that was chosen.

    A node is cordoned and its pods are evicted: Muster sees each of the two in its own time.
    """
    unbound = {
        worker_view.index
        for worker_view in world.worker_views
        if worker_view.member.node and not (worker_view.pod and worker_view.pod.node)
    }
    return _closed_nodes(world, with_firm_exclusions(world, record), unbound, takes_last=True)


def _solve(world: JobWorld, record: GangSpec, ask: Callable[[GangSpec], Request]) -> Placed | NotPlaced:
    """Return nodes for a request at once, without the queue, within the namespace's limit; or why there are none.

    Nodes with a recent failure are used only where no others are left.

    Args:
        world: the state of the job.
        record: of the gang.
        ask: returns the request for a record with the nodes to avoid.
    """
    request = ask(record)
    over = over_limit(world, request.kept, request.count)
    if over is not None:
        return over
    answer = solve(world.fleet, request)
    if isinstance(answer, Placed):
        return answer
    firm_request = ask(with_firm_exclusions(world, record))
    second = solve(world.fleet, firm_request) if firm_request != request else answer
    return second if isinstance(second, Placed) else answer

"""Which step of a planned evacuation is due: of a suspension, of a job that gives way, or of members on
nodes that are cordoned, degraded, or avoided by the job. Pure.

An evacuation asks the ranks to save, and waits for a new checkpoint or for its deadline; then the ranks stop. Where no
rank answers and no save is to be expected in time, it does not wait. Without another node to go to training goes on,
unless the node has to be empty at some moment (maintenance), or is taken away for good (docs/decisions/0044): then the
job stops before it, saved, and waits in the queue. Its pods are deleted, so that no drain waits for it any longer.

Tests: tests/unit/lifecycle/test_evacuating.py, tests/unit/lifecycle/test_scenarios.py.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeGuard

from muster.api.gang import Evacuation, GangSpec
from muster.api.nodehealth import Evacuate, ExclusionCause
from muster.checkpoints import resume
from muster.lifecycle import leavers, placing
from muster.queueing.preemption import exempt_until
from muster.record import incidents
from muster.record.attempts import SUSPENDED
from muster.record.evacuation import LEAVE_WITHDRAWN, for_reason, new_checkpoint
from muster.record.loans import holds_lent_nodes
from muster.record.preemptions import PREEMPTED, is_giving_way, of_last_day
from muster.world.fleet import Exclusion, Removal
from muster.world.job import JobWorld

MAINTENANCE_STARTS = "MaintenanceStarts"
"""The reason of an evacuation whose nodes have to be empty while no other nodes are free for their workers."""
NODE_TAKEN_AWAY = "NodeRemoved"
"""The reason of an evacuation whose nodes are taken away while no other nodes are free for their workers."""
STOPS = frozenset({MAINTENANCE_STARTS, NODE_TAKEN_AWAY})
"""The reasons of evacuations after which the job waits in the queue."""
_GRAVEST_FIRST = ("NodeDegraded", "NodeRemoval", "NodeMaintenance", "NodeCordoned", "NodeAvoided")

# Nodes that have to be empty at some moment are so a little earlier: ranks take their time to stop.
STOP_SECONDS = 60.0
# The same for a machine that is taken away: less is lost by a save that is cut off than by one that is not waited for.
REMOVED_SECONDS = 15.0
# A job that learns late, or too late, that its nodes have to be empty waits no longer than this for a checkpoint.
LATE_SAVE_SECONDS = 300.0
# Other reasons join an evacuation until so long after its deadline: a job whose spec.suspend changes at that moment
# gains no further time. Later the ranks are asked again.
JOINS_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class CancelEvacuation:
    """The evacuation is not needed any more."""


@dataclass(frozen=True, slots=True)
class GiveUpEvacuation:
    """The ranks have saved, or had their time to, and no node to go to is free: for one that is, they save anew."""


@dataclass(frozen=True, slots=True)
class ReleaseNodes:
    """A job that has not started, and is suspended or gives way, gives its nodes back.

    Attributes:
        reason: in CamelCase.
    """

    reason: str = SUSPENDED


@dataclass(frozen=True, slots=True)
class MoveMembers:
    """Members move before the start.

    Attributes:
        why: by node to leave, why, as text.
        reason: in CamelCase.
    """

    why: Mapping[str, str]
    reason: str


@dataclass(frozen=True, slots=True)
class BeginEvacuation:
    """The gang is asked to save.

    Attributes:
        why: by node to leave, why, as text; empty: all nodes.
        reason: of the evacuation, in CamelCase.
        saves_until: until when the evacuation waits for a checkpoint.
        remaining: nodes that should be left, too, and whose workers have no other node to go to.
    """

    why: Mapping[str, str]
    reason: str
    saves_until: datetime
    remaining: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndEvacuation:
    """The ranks stop, saved or out of time.

    Attributes:
        evacuation: as recorded.
        why: by node to leave, why, as text; empty: all nodes.
        is_saved: whether what was trained before the evacuation is saved, as far as checkpoints are seen.
        in_vain: whether no rank answered the request, and no save of the program's own could be expected in time.
    """

    evacuation: Evacuation
    why: Mapping[str, str]
    is_saved: bool
    in_vain: bool = False


@dataclass(frozen=True, slots=True)
class FollowLateAnswer:
    """Ranks follow a request that was withdrawn, and the record does not say so.

    Attributes:
        saves_until: until when a checkpoint of theirs is waited for.
    """

    saves_until: datetime


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Ranks follow a request that was withdrawn, and have saved, ended or had their time: they start where they are.

    Attributes:
        is_saved: as in EndEvacuation.
    """

    is_saved: bool


EvacuationStep = (
    CancelEvacuation
    | GiveUpEvacuation
    | ReleaseNodes
    | MoveMembers
    | BeginEvacuation
    | EndEvacuation
    | FollowLateAnswer
    | StartAgain
)


@dataclass(frozen=True, slots=True)
class NothingDue:
    """No step of an evacuation is due.

    Attributes:
        without_place: by node, the reason to leave it, where the ranks train on because no worker has a node to move
            to.
    """

    without_place: Mapping[str, str] = field(default_factory=dict)


def next_step(world: JobWorld, spec: GangSpec) -> EvacuationStep | NothingDue:
    """Return the step of a planned evacuation that is due."""
    if world.job.spec.suspend:
        return ReleaseNodes() if spec.start is None else _step_while_ranks_run(world, spec, {}, SUSPENDED)
    if is_preempted(world, spec):
        return ReleaseNodes(PREEMPTED) if spec.start is None else _step_while_ranks_run(world, spec, {}, PREEMPTED)
    why = nodes_to_evacuate(world)
    if not why:
        return _step_where_not_needed(world, spec)
    if spec.start is None:
        return _move_before_start(world, spec, why)
    last, movable = _last_calls(world, why), _movable(world, spec, why)
    if _is_stopping(spec) or not movable.issuperset(last):
        leaving = {name: why[name] for name in why if name in last}
        if not last:
            return _step_where_not_needed(world, spec)
        return _step_while_ranks_run(world, spec, leaving, _stop_reason(world, leaving))
    if not movable:  # an evacuation that has begun goes on when a node becomes free in time
        if leavers.follow(world, spec):  # its ranks do not
            return _step_where_not_needed(world, spec)
        if _is_over_without_place(world, spec):
            return GiveUpEvacuation()
        return NothingDue({name: _reason_of(world, name) for name in why})
    # The reason is that of all nodes to leave: neither it nor the deadline changes with the places that others take.
    leaving = {name: why[name] for name in why if name in movable}
    return _step_while_ranks_run(world, spec, leaving, _reason(world, why), sorted(why.keys() - leaving.keys()))


def is_preempted(world: JobWorld, spec: GangSpec) -> bool:
    """Whether the job has to give its nodes to another one; what is on record counts until a plan says it."""
    if world.preempted_by is None:
        return spec.evacuation is not None and spec.evacuation.reason == PREEMPTED
    # A plan may be older than the end of the loan, or than a request that was withdrawn.
    if holds_lent_nodes(world.job, spec):
        return bool(world.preempted_by)
    is_exempt = not is_giving_way(spec) and world.now < exempt_from_preemption_until(world, spec)
    return not is_exempt and any(preemptor.priority_class for preemptor in world.preempted_by)


def exempt_from_preemption_until(world: JobWorld, record: GangSpec) -> datetime:
    """Return until when priority does not take the nodes of a gang."""
    preempted = [preemption.time for preemption in of_last_day(record.preemptions, world.now)]
    policy = world.fleet.policy.queueing.preemption
    return exempt_until(policy, record.placed_time or record.time, preempted, world.now)


def step_of_leavers(world: JobWorld, spec: GangSpec) -> EvacuationStep | NothingDue | None:
    """Return the step that is due where ranks end because they were asked to; None: none does.

    Such an end is neither a success nor a failure, whatever the exit code, once their checkpoint is complete. One with
    code 0 is no success before that either: storage may show the checkpoint late. It is waited for until the deadline,
    but behind ranks that have failed no longer than that is known.
    """
    if spec.start is None or not leavers.follow(world, spec) or not leavers.have_begun_to_end(world, spec):
        return None
    step = next_step(world, spec)
    if not isinstance(step, NothingDue):
        return step
    return None if leavers.have_failed(world, spec) else step


def _step_where_not_needed(world: JobWorld, spec: GangSpec) -> EvacuationStep | NothingDue:
    """Return the step where no node has to be left, or none can be: nothing calls ranks back that follow a request."""
    evacuation = spec.evacuation
    if spec.start is None or not leavers.follow(world, spec):
        is_over = evacuation is not None and (spec.start is None or leavers.are_heard(world, spec))
        return CancelEvacuation() if is_over else NothingDue()
    if evacuation is None:
        return FollowLateAnswer(_saves_until(world, world.now, ()))
    is_saved = _is_saved(world, spec, evacuation)
    if (is_saved and not leavers.save_yet(world, spec)) or world.now >= evacuation.deadline:
        return StartAgain(is_saved)
    # A new leader does not know that it was withdrawn.
    is_recorded = evacuation.reason == LEAVE_WITHDRAWN
    return NothingDue() if is_recorded else FollowLateAnswer(_saves_until(world, world.now, ()))


def _is_over_without_place(world: JobWorld, spec: GangSpec) -> bool:
    """Whether an evacuation that found no place would end now if it had one: what is trained from now on is not saved
    by what it has waited for."""
    evacuation = spec.evacuation
    if evacuation is None or not leavers.are_heard(world, spec):
        return False
    return _is_saved(world, spec, evacuation) or world.now >= evacuation.deadline


def _step_while_ranks_run(
    world: JobWorld, spec: GangSpec, why: Mapping[str, str], reason: str, remaining: Sequence[str] = ()
) -> BeginEvacuation | EndEvacuation | NothingDue:
    """Return the step by which nodes are left; nothing is due while a checkpoint is waited for.

    Args:
        world: the state of the job.
        spec: the record.
        why: by node, why the gang leaves it; empty: it leaves all.
        reason: of the evacuation.
        remaining: names of nodes that it should leave, too, and does not.
    """
    evacuation = spec.evacuation
    if evacuation is not None and _is_just_out_of_time(world, evacuation):
        evacuation = for_reason(evacuation, reason, sorted(why))
    if evacuation is None or (evacuation.reason, evacuation.nodes) != (reason, sorted(why)):
        if evacuation is None and not leavers.are_heard(world, spec):
            return NothingDue()
        return BeginEvacuation(why, reason, _saves_until(world, world.now, why), tuple(remaining))
    # A time may be said only now, or be of another window.
    deadline = min([evacuation.deadline, *_stops(world, evacuation.since, why)])
    is_saved = _is_saved(world, spec, evacuation)
    in_vain = not is_saved and leavers.wait_in_vain(world, spec, evacuation, deadline)
    is_over = (is_saved and not leavers.save_yet(world, spec)) or in_vain or world.now >= deadline
    if not is_over:
        return NothingDue()
    return EndEvacuation(evacuation, why, is_saved, in_vain and world.now < deadline)


def _is_just_out_of_time(world: JobWorld, evacuation: Evacuation) -> bool:
    return timedelta() <= world.now - evacuation.deadline < timedelta(seconds=JOINS_SECONDS)


def _move_before_start(world: JobWorld, spec: GangSpec, why: Mapping[str, str]) -> MoveMembers | NothingDue:
    """Return the step that moves members off nodes that are taken away for good, or have to be empty now, before the
    ranks start.

    No work is lost by it. A job that fails again and again lets drains and maintenance of its nodes proceed, too.

    Args:
        world: the state of the job.
        spec: the record.
        why: by node, why the gang should leave it.
    """
    last = _last_calls(world, why)
    final = {name for name in why if (removal := _removal(world, name)) and removal.final}
    leaves = _movable(world, spec, final) | last
    leaving = {name: text for name, text in why.items() if name in leaves}
    return MoveMembers(leaving, _reason(world, leaving)) if leaving else NothingDue()


def _is_saved(world: JobWorld, spec: GangSpec, evacuation: Evacuation) -> bool:
    """Whether what was trained before the evacuation is saved; one whose checkpoints are not seen counts as saved."""
    if resume.saves_unseen(world.job):
        return True
    if new_checkpoint(world, spec, evacuation.after_step) is not None:
        return True
    # Ranks may have saved just before they were asked, or before the answer to a withdrawn request was heard.
    is_over = leavers.have_all_ended(world, spec) or leavers.are_still(world)
    newest, last = resume.newest_checkpoint(world, spec), incidents.newest_step(world, spec)
    return is_over and leavers.follow(world, spec) and newest is not None and last is not None and newest.step >= last


def nodes_to_evacuate(world: JobWorld) -> dict[str, str]:
    """Return, by node, why the gang should leave it at its next checkpoint, as text."""
    why, avoided = {}, frozenset(world.job.spec.placement.avoid_nodes)
    for worker_view in world.worker_views:
        name, exclusion = worker_view.member.node, world.fleet.exclusion(worker_view.member.node)
        if _asks_for_evacuation(exclusion):
            why[name] = f"{name} is {exclusion.waiting_text or f'degraded ({exclusion.reason})'}"
        elif worker_view.node is not None and worker_view.node.unschedulable:
            why[name] = f"{name} is cordoned"
        elif name in avoided:
            why[name] = f"{name} is in spec.placement.avoidNodes"
    return why


def _movable(world: JobWorld, spec: GangSpec, nodes: Collection[str]) -> frozenset[str]:
    """Return those of these nodes whose workers have other nodes to go to; those first that have to be left most."""
    last = _last_calls(world, nodes)
    names = {member.index: member.node for member in spec.members if member.node in nodes}

    def urgency(index: int) -> tuple[bool, int, int]:
        return names[index] not in last, _GRAVEST_FIRST.index(_reason_of(world, names[index])), index

    movable = placing.movable_indices(world, spec, (), sorted(names, key=urgency))
    return frozenset(names[index] for index in movable)


def _reason(world: JobWorld, nodes: Collection[str]) -> str:
    """Return the reason to leave these nodes: the gravest one."""
    return min({_reason_of(world, name) for name in nodes}, key=_GRAVEST_FIRST.index)


def _reason_of(world: JobWorld, node: str) -> str:
    exclusion = world.fleet.exclusion(node)
    if _asks_for_evacuation(exclusion) and exclusion.cause is ExclusionCause.HEALTH:
        return "NodeDegraded"
    if _removal(world, node):
        return "NodeRemoval"
    planned = _asks_for_evacuation(exclusion) and exclusion.cause is ExclusionCause.MAINTENANCE
    if planned:
        return "NodeMaintenance"
    view = world.fleet.nodes.get(node)
    return "NodeCordoned" if view is not None and view.unschedulable else "NodeAvoided"


def _asks_for_evacuation(exclusion: Exclusion | None) -> TypeGuard[Exclusion]:
    return exclusion is not None and exclusion.evacuate is Evacuate.AFTER_CHECKPOINT


def _stop_reason(world: JobWorld, why: Mapping[str, str]) -> str:
    return NODE_TAKEN_AWAY if any(_removal(world, name) for name in why) else MAINTENANCE_STARTS


def _is_stopping(spec: GangSpec) -> bool:
    return spec.evacuation is not None and spec.evacuation.reason in STOPS


def _removal(world: JobWorld, node: str) -> Removal | None:
    exclusion = world.fleet.exclusion(node)
    return None if exclusion is None else exclusion.removal


def _saves_until(world: JobWorld, since: datetime, nodes: Iterable[str]) -> datetime:
    """Return until when an evacuation of these nodes waits for a checkpoint, if it began at the given time."""
    timeout = timedelta(seconds=world.job.spec.checkpoint.save_timeout_seconds)
    return min([since + timeout, *_stops(world, since, nodes)])


def _stops(world: JobWorld, since: datetime, nodes: Iterable[str]) -> Iterator[datetime]:
    """Yield, for each of these nodes that has to be empty at a known time, when the ranks have to stop.

    Args:
        world: the state of the job.
        since: when the evacuation began.
        nodes: their names.
    """
    late_seconds = min(world.job.spec.checkpoint.save_timeout_seconds, LATE_SAVE_SECONDS)
    for exclusion in filter(None, map(world.fleet.exclusion, nodes)):
        if exclusion.gone_by is None:
            continue
        if exclusion.removal is not None:
            yield max(since, exclusion.gone_by - timedelta(seconds=REMOVED_SECONDS))
        else:  # people wait for a job that is told late
            late = since + timedelta(seconds=late_seconds)
            yield max(late, exclusion.gone_by - timedelta(seconds=STOP_SECONDS))


def _last_calls(world: JobWorld, nodes: Iterable[str]) -> set[str]:
    return {name for name in nodes if _is_last_call(world, name)}


def _is_last_call(world: JobWorld, node: str) -> bool:
    """Whether a job without other nodes has to begin to stop now, to have its time to save before the node goes."""
    exclusion, removal = world.fleet.exclusion(node), _removal(world, node)
    if exclusion is None:
        return False
    if exclusion.gone_by is None:
        return removal is not None and removal.final  # the removal waits for this job, and for nothing else
    stops = STOP_SECONDS if removal is None else REMOVED_SECONDS
    needs = timedelta(seconds=world.job.spec.checkpoint.save_timeout_seconds + stops)
    return world.now >= exclusion.gone_by - needs

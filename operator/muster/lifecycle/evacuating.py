"""Planned evacuations: suspension, and members on nodes that are cordoned or degraded. Pure.

An evacuation asks for a new checkpoint and waits for it, or for its deadline; then the ranks stop. Without another node
to go to training goes on, unless the node has to be empty at some moment (maintenance), or is taken away for good
(docs/decisions/0044): then the job stops before it, saved, and waits in the queue. Its pods are deleted, so that no
drain waits for it any longer.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TypeGuard

from muster.api.gang import Evacuation, GangSpec, Resume
from muster.api.nodehealth import Evacuate, ExclusionCause
from muster.api.trainingjob import TrainingJob
from muster.lifecycle import members, record, resume
from muster.lifecycle.commit import commit
from muster.lifecycle.facts import Due, Facts, Step
from muster.lifecycle.modes import mode_of
from muster.lifecycle.plan import Announcement, Plan
from muster.lifecycle.words import names_in_note, on_nodes
from muster.lifecycle.worker_pod import WorkerSettings
from muster.world.fleet import Exclusion, Removal
from muster.world.job import JobWorld
from muster.world.views import FRESH_SECONDS

MAINTENANCE_STARTS = "MaintenanceStarts"
"""The reason of an evacuation whose nodes have to be empty while no other nodes are free for their workers."""
NODE_TAKEN_AWAY = "NodeRemoved"
"""The reason of an evacuation whose nodes are taken away while no other nodes are free for their workers."""
STOPS = frozenset({MAINTENANCE_STARTS, NODE_TAKEN_AWAY})
"""The reasons of evacuations after which the job waits in the queue."""
_GRAVEST_FIRST = ("NodeDegraded", "NodeRemoval", "NodeMaintenance", "NodeCordoned")

# Nodes that have to be empty at some moment are so a little earlier: ranks take their time to stop.
STOP_SECONDS = 60.0
# The same for a machine that is taken away: less is lost by a save that is cut off than by one that is not waited for.
REMOVED_SECONDS = 15.0
# A job that learns late, or too late, that its nodes have to be empty waits no longer than this for a checkpoint.
LATE_SAVE_SECONDS = 300.0


def plan(world: JobWorld, facts: Facts, settings: WorkerSettings) -> Plan:
    """Return the plan for the next step of a planned evacuation."""
    gang, due = facts.gang, facts.evacuation
    assert gang is not None
    assert due is not None
    return _PLANNERS[due.step](world, gang.spec, due)


def due(world: JobWorld, spec: GangSpec) -> Due | None:
    """Return the next step of a planned evacuation; None while there is nothing to do."""
    suspends = world.job.spec.suspend
    why = {} if suspends else world.derived(_nodes_to_evacuate)
    if not suspends and not why:
        return Due(Step.CANCELLED) if spec.evacuation else None
    if spec.start is None:
        return Due(Step.RELEASED) if suspends else _due_before_the_start(world, why)
    # Of all nodes to leave: it does not change with the places that others take, nor does the deadline then.
    reason = _reason(world, why)
    if why:
        last, movable = _last_calls(world, why), world.derived(_movable_nodes)
        stops = _is_stopping(spec) or not movable.issuperset(last)
        leaves = last if stops else movable
        if not leaves:
            # An evacuation that has begun goes on when a node becomes free.
            return Due(Step.CANCELLED) if stops else None
        why = {name: words for name, words in why.items() if name in leaves}
        if stops:
            reason = _stop_reason(world, why)
    if spec.evacuation is None or (spec.evacuation.reason, spec.evacuation.nodes) != (reason, sorted(why)):
        heard = len(world.views) == len(spec.members)
        if spec.evacuation is None and world.leader_age_seconds < FRESH_SECONDS and not heard:
            return None  # which checkpoint is NEW is known once every worker has listed those that exist
        return Due(Step.BEGUN, why, reason, _saves_until(world, world.now, why))
    # A time may be said only now, or be of another window.
    deadline = min([spec.evacuation.deadline, *_stops(world, spec.evacuation.since, why)])
    over = _saved(world, spec.evacuation, resume.newest_checkpoint(world, spec)) or world.now >= deadline
    return Due(Step.OVER, why, reason) if over else None


def _due_before_the_start(world: JobWorld, why: Mapping[str, str]) -> Due | None:
    """Return the step that moves members off nodes that are taken away for good, before the ranks start; None: none is.

    No work is lost by it. A job that fails again and again lets the drains of its nodes proceed, too.

    Args:
        world: the state of the job.
        spec: the record.
        why: by node, why the gang should leave it.
    """
    final = {name: words for name, words in why.items() if (removal := _removal(world, name)) and removal.final}
    leaves = _movable(world, final).union(_last_calls(world, final))
    going = {name: words for name, words in final.items() if name in leaves}
    return Due(Step.MOVED, going, _reason(world, going)) if going else None


def nodes_without_place(world: JobWorld) -> dict[str, str]:
    """Return, by node, the reason to leave it, where the ranks train on because no worker has a node to move to."""
    spec = world.gang.spec if world.gang else None
    if spec is None or spec.start is None or world.job.spec.suspend or _is_stopping(spec):
        return {}
    why = world.derived(_nodes_to_evacuate)
    if world.derived(_movable_nodes) or _last_calls(world, why):
        return {}
    return {name: _reason_of(world, name) for name in why}


def _plan_cancellation(world: JobWorld, spec: GangSpec, due: Due) -> Plan:
    told = Announcement("EvacuationCancelled", "The job no longer has to leave a node. It trains on.")
    return commit(world, spec.model_copy(update={"evacuation": None}), told)


def _plan_release(world: JobWorld, spec: GangSpec, due: Due) -> Plan:
    return commit(world, record.without_nodes(world, spec))


def _plan_move(world: JobWorld, spec: GangSpec, due: Due) -> Plan:
    gone = record.with_members_moved(world, spec, members.indices_on(spec, due.why), due.reason)
    note = f"{', '.join(due.why.values())}: attempt {gone.attempt} starts without it: {on_nodes(gone)}"
    return commit(world, gone, Announcement("NodeEvacuated", note))


def _plan_evacuation(world: JobWorld, spec: GangSpec, due: Due) -> Plan:
    what = ", ".join(due.why.values()) if due.why else "the job is suspended"
    assert due.saves_until is not None
    begun = record.with_evacuation_begun(world, spec, due.reason, sorted(due.why), due.saves_until)
    limit = (begun.evacuation.deadline - world.now).total_seconds() if begun.evacuation else 0.0
    note = f"{what}. The job stops after its next complete checkpoint, at the latest in {limit:.0f} s."
    if unsaved := saves_unseen(world.job):
        note = f"{what}. The job stops at once, without waiting for a checkpoint: {unsaved}."
    elif (needs := _save_seconds(world)) is not None and needs > limit:
        note += f" The newest save took {needs:.0f} s: one that begins now may be incomplete by then."
    if due.reason in STOPS:
        note += " No other node is free, so the job then waits in the queue."
    elif due.why and (later := sorted(world.derived(_nodes_to_evacuate).keys() - due.why.keys())):
        note += f" It stays on {names_in_note(later)} until other suitable nodes are free."
    return commit(world, begun, Announcement("EvacuationPlanned", note))


def _plan_end(world: JobWorld, spec: GangSpec, due: Due) -> Plan:
    evacuation, newest = spec.evacuation, resume.newest_checkpoint(world, spec)
    assert evacuation is not None
    saved = _saved(world, evacuation, newest)
    after = f"after checkpoint {newest.step}" if saved and newest else ""
    if unsaved := saves_unseen(world.job):
        after = f"without waiting for a checkpoint ({unsaved})"
    after = after or "without a new checkpoint: the time to save was over"
    leaving = members.indices_on(spec, due.why)
    if due.reason in STOPS and not members.are_replaceable(world, spec, leaving):
        note = (
            f"stopped {after}: {', '.join(due.why.values())}, and no other node is free; the job waits for nodes in "
            "the queue"
        )
        gone = record.without_nodes(world, spec, due.reason)
        event = "StoppedForMaintenance" if due.reason == MAINTENANCE_STARTS else "StoppedForRemoval"
        return commit(world, gone, Announcement(event, note, warning=not saved))
    if not due.why:
        note = f"stopped {after}; its nodes are free"
        return commit(world, record.without_nodes(world, spec), Announcement("Suspended", note, warning=not saved))
    gone = record.after_evacuation(world, spec, evacuation)
    note = f"attempt {gone.attempt} leaves {', '.join(evacuation.nodes)}: {on_nodes(gone)}"
    return commit(world, gone, Announcement("NodeEvacuated", note, warning=not saved))


_PLANNERS: Mapping[Step, Callable[[JobWorld, GangSpec, Due], Plan]] = {
    Step.CANCELLED: _plan_cancellation,
    Step.RELEASED: _plan_release,
    Step.MOVED: _plan_move,
    Step.BEGUN: _plan_evacuation,
    Step.OVER: _plan_end,
}


def saves_unseen(job: TrainingJob) -> str:
    """Return why Muster sees no checkpoint of the job, so that an evacuation waits for none; "" where it sees them."""
    if mode_of(job).starts_with_pods:
        return "launch.mode is Plain"
    return "" if job.spec.checkpoint.directory else "spec.checkpoint.directory is not set"


def _saved(world: JobWorld, evacuation: Evacuation, newest: Resume | None) -> bool:
    """Whether what was trained before the evacuation is saved; one whose checkpoints are not seen counts as saved."""
    beyond = newest is not None and newest.step > (-1 if evacuation.after_step is None else evacuation.after_step)
    return beyond or bool(saves_unseen(world.job))


def _nodes_to_evacuate(world: JobWorld) -> dict[str, str]:
    """Return, by node, why the gang should leave it at its next checkpoint, as text."""
    found = {}
    for worker_view in world.worker_views:
        name, exclusion = worker_view.member.node, world.fleet.exclusion(worker_view.member.node)
        if _asks_for_evacuation(exclusion):
            found[name] = f"{name} is {exclusion.waiting_text or f'degraded ({exclusion.reason})'}"
        elif worker_view.node is not None and worker_view.node.unschedulable:
            found[name] = f"{name} is cordoned"
    return found


def _movable_nodes(world: JobWorld) -> frozenset[str]:
    """Return those of the nodes to leave whose workers have other nodes to go to, all at once."""
    return _movable(world, world.derived(_nodes_to_evacuate))


def _movable(world: JobWorld, nodes: Collection[str]) -> frozenset[str]:
    """Return those of these nodes whose workers have other nodes to go to; those first that have to be left most."""
    assert world.gang is not None
    record, last = world.gang.spec, _last_calls(world, nodes)
    names = {member.index: member.node for member in record.members if member.node in nodes}

    def urgency(index: int) -> tuple[bool, int, int]:
        return names[index] not in last, _GRAVEST_FIRST.index(_reason_of(world, names[index])), index

    movable = members.movable_indices(world, record, (), sorted(names, key=urgency))
    return frozenset(names[index] for index in movable)


def _reason(world: JobWorld, nodes: Collection[str]) -> str:
    reasons = {_reason_of(world, name) for name in nodes}
    return min(reasons, key=_GRAVEST_FIRST.index, default="Suspended")


def _reason_of(world: JobWorld, node: str) -> str:
    exclusion = world.fleet.exclusion(node)
    if _asks_for_evacuation(exclusion) and exclusion.cause is ExclusionCause.HEALTH:
        return "NodeDegraded"
    if _removal(world, node):
        return "NodeRemoval"
    planned = _asks_for_evacuation(exclusion) and exclusion.cause is ExclusionCause.MAINTENANCE
    return "NodeMaintenance" if planned else "NodeCordoned"


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


def _save_seconds(world: JobWorld) -> float | None:
    """Return how many seconds the newest save took whose time is known; None: none is known."""
    told = world.job.status.checkpoint
    known = (save.save_seconds for save in reversed(told.saves)) if told is not None else ()
    return next((float(seconds) for seconds in known if seconds is not None), None)

"""Planned leaves: suspension, and members on nodes that are cordoned or degraded. Pure.

A leave asks for a new checkpoint and waits for it, or for its deadline; then the ranks stop. Without another node to go to training goes
on, unless the node has to be empty at some moment (maintenance): then the job stops before it, saved, and waits in the queue.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from muster.api.gang import GangSpec, Leave, Resume
from muster.lifecycle import members, record, resume
from muster.lifecycle.commit import commit
from muster.lifecycle.plan import Announcement, Plan
from muster.lifecycle.words import on_nodes
from muster.lifecycle.worker_pod import WorkerSettings
from muster.recovery.silence import FRESH_SECONDS
from muster.world import fleet
from muster.world.job import JobWorld

if TYPE_CHECKING:
    from muster.lifecycle.facts import Facts


MAINTENANCE_STARTS = "MaintenanceStarts"
"""Of a leave whose nodes have to be empty, without other nodes for their workers."""


class Step(StrEnum):
    """How far a planned leave has come."""

    CANCELLED = "Cancelled"
    RELEASED = "Released"
    BEGUN = "Begun"
    OVER = "Over"


@dataclass(frozen=True, slots=True)
class Due:
    """The next step of a planned leave.

    Attributes:
        why: nodes to leave -> what is the matter with them, in words; empty: all of them, because of a suspension.
        reason: of the leave.
        gone_by: when they have to be empty; None: no time is set.
    """

    step: Step
    why: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    gone_by: datetime | None = None


def plan(world: JobWorld, facts: "Facts", settings: WorkerSettings) -> Plan:
    """Commits what is due."""
    gang, due = facts.gang, facts.leave
    assert gang is not None
    assert due is not None
    return _PLANNERS[due.step](world, gang.spec, due)


def due(world: JobWorld, spec: GangSpec) -> Due | None:
    """What a planned leave comes to now; None while there is nothing to do."""
    suspends = world.job.spec.suspend
    why = {} if suspends else _to_leave(world)
    if not suspends and not why:
        return Due(Step.CANCELLED) if spec.leave else None
    if spec.go is None:
        return Due(Step.RELEASED) if suspends else None
    gone_by = _gone_by(world, why)
    reason = _reason(why)
    if why and (_is_stopping(spec) or not members.replaceable(world, spec, members.on(spec, why))):
        if gone_by is None or world.now < _last_call(world, gone_by):
            # A leave that has begun goes on when a node becomes free.
            return Due(Step.CANCELLED) if _is_stopping(spec) else None
        reason = MAINTENANCE_STARTS
    if spec.leave is None or (spec.leave.reason, spec.leave.nodes) != (reason, sorted(why)):
        heard = len(world.views) == len(spec.members)
        if spec.leave is None and world.leader_age_seconds < FRESH_SECONDS and not heard:
            return None  # what counts as a NEW checkpoint is known once everybody has told which ones there are
        return Due(Step.BEGUN, why, reason, gone_by)
    deadline = spec.leave.deadline
    if gone_by is not None:  # said only now, or of another window
        deadline = min(deadline, record.saves_until(world, spec.leave.since, gone_by))
    over = _saved(world, spec.leave, resume.newest(world, spec)) or world.now >= deadline
    return Due(Step.OVER, why, reason, gone_by) if over else None


def _cancelled(world: JobWorld, spec: GangSpec, due: Due) -> Plan:
    told = Announcement("LeaveCancelled", "no node is to be left any more")
    return commit(world, spec.model_copy(update={"leave": None}), told)


def _released(world: JobWorld, spec: GangSpec, due: Due) -> Plan:
    return commit(world, record.released(world, spec))


def _begun(world: JobWorld, spec: GangSpec, due: Due) -> Plan:
    what = ", ".join(due.why.values()) if due.why else "the job is suspended"
    begun = record.leaving(world, spec, due.reason, sorted(due.why), due.gone_by)
    limit = (begun.leave.deadline - world.now).total_seconds() if begun.leave else 0.0
    note = f"{what}: stopping at the next complete checkpoint, at the latest in {limit:.0f} s"
    if due.reason == MAINTENANCE_STARTS:
        note += "; no other node is free, so that the job then waits in the queue"
    return commit(world, begun, Announcement("LeavePlanned", note))


def _over(world: JobWorld, spec: GangSpec, due: Due) -> Plan:
    leave, newest = spec.leave, resume.newest(world, spec)
    assert leave is not None
    saved = _saved(world, leave, newest)
    after = f"after checkpoint {newest.step}" if saved and newest else ""
    after = after or "without a new checkpoint: the time to save was over"
    if due.reason == MAINTENANCE_STARTS and not members.replaceable(world, spec, members.on(spec, due.why)):
        note = f"stopped {after}: {', '.join(due.why.values())}, and no other node is free; the job waits for nodes in the queue"
        gone = record.released(world, spec, MAINTENANCE_STARTS)
        return commit(world, gone, Announcement("StoppedForMaintenance", note, warning=not saved))
    if not due.why:
        note = f"stopped {after}; its nodes are free"
        return commit(world, record.released(world, spec), Announcement("Suspended", note, warning=not saved))
    gone = record.left(world, spec, leave)
    note = f"attempt {gone.attempt} leaves {', '.join(leave.nodes)}: {on_nodes(gone)}"
    return commit(world, gone, Announcement("NodeLeft", note, warning=not saved))


_PLANNERS: Mapping[Step, Callable[[JobWorld, GangSpec, Due], Plan]] = {
    Step.CANCELLED: _cancelled,
    Step.RELEASED: _released,
    Step.BEGUN: _begun,
    Step.OVER: _over,
}


def _saved(world: JobWorld, leave: Leave, newest: Resume | None) -> bool:
    """Whether what was trained before the leave is kept; so it counts where nothing is ever saved."""
    beyond = newest is not None and newest.step > (-1 if leave.after_step is None else leave.after_step)
    return beyond or not world.job.spec.checkpoint.directory


def _to_leave(world: JobWorld) -> dict[str, str]:
    """Nodes that the gang should leave at its next checkpoint -> what is the matter with them, in words."""
    found = {}
    for seat in world.seats:
        name, exclusion = seat.member.node, world.fleet.exclusion(seat.member.node)
        if exclusion and exclusion.leave is fleet.Leave.AFTER_CHECKPOINT:
            found[name] = f"{name} is {exclusion.words or f'degraded ({exclusion.reason})'}"
        elif seat.node is not None and seat.node.unschedulable:
            found[name] = f"{name} is cordoned"
    return found


def _reason(why: Mapping[str, str]) -> str:
    if not why:
        return "Suspended"
    if any("is degraded" in words for words in why.values()):
        return "NodeDegraded"
    return "NodeMaintenance" if any("maintenance" in words for words in why.values()) else "NodeCordoned"


def _is_stopping(spec: GangSpec) -> bool:
    return spec.leave is not None and spec.leave.reason == MAINTENANCE_STARTS


def _gone_by(world: JobWorld, why: Mapping[str, str]) -> datetime | None:
    """When the first of these nodes has to be empty; None: no time is set."""
    exclusions = (world.fleet.exclusion(name) for name in why)
    return min((each.gone_by for each in exclusions if each is not None and each.gone_by is not None), default=None)


def _last_call(world: JobWorld, gone_by: datetime) -> datetime:
    """When a job that has no place to go has to begin to stop, so that it has its time to save."""
    return gone_by - timedelta(seconds=world.job.spec.checkpoint.save_timeout_seconds + record.STOP_SECONDS)

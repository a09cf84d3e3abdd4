"""Planned leaves: suspension, and members on nodes that are cordoned or degraded. Pure.

A leave asks for a new checkpoint and waits for it, or for its deadline; then the ranks stop.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
    """

    step: Step
    why: Mapping[str, str] = field(default_factory=dict)


def plan(world: JobWorld, facts: "Facts", settings: WorkerSettings) -> Plan:
    """Commits what is due."""
    gang, due = facts.gang, facts.leave
    assert gang is not None
    assert due is not None
    return _PLANNERS[due.step](world, gang.spec, due.why)


def due(world: JobWorld, spec: GangSpec) -> Due | None:
    """What a planned leave comes to now; None while there is nothing to do."""
    suspends = world.job.spec.suspend
    why = {} if suspends else _to_leave(world)
    if not suspends and not why:
        return Due(Step.CANCELLED) if spec.leave else None
    if spec.go is None:
        return Due(Step.RELEASED) if suspends else None
    if why and not members.replaceable(world, spec, members.on(spec, why)):
        return None  # a leave that has begun goes on when a node becomes free
    if spec.leave is None or (spec.leave.reason, spec.leave.nodes) != (_reason(why), sorted(why)):
        heard = len(world.views) == len(spec.members)
        if spec.leave is None and world.leader_age_seconds < FRESH_SECONDS and not heard:
            return None  # what counts as a NEW checkpoint is known once everybody has told which ones there are
        return Due(Step.BEGUN, why)
    over = _saved(world, spec.leave, resume.newest(world, spec)) or world.now >= spec.leave.deadline
    return Due(Step.OVER, why) if over else None


def _cancelled(world: JobWorld, spec: GangSpec, why: Mapping[str, str]) -> Plan:
    told = Announcement("LeaveCancelled", "no node is to be left any more")
    return commit(world, spec.model_copy(update={"leave": None}), told)


def _released(world: JobWorld, spec: GangSpec, why: Mapping[str, str]) -> Plan:
    return commit(world, record.released(world, spec))


def _begun(world: JobWorld, spec: GangSpec, why: Mapping[str, str]) -> Plan:
    what = ", ".join(why.values()) if why else "the job is suspended"
    limit = world.job.spec.checkpoint.save_timeout_seconds
    note = f"{what}: stopping at the next complete checkpoint, at the latest in {limit} s"
    return commit(world, record.leaving(world, spec, _reason(why), sorted(why)), Announcement("LeavePlanned", note))


def _over(world: JobWorld, spec: GangSpec, why: Mapping[str, str]) -> Plan:
    leave, newest = spec.leave, resume.newest(world, spec)
    assert leave is not None
    saved = _saved(world, leave, newest)
    if not why:
        after = f"after checkpoint {newest.step}" if saved and newest else ""
        note = f"stopped {after or 'without a new checkpoint: the time to save was over'}; its nodes are free"
        return commit(world, record.released(world, spec), Announcement("Suspended", note, warning=not saved))
    gone = record.left(world, spec, leave)
    note = f"attempt {gone.attempt} leaves {', '.join(leave.nodes)}: {on_nodes(gone)}"
    return commit(world, gone, Announcement("NodeLeft", note, warning=not saved))


_PLANNERS: Mapping[Step, Callable[[JobWorld, GangSpec, Mapping[str, str]], Plan]] = {
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
            found[name] = f"{name} is degraded ({exclusion.reason})"
        elif seat.node is not None and seat.node.unschedulable:
            found[name] = f"{name} is cordoned"
    return found


def _reason(why: Mapping[str, str]) -> str:
    if not why:
        return "Suspended"
    return "NodeDegraded" if any("degraded" in words for words in why.values()) else "NodeCordoned"

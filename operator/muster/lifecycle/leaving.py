"""Planned leaves: suspension, and members on nodes that are cordoned or degraded. Pure.

A leave asks for a new checkpoint and waits for it, or for its deadline; then the ranks stop.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.api.gang import GangSpec
from muster.lifecycle import members, record, resume
from muster.lifecycle.commit import commit
from muster.lifecycle.plan import Announcement, Plan
from muster.lifecycle.words import on_nodes
from muster.lifecycle.worker_pod import WorkerSettings
from muster.recovery.failures import FRESH_SECONDS
from muster.world.fleet import Leave
from muster.world.job import JobWorld

if TYPE_CHECKING:
    from muster.lifecycle.facts import Facts


@dataclass(frozen=True, slots=True)
class Leaving:
    """The next record of a leave, and what people are told; None where that is not worth an Event."""

    spec: GangSpec
    announcement: Announcement | None = None


def plan(world: JobWorld, facts: "Facts", settings: WorkerSettings) -> Plan:
    """Commits what is due."""
    assert facts.leave is not None
    told = (facts.leave.announcement,) if facts.leave.announcement else ()
    return commit(world, facts.leave.spec, *told)


def due(world: JobWorld, spec: GangSpec) -> Leaving | None:
    """What a planned leave comes to now: its beginning, its change, its end; None while there is nothing to do."""
    suspends = world.job.spec.suspend
    why = {} if suspends else _to_leave(world)
    if not suspends and not why:
        if spec.leave is None:
            return None
        told = Announcement("LeaveCancelled", "no node is to be left any more")
        return Leaving(spec.model_copy(update={"leave": None}), told)
    if spec.go is None:
        return Leaving(record.released(world, spec)) if suspends else None
    if why and not members.replaceable(world, spec, members.on(spec, why)):
        return None  # a leave that has begun goes on when a node becomes free
    reason = "Suspended" if suspends else _strongest_reason(why)
    if spec.leave is None or (spec.leave.reason, spec.leave.nodes) != (reason, sorted(why)):
        return _begun(world, spec, reason, why)
    return _gone(world, spec)


def _begun(world: JobWorld, spec: GangSpec, reason: str, why: Mapping[str, str]) -> Leaving | None:
    heard = len(world.views) == len(spec.members)
    if spec.leave is None and world.leader_age_seconds < FRESH_SECONDS and not heard:
        return None  # what counts as a NEW checkpoint is known once everybody has told which ones there are
    what = ", ".join(why.values()) if why else "the job is suspended"
    limit = world.job.spec.checkpoint.save_timeout_seconds
    note = f"{what}: stopping at the next complete checkpoint, at the latest in {limit} s"
    return Leaving(record.leaving(world, spec, reason, sorted(why)), Announcement("LeavePlanned", note))


def _gone(world: JobWorld, spec: GangSpec) -> Leaving | None:
    leave = spec.leave
    assert leave is not None
    newest = resume.newest(world, spec)
    saved = newest is not None and newest.step > (-1 if leave.after_step is None else leave.after_step)
    saved = saved or not world.job.spec.checkpoint.directory
    if not saved and world.now < leave.deadline:
        return None
    if world.job.spec.suspend:
        after = f"after checkpoint {newest.step}" if saved and newest else ""
        note = f"stopped {after or 'without a new checkpoint: the time to save was over'}; its nodes are free"
        return Leaving(record.released(world, spec), Announcement("Suspended", note, warning=not saved))
    gone = record.left(world, spec, leave)
    note = f"attempt {gone.attempt} leaves {', '.join(leave.nodes)}: {on_nodes(gone)}"
    return Leaving(gone, Announcement("NodeLeft", note, warning=not saved))


def _to_leave(world: JobWorld) -> dict[str, str]:
    """Nodes that the gang should leave at its next checkpoint -> what is the matter with them, in words."""
    found = {}
    for seat in world.seats:
        name, exclusion = seat.member.node, world.fleet.exclusion(seat.member.node)
        if exclusion and exclusion.leave is Leave.AFTER_CHECKPOINT:
            found[name] = f"{name} is degraded ({exclusion.reason})"
        elif seat.node is not None and seat.node.unschedulable:
            found[name] = f"{name} is cordoned"
    return found


def _strongest_reason(why: Mapping[str, str]) -> str:
    return "NodeDegraded" if any("degraded" in words for words in why.values()) else "NodeCordoned"

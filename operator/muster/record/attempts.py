"""The record of the next attempt. Pure.

Each function of this room returns a whole new record, to be committed by one guarded update. Members never change
within an attempt: any change of them also takes the next number.

Tests: tests/unit/record/test_incidents.py, tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from muster.api.gang import (
    MAX_PREEMPTIONS,
    MAX_SHORT_ESTIMATES,
    Examination,
    GangIncident,
    GangPreemption,
    GangSpec,
    Level,
    Member,
)
from muster.api.trainingjob import TrainingJob
from muster.checkpoints import node_local, resume, unloadable
from muster.fencing.survivors import unfenced_workers
from muster.record import corruption, exclusions, incidents, members, save_request
from muster.recovery import budgets, holds
from muster.world.job import JobWorld
from muster.world.queuedecision import Placed

# A gang that could not be assembled waits this long before its next try, twice as long each time.
FIRST_RELEASE_SECONDS = 60.0
ASSEMBLY_TIMED_OUT = "AssemblyTimedOut"
NODES_YIELDED = "NodesYielded"
PREEMPTED = "Preempted"
SUSPENDED = "Suspended"
_NO_TIMES = {"backfill_until": None, "lent_until": None}


class NextAttempt(NamedTuple):
    """What the next attempt is made of.

    Attributes:
        level: of the recovery.
        members: of the gang; empty: it gives its nodes back.
    """

    level: Level
    members: Sequence[Member]


def with_new_placement(world: JobWorld, placed: Placed, reason: str) -> GangSpec:
    """Return the record of an attempt on entirely new nodes: the first one, or the first after the nodes were given
    back.

    Args:
        world: the state of the job.
        placed: the nodes that the queue has promised.
        reason: of the first attempt; a later record names it, too.
    """
    record = world.gang.spec if world.gang else None
    chosen = members.members_on(placed.nodes, 1 + max((pod.incarnation for pod in world.pods.values()), default=0))
    if record is not None and record.open_corruption is not None:  # those on which it happened are left
        record = corruption.with_test_results(record, Examination.NOT_TESTED)
    if record is None:
        spec = GangSpec(
            job_uid=world.uid,
            attempt=1 + world.job.status.attempt,
            time=world.now,
            level=Level.START,
            reason=reason,
            members=chosen,
            topology=members.topology(world, chosen),
        )
    else:
        spec = next_attempt(world, record, NextAttempt(Level.START, chosen), reason)
        # One of them whose fence is over may be heard again before the start.
        spec = spec.model_copy(update={"unfenced_workers": record.unfenced_workers})
    return spec.model_copy(update={"placed_time": world.now, **_loan(world, placed)})


def _loan(world: JobWorld, placed: Placed) -> dict[str, Any]:
    """Return what the record says of nodes that are only lent to the gang."""
    if placed.backfill is None:
        return {"backfilled": _comes_back(world, placed), **_NO_TIMES}
    return {
        "backfilled": True,
        "backfill_until": world.now + timedelta(seconds=placed.backfill.expected_seconds),
        "lent_until": placed.backfill.lent_until,
    }


def _comes_back(world: JobWorld, placed: Placed) -> bool:
    """Whether a job gets nodes back that were lent to it. Until its pods there have ended they are free to it alone,
    reserved for none."""
    was_lent = world.gang is not None and world.gang.spec.backfilled
    return was_lent and not {*placed.nodes, *placed.spares}.isdisjoint(world.fleet.nodes_of(world.uid))


def next_attempt(
    world: JobWorld, record: GangSpec, choice: NextAttempt, reason: str, incident: GangIncident | None = None
) -> GangSpec:
    """Return the record of the next attempt.

    Args:
        world: the state of the job.
        record: of the gang, as it is.
        choice: the level and the members of the attempt.
        reason: of the attempt.
        incident: after which it follows; None: after none.
    """
    return record.model_copy(
        update={
            "attempt": record.attempt + 1,
            "time": world.now,
            "level": choice.level,
            "reason": reason,
            "members": _with_replacements_marked(record, choice.members),
            "topology": members.topology(world, choice.members),
            "start": None,
            "evacuation": None,
            "held_failure": None,
            "requests": 0,
            "evacuation_requests": [],
            "save_request": save_request.once_saved(world, record),
            "hold_until": holds.held_until(world, record),
            "incidents": incidents.shortened([*record.incidents, *([incident] if incident else [])]),
            "unfenced_workers": unfenced_workers(world, record, choice.members),
            "listing_round": 0,
            "move_incomplete_beyond": None,
            "local_since_attempt": node_local.since_without_progress(
                world, record, incidents.newest_step(world, record)
            ),
            "suspect_checkpoint": unloadable.after_attempt(world, record),
        }
    )


def _with_replacements_marked(record: GangSpec, chosen: Sequence[Member]) -> list[Member]:
    """Return the members, marked as replacements where the node had no member when the ranks ran last."""
    known_nodes = {member.node for member in record.members if not member.is_replacement}
    return [
        member if member.is_replacement is new else member.model_copy(update={"is_replacement": new})
        for member in chosen
        for new in (member.node not in known_nodes,)
    ]


def without_nodes(world: JobWorld, record: GangSpec, reason: str = SUSPENDED) -> GangSpec:
    """Return the record without members, so that the nodes are free."""
    spec = next_attempt(world, with_newest_checkpoint(world, record), NextAttempt(Level.START, []), reason)
    return spec.model_copy(
        update={
            "hold_until": None,
            "short_estimates": _short_estimates(record, reason),
            **_NO_TIMES,
        }
    )


def _short_estimates(record: GangSpec, reason: str) -> list[datetime]:
    """Return when estimates of the job were too short, once it leaves for this reason."""
    evacuation, until = record.evacuation, record.backfill_until
    if reason != PREEMPTED or evacuation is None or until is None or evacuation.since <= until:
        return record.short_estimates
    return [*record.short_estimates, evacuation.since][-MAX_SHORT_ESTIMATES:]


def after_preemption(world: JobWorld, record: GangSpec, *, answered: bool) -> GangSpec:
    """Return the record of a gang that gives its nodes to another job.

    Nodes of its own count as a preemption of this day; those that were lent to it do not.

    Args:
        world: the state of the job.
        record: of the gang.
        answered: whether it did as it was asked.
    """
    return without_nodes(world, _with_preemption(world, record, answered=answered), PREEMPTED)


def with_withdrawn_preemption(world: JobWorld, record: GangSpec) -> GangSpec:
    """Return the record of a gang that is asked to leave for another job, and need not: that counts as a preemption,
    too, since it costs a save or a restart."""
    is_preempted = record.evacuation is not None and record.evacuation.reason == PREEMPTED
    return _with_preemption(world, record, answered=True) if is_preempted else record


def _with_preemption(world: JobWorld, record: GangSpec, *, answered: bool) -> GangSpec:
    if holds_lent_nodes(world.job, record):
        return record
    preemptions = [*of_last_day(record.preemptions, world.now), GangPreemption(time=world.now, answered=answered)]
    return record.model_copy(update={"preemptions": preemptions[-MAX_PREEMPTIONS:]})


def of_last_day(preemptions: Sequence[GangPreemption], now: datetime) -> list[GangPreemption]:
    """Return those of the last 24 hours; by a clock that has stepped, none is later than that."""
    return [preemption for preemption in preemptions if abs(now - preemption.time) < timedelta(days=1)]


def holds_lent_nodes(job: TrainingJob, record: GangSpec) -> bool:
    """Whether the nodes of a gang are only lent to it, so that it gives way whatever its priority."""
    return job.spec.queueing.preemptible or record.backfilled


def is_giving_way(record: GangSpec) -> bool:
    """Whether the gang leaves its nodes for another job, or has, and waits since."""
    evacuation = record.evacuation
    return (
        record.reason == PREEMPTED if not record.members else evacuation is not None and evacuation.reason == PREEMPTED
    )


def was_never_assembled(record: GangSpec) -> bool:
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
    until = world.now + timedelta(seconds=pause) + exclusions.EXCLUSION
    released = exclusions.with_excluded(without_nodes(world, record, reason), filter(None, nodes), until)
    return held_for(world, released.model_copy(update={"releases": releases}), pause)


def held_for(world: JobWorld, record: GangSpec, seconds: float) -> GangSpec:
    """Return the record whose attempt starts no earlier than in so many seconds."""
    return record.model_copy(update={"hold_until": world.now + timedelta(seconds=seconds)})


def budget_exhausted(world: JobWorld, record: GangSpec) -> str:
    """Return the reason of the restart budget that is exhausted, given the newest checkpoint seen; "" if none is."""
    return budgets.exhausted(with_newest_checkpoint(world, record), world.job.spec.recovery, world.now)


def with_newest_checkpoint(world: JobWorld, record: GangSpec) -> GangSpec:
    """Return the record with the newest complete checkpoint that is known."""
    return record.model_copy(update={"checkpoint": resume.newest_checkpoint(world, record)})

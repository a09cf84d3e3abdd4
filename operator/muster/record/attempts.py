"""The record of the next attempt. Pure.

Each function of this room returns a whole new record, to be committed by one guarded update. Members never change
within an attempt: any change of them also takes the next number.

Tests: tests/unit/record/test_incidents.py, tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import NamedTuple

from muster.api.gang import Examination, GangIncident, GangSpec, Level, Member
from muster.checkpoints import node_local, resume, unloadable
from muster.fencing.survivors import unfenced_workers
from muster.record import corruption, exclusions, incidents, loans, members, save_request
from muster.recovery import budgets, holds
from muster.world.job import JobWorld
from muster.world.queuedecision import Placed

# A gang that could not be assembled waits this long before its next try, twice as long each time.
FIRST_RELEASE_SECONDS = 60.0
ASSEMBLY_TIMED_OUT = "AssemblyTimedOut"
NODES_YIELDED = "NodesYielded"
SUSPENDED = "Suspended"


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
        attempt = 1 + world.job.status.attempt
        spec = GangSpec(
            job_uid=world.uid,
            attempt=attempt,
            time=world.now,
            level=Level.START,
            reason=reason,
            members=chosen,
            topology=members.topology(world, chosen),
            # Of a Gang that was deleted by hand it is not known which of these saves were passed over, and an attempt
            # that the status does not name may have had this number.
            local_since_attempt=attempt,
        )
    else:
        spec = next_attempt(world, record, NextAttempt(Level.START, chosen), reason)
        # One of them whose fence is over may be heard again before the start.
        spec = spec.model_copy(update={"unfenced_workers": record.unfenced_workers})
    return spec.model_copy(update={"placed_time": world.now, **loans.loan(world, placed)})


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
    return spec.model_copy(update={"hold_until": None, **loans.NO_TIMES})


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

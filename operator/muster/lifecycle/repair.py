"""The attempt that follows failures: by which level, and with which members. Pure.

Events and status show the levels as R0 (IN_PLACE), R0b (POD), R2 (REPLACE) and R4 (REBUILD). Before the first start a
gang keeps the level START where nothing has failed.

Tests: tests/unit/record/test_incidents.py, tests/unit/lifecycle/test_scenarios.py.
"""

from collections.abc import Sequence

from muster.api.gang import GangSpec, Level
from muster.checkpoints import unloadable
from muster.lifecycle import moves, placing
from muster.lifecycle.evacuation_step import nodes_to_evacuate
from muster.record import corruption, exclusions, incidents, members
from muster.record.attempts import NextAttempt, held_for, next_attempt, with_newest_checkpoint
from muster.recovery import blame, budgets
from muster.recovery.failure import Failure, Kind, kinds_with
from muster.world.job import JobWorld

_NODES_TO_AVOID = kinds_with(lambda traits: traits.avoids_node)


def after_failures(world: JobWorld, record: GangSpec, failures: Sequence[Failure]) -> GangSpec:
    """Return the record after failures: the next attempt, by the lowest level that repairs all of them at once.

    Args:
        world: the state of the job.
        record: of the failed attempt.
        failures: the failures; at least one.
    """
    cause = blame.culprit(failures)
    heard = record.incidents[-1] if record.incidents else None
    record = _with_excluded(world, record, failures)
    if cause.kind is Kind.NODE_CONFLICT:  # the strongest of all: nothing has failed, and no budget is charged
        return moves.with_members_moved(world, record, {failure.index for failure in failures}, cause.kind)
    # What the attempt has won counts before what it has lost.
    record = with_newest_checkpoint(world, incidents.with_open_blame(record, cause))
    is_same = incidents.is_same_incident(world, record, failures)
    record = unloadable.with_failed_start(world, record, blame.fault_class(cause), cause.kind)
    record = corruption.with_new_reports(world, record, incidents.last_step(world, record) or 0)
    choice = _choose(world, record, failures)
    record = exclusions.without_excluded(record, {member.node for member in choice.members})
    reason = cause.kind if choice.members else record.reason  # without nodes it waits for what it waited for before
    if is_same and heard is not None:
        record = incidents.with_later_failures(world, record, heard, choice.level, failures)
        return next_attempt(world, record, choice, reason)
    incident = incidents.new_incident(world, record, choice.level, cause, failures)
    spec = next_attempt(world, record, choice, reason, incident)
    pause = budgets.back_off_seconds(spec) if choice.members else 0.0
    return held_for(world, spec, pause) if pause else spec


def _with_excluded(world: JobWorld, record: GangSpec, failures: Sequence[Failure]) -> GangSpec:
    """Return the record that excludes the nodes at which something has failed, and no node whose time is over."""
    nodes = [
        failure.node
        for failure in failures
        if failure.node_fault
        or failure.suspected
        or (failure.kind in _NODES_TO_AVOID and failure.level is Level.REPLACE)
    ]
    record = exclusions.without_past_exclusions(world, record)
    return exclusions.with_excluded(record, nodes, world.now + exclusions.EXCLUSION)


def _choose(world: JobWorld, record: GangSpec, failures: Sequence[Failure]) -> NextAttempt:
    """Return the lowest level that repairs the failures, and the members: on other nodes where theirs have failed, or
    are to be left at the next checkpoint anyway."""
    lost = {failure.index for failure in failures if failure.level is Level.POD}
    moved = {failure.index for failure in failures if failure.level is Level.REPLACE and not failure.if_free}
    optional = {
        failure.index: failure.node
        for failure in failures
        if failure.if_free or failure.node_fault or failure.suspected
    }
    first = blame.culprit(failures).index
    moved |= placing.movable_indices(
        world, record, moved, sorted(optional.keys() - moved, key=lambda i: (i != first, i))
    )
    # A member that has to stay on an unhealthy node may have a new pod there.
    record = exclusions.without_excluded(record, {node for index, node in optional.items() if index not in moved})
    leaving = members.indices_on(record, nodes_to_evacuate(world))
    moved |= placing.movable_indices(world, record, moved, sorted(leaving - moved))
    level = Level.REPLACE if moved else Level.POD if lost else Level.IN_PLACE
    return placing.next_members(world, record, placing.least_level(world, level), lost, moved)

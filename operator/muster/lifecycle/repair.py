"""The attempt that follows failures: by which level, and with which members. Pure.

Tests: tests/unit/record/test_incidents.py, tests/unit/lifecycle/test_scenarios.py.
"""

from collections.abc import Sequence
from datetime import timedelta

from muster.api.gang import GangSpec, Level
from muster.checkpoints import resume, unloadable
from muster.lifecycle import placing
from muster.record import corruption, incidents, members
from muster.record.attempts import Choice, next_attempt
from muster.recovery import blame, budgets
from muster.recovery.failure import Failure, Kind, kinds_with
from muster.world.job import JobWorld

_NODES_TO_AVOID = kinds_with(lambda traits: traits.avoids_node)


def after_failures(world: JobWorld, record: GangSpec, found: Sequence[Failure]) -> GangSpec:
    """Return the record after failures: the next attempt, by the lowest level that repairs all of them at once.

    Args:
        world: the state of the job.
        record: of the failed attempt.
        found: the failures; at least one.
    """
    cause = blame.culprit(found)
    heard = record.incidents[-1] if record.incidents else None
    record = _with_nodes_avoided(world, record, found)
    if cause.kind is Kind.NODE_CONFLICT:  # the strongest of all: nothing has failed
        return _after_refused_pods(world, record, found)
    record = _with_earlier_blame(world, record, cause)
    is_same = incidents.is_same_incident(world, record, found)
    record = unloadable.with_failed_start(world, record, blame.fault_class(cause), cause.kind)
    record = corruption.with_new_reports(world, record, incidents.last_step(world, record) or 0)
    choice = _choose(world, record, found)
    record = _without_avoided(record, {member.node for member in choice.members})
    reason = cause.kind if choice.members else record.reason  # without nodes it waits for what it waited for before
    if is_same:
        happened = incidents.with_later_failures(world, record, choice.level, cause, found)
        if heard is not None and blame.is_cause_of(cause, heard):
            happened[-1] = incidents.with_later_cause(world, happened[-1], heard, cause, found)
        return next_attempt(world, record.model_copy(update={"incidents": happened}), choice, reason)
    incident = incidents.new_incident(world, record, choice.level, cause, found)
    spec = next_attempt(world, record, choice, reason, incident)
    pause = budgets.back_off_seconds(spec) if choice.members else 0.0
    return spec.model_copy(update={"hold_until": world.now + timedelta(seconds=pause)}) if pause else spec


def _with_nodes_avoided(world: JobWorld, record: GangSpec, found: Sequence[Failure]) -> GangSpec:
    """Return the record that excludes the nodes at which something has failed, and no node whose time is over."""
    excluded = {node: until for node, until in record.excluded_nodes.items() if until > world.now}
    for failure in found:
        leaves = failure.kind in _NODES_TO_AVOID and failure.level is Level.REPLACE
        if failure.node_fault or failure.suspected or leaves:
            excluded[failure.node] = world.now + members.EXCLUSION
    return record.model_copy(update={"excluded_nodes": excluded})


def _with_earlier_blame(world: JobWorld, record: GangSpec, cause: Failure) -> GangSpec:
    """Return the record in which a new cause explains open incidents, too, with the newest checkpoint.

    What the attempt has won counts before what it has lost.
    """
    first_open = incidents.first_open(record)
    upgraded = blame.upgrade(record.incidents, first_open, blame.fault_class(cause), cause.kind, cause.node)
    return record.model_copy(update={"incidents": upgraded, "checkpoint": resume.newest_checkpoint(world, record)})


def _without_avoided(record: GangSpec, nodes: set[str]) -> GangSpec:
    """Return the record that does not exclude these nodes."""
    avoided = {node: until for node, until in record.excluded_nodes.items() if node not in nodes}
    return record.model_copy(update={"excluded_nodes": avoided})


def _choose(world: JobWorld, record: GangSpec, found: Sequence[Failure]) -> Choice:
    """Return the lowest level that repairs the failures, and the members: on other nodes where theirs have failed."""
    lost = {failure.index for failure in found if failure.level is Level.POD}
    moved = {failure.index for failure in found if failure.level is Level.REPLACE and not failure.if_free}
    optional = {
        failure.index: failure.node for failure in found if failure.if_free or failure.node_fault or failure.suspected
    }
    first = blame.culprit(found).index
    moved |= placing.movable_indices(
        world, record, moved, sorted(optional.keys() - moved, key=lambda i: (i != first, i))
    )
    # A member that has to stay on an unhealthy node may have a new pod there.
    record = _without_avoided(record, {node for index, node in optional.items() if index not in moved})
    level = Level.REPLACE if moved else Level.POD if lost else Level.IN_PLACE
    return placing.next_members(world, record, placing.least_level(world, level), lost, moved)


def _after_refused_pods(world: JobWorld, record: GangSpec, conflicts: Sequence[Failure]) -> GangSpec:
    """Return the record after kubelets refused pods that Muster had bound because another pod was faster.

    The refusal is no failure, and no budget is charged.
    """
    choice = placing.move(world, record, {failure.index for failure in conflicts})
    if record.level is Level.START:
        choice = choice._replace(level=Level.START)
    return next_attempt(world, record, choice, Kind.NODE_CONFLICT)

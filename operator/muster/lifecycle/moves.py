"""Records in which members that have to leave their nodes, or have none, are on others. Pure.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from collections.abc import Collection

from muster.api.gang import GangSpec, Level
from muster.lifecycle import placing
from muster.placement.reasons import TOPOLOGY_UNSATISFIED
from muster.record import exclusions, members
from muster.record.attempts import ASSEMBLY_TIMED_OUT, NextAttempt, next_attempt
from muster.world.job import JobWorld
from muster.world.queuedecision import NotPlaced


def with_queued_nodes(world: JobWorld, record: GangSpec) -> GangSpec | NotPlaced | None:
    """Return the record with nodes for the members that have none; None before the queue has answered.

    Where the queue has no nodes, its answer is returned, which says why.
    """
    answer = world.queue_decision.answer if world.queue_decision else None
    if answer is None:
        return None
    if isinstance(answer, NotPlaced):
        is_scattered = answer.reason == TOPOLOGY_UNSATISFIED
        choice = placing.rebuild_elsewhere(world, record) if is_scattered else None
        if choice is None:
            return answer
    else:
        chosen = members.with_open_places_filled(record, answer)
        if chosen is None or not placing.are_still_free(world, answer):
            return None
        choice = NextAttempt(Level.REPLACE, chosen)
    return next_attempt(world, record, choice, record.reason)


def after_late_workers(world: JobWorld, record: GangSpec, indices: Collection[int]) -> GangSpec:
    """Return the record after some workers did not come to run in time: they move, and the others keep their nodes.

    Args:
        world: the state of the job.
        record: of the gang.
        indices: of those workers.
    """
    nodes = (world.by_index[index].member.node for index in indices)
    avoiding = exclusions.with_excluded(record, nodes, world.now + exclusions.EXCLUSION)
    return with_members_moved(world, avoiding, indices, ASSEMBLY_TIMED_OUT)


def with_members_moved(world: JobWorld, record: GangSpec, indices: Collection[int], reason: str) -> GangSpec:
    """Return the record with some members on other nodes before the ranks have started; a member may then have no node.

    Args:
        world: the state of the job.
        record: of the gang.
        indices: of the members that move.
        reason: of the next attempt.
    """
    choice = placing.move(world, record, indices)
    if record.level is Level.START:
        choice = choice._replace(level=Level.START)
    return next_attempt(world, record, choice, reason)

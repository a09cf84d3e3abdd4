"""The planned evacuation in the record. Pure.

Tests: tests/unit/lifecycle/test_evacuating.py.
"""

from collections.abc import Sequence
from datetime import datetime

from muster.api.gang import Evacuation, GangSpec
from muster.checkpoints import resume
from muster.record import incidents
from muster.world.job import JobWorld


def with_evacuation_begun(
    world: JobWorld, record: GangSpec, reason: str, nodes: Sequence[str], deadline: datetime
) -> GangSpec:
    """Return the record with a planned evacuation begun; the attempt goes on until a new checkpoint, or the deadline.

    Args:
        world: the state of the job.
        record: of the gang.
        reason: of the evacuation.
        nodes: to leave; empty: all.
        deadline: after which the gang waits for no checkpoint.
    """
    if record.evacuation and record.evacuation.reason == reason:  # more nodes to leave: the deadline stays
        return record.model_copy(update={"evacuation": record.evacuation.model_copy(update={"nodes": sorted(nodes)})})
    newest = resume.newest_checkpoint(world, record)
    # One for a step that was finished before is not new: it may have been complete already, only not yet seen.
    steps = (newest.step if newest else None, (incidents.newest_step(world, record) or 0) - 1)
    after = max(step for step in steps if step is not None)
    evacuation = Evacuation(
        reason=reason,
        nodes=sorted(nodes),
        since=world.now,
        deadline=deadline,
        after_step=after if after >= 0 else None,
    )
    return record.model_copy(update={"evacuation": evacuation, "checkpoint": newest})


def without_evacuation(record: GangSpec) -> GangSpec:
    """Return the record without its evacuation, which is not needed any more."""
    return record.model_copy(update={"evacuation": None})

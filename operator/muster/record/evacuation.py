"""The planned evacuation in the record. Pure.

Tests: tests/unit/lifecycle/test_evacuating.py.
"""

from collections.abc import Sequence
from datetime import datetime

from muster.api.gang import MAX_EVACUATION_REQUESTS, Evacuation, GangSpec, Resume
from muster.checkpoints import resume
from muster.record import incidents
from muster.world.job import JobWorld

LEAVE_WITHDRAWN = "LeaveWithdrawn"
"""The reason of an evacuation, and of the attempt after it, whose ranks follow a request that was withdrawn."""


def for_reason(evacuation: Evacuation, reason: str, nodes: Sequence[str]) -> Evacuation:
    """Return an evacuation that is under way for another reason, or of other nodes; empty: of all."""
    return evacuation.model_copy(update={"reason": reason, "nodes": list(nodes)})


def with_evacuation_begun(
    world: JobWorld, record: GangSpec, reason: str, nodes: Sequence[str], deadline: datetime
) -> GangSpec:
    """Return the record with a planned evacuation begun; the attempt goes on until a new checkpoint, or the deadline.

    The ranks are asked once: an evacuation for another reason, or of other nodes, joins the one that is under way, with
    the earlier deadline of the two. One whose deadline has passed is over.

    Args:
        world: the state of the job.
        record: of the gang.
        reason: of the evacuation.
        nodes: to leave; empty: all.
        deadline: after which the gang waits for no checkpoint.
    """
    same = record.evacuation is not None and record.evacuation.reason == reason
    if record.evacuation and (same or world.now < record.evacuation.deadline):
        # More nodes to leave: the deadline stays.
        earliest = record.evacuation.deadline if same else min(record.evacuation.deadline, deadline)
        joined = {"reason": reason, "nodes": sorted(nodes), "deadline": earliest}
        return record.model_copy(update={"evacuation": record.evacuation.model_copy(update=joined)})
    number = record.requests + 1
    evacuation = Evacuation(
        reason=reason,
        nodes=sorted(nodes),
        since=world.now,
        deadline=deadline,
        after_step=step_to_pass(world, record),
    )
    update = {
        "evacuation": evacuation,
        "checkpoint": resume.newest_checkpoint(world, record),
        "requests": number,
        "evacuation_requests": [*record.evacuation_requests, number][-MAX_EVACUATION_REQUESTS:],
    }
    return record.model_copy(update=update)


def step_to_pass(world: JobWorld, record: GangSpec) -> int | None:
    """Return the step beyond which a complete checkpoint is new; None: any is.

    One for a step that was finished before is not new: it may have been complete already, only not yet seen.
    """
    newest = resume.newest_checkpoint(world, record)
    steps = (newest.step if newest else None, (incidents.newest_step(world, record) or 0) - 1)
    after = max(step for step in steps if step is not None)
    return after if after >= 0 else None


def new_checkpoint(world: JobWorld, record: GangSpec, after_step: int | None) -> Resume | None:
    """Return the newest complete checkpoint, if it is beyond this step (`step_to_pass`)."""
    newest = resume.newest_checkpoint(world, record)
    return newest if newest is not None and newest.step > (-1 if after_step is None else after_step) else None


def with_late_answer(world: JobWorld, record: GangSpec, deadline: datetime) -> GangSpec:
    """Return the record with the evacuation that ranks follow although it was withdrawn: the one under way, or a new
    one, for which they are not asked again."""
    evacuating = with_evacuation_begun(world, record, LEAVE_WITHDRAWN, (), deadline)
    unasked = {"requests": record.requests, "evacuation_requests": record.evacuation_requests}
    return evacuating.model_copy(update=unasked)


def without_evacuation(record: GangSpec) -> GangSpec:
    """Return the record without its evacuation, which is not needed any more."""
    return record.model_copy(update={"evacuation": None})

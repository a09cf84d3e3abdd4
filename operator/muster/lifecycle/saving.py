"""A user's request that the ranks save and go on, from the job's spec to its end. Pure.

One request stands at a time, and the next one waits until it is over. One that comes while the ranks are asked to
leave waits, too: their save before they leave serves it, or they are asked after that (`once_saved`). What came of it
is never held against the job.
"""

from datetime import timedelta

from muster.api.gang import GangSpec, SaveRequest
from muster.checkpoints import resume
from muster.lifecycle import leavers
from muster.lifecycle.commit import commit
from muster.lifecycle.plan import Plan
from muster.record.save_request import SAVE_REQUESTED, new_step, unasked_name, with_save_asked, with_save_over
from muster.status.report import Announcement
from muster.world.job import JobWorld


def plan(world: JobWorld, record: GangSpec) -> Plan | None:
    """Return the plan by which the request to save goes on; None: nothing is due."""
    request = record.save_request
    if request is not None and not request.over:
        return _plan_of_request(world, record, request)
    name = unasked_name(world, record)
    if name is None or resume.saves_unseen(world.job) or not _can_ask(world, record):
        return None
    seconds = world.job.spec.checkpoint.save_timeout_seconds
    asked = with_save_asked(world, record, name, world.now, world.now + timedelta(seconds=seconds))
    note = f"The program is asked to save ({name}). A new complete checkpoint is waited for, at most {seconds} s."
    return commit(world, asked, Announcement(SAVE_REQUESTED, note))


def _can_ask(world: JobWorld, record: GangSpec) -> bool:
    """Whether the ranks can be asked now: while they are asked to leave they are asked for nothing else."""
    return record.evacuation is None and leavers.are_heard(world, record)


def _plan_of_request(world: JobWorld, record: GangSpec, request: SaveRequest) -> Plan | None:
    step = new_step(world, record, request)
    if step is not None:
        event = Announcement("SavedOnRequest", f"Checkpoint {step} is complete. It was asked for by {request.name}.")
        return commit(world, with_save_over(record, request, step), event)
    if world.now >= request.deadline:
        return commit(world, with_save_over(record, request, None))  # the status says so
    if request.attempt == record.attempt or not _can_ask(world, record):
        return None
    # Ranks that were started since have not been asked.
    return commit(world, with_save_asked(world, record, request.name, request.since, request.deadline))

"""The request to save and go on in the record. Pure.

Tests: tests/unit/lifecycle/test_saving.py.
"""

from datetime import datetime

from muster.api.gang import GangSpec, SaveRequest
from muster.record.evacuation import new_checkpoint, step_to_pass
from muster.world.job import JobWorld

SAVE_REQUESTED = "SaveRequested"
"""The reason of a request to save and go on."""


def with_save_asked(world: JobWorld, record: GangSpec, name: str, since: datetime, deadline: datetime) -> GangSpec:
    """Return the record by which the ranks of this attempt are asked to save and go on.

    Args:
        world: the state of the job.
        record: of the gang.
        name: of the request.
        since: when ranks were asked first, of whichever attempt.
        deadline: after which no checkpoint is waited for.
    """
    number = record.requests + 1
    request = SaveRequest(
        name=name,
        attempt=record.attempt,
        number=number,
        since=since,
        deadline=deadline,
        after_step=step_to_pass(world, record),
    )
    return record.model_copy(update={"save_request": request, "requests": number})


def with_save_over(record: GangSpec, request: SaveRequest, saved_step: int | None) -> GangSpec:
    """Return the record with a request that is over; `saved_step` is that of the new checkpoint, None without one."""
    over = request.model_copy(update={"over": True, "saved_step": saved_step})
    return record.model_copy(update={"save_request": over})


def new_step(world: JobWorld, record: GangSpec, request: SaveRequest) -> int | None:
    """Return the step of the newest complete checkpoint, if it is newer than the request."""
    checkpoint = new_checkpoint(world, record, request.after_step)
    return checkpoint.step if checkpoint is not None else None


def unasked_name(world: JobWorld, record: GangSpec) -> str | None:
    """Return the name of the request that the ranks are asked for next; None: there is none, or one still stands."""
    name, last = world.job.spec.checkpoint.save_request, record.save_request
    return None if last is not None and (last.name == name or not last.over) else name


def once_saved(world: JobWorld, record: GangSpec) -> SaveRequest | None:
    """Return the request to save as an attempt leaves it: over, if what it waits for is there.

    Ranks that are asked to leave are not asked for a request that comes meanwhile: their save before they leave is for
    both.
    """
    request, name, evacuation = record.save_request, unasked_name(world, record), record.evacuation
    if name is not None and evacuation is not None and record.evacuation_requests:
        request = SaveRequest(
            name=name,
            attempt=record.attempt,
            number=record.evacuation_requests[-1],
            since=evacuation.since,
            deadline=evacuation.deadline,
            after_step=evacuation.after_step,
        )
    if request is None or request.over or (step := new_step(world, record, request)) is None:
        return record.save_request
    return with_save_over(record, request, step).save_request

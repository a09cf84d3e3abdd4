"""The record of a gang that gives its nodes to another job, or was asked to. Pure."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from muster.api.gang import MAX_PREEMPTIONS, MAX_SHORT_ESTIMATES, GangPreemption, GangSpec
from muster.api.trainingjob import TrainingJob
from muster.record.attempts import without_nodes
from muster.record.loans import holds_lent_nodes
from muster.world.job import JobWorld
from muster.world.names import shortened
from muster.world.queuedecision import Preemptors

PREEMPTED = "Preempted"


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
    return _with_preemption(world, record, answered=True) if _is_asked(record) else record


def _with_preemption(world: JobWorld, record: GangSpec, *, answered: bool) -> GangSpec:
    if holds_lent_nodes(world.job, record):
        return record
    preemptions = [*of_last_day(record.preemptions, world.now), GangPreemption(time=world.now, answered=answered)]
    return record.model_copy(update={"preemptions": preemptions[-MAX_PREEMPTIONS:]})


def of_last_day(preemptions: Sequence[GangPreemption], now: datetime) -> list[GangPreemption]:
    """Return those of the last 24 hours; by a clock that has stepped, none is later than that."""
    return [preemption for preemption in preemptions if abs(now - preemption.time) < timedelta(days=1)]


def with_short_estimate(record: GangSpec) -> GangSpec:
    """Return the record of a gang that was just asked to leave for another job: whether its estimate was too short is
    on record from now on, also if it is suspended or the request is withdrawn."""
    evacuation, until = record.evacuation, record.backfill_until
    if evacuation is None or until is None or evacuation.since <= until or was_estimate_short(record):
        return record
    short = [*record.short_estimates, evacuation.since][-MAX_SHORT_ESTIMATES:]
    return record.model_copy(update={"short_estimates": short})


def was_estimate_short(record: GangSpec) -> bool:
    """Whether the estimate by which the gang got its nodes was over when it was asked to leave."""
    until = record.backfill_until
    return until is not None and any(time > until for time in record.short_estimates)


def is_giving_way(record: GangSpec) -> bool:
    """Whether the gang leaves its nodes for another job, or has, and waits since."""
    return _is_asked(record) if record.members else record.reason == PREEMPTED


def _is_asked(record: GangSpec) -> bool:
    """Whether the gang is asked to leave its nodes for another job."""
    return record.evacuation is not None and record.evacuation.reason == PREEMPTED


def gives_way_text(job: TrainingJob, record: GangSpec, preempted_by: Preemptors | None) -> str:
    """Return why a job leaves, and to which jobs it gives way, as a verb: `backfills and gives way to team-a/llama`."""
    is_what = "backfills" if record.backfilled else "has a lower priority"
    if job.spec.queueing.preemptible:
        is_what = "is preemptible"
    return f"{is_what} and gives way to {shortened([*map(str, preempted_by or ())] or ['another job'])}"

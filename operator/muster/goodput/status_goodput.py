"""Derive the goodput in the job's status; it changes only where there is something else to write. Pure.

Tests: tests/unit/goodput/test_account.py.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from muster.api.endedjob import LABEL_LENGTH
from muster.api.gang import GangIncident, GangSpec
from muster.api.goodput import LONGEST_MILLISECONDS, Account, Bucket, Goodput, OpenPhase
from muster.api.trainingjob import ConditionStatus
from muster.goodput.account import (
    account_now,
    account_offset,
    ahead_seconds,
    close_account,
    held_gpus,
    open_bucket,
    resumed,
    suspended_condition,
)
from muster.goodput.evidence import milliseconds
from muster.goodput.failure_rate import by_class
from muster.goodput.figures import KeptWork, figures
from muster.goodput.fingerprint import SEVERAL
from muster.goodput.history import cleaned_text
from muster.goodput.history import model_of as label_of
from muster.goodput.opened import close_phase
from muster.goodput.segments import MILLISECOND, with_first_checkpoint
from muster.world.job import JobWorld

# A little less than the interval of status writes for steps alone: figures are computed for a write, and seldom else.
FRESH = timedelta(seconds=27)
# No launcher adds more time than this, whatever age of its ranks it reports.
MOST_BEHIND = timedelta(hours=1)


def goodput_of_status(
    world: JobWorld,
    *,
    step: int | None,
    saved: int | None = None,
    ended: bool,
    succeeded: bool,
    suspended: bool = False,
) -> Goodput | None:
    """Return the figures for the status, with the open phase: that it lasts is no reason to write.

    Args:
        world: the state of the job.
        step: the newest one, as the status is about to publish it.
        saved: the newest complete checkpoint, likewise.
        ended: the job ends now.
        succeeded: because its ranks have done their work.
        suspended: the job is suspended.
    """
    record, previous = world.gang.spec if world.gang else None, world.job.status.goodput
    kept = KeptWork(world.job.spec.checkpoint.directory is not None, saved, ended, succeeded)
    goodput = _counted_figures(world, step, kept)
    if goodput is None or record is None or ended or world.job.status.completion is not None:
        return goodput
    changed = _suspension_time(world, goodput, previous, suspended=suspended)
    if goodput.suspension_time != changed:
        goodput = goodput.model_copy(update={"suspension_time": changed})
    bucket = Bucket.SUSPENDED if suspended else open_bucket(record, goodput, world.job.spec.launch.mode)
    gpus = held_gpus(world, record)
    if previous is not None and (previous.creation_time, previous.counted_until) == (
        goodput.creation_time,
        goodput.counted_until,
    ):
        phase = previous.open_phase
        if phase is not None and (phase.bucket, phase.gpus) == (bucket, gpus):
            return goodput.model_copy(update={"open_phase": phase})
        now = world.now if record.account is None else account_now(world, record.account)
        goodput = close_phase(goodput.model_copy(update={"open_phase": phase}), now)
    return goodput.model_copy(update={"open_phase": OpenPhase(bucket=bucket, since=goodput.counted_until, gpus=gpus)})


def _suspension_time(
    world: JobWorld, goodput: Goodput, previous: Goodput | None, *, suspended: bool
) -> datetime | None:
    """Return the last transition of the condition Suspended, as it is about to be written, by the clock of the
    figures."""
    kept = previous if previous is not None and previous.creation_time == goodput.creation_time else None
    if kept is None:
        condition = suspended_condition(world)
        was = condition is not None and condition.status is ConditionStatus.TRUE
    else:  # written together with the condition
        was = kept.open_phase is not None and kept.open_phase.bucket is Bucket.SUSPENDED
    if was == suspended:
        return kept.suspension_time if kept is not None else None
    account = world.gang.spec.account if world.gang else None
    return world.now if account is None else account_now(world, account)


def _counted_figures(world: JobWorld, step: int | None, kept: KeptWork) -> Goodput | None:
    """Return the figures of all counted time, and while steps are made also of these.

    They are computed again only after a change of the record or the newest checkpoint, or of the step once the
    published ones are old. So the account alone is no reason to write. The figures never cover less time than before.
    """
    record, previous = world.gang.spec if world.gang else None, world.job.status.goodput
    if record is None or record.account is None or world.job.status.completion is not None:
        return previous
    account, now = record.account, account_now(world, record.account)
    is_current = (
        previous is not None
        and previous.creation_time == account.creation_time
        and previous.counted_until >= account.counted_until
    )
    saved = world.job.status.checkpoint
    # The status is written for it anyway.
    saved_since = kept.step is not None and (saved is None or saved.step != kept.step)
    if (
        is_current
        and not (kept.ended or saved_since)
        and world.job.status.attempt == record.attempt
        and previous is not None
    ):
        fresh = previous.progress is not None and timedelta(0) <= now - previous.counted_until < FRESH
        if fresh or world.job.status.step == step:
            return previous
    if kept.ended:
        ends = _end_at_least(world, record, account, previous)
        world = replace(world, now=world.now + max(ends - now, timedelta(0)))
        now = max(now, ends)
    counted, split = close_account(world, ended=kept.succeeded, only_steps=not kept.ended)
    counted = with_first_checkpoint(counted, kept.step, now)
    more: dict[str, Any] = {"failures_by_class": by_class(record.incidents)}
    if account.clock_ahead_seconds is None:
        more["clock_ahead_seconds"] = ahead_seconds(world)
    goodput = figures(counted, split.seen, previous, kept).model_copy(update=more)
    if not goodput.gpu_model or world.job.status.attempt != record.attempt:  # its nodes change with the attempt
        goodput = goodput.model_copy(update={"gpu_model": model_of(world, goodput.gpu_model)})
    if (
        previous is not None
        and previous.creation_time == goodput.creation_time
        and previous.counted_until > goodput.counted_until
    ):
        return previous.model_copy(
            update={"progress": split.seen, "first_checkpoint_seconds": goodput.first_checkpoint_seconds}
        )
    return goodput


def _end_at_least(world: JobWorld, record: GangSpec, account: Account, previous: Goodput | None) -> datetime:
    """Return when the job ended at the earliest, by the account's clock: the last leader's may be behind it.

    It is no earlier than the published figures, of which launchers report the rest by ages. Where clocks were not
    compared, it is no earlier than the age of the ranks says, up to an hour: no step is without its time.
    """
    published = previous is not None and previous.creation_time == account.creation_time
    ends = previous.counted_until if previous is not None and published else account.counted_until
    if record.start is None or None not in (world.ahead_seconds, account.clock_ahead_seconds):
        return ends
    ages = [milliseconds(view.started_age_seconds) for view in world.views.values() if view.attempt == record.attempt]
    most = max(ends, world.now) + MOST_BEHIND - account.counted_until  # any age may be reported
    return max(ends, account.counted_until + min(max(ages, default=0) * MILLISECOND, most))


def model_of(world: JobWorld, published: str) -> str:
    """Return the model of the job's accelerators so far, with the one that was published until now. SEVERAL for
    different ones, "" where no node has a label.
    """
    members = world.gang.spec.members if world.gang else []
    nodes = (world.fleet.nodes.get(member.node) for member in members)
    models = {label_of(node.labels) for node in nodes if node is not None} | ({published} if published else set())
    if len(models) > 1:
        return SEVERAL
    return cleaned_text(models.pop(), LABEL_LENGTH) if models else ""


def incidents_of_status(
    world: JobWorld, record: GangSpec, goodput: Goodput | None, *, failed: bool = False
) -> list[GangIncident]:
    """Return the incidents for the status: the last one with when the training resumed, even before a record has it. If
    the job has failed, the last incident includes what no complete checkpoint held at the end.
    """
    if failed:
        return _with_end(record, goodput)
    if record.account is None or goodput is None or goodput.progress is None or record.start is None:
        return record.incidents
    incidents = resumed(record.incidents, record, goodput.progress, offset=account_offset(world, record.account))
    resumed_times = {
        (incident.attempt, incident.time): incident.resumed_time
        for incident in world.job.status.incidents
        if incident.resumed_time
    }
    # By ages, it would be a few milliseconds earlier or later each time, and each difference is a write.
    return [
        incident.model_copy(update={"resumed_time": resumed_times[incident.attempt, incident.time]})
        if incident.resumed_time and (incident.attempt, incident.time) in resumed_times
        else incident
        for incident in incidents
    ]


def _with_end(record: GangSpec, goodput: Goodput | None) -> list[GangIncident]:
    """Return the incidents of a failed job: no start followed the last one that could show what it lost."""
    if goodput is None or goodput.progress_unknown or record.account is None or not record.incidents:
        return record.incidents
    last = record.incidents[-1]
    if last.resumed_step is not None:
        return record.incidents
    changes = {"lost_steps": max(goodput.lost_steps - record.account.lost_steps, 0)}
    if goodput.lost_at_end_seconds:
        lost = (last.lost_milliseconds or 0) + goodput.lost_at_end_seconds * 1000
        changes["lost_milliseconds"] = min(lost, LONGEST_MILLISECONDS)
    return [*record.incidents[:-1], last.model_copy(update=changes)]

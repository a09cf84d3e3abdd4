"""What people should be warned of about a job, in one list of its status. Pure.

A warning decides nothing, but for those that hold: what surely makes nodes train alone, or writes over a running job,
waits for a person's word in spec.acceptedWarnings.
"""

from collections.abc import Iterable
from dataclasses import replace

from muster.api.gang import GangSpec
from muster.api.trainingjob import MAX_WARNINGS, JobWarning
from muster.checkpoints import location, save_options, unloadable, unshared
from muster.pods import launching
from muster.pods.warned import Warned
from muster.protocol.messages import readable
from muster.record import incidents
from muster.recovery import repeats
from muster.recovery.failure import is_hang
from muster.status import template
from muster.world.job import JobWorld

MAX_MESSAGE_CHARS = 1024
FAILS_AT_SAME_STEP = "FailsAtSameStep"


def of_spec(world: JobWorld) -> list[Warned]:
    """Return what the job's spec shows by itself and beside the specs of other jobs, notes included."""
    candidates = (
        *launching.start_warnings(world.job),
        location.shared_directory_warning(world),
        location.volume_warning(world),
        template.accelerator_warning(world.job, world.fleet),
        save_options.elsewhere_warning(world),
    )
    return [warned for warned in candidates if warned is not None]


def of_attempt(world: JobWorld) -> list[Warned]:
    """Return what the record and the workers of a job show, the most serious first."""
    if world.gang is None:
        return []
    record = world.gang.spec
    candidates = (
        unshared.unshared_warning(world, record),
        unloadable.fallback_warning(world.job, record),
        _same_step_warning(world, record),
    )
    return [warned for warned in candidates if warned is not None]


def _same_step_warning(world: JobWorld, record: GangSpec) -> Warned | None:
    """Return the warning that the job's failures so far ended at one step; None: they did not, or it got beyond."""
    step = repeats.same_step(record.incidents)
    newest = incidents.newest_step(world, record) if step is not None else None
    if step is None or (newest is not None and newest > step):
        return None
    budget = f"Muster restarts it {world.job.spec.recovery.application_restarts_per_day} times within 24 hours at most"
    name = f"{world.job.metadata.namespace}/{world.job.metadata.name}"
    subject = "where its ranks stood" if is_hang(record.incidents[-1].reason) else "what it printed last"
    remedy = f"to see {subject}: kubectl muster report {name} --incident"
    return Warned(FAILS_AT_SAME_STEP, f"failed {repeats.repeated(record.incidents)}. {budget}; {remedy}")


def held_by(world: JobWorld) -> Warned | None:
    """Return the warning for which a job without nodes waits, with the way to go on; None: it need not wait.

    What runs is not stopped: a job that has had nodes waits for none but a job that would write over it.
    """
    accepted = world.job.spec.accepted_warnings
    for warned in of_spec(world):
        goes_on = world.gang is not None and warned.reason != location.DIRECTORY_IN_USE
        if warned.holds and warned.reason not in accepted and not goes_on:
            waits = "waits until they have ended" if warned.reason == location.DIRECTORY_IN_USE else "does not start"
            remedy = f"This job {waits}. To start it all the same, add {warned.reason} to spec.acceptedWarnings"
            return replace(warned, message=f"{warned.message}. {remedy}")
    return None


def as_status(world: JobWorld, warnings: Iterable[Warned]) -> list[JobWarning]:
    """Return the warnings that no person has accepted, each reason once, as the status shows them.

    Args:
        world: the state of the job.
        warnings: the most serious first.
    """
    previous_since = {warning.reason: warning.since for warning in world.job.status.warnings}
    messages: dict[str, list[str]] = {}
    for warned in warnings:
        if warned.reason and warned.reason not in world.job.spec.accepted_warnings:
            messages.setdefault(warned.reason, []).append(warned.message)
    shown = list(messages.items())[:MAX_WARNINGS]
    return [
        JobWarning(
            reason=reason,
            message=readable("; ".join(texts)[:MAX_MESSAGE_CHARS]),
            since=previous_since.get(reason, world.now),
        )
        for reason, texts in shown
    ]

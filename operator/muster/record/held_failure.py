"""The held failure in the record. Pure.

Tests: tests/unit/lifecycle/test_holding.py.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from muster.api.gang import GangSpec, HeldFailure
from muster.record import incidents
from muster.recovery import blame
from muster.recovery.failure import Failure
from muster.world.job import JobWorld


def with_failure_held(world: JobWorld, record: GangSpec, failures: Sequence[Failure]) -> GangSpec:
    """Return the record with the failures of its attempt held from now on."""
    cause = blame.culprit(failures)
    held = HeldFailure(
        since=world.now,
        reason=cause.kind,
        index=None if cause.unlocated else cause.index,
        message=incidents.message_of_all(world, failures)[:512],
        step=incidents.newest_step(world, record),
    )
    return record.model_copy(update={"held_failure": held})


def with_hold_over(record: GangSpec, held: HeldFailure) -> GangSpec:
    """Return the record of an attempt that goes on after its hold."""
    return record.model_copy(update={"held_failure": held.model_copy(update={"over": True})})


def ends_at(world: JobWorld, held: HeldFailure) -> datetime:
    """Return when a hold ends at the latest, by the job's spec and the FleetPolicy as they are now."""
    return held.since + timedelta(seconds=world.job.spec.recovery.hold_seconds)

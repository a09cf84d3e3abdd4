"""A failure of ranks that is held, so that people can look into the pods (spec.recovery.onFailure). Pure.

A hold changes nothing on the nodes: the launchers of ranks that have ended wait for their next directive anyway, and
ranks that still run are left alone. So the record needs no more than the beginning of the hold. Its end follows from
the spec and the FleetPolicy of that moment, and then the failure is repaired as any other (docs/decisions/0094).
"""

from collections.abc import Collection, Sequence
from datetime import timedelta

from muster.api.gang import Gang, GangSpec, HeldFailure
from muster.api.trainingjob import LaunchMode, OnFailure
from muster.lifecycle import evacuation_step
from muster.lifecycle.commit import commit
from muster.lifecycle.plan import Plan
from muster.lifecycle.training import CALM_SECONDS, TICK_SECONDS, upkeep
from muster.pods.worker_pod import WorkerSettings
from muster.record.held_failure import ends_at, with_hold_over
from muster.record.incidents import newest_step
from muster.recovery.failure import Failure, Kind
from muster.status.report import State, StatusReport
from muster.world.job import JobWorld

_HELD_KINDS = frozenset({Kind.RANK_FAILED, Kind.HANG, Kind.START_HANG})
# Launchers end ranks that make no step while no replica leads. Their containers stay.
_KINDS_MEANWHILE = _HELD_KINDS | {Kind.FENCED}
# A clock that shows a time so long before the beginning of a hold cannot tell its end.
_CLOCKS_AGREE = timedelta(seconds=60)


def may_begin(world: JobWorld, record: GangSpec, failures: Sequence[Failure]) -> bool:
    """Whether a hold of these failures begins: an attempt has one at most, and its ranks were started."""
    return record.start is not None and record.held_failure is None and _is_wanted(world, failures, _HELD_KINDS)


def lasts(world: JobWorld, held: HeldFailure, failures: Sequence[Failure]) -> bool:
    """Whether a hold goes on."""
    wanted = _is_wanted(world, failures, _KINDS_MEANWHILE)
    return wanted and held.since - _CLOCKS_AGREE <= world.now < ends_at(world, held)


def is_held(world: JobWorld, record: GangSpec, failures: Sequence[Failure]) -> bool:
    """Whether a hold is the situation of a job: it lasts, or this leader has not heard of its failure."""
    held = record.held_failure
    return held is not None and not held.over and (not failures or lasts(world, held, failures))


def plan(world: JobWorld, gang: Gang, failures: Sequence[Failure], settings: WorkerSettings) -> Plan:
    """Return the plan of a held job: its pods and ranks stay as they are.

    Without a failure the attempt goes on: a hang may end by itself, and its time-out may be raised. Where the time is
    over, all launchers have to be heard before; one that is not becomes a failure.
    """
    record, held = gang.spec, gang.spec.held_failure
    assert held is not None
    is_over = not lasts(world, held, failures) and len(world.views) == len(record.members)
    if not failures and (is_over or _goes_on(world, record, held)):
        return commit(world, with_hold_over(record, held))
    left = (ends_at(world, held) - world.now).total_seconds()
    wake_seconds = max(TICK_SECONDS, min(left, CALM_SECONDS))
    return Plan(upkeep(world, settings), StatusReport(State.HELD), wake_in_seconds=wake_seconds)


def _goes_on(world: JobWorld, record: GangSpec, held: HeldFailure) -> bool:
    """Whether a step was finished since the hold began."""
    step = newest_step(world, record)
    return step is not None and step > (-1 if held.step is None else held.step)


def _is_wanted(world: JobWorld, failures: Sequence[Failure], kinds: Collection[Kind]) -> bool:
    """Whether the job holds its failures, all of these are of such a kind, and nothing else asks for its nodes."""
    spec = world.job.spec
    return (
        spec.recovery.on_failure is OnFailure.HOLD
        and spec.launch.mode is LaunchMode.MANAGED
        and spec.recovery.hold_seconds > 0
        and not spec.suspend
        and not spec.eject
        and all(failure.kind in kinds and not failure.node_fault for failure in failures)
        and not evacuation_step.nodes_to_evacuate(world)
        and not world.preempted_by
    )

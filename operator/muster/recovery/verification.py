"""Which workers verify checkpoints, when other verifiers are chosen, and when a waiting start is reported as Stalled.

To verify a checkpoint means many small reads of shared storage, so that a few of a gang do it. Pure.

Tests: tests/unit/recovery/test_waits.py.
"""

from muster.api.gang import GangSpec
from muster.recovery.holds import seconds_since_hold
from muster.world.job import JobWorld, WorkerView

JUDGES = 3
# Without a verdict from any verifier; the newest checkpoint of a large job takes some 10 s.
JUDGES_SECONDS = 180.0
# After this long a start that only waits is reported as Stalled; what it waits for may come nevertheless.
STALLED_SECONDS = 600.0

NOT_LISTED = "CheckpointsNotListed"
NOT_VERIFIED = "CheckpointsNotVerified"
LAUNCHER_SILENT = "LauncherSilent"
NOT_MOVED = "IncompleteNotMoved"

_SEE_STORAGE = "See whether the storage behind spec.checkpoint.directory answers there; the start follows by itself"
REMEDIES = {
    NOT_LISTED: f". {_SEE_STORAGE}.",
    NOT_VERIFIED: f" {_SEE_STORAGE}. Or set spec.checkpoint.resumeFrom to another step.",
    LAUNCHER_SILENT: "",  # the message has it
    NOT_MOVED: f". {_SEE_STORAGE}.",
}


def is_verifier(place: int, record: GangSpec) -> bool:
    """Whether a worker is a verifier of checkpoints; the other workers only list which checkpoints exist.

    Args:
        place: of the worker in the list of members.
        record: of the gang.
    """
    return place in _places(record)


def verifiers(world: JobWorld, record: GangSpec) -> list[WorkerView]:
    """Return the workers that are verifiers of checkpoints now."""
    return [world.worker_views[place] for place in sorted(_places(record))]


def _places(record: GangSpec) -> set[int]:
    count = len(record.members)
    return {(count * part // JUDGES + record.verifier_round) % count for part in range(JUDGES)} if count else set()


def with_other_verifiers(world: JobWorld, record: GangSpec, reason: str) -> GangSpec | None:
    """Return the record with other verifiers, where the present ones give no verdict in time; None: they stay.

    They also stay where the gang has no other workers, or where it is the storage that does not answer.

    Args:
        world: the state of the job.
        record: of the gang.
        reason: why the start waits, e.g. `CheckpointsNotVerified`.
    """
    if len(record.members) <= JUDGES or is_overdue(world, record, reason):
        return None
    if reason == NOT_LISTED:
        has_any_listed = any(worker_view.index in world.listed for worker_view in verifiers(world, record))
        # One verifier has listed: the others may just be slow. No worker has: that is the storage.
        if not world.listed or has_any_listed:
            return None
    elif reason != NOT_VERIFIED:
        return None
    waited_seconds, chosen_at = _waited_seconds(world, record), record.verifier_round_time
    if chosen_at is not None and chosen_at <= world.now:  # not by a clock that was ahead of ours
        waited_seconds = min(waited_seconds, (world.now - chosen_at).total_seconds())
    if waited_seconds < JUDGES_SECONDS:
        return None
    return record.model_copy(update={"verifier_round": record.verifier_round + 1, "verifier_round_time": world.now})


def is_overdue(world: JobWorld, record: GangSpec, reason: str) -> bool:
    """Whether a start has waited for ten minutes for something that users may have to repair.

    Args:
        world: the state of the job.
        record: of the gang.
        reason: why the start waits.
    """
    return reason in REMEDIES and _waited_seconds(world, record) >= STALLED_SECONDS


def _waited_seconds(world: JobWorld, record: GangSpec) -> float:
    """Return for how many seconds every worker could have reported its checkpoints to this leader."""
    running_seconds = (
        world.ages_of(worker_view.pod).running
        for worker_view in world.worker_views
        if worker_view.pod and worker_view.pod.phase == "Running"
    )
    return min(seconds_since_hold(world, record), world.listing_age_seconds, world.leader_age_seconds, *running_seconds)

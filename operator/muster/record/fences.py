"""The fences of the members: after how long without Muster their ranks end. Pure.

Tests: tests/unit/lifecycle/test_training.py.
"""

from collections import Counter

from muster.api.gang import FENCE_SECONDS, GangSpec
from muster.protocol.fence import doubled_seconds, wanted_fence_seconds
from muster.world.job import JobWorld


def with_longer_fences(world: JobWorld, record: GangSpec) -> GangSpec | None:
    """Return the record with longer fences where steps take longer than the fences allow for; None where they do not.

    The record is written before launchers get the new value, so that no leader counts less than a launcher does. Fences
    become shorter only with the next start, when every launcher has reported that it has no rank.
    """
    if record.start is None:
        return None
    steps = (view.step_seconds for view in world.views.values() if view.attempt == record.attempt)
    wanted = wanted_fence_seconds(FENCE_SECONDS, max((step for step in steps if step is not None), default=None))
    # Never less than a launcher says that it counts by.
    own = max((view.fence_seconds for view in world.views.values() if view.attempt == record.attempt), default=0.0)
    wanted = doubled_seconds(wanted, own)
    if all(member.fence_seconds >= wanted for member in record.members):
        return None
    return record.model_copy(
        update={
            "members": [
                member.model_copy(update={"fence_seconds": max(member.fence_seconds, wanted)})
                for member in record.members
            ]
        }
    )


def with_fence_file(world: JobWorld, record: GangSpec) -> GangSpec | None:
    """Return the record with the fence file that every launcher has come to read since the start; None: nothing is new.

    The start does not wait for that, as only a gang that falls silent altogether needs the file. A launcher that could
    not read it at its start obeys it once it has seen its own attempt in it.
    """
    if record.start is None or all(record.obeys_fence_file(member) for member in record.members):
        return None
    identities = {
        worker_view.launcher.fence_file_id if worker_view.launcher else None for worker_view in world.worker_views
    }
    if len(identities) != 1 or not (identity := identities.pop()):
        return None
    views = world.views.values()
    if not all(
        v.attempt == record.attempt and v.reads_fence_file and v.fence_file_attempt >= record.attempt for v in views
    ):
        return None
    members = [member.model_copy(update={"reads_fence_file": True}) for member in record.members]
    return record.model_copy(update={"fence_file_id": identity, "members": members})


def fence_file_of_most(world: JobWorld) -> str:
    """Return the identity of the fence file that most launchers read; "" for none.

    A launcher that reads another one sees another directory.
    """
    counts = Counter(view.fence_file_id for view in world.views.values() if view.fence_file_id)
    return max(counts, key=counts.__getitem__, default="")

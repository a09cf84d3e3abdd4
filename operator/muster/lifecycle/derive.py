"""The facts of a decision, derived from the world once.

Tests: tests/unit/lifecycle/test_waiting_and_binding.py.
"""

from muster.lifecycle import ending, evacuating, record
from muster.lifecycle.facts import Facts
from muster.recovery import failures
from muster.world.job import JobWorld


def derive(world: JobWorld) -> Facts:
    """Return the facts of a decision; those that only a later phase needs are left out."""
    if world.job.metadata.deletion_timestamp is not None:
        return Facts(deleted=True)
    if world.job.status.completion is not None:
        return Facts(completion=world.job.status.completion)
    gang = world.gang
    if gang is None:
        return Facts()
    if not gang.spec.members:
        return Facts(gang=gang, failures=tuple(failures.find(world)))
    end = ending.completion_of(world, gang)
    if end is not None:
        return Facts(gang=gang, end=end)
    found = tuple(failures.find(world))
    settles = not found and bool(record.incidents_to_settle(world, gang.spec))
    if found or settles:
        return Facts(gang=gang, failures=found, settles=settles)
    return Facts(gang=gang, evacuation=evacuating.due(world, gang.spec))

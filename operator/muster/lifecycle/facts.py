"""What a decision is made from, derived from the world once: the phase is chosen by it, and the phases plan with it."""

from dataclasses import dataclass

from muster.api.gang import Gang
from muster.api.trainingjob import CompletionRecord
from muster.lifecycle import ending, leaving, record
from muster.recovery import failures
from muster.recovery.failure import Failure
from muster.world.job import JobWorld


@dataclass(frozen=True, slots=True)
class Facts:
    """What is so.

    Attributes:
        deleted: the job is being deleted.
        completion: of a job that has ended, as it is recorded.
        gang: the record, if there is one.
        end: what has to be recorded, of a job that has ended just now.
        failures: what is wrong with the current attempt; of a job without nodes what its last ranks say.
        settles: it is time to make the blame for an incident final.
        leave: what a planned leave comes to now, if anything.
    """

    deleted: bool = False
    completion: CompletionRecord | None = None
    gang: Gang | None = None
    end: CompletionRecord | None = None
    failures: tuple[Failure, ...] = ()
    settles: bool = False
    leave: leaving.Due | None = None


def derive(world: JobWorld) -> Facts:
    """The facts; those of a phase that an earlier one precedes are not looked for."""
    if world.job.metadata.deletion_timestamp is not None:
        return Facts(deleted=True)
    if world.job.status.completion is not None:
        return Facts(completion=world.job.status.completion)
    gang = world.gang
    if gang is None:
        return Facts()
    if not gang.spec.members:
        return Facts(gang=gang, failures=tuple(failures.find(world)))
    end = ending.of(world, gang)
    if end is not None:
        return Facts(gang=gang, end=end)
    found = tuple(failures.find(world))
    settles = not found and bool(record.unsettled(world, gang.spec))
    if found or settles:
        return Facts(gang=gang, failures=found, settles=settles)
    return Facts(gang=gang, leave=leaving.due(world, gang.spec))

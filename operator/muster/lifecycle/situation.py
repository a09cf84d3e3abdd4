"""The situation of a job: the one thing that a decision about it deals with. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.api.gang import Gang
from muster.api.trainingjob import CompletionRecord
from muster.lifecycle import ending, evacuation_step, holding
from muster.lifecycle.evacuation_step import EvacuationStep, NothingDue
from muster.record.incidents import incidents_to_settle
from muster.recovery import failures
from muster.recovery.failure import Failure, Kind
from muster.world.job import JobWorld


@dataclass(frozen=True, slots=True)
class Deleting:
    """The job is being deleted."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The job has ended, and its end is recorded."""

    end: CompletionRecord


@dataclass(frozen=True, slots=True)
class Pending:
    """The job has no nodes."""


@dataclass(frozen=True, slots=True)
class Ejected:
    """The gang has left Muster on the user's request."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class Ending:
    """The job has just ended, and its end is not recorded yet."""

    gang: Gang
    end: CompletionRecord


@dataclass(frozen=True, slots=True)
class Failing:
    """The current attempt is broken, or the last ranks of a job without nodes report wrong results."""

    gang: Gang
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """A failure of the current attempt is held, so that people can look into it."""

    gang: Gang
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class BlameDue:
    """The class and the blame of earlier incidents become final."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class Leaving:
    """A step of a planned evacuation is due."""

    gang: Gang
    step: EvacuationStep


@dataclass(frozen=True, slots=True)
class Starting:
    """The ranks have not started."""

    gang: Gang


@dataclass(frozen=True, slots=True)
class Training:
    """The ranks run.

    Attributes:
        gang: of the job.
        without_place: by node, the reason to leave it, where no worker has a node to move to.
    """

    gang: Gang
    without_place: Mapping[str, str] = field(default_factory=dict)


Situation = Deleting | Finished | Pending | Ejected | Ending | Held | Failing | BlameDue | Leaving | Starting | Training


def situation_of(world: JobWorld) -> Situation:
    """Return the situation of a job: the first that holds, in the order of this function."""
    # What a deleted job owns is removed by Kubernetes.
    if world.job.metadata.deletion_timestamp is not None:
        return Deleting()
    # Nothing undoes an end.
    if world.job.status.completion is not None:
        return Finished(world.job.status.completion)
    gang = world.gang
    # A job that never had nodes.
    if gang is None:
        return Pending()
    # No end, failure or evacuation of what has left counts any more.
    if gang.spec.ejected:
        return Ejected(gang)
    broken = tuple(failures.find(world))
    # Ranks that end because they were asked to leave have neither succeeded nor failed.
    leave = evacuation_step.step_of_leavers(world, gang.spec) if gang.spec.members else None
    if leave is not None and all(failure.kind is Kind.RANK_FAILED for failure in broken):
        return Training(gang) if isinstance(leave, NothingDue) else Leaving(gang, leave)
    # An end comes before failures: once all ranks have exited with 0, a lost node is no failure of the job.
    if gang.spec.members and (end := ending.completion_of(world, gang)) is not None:
        return Ending(gang, end)
    # A failure that is held stays so until its time is over, or until something else fails.
    if holding.is_held(world, gang.spec, broken):
        return Held(gang, broken)
    # A failure comes before all that is planned. Ranks whose nodes were given back may still report wrong results.
    if broken:
        return Failing(gang, broken)
    # A job that has given its nodes back. What follows is about members.
    if not gang.spec.members:
        return Pending()
    # What failed first may be reported some seconds later: only then is the blame for it final.
    if incidents_to_settle(world, gang.spec):
        return BlameDue(gang)
    # A job that is about to fail leaves no nodes: it would take others before it ends.
    if ending.is_about_to_fail(world, gang.spec):
        return Starting(gang)
    # What is planned comes before a start: ranks that would have to stop at once do not start.
    step = evacuation_step.next_step(world, gang.spec)
    if not isinstance(step, NothingDue):
        return Leaving(gang, step)
    # The start barrier is closed, or not all pods of mode Plain run.
    if gang.spec.start is None:
        return Starting(gang)
    return Training(gang, step.without_place)

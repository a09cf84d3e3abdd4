"""What the queue has to know of a job, computed before each decision about it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from muster.api.gang import GangSpec
from muster.checkpoints import resume
from muster.lifecycle import placing
from muster.lifecycle.evacuation_step import exempt_from_preemption_until
from muster.lifecycle.pending import obstacle_of
from muster.placement.request import Request
from muster.queueing.ends import remaining_of
from muster.queueing.preemption import Borrower, Place, PreemptionCandidate, Victim, is_lent
from muster.record.attempts import was_never_assembled
from muster.record.exclusions import with_firm_exclusions
from muster.record.loans import holds_lent_nodes
from muster.record.preemptions import is_giving_way
from muster.world.job import JobWorld

# Pods have their grace, which is 30 s as a rule, and are seen to have ended a little later.
PODS_END = timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class ReturnedNodes:
    """A gang that could not be assembled on its nodes has given them back.

    Attributes:
        attempt: the number of the record that says so.
        seconds_ago: for how long the record has said so; a new leader reads it late.
    """

    attempt: int
    seconds_ago: float


@dataclass(frozen=True, slots=True)
class QueueNeeds:
    """What the queue has to know of a job.

    Attributes:
        request: for the nodes that the job waits for; None: it waits for none.
        queued_since: the time from which its age counts; a gang that has given its nodes back has lost its place.
        waited_seconds: for how long it has waited when the queue first hears of it.
        is_replacement: whether its gang holds its other nodes meanwhile.
        held: the nodes that its gang holds, with those that it has left while its pods are there; 0 without a gang.
        returned_nodes: for which the job is charged; None: it is not.
    """

    request: Request | None
    queued_since: datetime
    waited_seconds: float
    is_replacement: bool
    held: int
    returned_nodes: ReturnedNodes | None


def queue_needs(world: JobWorld) -> QueueNeeds:
    """Return what the queue has to know of a job."""
    created, spec = world.job.metadata.creation_timestamp or world.now, world.gang.spec if world.gang else None
    if spec is None:  # a job that never had nodes has waited since it was made
        return QueueNeeds(request_of(world), created, (world.now - created).total_seconds(), False, 0, None)
    is_replacement = bool(spec.members)
    held = placing.count_held(world, [member.node for member in spec.members if member.node]) if is_replacement else 0
    if not was_never_assembled(spec):
        return QueueNeeds(request_of(world), created, 0.0, is_replacement, held, None)
    returned = ReturnedNodes(spec.attempt, max((world.now - spec.time).total_seconds(), 0.0))
    return QueueNeeds(request_of(world), max(created, spec.time), 0.0, is_replacement, held, returned)


def expected_seconds(world: JobWorld, earlier: Sequence[float]) -> float | None:
    """Return for how long a job without nodes would hold them, as far as backfill trusts that; None: not known.

    Where no save is seen, what it has done is lost if it has to leave: only what its user says counts, doubled. A job
    that was never assembled does not backfill: it would return before the jobs that it now stands behind. Its status
    may say that it trains until the queue has answered; the time that passes meanwhile changes nothing, or the queue
    would be asked anew again and again.

    Args:
        world: the state of the job.
        earlier: for how many seconds earlier jobs of its namespace held nodes, in ascending order.
    """
    spec = world.gang.spec if world.gang else None
    unsaved = resume.saves_unseen(world.job)
    seconds = remaining_of(world.job, () if unsaved else earlier, None).seconds
    if seconds is None or seconds <= 0 or (spec is not None and (spec.members or was_never_assembled(spec))):
        return None
    return seconds * 2 if unsaved else seconds


def has_begun(world: JobWorld) -> bool:
    """Whether the ranks of a gang have started, or all of its pods run."""
    spec = world.gang.spec if world.gang else None
    if spec is None or not spec.members:
        return False
    return spec.start is not None or all(view.pod and view.pod.phase == "Running" for view in world.worker_views)


def preemption_candidate(world: JobWorld, record: GangSpec | None, place: Place) -> PreemptionCandidate | None:
    """Return the job as one that may have to give way; None where it has to give way to none, or holds no nodes
    that Muster can have given back: an ejected one follows no request.

    One that has given its nodes back holds them until its pods have ended. Pods that take longer than PODS_END
    may never end: others then give way in its place.

    Args:
        world: the state of the job.
        record: of its gang, as it is or as it is about to be written.
        place: of the job in the queue.
    """
    if record is None or record.ejected or not world.job.wants_nodes:
        return None
    if not record.members:
        is_ending = world.now - record.time < PODS_END
        returns = is_giving_way(record) or holds_lent_nodes(world.job, record)
        return _borrower(world, record, place) if returns and is_ending else None
    if holds_lent_nodes(world.job, record):
        return _borrower(world, record, place)
    return _victim(world, record, place) if world.fleet.policy.queueing.preemption.priority_classes else None


def _borrower(world: JobWorld, record: GangSpec, place: Place) -> Borrower:
    *_, name = place
    return Borrower(
        name=name,
        since=record.time,
        leaves=is_giving_way(record) or not record.members,
        place=None if world.job.spec.queueing.preemptible else place,
        lent_until=record.lent_until if is_lent(record.lent_until, world.server_now) else None,
        old_nodes=_old_nodes(world, record),
    )


def _victim(world: JobWorld, record: GangSpec, place: Place) -> Victim:
    negative_priority, _, name = place
    checkpoint, last = world.job.status.checkpoint, record.preemptions[-1:]
    return Victim(
        name=name,
        priority=-negative_priority,
        nodes=len(record.members),
        placed=world.by_server(record.placed_time or record.time),
        exempt_until=world.by_server(exempt_from_preemption_until(world, record)),
        saved=checkpoint.time if checkpoint is not None else None,
        leaves=is_giving_way(record),
        answered=all(preemption.answered for preemption in last),
        old_nodes=_old_nodes(world, record),
    )


def _old_nodes(world: JobWorld, record: GangSpec) -> frozenset[str]:
    return frozenset(world.fleet.nodes_of(world.uid)) - {member.node for member in record.members}


def request_of(world: JobWorld) -> Request | None:
    """Return the request for the nodes that the job waits for; None where it has all, or something else is in its
    way."""
    job, record = world.job, world.gang.spec if world.gang else None
    if job.metadata.deletion_timestamp is not None or job.status.completion is not None or job.spec.suspend:
        return None
    if record is not None and record.members:
        nodeless = {member.index for member in record.members if not member.node}
        return (
            placing.replacement_request(world, record, nodeless, with_firm_exclusions(world, record))
            if nodeless
            else None
        )
    obstacle = obstacle_of(world)
    if obstacle is not None and not obstacle.keeps_place:
        return None
    return placing.gang_request(world, with_firm_exclusions(world, record) if record else None)

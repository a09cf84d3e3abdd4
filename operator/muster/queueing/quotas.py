"""Which ResourceQuotas leave a waiting job no room, for one plan.

A quota counts pods when they are created, which is after a gang has taken its nodes. So the plan asks first: a job
whose pods would be refused takes no node and keeps none from others. Accelerators count by node, because a worker holds
its node whole, whatever part of it its pod asks for.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from muster.queueing.phrases import more_text
from muster.queueing.waiting import WaitingJob
from muster.world.fleet import Fleet
from muster.world.names import nodes_text
from muster.world.queuedecision import NotPlaced, Placed
from muster.world.quotas import REQUESTS, QuotaClaim, QuotaView, base_of

QUOTA_EXCEEDED = "QuotaExceeded"
PART = 64  # jobs that are counted in one go: each may fall under many quotas
_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")


@dataclass(frozen=True, slots=True)
class OverQuota(NotPlaced):
    """The answer that a job has no place now, because a ResourceQuota of the namespace has too little room.

    Attributes:
        quota: name of the ResourceQuota; "" where the namespace has more of them than Muster reads.
        resource: by the quota's name for it.
        hard: what pods of the namespace may use together, in the quota's unit.
        used: what they use, with what gangs hold beyond their pods and what the plan has promised so far.
        needed: what the job would use.
        needs: nodes that it asks for.
        room: nodes that the quota has room for now.
        most: nodes that the quota would have room for if nothing else of the namespace ran.
        fits: whether there are nodes for it, apart from the quota.
    """

    quota: str = ""
    resource: str = ""
    hard: int = 0
    used: int = 0
    needed: int = 0
    needs: int = 0
    room: int = 0
    most: int = 0
    fits: bool = False

    @property
    def ever(self) -> bool:
        """Whether the quota would do if nothing else of the namespace ran."""
        return self.needed <= self.hard


@dataclass(frozen=True, slots=True)
class Held:
    """The use of a namespace's quotas by a job with nodes, beyond what the quotas count as used.

    Attributes:
        claim: what each of its pods counts for.
        podless: number of nodes on which its pod does not exist yet.
        accelerators: number of accelerators of its nodes, less those that its pods there ask for.
    """

    claim: QuotaClaim
    podless: int
    accelerators: int


@dataclass(frozen=True, slots=True)
class NamespaceQuotas:
    """The ResourceQuotas of a namespace, and the jobs that hold nodes in it, each worked out when it is asked for."""

    quotas: Collection[QuotaView] = ()
    held: Iterable[Held] = ()


@dataclass(slots=True)
class _Room:
    """A quota and what is taken of it.

    Attributes:
        accelerators: names by which the quota limits the fleet's accelerators.
        beyond: amounts by resource that are taken beyond what the quota counts as used.
    """

    quota: QuotaView
    accelerators: Sequence[str] = ()
    beyond: Counter[str] = field(default_factory=Counter)

    def resources(self, claim: QuotaClaim) -> Iterator[str]:
        """The names of the quota's resources that pods with this claim use. A quota may have a thousand others."""
        yield from self.accelerators
        yield from (
            resource for resource in claim.usage if resource in self.quota.hard and resource not in self.accelerators
        )

    def note(self, job: Held) -> None:
        """Count what a job holds that the quota does not count as used."""
        if job.claim.may_fall_under(self.quota):  # what it holds is never counted for less
            for resource in self.resources(job.claim):
                amount = job.accelerators if resource in self.accelerators else job.podless * job.claim.usage[resource]
                self.beyond[resource] += amount

    def used(self, resource: str) -> int:
        return self.quota.used.get(resource, 0) + self.beyond[resource]


def no_quotas(_namespace: str) -> NamespaceQuotas:
    """The quotas of a namespace in a cluster without ResourceQuotas."""
    return NamespaceQuotas()


class Quotas:
    """The account of the ResourceQuotas in one plan.

    Args:
        fleet: the fleet, for the number of accelerators on a node.
        of: returns the quotas of a namespace; called once for each.
    """

    def __init__(self, fleet: Fleet, of: Callable[[str], NamespaceQuotas]) -> None:
        self._fleet = fleet
        self._of = of
        self._accelerator = fleet.policy.accelerator_resource
        self._rooms: dict[str, list[_Room]] = {}
        self._sizes: list[int] | None = None

    def prepare(self, job: WaitingJob) -> Iterator[None]:
        """Open the account of the job's namespace, in parts; it is needed for all else about the job."""
        if job.claim is None or job.namespace in self._rooms:
            return
        opened = self._of(job.namespace)
        rooms = [_Room(quota, [name for name in quota.hard if self._is_accelerator(name)]) for quota in opened.quotas]
        for number, held in enumerate(opened.held, start=1):
            for room in rooms:
                room.note(held)
            if number % PART == 0:
                yield
        self._rooms[job.namespace] = rooms

    def refusal(self, job: WaitingJob, answer: Placed | NotPlaced, chosen: Collection[str] = ()) -> OverQuota | None:
        """The refusal by the quota that leaves the job the fewest nodes, or None if all quotas have room for what
        placement has answered. Chosen nodes are those that the job would hold or keep from others; unknown ones count
        as the smallest there are.

        A replacement is never refused: the pod that it replaces may still be counted.
        """
        if job.claim is None or job.replacement:
            return None
        refusals = (self._exceeded(room, resource, job, answer, chosen) for room, resource in self._limits_of(job))
        return min(filter(None, refusals), key=lambda refusal: (refusal.room, refusal.most), default=None)

    def promise(self, job: WaitingJob, chosen: Collection[str]) -> None:
        """Count these nodes as promised to the job: the jobs behind it have that much less."""
        for room, resource in self._limits_of(job):
            room.beyond[resource] += self._needed(job, resource, chosen)

    def _exceeded(
        self, room: _Room, resource: str, job: WaitingJob, answer: Placed | NotPlaced, chosen: Collection[str]
    ) -> OverQuota | None:
        hard, used, needed = room.quota.hard[resource], room.used(resource), self._needed(job, resource, chosen)
        if not needed or used + needed <= hard:
            return None
        per_worker = math.ceil(needed / job.needs)
        text = room.quota.problem or (
            f"needs {nodes_text(job.needs, more_text(job.needs, job.size))}: ResourceQuota {room.quota.name} of "
            f"namespace {job.namespace} leaves too little room for {resource}: hard {amount_text(resource, hard)}, "
            f"used {amount_text(resource, used)}, needed {amount_text(resource, needed)}"
        )
        if self._is_accelerator(resource) and not room.quota.problem:
            text += f" (a worker holds its node whole, {per_worker} each)"
        return OverQuota(
            reason=QUOTA_EXCEEDED,
            message=text,
            shortfall=answer.shortfall if isinstance(answer, NotPlaced) else None,
            quota=room.quota.name,
            resource=resource,
            hard=hard,
            used=used,
            needed=needed,
            needs=job.needs,
            room=max(hard - used, 0) // per_worker,
            most=hard // per_worker,
            fits=isinstance(answer, Placed),
        )

    def _limits_of(self, job: WaitingJob) -> Iterator[tuple[_Room, str]]:
        """The quotas that the job's pods fall under, each with a resource of it that they use."""
        if job.claim is None:
            return
        for room in self._rooms[job.namespace]:
            if job.claim.falls_under(room.quota):
                for resource in room.resources(job.claim):
                    yield room, resource

    def _needed(self, job: WaitingJob, resource: str, chosen: Collection[str]) -> int:
        if not self._is_accelerator(resource):
            return job.needs * job.claim.usage.get(resource, 0) if job.claim else 0
        known_counts = sorted(self._accelerators_on(node) for node in chosen)[: job.needs]
        unknown = job.needs - len(known_counts)
        return sum(known_counts) + (unknown * self._smallest(job.request.needs.accelerators) if unknown else 0)

    def _is_accelerator(self, resource: str) -> bool:
        return resource.startswith(REQUESTS) and base_of(resource) == self._accelerator

    def _accelerators_on(self, node: str) -> int:
        node_view = self._fleet.nodes.get(node)
        return node_view.allocatable.get(self._accelerator, 0) if node_view is not None else 0

    def _smallest(self, least: int) -> int:
        """The accelerators of the smallest node that has at least `least` of them; `least` if there is no such node."""
        if self._sizes is None:
            self._sizes = sorted({self._accelerators_on(node) for node in self._fleet.nodes})
        place = bisect_left(self._sizes, least)
        return self._sizes[place] if place < len(self._sizes) else least


def amount_text(resource: str, value: int) -> str:
    """An amount of a resource as people write it: `64`, `500m`, `64Gi`."""
    base = base_of(resource)
    if base == "cpu":
        return f"{value}m" if value % 1000 else str(value // 1000)
    if base in ("memory", "ephemeral-storage") or base.startswith("hugepages-"):
        for power, unit in zip(range(len(_BINARY), 0, -1), _BINARY, strict=True):
            if value and value % 1024**power == 0:
                return f"{value // 1024**power}{unit}"
    return str(value)

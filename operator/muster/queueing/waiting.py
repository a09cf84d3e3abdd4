"""A job that waits for nodes, as the queue sees it.

Tests: tests/unit/queueing/test_queue.py.
"""

from dataclasses import dataclass
from datetime import datetime

from muster.placement.request import Request
from muster.world.quotas import QuotaClaim


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that waits for nodes.

    Attributes:
        job_uid: of the job.
        name: `<namespace>/<name>`, for people and for the order of jobs that are otherwise equal.
        namespace: whose limit counts.
        priority: value of its PriorityClass; higher goes first.
        created: when the job was created, or last gave its nodes back because it could not be assembled on them.
        request: the request for nodes.
        replacement: whether it is for a gang that holds its other nodes meanwhile.
        held: for a replacement, the number of nodes that its gang holds: those that it keeps, and those in service that
            it has left while its pods are there.
        claim: what each of its pods counts for in ResourceQuotas; None = not known, which is left to the API server.
        expected_seconds: for how long it would hold its nodes at most, as far as backfill trusts that; None: not known.
        preemptible: whether it also starts on nodes that are reserved for others, and gives way to them.
        preempts_by: the PriorityClass by which it may take the nodes of jobs of lower priority; "": it may not.
    """

    job_uid: str
    name: str
    namespace: str
    priority: int
    created: datetime
    request: Request
    replacement: bool = False
    held: int = 0
    claim: QuotaClaim | None = None
    expected_seconds: float | None = None
    preemptible: bool = False
    preempts_by: str = ""

    @property
    def needs(self) -> int:
        """The number of nodes asked for, spares included."""
        return self.request.count + self.request.spares

    @property
    def size(self) -> int:
        """The number of nodes that the job would hold then, with those that it keeps."""
        return self.needs + len(self.request.kept)

    @property
    def adds(self) -> int:
        """By how much more nodes the nodes asked for raise what counts for its namespace's limit.

        A gang counts with its whole size for as long as it has nodes. So a replacement adds nothing, unless the gang
        holds nodes that it has left.
        """
        return self.held + self.needs - (max(self.held, self.size) if self.replacement else 0)

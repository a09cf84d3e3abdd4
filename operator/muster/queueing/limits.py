"""How many nodes each namespace may still get in one plan.

Within a namespace's limit the queue's order is strict: what is left of the limit is kept for the job that comes first.
Otherwise small jobs would use up for ever what a large one of the same namespace waits for. A gang counts with its
whole size for as long as it has nodes, so that the repair of a gang asks for no more of the limit.

Tests: tests/unit/queueing/test_queue.py.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.queueing.phrases import before_in_queue_text, jobs_text, more_text
from muster.queueing.waiting import WaitingJob
from muster.world.names import nodes_text
from muster.world.queuedecision import NotPlaced, Placed

NAMESPACE_LIMIT = "NamespaceLimit"
BEHIND_IN_QUEUE = "BehindInQueue"


@dataclass(frozen=True, slots=True)
class OverLimit(NotPlaced):
    """The answer that a job has no place now, because the namespace's limit leaves too few nodes. All numbers are
    nodes.

    Attributes:
        namespace: whose limit.
        limit: what its jobs may hold together.
        held: what counts for them, with what the plan has promised to them so far.
        needs: what the job would get, spares included.
        adds: by how much that would raise what counts.
        is_replacement: whether its gang holds its other nodes meanwhile, and nodes that it has left.
        kept_for: by name, the namespace's jobs before it in the queue that wait for a part of the limit, with that
            part.
        fits: whether there are nodes for it, apart from the limit.
    """

    namespace: str = ""
    limit: int = 0
    held: int = 0
    needs: int = 0
    adds: int = 0
    is_replacement: bool = False
    kept_for: Mapping[str, int] = field(default_factory=dict)
    fits: bool = False

    @property
    def ever(self) -> bool:
        """Whether the limit would do if nothing else of the namespace ran."""
        return self.is_replacement or self.needs <= self.limit

    @property
    def excess(self) -> int:
        """By how much the limit would be exceeded, with what is kept for the jobs before it."""
        return self.held + sum(self.kept_for.values()) + self.adds - self.limit


class Limits:
    """The account of one plan: what each namespace holds, is promised, and waits for, in nodes."""

    def __init__(self, limits: Mapping[str, int], held: Mapping[str, int]) -> None:
        self._limits = limits
        self._held = Counter(dict(held))
        self._kept: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def promise(self, job: WaitingJob) -> None:
        """Count the nodes that a job asks for as promised to its namespace."""
        self._held[job.namespace] += job.adds

    def reserve(self, job: WaitingJob) -> None:
        """Keep a part of the limit for a waiting job of the namespace: the jobs behind it cannot use it."""
        if job.adds:
            self._kept[job.namespace][job.name] = job.adds

    def refusal(self, job: WaitingJob, answer: Placed | NotPlaced) -> OverLimit | None:
        """Why the limit keeps a job from its nodes, or None if it does not.

        Args:
            job: the job.
            answer: the answer of placement, the limit apart.
        """
        namespace, limit = job.namespace, self._limits.get(job.namespace)
        if limit is None or not job.adds:
            return None
        held, kept_for, reason = self._held[namespace], self._kept[namespace], NAMESPACE_LIMIT
        needs_text = f"needs {nodes_text(job.needs, more_text(job.needs, job.size))}"
        holds = f"namespace {namespace} holds {held} of the {limit} that its limit allows"
        if job.replacement and held + job.adds > limit:
            kept_for = {}
            message = f"{needs_text}: {holds}, and pods of the job on nodes that it has left have not ended"
        elif job.needs > limit and not job.replacement:
            kept_for, message = {}, f"{needs_text}: namespace {namespace} may hold {limit} at most, so it never fits"
        elif held + job.adds > limit:
            kept_for, message = {}, f"{needs_text}: {holds}"
        elif held + sum(kept_for.values()) + job.adds > limit:
            kept = min(limit - held, sum(kept_for.values()))
            reason = BEHIND_IN_QUEUE
            order_text = before_in_queue_text(len(kept_for))
            message = f"{needs_text}: {holds}, and {kept} more are kept for {jobs_text(kept_for)}, {order_text}"
        else:
            return None
        return OverLimit(
            reason=reason,
            message=message,
            shortfall=answer.shortfall if isinstance(answer, NotPlaced) else None,
            namespace=namespace,
            limit=limit,
            held=held,
            needs=job.needs,
            adds=job.adds,
            is_replacement=job.replacement,
            kept_for=dict(kept_for),
            fits=isinstance(answer, Placed),
        )

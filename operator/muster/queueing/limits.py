"""How many nodes each namespace may still get in one plan.

Within a namespace's limit the queue's order is strict: what is left of the limit is kept for the job that comes first.
Otherwise small jobs would use up for ever what a large one of the same namespace waits for.

Tests: tests/unit/queueing/test_queue.py.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.queueing.phrases import before_in_queue_text, jobs_text, more_text, nodes_text
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
        held: what they hold, with what the plan has promised to them so far.
        needs: what the job would get, spares included.
        size: what it would hold then, with those that it keeps.
        kept_for: by name, the namespace's jobs before it in the queue that wait for a part of the limit, with that
            part.
        fits: whether there are nodes for it, apart from the limit.
    """

    namespace: str = ""
    limit: int = 0
    held: int = 0
    needs: int = 0
    size: int = 0
    kept_for: Mapping[str, int] = field(default_factory=dict)
    fits: bool = False

    @property
    def ever(self) -> bool:
        """Whether the limit would do if nothing else of the namespace ran."""
        return self.size <= self.limit


class Limits:
    """The account of one plan: what each namespace holds, is promised, and waits for, in nodes."""

    def __init__(self, limits: Mapping[str, int], held: Mapping[str, int]) -> None:
        self._limits = limits
        self._held = Counter(dict(held))
        self._kept: defaultdict[str, dict[str, int]] = defaultdict(dict)

    def promise(self, namespace: str, count: int) -> None:
        """Count this many more nodes as promised to the namespace."""
        self._held[namespace] += count

    def reserve(self, namespace: str, name: str, count: int) -> None:
        """Keep this many nodes of the limit for a waiting job of the namespace: the jobs behind it cannot use them."""
        self._kept[namespace][name] = count

    def refusal(self, namespace: str, needs: int, size: int, answer: Placed | NotPlaced) -> OverLimit | None:
        """Why the limit keeps a job from its nodes, or None if it does not.

        Args:
            namespace: the job's.
            needs: nodes that it asks for, spares included.
            size: nodes that it would hold then.
            answer: the answer of placement, the limit apart.
        """
        limit = self._limits.get(namespace)
        if limit is None:
            return None
        held, kept_for = self._held[namespace], self._kept[namespace]
        needs_text = f"needs {nodes_text(needs, more_text(needs, size))}"
        holds = f"namespace {namespace} holds {held} of the {limit} that its limit allows"
        if size > limit:
            kept_for = {}
            reason = NAMESPACE_LIMIT
            message = f"{needs_text}: namespace {namespace} may hold {limit} at most, so it never fits under this limit"
            if needs < size:
                message = f"{message}: with those that it keeps it would hold {size}"
        elif held + needs > limit:
            kept_for = {}
            reason, message = NAMESPACE_LIMIT, f"{needs_text}: {holds}"
        elif held + sum(kept_for.values()) + needs > limit:
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
            needs=needs,
            size=size,
            kept_for=dict(kept_for),
            fits=isinstance(answer, Placed),
        )

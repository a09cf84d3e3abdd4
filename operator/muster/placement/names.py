"""Which names of other tenants' jobs a waiting job's people are shown: those of its own namespace; all where the policy
says so.

Tests: tests/unit/placement/test_messages.py.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

from muster.world.queuedecision import Refusal, RefusalKind

JOBS_OF_OTHERS = "jobs of other namespaces"
PODS_OF_OTHERS = "pods of other namespaces"
OTHERS = frozenset({JOBS_OF_OTHERS, PODS_OF_OTHERS})
_POD = "pod "
K = TypeVar("K")
V = TypeVar("V")


def visible_name(name: str, viewer: str | None) -> str:
    """The name of a holder of nodes as people of a namespace may see it.

    Args:
        name: `<namespace>/<name>` of a job, `pod <namespace>/<name>` of a pod.
        viewer: the namespace; None = every name may be shown.
    """
    if viewer is None or name.removeprefix(_POD).partition("/")[0] == viewer:
        return name
    return PODS_OF_OTHERS if name.startswith(_POD) else JOBS_OF_OTHERS


def visible_counts(counts: Mapping[K, int], shown: Callable[[K], V]) -> Counter[V]:
    """The numbers by what people are shown; what looks the same to them is counted together.

    Args:
        counts: the numbers, which may be of what they are not shown.
        shown: what they are shown in its place.
    """
    visible = Counter[V]()
    for hidden, count in counts.items():
        visible[shown(hidden)] += count
    return visible


def reserved_refusal(job: str) -> Refusal:
    """The refusal of a node that is reserved for a job that does not have all of its nodes yet."""
    return Refusal(RefusalKind.RESERVED, f"reserved for {job}", job)


def promised_refusal(job: str) -> Refusal:
    """The refusal of a node that this plan gives to a job that is about to start."""
    return Refusal(RefusalKind.PROMISED, f"promised to {job}", job)


def visible_refusal(why: Refusal, viewer: str | None) -> Refusal:
    """The refusal of a node with its job's name replaced where people of this namespace may not see it."""
    given = _GIVEN.get(why.kind)
    return given(visible_name(why.subject, viewer)) if given is not None else why


_GIVEN: Mapping[RefusalKind, Callable[[str], Refusal]] = {
    RefusalKind.RESERVED: reserved_refusal,
    RefusalKind.PROMISED: promised_refusal,
}

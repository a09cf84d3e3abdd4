"""The requests to placement. Its answers are in `muster.world.queuedecision`, because decisions look at them.

Tests: tests/unit/placement/test_space.py.
"""

from dataclasses import dataclass, replace

from muster.placement.eligibility import Requirements


@dataclass(frozen=True, slots=True)
class Broken:
    """A segment that has lost some of its nodes: the new ones must join the others in their innermost domain.

    Attributes:
        missing: number of nodes to find.
        beside: names of the nodes that it keeps; empty when it has lost all.
    """

    missing: int
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """A request for nodes, for a whole gang or for replacements.

    Attributes:
        count: nodes wanted for workers: the whole gang, or in a replacement the new ones.
        needs: what each node must offer.
        job_uid: uid of the job; nodes that only this job holds are free to it, apart from `kept`.
        given_back: uids of jobs that would give their nodes back for this one: these count as free, and come last.
        required: name of the level inside one domain of which all must lie, or None.
        preferred: name of the level inside one domain of which all should lie, or None. As few domains as possible are
            used
        at every level in any case; the answer says when a preference is not met.
        segment_size: number of workers in a segment, which must share an innermost domain; 1 = no segments.
        spares: number of further nodes, in the same required domain; the gang's own domains are preferred, distinct
        innermost ones once there are several.
        kept: nodes that the job keeps: a replacement prefers their domains, and `required` binds it to them.
        viewer: namespace whose people read the answer: other tenants' names are hidden from them; None = none are.
        may_use_last_choices: whether nodes that are the last choice for their health may be used where there are no
            others.
        broken: in a replacement with segments: what each broken segment needs, in the order in which the answer lists
        the nodes; its `missing` add up to `count`.
    """

    count: int
    needs: Requirements
    job_uid: str
    required: str | None = None
    preferred: str | None = None
    segment_size: int = 1
    spares: int = 0
    kept: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()
    viewer: str | None = None
    may_use_last_choices: bool = True
    given_back: frozenset[str] = frozenset()

    def with_last(self) -> "Request":
        """A copy of the request that may also use the nodes that are the last choice for their health."""
        return replace(self, needs=replace(self.needs, takes_last=True))

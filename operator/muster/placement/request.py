"""What placement is asked. What it answers is in `muster.world.turn`: decisions look at answers."""

from dataclasses import dataclass, replace

from muster.placement.eligibility import Requirements


@dataclass(frozen=True, slots=True)
class Broken:
    """A segment that has lost some of its nodes: the new ones must join the others in their innermost domain.

    Attributes:
        missing: nodes to find.
        beside: the nodes that it keeps; empty when it has lost all.
    """

    missing: int
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What to place.

    Attributes:
        count: nodes wanted for workers: the whole gang, or in a replacement the new ones.
        needs: what each node must offer.
        job_uid: whose; nodes that only this job holds are free to it, apart from `kept`.
        required: level name inside one domain of which all must lie, or None.
        preferred: level name inside one domain of which all should lie, or None. As few domains as possible are used at
            every level in any case; a preference that is not met is told.
        segment_size: workers come in segments of so many that must share an innermost domain; 1: no segments.
        spares: further nodes, in the same required domain; the gang's own domains are preferred, distinct innermost
            ones once there are several.
        kept: nodes that the job keeps: a replacement prefers their domains, and `required` binds it to them.
        viewer: namespace whose people read the answer: those of others are not named to them; None: they may be.
        may_take_last: where there are no others, nodes will do that are the last choice for their health.
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
    may_take_last: bool = True

    def with_last(self) -> "Request":
        """The same, with the nodes to choose from that are the last choice."""
        return replace(self, needs=replace(self.needs, takes_last=True))

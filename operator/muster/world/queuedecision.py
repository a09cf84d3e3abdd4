"""Define the answer of placement, and the place in the queue of a job that waits for nodes.

Tests: tests/unit/placement/test_space.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Backfill(NamedTuple):
    """How long a job has nodes that are reserved for other jobs, which it passes.

    Attributes:
        expected_seconds: it holds them for so long at most, by its estimate.
        lent_until: it keeps them until then, by the API server's clock, even where those could start with them.
        leaves_enough: whether one of those may start before it ends, with enough nodes besides these.
    """

    expected_seconds: float
    lent_until: datetime
    leaves_enough: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """The chosen nodes.

    Attributes:
        nodes: for the workers, in the order of ranks: neighbours in the fabric are beside each other.
        spares: for the spares, the one to be used first is first.
        backfill: whether, and for how long, some of them are lent, because they are reserved for other jobs.
    """

    nodes: tuple[str, ...]
    spares: tuple[str, ...] = ()
    backfill: Backfill | None = None


class Preemptor(NamedTuple):
    """A waiting job that another one gives its nodes to.

    Attributes:
        name: `<namespace>/<name>`, or what people of the other job may know of it.
        priority_class: by which it preempts; "": the nodes were only lent to the other job.
    """

    name: str
    priority_class: str = ""

    def __str__(self) -> str:
        """The job and its class, for people."""
        return f"{self.name} (PriorityClass {self.priority_class})" if self.priority_class else self.name


Preemptors = tuple[Preemptor, ...]
"""The jobs that another job has to give its nodes to."""


@dataclass(frozen=True, slots=True)
class DomainCount:
    """One domain in numbers: `free` nodes could be used now, `suitable` ones if nothing else ran there."""

    domain: str  # names from the outside in, joined by "/"; "" is the whole fleet
    free: int
    suitable: int


class RefusalKind(StrEnum):
    """Kind of reason for which a node takes no worker of a job now."""

    OUTSIDE_SCOPE = "OutsideScope"
    NOT_READY = "NotReady"
    CORDONED = "Cordoned"
    SILENT = "Silent"
    UNHEALTHY = "Unhealthy"
    UNREADABLE = "Unreadable"
    TAINTED = "Tainted"
    UNSELECTED = "Unselected"
    BOUND_DIRECTLY = "BoundDirectly"
    KEPT_FOR_ACCELERATORS = "KeptForAccelerators"
    TOO_FEW_ACCELERATORS = "TooFewAccelerators"
    TOO_SMALL = "TooSmall"
    TOO_FULL = "TooFull"
    IN_USE = "InUse"
    OWN = "Own"
    AVOIDED_BY_SPEC = "AvoidedBySpec"
    AVOIDED_AFTER_FAILURE = "AvoidedAfterFailure"
    RESERVED = "Reserved"
    PROMISED = "Promised"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node takes no worker of a job now. Equal ones are counted together.

    Attributes:
        message: the same in a few words.
        subject: its object: the key of a taint, a resource, the number of accelerators that there are, what only a
            scheduler can do, or the job that gets the node; "" for kinds that need none.
    """

    kind: RefusalKind
    message: str
    subject: str = ""

    def __str__(self) -> str:
        """The message."""
        return self.message

    def __hash__(self) -> int:
        """The message's, which Python keeps: a plan counts them by the million."""
        return hash(self.message)


@dataclass(frozen=True, slots=True)
class RefusedNodes:
    """Nodes that a request cannot have for one reason.

    Attributes:
        named: the first few of them, where the reason is about single machines.
    """

    why: Refusal
    count: int
    named: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Nearest:
    """The domain that is nearest to holding a request, and what keeps the request from the nodes in it.

    Attributes:
        domain: the domain; None where there is none: all numbers are of the fleet.
        refused: why nodes in it cannot be used now; the most common first.
        holders: holder, for people -> number of its nodes there that could be used otherwise; most first, a few only.
        more_holders: the number of further holders.
        held_by_more: the number of nodes that these hold there.
    """

    domain: DomainCount | None
    refused: tuple[RefusedNodes, ...]
    holders: Mapping[str, int]
    more_holders: int
    held_by_more: int


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why there is no place now, in numbers of nodes.

    Attributes:
        needs: nodes needed, spares included.
        inside: level inside one domain of which all must lie, or None.
        segment_size: as in the request.
        fleet: nodes of the fleet.
        suitable: nodes that could be used if nothing else ran.
        free: nodes that could be used now.
        refused: why the others cannot be used now; the most common first.
        holders: holder, for people -> number of its nodes that could be used otherwise; most first, a few only.
        domains: the best domains of the level, the fleet itself where no level is required; most free first, a few
            only.
        nearest: of the domains that could hold it the one with most free nodes, or the fleet where no level is
            required; where none could hold it, the one with most suitable nodes.
        ever: whether the request would fit if nothing else ran.
        fewer: how many workers, in whole segments, would have a place now; where all would not even fit if nothing else
            ran, how many would fit then.
        lent: how many of the free nodes other jobs hold, and would give back for it.
    """

    needs: int
    inside: str | None
    segment_size: int
    fleet: int
    suitable: int
    free: int
    refused: tuple[RefusedNodes, ...]
    holders: Mapping[str, int]
    domains: tuple[DomainCount, ...]
    nearest: Nearest
    ever: bool
    fewer: int
    lent: int = 0


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """No place now: a stable reason, one sentence with numbers for people, and the numbers."""

    reason: str
    message: str
    shortfall: Shortfall | None = None


class Payer(StrEnum):
    """The job or namespace that pays with its place in the queue for an unused reservation."""

    JOB = "Job"
    NAMESPACE = "Namespace"


class LentNodes(NamedTuple):
    """Nodes reserved for a job that others, which have passed it, keep for a while.

    Attributes:
        nodes: how many.
        until: when all of these jobs may be asked to leave.
    """

    nodes: int
    until: datetime


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """A waiting job's place in the queue, and the last plan's answer to its request, if the plan reached it.

    Attributes:
        position: 1 is the next.
        queued: jobs in the queue.
        answer: nodes that are its own if it takes them now, or why there are none.
        payer: why it stands behind others: its own reservation was not used, or several of its namespace; None: it does
            not.
        reserved: free nodes that are reserved for it.
        no_backfill_until: until when it passes no reservation, because estimates of its namespace were too short; None:
            that keeps it from none.
        lent: nodes reserved for it that others keep for a while; None: there are none.
        preempts_from: from when on it may preempt one more of the jobs that it outranks; None: no time limits that.
        too_many_before: whether it preempts none yet, since too many jobs before it do, or lack nodes.
    """

    position: int
    queued: int
    answer: Placed | NotPlaced
    payer: Payer | None = None
    reserved: int = 0
    no_backfill_until: datetime | None = None
    lent: LentNodes | None = None
    preempts_from: datetime | None = None
    too_many_before: bool = False


class LendingTerms(NamedTuple):
    """To which jobs a waiting one lends what is reserved for it.

    Attributes:
        ends_by: to those that are expected to end by then. It is when it could start if none that has passed it were
            asked to leave.
        until: no longer than that.
        extra_nodes: so many to others: that many nodes are free in its domain then, too, which it does not need.
    """

    ends_by: datetime
    until: datetime
    extra_nodes: int = 0


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """When a waiting job starts, in Muster's estimate.

    Attributes:
        time: not before it was estimated; None: not known.
        reason: what has to happen until then, or why it is not known.
        lends: to which jobs it lends what is reserved for it; None: to those that are expected to end until `time`.
        nodes: those that it counts on, reserved or not; none that a job before it in the queue has until then.
    """

    time: datetime | None
    reason: str
    lends: LendingTerms | None = None
    nodes: frozenset[str] = frozenset()

"""What the burn-in knows: the members with their places in the fabric, the report of each test, and what fails a node.
Plain data."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class BurnInMember:
    """One node that takes part in a burn-in.

    Attributes:
        name: the node's name.
        domains: its place from the outside in, say ("block-1", "rack-7", "nvlink-7"); any number of levels.
        proven: whether it has passed before, such as a member beside which a replacement is tested. It serves as
            partner, and is judged only if it misses.
    """

    name: str
    domains: tuple[str, ...] = ()
    proven: bool = False


PAIR = "pair"
"""The probe of two nodes, as failures and thresholds name it."""
NVLINK = "NVLink"
"""The transport between GPUs that share a node or rack, without a network."""


class How(StrEnum):
    """The way in which the test of a pair, or of a node, ended."""

    RESULT = "Result"
    NO_RESULT = "NoResult"  # not within the deadline
    COULD_NOT_CONNECT = "CouldNotConnect"
    OTHER_ENDED = "OtherEnded"  # the partner has gone, and the node that reports it is a victim
    ENVIRONMENT = "Environment"  # the test itself could not run: no image, no memory, GPUs in use by others
    LATE = "Late"  # not within the profile's time, although no probe has reached its own deadline
    UNHEARD = "Unheard"  # no end has reported: the operator says so after the deadline


# What says nothing of the hardware between two nodes.
COUNTS_FOR_NOBODY = frozenset({How.OTHER_ENDED, How.ENVIRONMENT, How.LATE, How.UNHEARD})


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """The report of one end about the test of a pair; both ends may report, and report again.

    Attributes:
        round: of the test, from 1 on.
        a: one of the nodes.
        b: the other one.
        how: the way in which the test ended.
        gbps: the bus bandwidth in GB/s, with How.RESULT only.
        retransmits: segments sent again per 1,000, the larger of both ends; 0 where the transport counts none.
        transport: what the test ran over, say "IB" or "TCP"; "": not known.
        ended: the node that has gone, with How.OTHER_ENDED.
        wrong: whether the sums were wrong; with How.RESULT only, and without a figure.
    """

    round: int
    a: str
    b: str
    how: How
    gbps: float = 0.0
    retransmits: float = 0.0
    transport: str = ""
    ended: str = ""
    wrong: bool = False


@dataclass(frozen=True, slots=True)
class LocalOutcome:
    """The report of a probe that needs one node only.

    Attributes:
        node: its name.
        probe: its name, the key of a threshold.
        how: RESULT; NO_RESULT (ended at its deadline); LATE (the node's probes together took too long); or ENVIRONMENT.
        Only other nodes that were in time show what LATE means.
        figure: the result in the unit of its threshold; None: nothing was measured.
        message: what the probe says, for people.
        wrong: whether a result must not be (other bits, a missing device), whatever the figure.
        unit: of the figure.
        fingerprint: of the results, "KIND:BITS"; nodes of one kind have to have the same bits; "": none.
    """

    node: str
    probe: str
    how: How
    figure: float | None = None
    message: str = ""
    wrong: bool = False
    unit: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """A node that failed the burn-in, and what proves it.

    Attributes:
        node: its name.
        probe: PAIR, or the node's own probe.
        figure: the best that the node reached with proven partners, or in the local probe; None: no result.
        threshold: what it had to reach, in the same unit.
        unit: of both.
        partners: proven nodes with which it missed; empty for a local probe.
        message: what happened, for people.
        wrong: whether a result was wrong; else something is slow or does not answer.
        levels: at which its pairs speak against it.
    """

    node: str
    probe: str
    figure: float | None
    threshold: float
    unit: str
    partners: tuple[str, ...]
    message: str
    wrong: bool = False
    levels: tuple[int, ...] = ()


class Pair(NamedTuple):
    """A test of two nodes that is due. It is for both of them, or, if `both` is False, for `a` alone."""

    a: str
    b: str
    both: bool = True


@dataclass(frozen=True, slots=True)
class Round:
    """The tests that are due in one round: in each slot disjoint pairs, one slot after the other."""

    number: int
    slots: tuple[tuple[Pair, ...], ...]

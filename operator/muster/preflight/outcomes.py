"""What the burn-in knows: the members with their places in the fabric, and what each test told. Plain data."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Member:
    """One node that takes part.

    Attributes:
        name: the node's name.
        domains: where it stands, from the outside in, say ("block-1", "rack-7", "nvlink-7"); any number of levels.
        proven: it has passed before (a survivor beside which a replacement is tested): it serves, and is judged only if
            it misses.
        witness: it is borrowed: an idle node with a fresh pass, no member of the gang, never judged.
    """

    name: str
    domains: tuple[str, ...] = ()
    proven: bool = False
    witness: bool = False


NVLINK = "NVLink"
"""As a transport: no network."""


class How(StrEnum):
    """How the test of a pair ended."""

    RESULT = "Result"
    NO_RESULT = "NoResult"  # not within the deadline
    COULD_NOT_CONNECT = "CouldNotConnect"
    OTHER_ENDED = "OtherEnded"  # who says so is a victim: his partner has gone
    ENVIRONMENT = "Environment"  # the test itself could not run: no image, no memory, GPUs in use by others
    LATE = "Late"  # not within the profile's time, although no probe has reached its own deadline
    UNHEARD = "Unheard"  # nobody has told: the coordinator's own word after its deadline


# What says nothing of the hardware between two nodes.
COUNTS_FOR_NOBODY = frozenset({How.OTHER_ENDED, How.ENVIRONMENT, How.LATE, How.UNHEARD})


@dataclass(frozen=True, slots=True)
class PairOutcome:
    """What one end told about the test of a pair; both ends may tell, and tell again.

    Attributes:
        round: the round it was planned in, from 1 on.
        gbps: what the pair reached in GB/s (bus bandwidth), with How.RESULT only.
        retransmits: segments sent again per 1,000, the larger of both ends; 0 where the transport counts none.
        transport: what it ran over, say "IB" or "TCP"; "" where that is not known.
        ended: who has gone, with How.OTHER_ENDED.
        wrong: the sums were not what they must be; with How.RESULT only, and without a figure.
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
    """What a probe told that needs one node only.

    Attributes:
        probe: its name, the key of a limit.
        figure: what it measured in the unit of its limit; None: it has measured nothing.
        how: RESULT, NO_RESULT (it hung and was ended at its deadline), LATE (the node's probes together took too long:
            nothing but other nodes that were in time says what that means) or ENVIRONMENT.
        unit: of the figure.
        wrong: a result was not what it must be (bits that differ, a device that is missing), whatever any figure says.
        words: what the probe says of it, for people.
        fingerprint: what it computed, "KIND:BITS": nodes of one kind owe each other the same bits; "" where it has
            none.
    """

    node: str
    probe: str
    how: How
    figure: float | None = None
    words: str = ""
    wrong: bool = False
    unit: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """What a healthy pair of one level or transport reaches.

    Attributes:
        transport: of the levels whose pairs run over this; "": of any for which there is no other one.
        middle_gbps: what the fleet's history says; None while it is too young: the round's own pairs are the yardstick.
        ratio: below this share of a healthy pair's figure a test is a miss.
        floor_gbps: below it every pair is slow, whatever others reach.
        miss_share: share of healthy tests that miss all the same.
    """

    middle_gbps: float | None = None
    ratio: float = 0.75
    floor_gbps: float = 0.0
    miss_share: float = 0.01
    transport: str = ""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a probe of one node has to reach."""

    at_least: float
    unit: str
    source: str


class Pair(NamedTuple):
    """A test that is due. The subjects are those whom it is for: both, or the first."""

    a: str
    b: str
    both: bool = True


@dataclass(frozen=True, slots=True)
class Round:
    """The tests that are due: in each slot disjoint pairs, one slot after the other."""

    number: int
    slots: tuple[tuple[Pair, ...], ...]

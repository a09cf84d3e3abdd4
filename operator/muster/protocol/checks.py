"""What checkers and the coordinator say to each other: one CheckReport goes up, one CheckDirective comes back.

A checker is Muster's own process on a node (DaemonSet muster-check). Its directive is declared state, like a
launcher's: all orders of the burn-in that the node takes part in, those that were answered included. The checker runs
what it has no answer for yet, keeps the answers of all that stand there, and gives up at once what does not stand there
any more. So a new leader hears every answer again and goes on where its predecessor was, and nothing of a burn-in is
stored in the API.

The wire format is that of muster.protocol.messages.
"""

from __future__ import annotations

import dataclasses
from typing import Iterable, List, Optional, Tuple

from muster.protocol.messages import (
    LONGEST_SECONDS,
    MAX_NUMBER,
    PROTOCOL_VERSION,
    decode,
    decode_told,
    for_people,
    limited,
)

CHECK_PATH = "/v1/check"
MAX_ID_CHARS = 128
MAX_WORDS_CHARS = 400
MAX_GPUS = 64
MAX_PUTS = 64  # of a node, in one meeting
MAX_PUT_CHARS = 8 * 1024
MOST_PUT_CHARS = 64 * 1024  # of all values of a node in one meeting: a report has room for four times as much
MAX_RATE = 1e8  # no reader of the wire format takes a larger number with a fraction

# What a checker is doing (CheckReport.state).
STARTING = "Starting"  # torch is being imported
READY = "Ready"
UNFIT = "Unfit"  # nothing can be tested here; `problem` says why

# What an order is for (CheckOrder.kind).
NODE = "Node"  # the probes of one node, one after the other
PAIR = "Pair"  # an all-reduce with one other node
GANG = "Gang"  # an all-reduce over all


@dataclasses.dataclass(frozen=True)
class ProbeReport:
    """One probe of a node order, as the worst of its devices.

    `probe` is the key of limits (muster.preflight.baselines: "gemm-bf16", "host-to-device", ...); a probe with several
    figures makes several of these. `how` is a muster.preflight.outcomes.How.
    """

    probe: str = limited(dataclasses.MISSING, 1, MAX_ID_CHARS)
    outcome: str = limited(dataclasses.MISSING, 1, 64)
    figure: Optional[float] = limited(None, -MAX_RATE, MAX_RATE)
    unit: str = limited("", 0, 64)
    wrong: bool = False  # a result was not what it must be, whatever any figure says
    message: str = for_people(MAX_WORDS_CHARS)
    seconds: float = 0.0
    # "KIND:BITS", both digests: nodes of one kind, library and version owe each other the same bits. "" = it has none.
    fingerprint: str = limited("", 0, 64)


@dataclasses.dataclass(frozen=True)
class CheckAnswer:
    """How an order ended. What the order said of the test comes back with it: who reads it may not have given it."""

    order: str = limited(dataclasses.MISSING, 1, MAX_ID_CHARS)
    kind: str = limited(dataclasses.MISSING, 1, 64)
    outcome: str = limited(dataclasses.MISSING, 1, 64)  # a muster.preflight.outcomes.How
    round: int = 0
    peer: str = limited("", 0, 253)
    gbps: float = limited(0.0, 0, MAX_RATE)
    retransmits: float = limited(0.0, 0, MAX_RATE)  # segments sent again per 1,000
    transport: str = limited("", 0, 64)
    probes: Tuple[ProbeReport, ...] = limited((), 0, 32)
    message: str = for_people(MAX_WORDS_CHARS)
    seconds: float = 0.0  # that it took
    given_back: bool = True  # the GPUs were seen to be free again


@dataclasses.dataclass(frozen=True)
class PassReport:
    """A pass that still holds here: the node has not booted since, and nothing of it was changed
    (CheckReport.identity)."""

    profile: str = limited(dataclasses.MISSING, 1, 64)
    age_seconds: float = limited(dataclasses.MISSING, 0, LONGEST_SECONDS)
    granted: str = limited("", 0, MAX_ID_CHARS)  # CheckGrant.id
    gpus: int = limited(0, 0, MAX_GPUS)  # CheckGrant.gpus


@dataclasses.dataclass(frozen=True)
class FigureReport:
    """The newest good figure of this node for one probe, also from before a reboot: the fleet's history is made of
    them.

    Its key is CheckReport.model, library and version, and `transport`.
    """

    probe: str = limited(dataclasses.MISSING, 1, MAX_ID_CHARS)
    figure: float = limited(dataclasses.MISSING, 0, MAX_RATE)
    age_seconds: float = limited(dataclasses.MISSING, 0, LONGEST_SECONDS)
    unit: str = limited("", 0, 64)
    transport: str = limited("", 0, 64)
    namespace: str = limited("", 0, 63)  # for whose job it was measured; "" for nobody's


@dataclasses.dataclass(frozen=True)
class Put:
    """What a process of an all-reduce wants the others of its order to know: a value, or what it adds to a number.

    The checker tells it in its report, and the coordinator hands it to the checkers that have the same order.
    """

    rank: int = limited(dataclasses.MISSING, 0, 1_000_000)
    key: str = limited(dataclasses.MISSING, 1, MAX_ID_CHARS)
    value: str = limited("", 0, MAX_PUT_CHARS)  # base64 of zlib; "": it adds
    add: int = limited(0, -MAX_NUMBER, MAX_NUMBER)


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """A checker's whole state. Each report replaces the one before; `sequence` grows within one checker process."""

    sequence: int
    boot_id: str = limited("", 0, MAX_ID_CHARS)
    state: str = STARTING
    problem: str = for_people(MAX_WORDS_CHARS)
    # Digest of what a pass is about: boot id, GPU UUIDs, driver, libraries and version of the probes.
    identity: str = limited("", 0, MAX_ID_CHARS)
    device: str = limited("", 0, 16)  # "cuda" or "cpu"
    gpus: int = limited(0, 0, MAX_GPUS)
    model: str = limited("", 0, MAX_ID_CHARS)
    library: str = limited("", 0, MAX_ID_CHARS)
    version: str = limited("", 0, MAX_ID_CHARS)
    address: str = limited("", 0, MAX_ID_CHARS)  # where other checkers reach it
    running: str = limited("", 0, MAX_ID_CHARS)  # id of the order that is being run
    answers: Tuple[CheckAnswer, ...] = ()
    passes: Tuple[PassReport, ...] = limited((), 0, 16)
    figures: Tuple[FigureReport, ...] = limited((), 0, 64)
    meeting: str = limited("", 0, MAX_ID_CHARS)  # id of the order whose processes look for those on other nodes
    puts: Tuple[Put, ...] = limited((), 0, MAX_PUTS)  # theirs
    directive_seen: str = limited("", 0, 64)
    hold_seconds: float = 0.0
    protocol: int = limited(PROTOCOL_VERSION, 0, MAX_NUMBER)


def can_be_put(puts: Iterable[Put]) -> bool:
    """Whether one node may put all of these into a meeting: they are few and small enough, and base64 as they should
    be."""
    values = [put.value for put in puts]
    return len(values) <= MAX_PUTS and sum(map(len, values)) <= MOST_PUT_CHARS and all(map(str.isascii, values))


@dataclasses.dataclass(frozen=True)
class CheckOrder:
    """One test. Orders are run one after the other, as they stand in the directive."""

    id: str
    kind: str
    profile: str = "Quick"
    gpus: Optional[int] = None  # how many there have to be; None: as many as there are
    namespace: str = ""  # for whose job; the figures remember it
    round: int = 0
    peer: str = ""  # name of the other node of a pair
    master_address: str = ""  # of node rank 0
    master_port: int = 0
    node_rank: int = 0
    nodes: int = 1


@dataclasses.dataclass(frozen=True)
class CheckGrant:
    """The node has passed a profile: remember it. The age of the pass begins when a grant of this id is first seen."""

    id: str
    profile: str
    gpus: int = 0  # that it was tested with; 0: it says nothing of any GPU


@dataclasses.dataclass(frozen=True)
class CheckDirective:
    """What a checker shall do."""

    known: bool = True  # False: the leader is new and does not know yet: keep what you have, and tell it
    orders: Tuple[CheckOrder, ...] = ()
    grants: Tuple[CheckGrant, ...] = ()
    meeting: str = ""  # CheckReport.meeting, where that is an order of this checker with other nodes
    puts: Tuple[Put, ...] = ()  # of the other nodes that have it
    poll_seconds: float = 1.0
    hold_seconds: float = 10.0
    protocol: int = PROTOCOL_VERSION


def decode_check_report(data: bytes) -> CheckReport:
    """Parse a checker's report.

    Raises:
        ProtocolError: not JSON, not an object, or a field of the wrong type or beyond its bounds (named).
    """
    return decode(CheckReport, data, "report")


def decode_check_directive(data: bytes) -> CheckDirective:
    """Parse a checker's directive.

    Raises:
        ProtocolError: not JSON, not an object, or a field of the wrong type (named).
    """
    return decode_told(CheckDirective, data, "directive")


__all__: List[str] = [
    "CHECK_PATH",
    "GANG",
    "NODE",
    "PAIR",
    "READY",
    "STARTING",
    "UNFIT",
    "CheckAnswer",
    "CheckDirective",
    "CheckGrant",
    "CheckOrder",
    "CheckReport",
    "FigureReport",
    "PassReport",
    "ProbeReport",
    "Put",
    "decode_check_directive",
    "decode_check_report",
]

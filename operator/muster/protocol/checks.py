"""Define the messages between checkers and the coordinator: one CheckReport goes up, one CheckDirective comes back.

A checker is Muster's own process on a node (DaemonSet muster-check). Its directive is declared state, like a
launcher's: all orders of the burn-in that the node takes part in, answered ones included. The checker runs orders that
have no answer yet, keeps the answers of all listed orders, and stops at once what is no longer listed. So a new leader
receives every answer again and continues where its predecessor was. Nothing of a burn-in is stored in the API.

The wire format is that of muster.protocol.messages.

Tests: tests/unit/checker/test_core.py.
"""

from __future__ import annotations

import dataclasses
from typing import Iterable, Optional, Tuple

from muster.protocol.messages import (
    LONGEST_SECONDS,
    MAX_NUMBER,
    PROTOCOL_VERSION,
    decode,
    decode_from_coordinator,
    for_people,
    limited,
)

CHECK_PATH = "/v1/check"
MAX_ID_CHARS = 128
MAX_WORDS_CHARS = 400
MAX_GPUS = 64
MAX_PUTS = 64  # of a node, in one rendezvous
MAX_PUT_CHARS = 8 * 1024
MOST_PUT_CHARS = 64 * 1024  # of all values of a node in one rendezvous: a report has room for four times as much
MAX_RATE = 1e8  # no reader of the wire format takes a larger number with a fraction

# What a checker is doing (CheckReport.state).
STARTING = "Starting"  # torch is being imported
READY = "Ready"
UNFIT = "Unfit"  # nothing can be tested here; `problem` says why

# The kind of an order (CheckOrder.kind).
NODE = "Node"  # the probes of one node, one after the other
PAIR = "Pair"  # an all-reduce with one other node
GANG = "Gang"  # an all-reduce over all


@dataclasses.dataclass(frozen=True)
class ProbeReport:
    """Result of one probe of a node order, the worst of its devices.

    `probe` is the key of limits (muster.preflight.baselines: "gemm-bf16", "host-to-device", ...); a probe with several
    figures makes several reports. `how` is a muster.preflight.outcomes.How.
    """

    probe: str = limited(dataclasses.MISSING, 1, MAX_ID_CHARS)
    outcome: str = limited(dataclasses.MISSING, 1, 64)
    figure: Optional[float] = limited(None, -MAX_RATE, MAX_RATE)
    unit: str = limited("", 0, 64)
    wrong: bool = False  # the result was incorrect, whatever any figure says
    message: str = for_people(MAX_WORDS_CHARS)
    seconds: float = 0.0
    # "KIND:BITS", both digests: nodes of one kind, library and version must return the same bits. "" = it has none.
    fingerprint: str = limited("", 0, 64)


@dataclasses.dataclass(frozen=True)
class CheckAnswer:
    """Outcome of an order, with the order's test parameters: its reader may not be the leader that gave the order."""

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
    seconds: float = 0.0  # duration of the test
    given_back: bool = True  # the GPUs were seen to be free again


@dataclasses.dataclass(frozen=True)
class PassReport:
    """A pass that is still valid: the node has not booted since, and its parts are the same (CheckReport.identity)."""

    profile: str = limited(dataclasses.MISSING, 1, 64)
    age_seconds: float = limited(dataclasses.MISSING, 0, LONGEST_SECONDS)
    granted: str = limited("", 0, MAX_ID_CHARS)  # CheckGrant.id
    gpus: int = limited(0, 0, MAX_GPUS)  # CheckGrant.gpus


@dataclasses.dataclass(frozen=True)
class FigureReport:
    """The newest good figure of this node for one probe, even from before a reboot: the source of the fleet's history.

    Its key is CheckReport.model, library and version, and `transport`.
    """

    probe: str = limited(dataclasses.MISSING, 1, MAX_ID_CHARS)
    figure: float = limited(dataclasses.MISSING, 0, MAX_RATE)
    age_seconds: float = limited(dataclasses.MISSING, 0, LONGEST_SECONDS)
    unit: str = limited("", 0, 64)
    transport: str = limited("", 0, 64)
    namespace: str = limited("", 0, 63)  # of the job for which it was measured; "" = for none


@dataclasses.dataclass(frozen=True)
class Put:
    """What a process of an all-reduce publishes to the others of its order: a value, or an addend to a number.

    The checker reports it, and the coordinator passes it to the checkers that have the same order.
    """

    rank: int = limited(dataclasses.MISSING, 0, 1_000_000)
    key: str = limited(dataclasses.MISSING, 1, MAX_ID_CHARS)
    value: str = limited("", 0, MAX_PUT_CHARS)  # base64 of zlib; "": it adds
    add: int = limited(0, -MAX_NUMBER, MAX_NUMBER)


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """A checker's whole state. Each report replaces the last one; `sequence` grows within one checker process."""

    sequence: int
    boot_id: str = limited("", 0, MAX_ID_CHARS)
    state: str = STARTING
    problem: str = for_people(MAX_WORDS_CHARS)
    # Digest of what a pass depends on: boot id, GPU UUIDs, driver, libraries and version of the probes.
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
    meeting: str = limited("", 0, MAX_ID_CHARS)  # id of the order whose processes wait for those on other nodes
    puts: Tuple[Put, ...] = limited((), 0, MAX_PUTS)  # what these processes publish
    directive_seen: str = limited("", 0, 64)
    hold_seconds: float = 0.0
    protocol: int = limited(PROTOCOL_VERSION, 0, MAX_NUMBER)


def can_be_put(puts: Iterable[Put]) -> bool:
    """Whether one node may publish all of these in one rendezvous: they are few, small, and valid base64."""
    values = [put.value for put in puts]
    return len(values) <= MAX_PUTS and sum(map(len, values)) <= MOST_PUT_CHARS and all(map(str.isascii, values))


@dataclasses.dataclass(frozen=True)
class CheckOrder:
    """One test. Orders are run one after the other, in the order of the directive."""

    id: str
    kind: str
    profile: str = "Quick"
    gpus: Optional[int] = None  # required number; None: as many as there are
    namespace: str = ""  # of the job that it is for; its figures carry it
    round: int = 0
    peer: str = ""  # name of the other node of a pair
    master_address: str = ""  # of node rank 0
    master_port: int = 0
    node_rank: int = 0
    nodes: int = 1


@dataclasses.dataclass(frozen=True)
class CheckGrant:
    """The node has passed a profile, and the checker keeps that. The pass ages from the first receipt of this id."""

    id: str
    profile: str
    gpus: int = 0  # number that was tested; 0: no GPU was


@dataclasses.dataclass(frozen=True)
class CheckDirective:
    """Desired state of a checker."""

    known: bool = True  # False: the leader is new and does not know yet: keep your state, and report it
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
    return decode_from_coordinator(CheckDirective, data)

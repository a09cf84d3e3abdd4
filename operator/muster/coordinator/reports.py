"""Reports decoded fast: thousands of launchers send one each every few seconds, and the protocol's own decoder is Python.

It runs on whatever Python a user's image has and names what is wrong, at 0.1 to 0.3 ms for a report. Here msgspec checks
the types, in a twentieth of that; what it does not take, the protocol's decoder judges, so both accept the same (but for
the encoding of text in fields that nobody reads).
"""

from typing import Annotated

import msgspec

from muster.protocol import messages
from muster.protocol.messages import LONGEST_SECONDS, CheckpointReport, PeerReport, RankReport, Report

_Seconds = Annotated[float, msgspec.Meta(gt=-LONGEST_SECONDS, lt=LONGEST_SECONDS)]


class _Rank(msgspec.Struct, rename="camel", gc=False):
    rank: int
    local_rank: int
    alive: bool
    exit_code: int | None = None
    signal: int | None = None
    ended_by_launcher: bool = False
    exited_age_seconds: _Seconds | None = None
    tail: str = ""


class _Checkpoint(msgspec.Struct, rename="camel", gc=False):
    step: int
    path: str
    written_ns: int = 0
    judged: bool = True


class _Peer(msgspec.Struct, rename="camel", gc=False):
    index: int
    silent_seconds: _Seconds


class _Report(msgspec.Struct, rename="camel", gc=False):
    sequence: int
    state: str
    attempt: int = 0
    ranks: tuple[_Rank, ...] = ()
    step: int | None = None
    step_age_seconds: _Seconds | None = None
    started_age_seconds: _Seconds | None = None
    step_seconds: _Seconds | None = None
    fence_seconds: _Seconds = Report.fence_seconds
    fenced: bool = False
    previous_attempt: int = 0
    previous_ranks: tuple[_Rank, ...] = ()
    peer_port: int = 0
    peers: tuple[_Peer, ...] = ()
    checkpoints: tuple[_Checkpoint, ...] = ()
    checkpoints_scanned_for_attempt: int = 0
    scanned_age_seconds: _Seconds | None = None
    checkpoint_error: str = ""
    address: str = ""
    launcher_version: str = ""
    loop_age_seconds: _Seconds = 0.0
    first_step: int | None = None
    reads_marker: bool = False
    marker_attempt: int = 0
    marker_age_seconds: _Seconds | None = None
    marker_written_ns: int = 0
    marker_error: str = ""
    directive_seen: str = ""
    hold_seconds: _Seconds = 0.0
    protocol: int = messages.PROTOCOL_VERSION


_reports = msgspec.json.Decoder(_Report)


def decode_report(data: bytes) -> Report:
    """Parse a report.

    Raises:
        ProtocolError: as muster.protocol.messages.decode_report does, for the same bytes.
    """
    try:
        found = _reports.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return messages.decode_report(data)
    report = Report(
        found.sequence,
        found.state,
        found.attempt,
        _ranks(found.ranks),
        found.step,
        found.step_age_seconds,
        found.started_age_seconds,
        found.step_seconds,
        found.fence_seconds,
        found.fenced,
        found.previous_attempt,
        _ranks(found.previous_ranks),
        found.peer_port,
        tuple([PeerReport(peer.index, peer.silent_seconds) for peer in found.peers]),
        tuple([CheckpointReport(c.step, c.path, c.written_ns, c.judged) for c in found.checkpoints]),
        found.checkpoints_scanned_for_attempt,
        found.scanned_age_seconds,
        found.checkpoint_error,
        found.address,
        found.launcher_version,
        found.loop_age_seconds,
        found.first_step,
        found.reads_marker,
        found.marker_attempt,
        found.marker_age_seconds,
        found.marker_written_ns,
        found.marker_error,
        found.directive_seen,
        found.hold_seconds,
        found.protocol,
    )
    messages.check_report(report)
    return report


def _ranks(found: tuple[_Rank, ...]) -> tuple[RankReport, ...]:
    return tuple(
        [
            RankReport(
                one.rank,
                one.local_rank,
                one.alive,
                one.exit_code,
                one.signal,
                one.ended_by_launcher,
                one.exited_age_seconds,
                one.tail,
            )
            for one in found
        ]
    )

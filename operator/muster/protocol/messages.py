"""The wire format: one Report goes up, one Directive comes back.

Versioned JSON, additive: unknown fields are ignored, missing ones have a default, an unknown kind of directive means
"keep doing what you do". A pod that an older release rendered therefore works under a newer coordinator and the other
way round. Times are monotonic ages in seconds, never clock readings: the two ends do not share a clock, and the
coordinator stamps each report on receipt.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import unicodedata
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type, TypeVar, Union, get_type_hints

PROTOCOL_VERSION = 1
REPORT_PATH = "/v1/report"
TOKEN_AUDIENCE = "muster.dev/coordinator"  # noqa: S105 - the name of an audience, not a secret
MAX_REPORT_BYTES = 256 * 1024
MAX_TAIL_CHARS = 2048
MAX_PATH_CHARS = 1024
MAX_TEXT_CHARS = 4096
MAX_STAMPS_CHARS = 16384
# Ranks, checkpoints, neighbours of one report: a worker has 64 ranks at most, of the others there are fewer.
MAX_PARTS = 128
MAX_NUMBER = 2**53 - 1  # what every reader of JSON can hold
MAX_NANOSECONDS = 2**63 - 1
LONGEST_SECONDS = 1e8  # three years
LONGEST_FENCE_SECONDS = 86400.0
MAX_FENCE_FILE_CHARS = 64
MAX_VALUE_CHARS = 24  # of a number as it is printed

# What a launcher is doing (Report.state).
IDLE = "Idle"  # no rank process of any attempt is alive
RUNNING = "Running"  # at least one rank of `attempt` is alive
EXITED = "Exited"  # every rank of `attempt` has ended by itself
RECLAIMING = "Reclaiming"  # ending ranks; some are still alive
TERMINATING = "Terminating"  # told to terminate: no rank is alive, the launcher is about to exit

# What a launcher shall do (Directive.kind).
WAIT = "Wait"  # have no rank running, be ready for attempt `attempt`
RUN = "Run"  # run the ranks of attempt `attempt`
EXIT = "Exit"  # have no rank running and exit with `exit_code`

# What a rank has found wrong with its own results (RankReport.corruption).
REPLAY_MISMATCH = "ReplayMismatch"
NON_FINITE_LOSS = "NonFiniteLoss"
CORRUPTIONS = (REPLAY_MISMATCH, NON_FINITE_LOSS)
# A rank that ends with this code says so without a line. Shells, sysexits.h (64 to 78), Python, torchrun, Megatron (16,
# 17), containers (125 to 127) and signals (128 and more) use others.
CORRUPTION_EXIT_CODE = 86


def last_unsuspected(found_at: Optional[int], last_good: Optional[int]) -> Optional[int]:
    """Checkpoints of later steps are suspect, by such a word alone: of the step at which it was found, if it says so,
    the one before is the last that may be good. None: it says no step."""
    if last_good is not None:
        return last_good
    return None if found_at is None else found_at - 1


# What a program may tell of the time in its steps: seconds that went elsewhere than into computing.
INPUT_WAIT, COMMUNICATION, CHECKPOINT_STALL = "inputWaitSeconds", "communicationSeconds", "checkpointSeconds"

T = TypeVar("T")


class ProtocolError(ValueError):
    """A message that cannot be understood; says which field and why."""


@dataclasses.dataclass(frozen=True)
class Limit:
    """What a field of a report may be: a number from `least` to `most`, a text or list of so many characters or parts.

    A field that says nothing of the kind has the limit of its type. `for_people`: a longer text is cut, not refused,
    and made readable.
    """

    least: float
    most: float
    for_people: bool = False


def limited(default: Any, least: float, most: float) -> Any:
    """A field with this default (MISSING for none) and these limits."""
    return dataclasses.field(default=default, metadata={"limit": Limit(least, most)})


def for_people(most: int = MAX_TEXT_CHARS) -> Any:
    """A text that is cut where it is too long."""
    return dataclasses.field(default="", metadata={"limit": Limit(0, most, for_people=True)})


@dataclasses.dataclass(frozen=True)
class RankReport:
    """One rank process on this worker."""

    rank: int
    local_rank: int
    alive: bool
    exit_code: Optional[int] = limited(None, -MAX_NUMBER, MAX_NUMBER)  # None while alive or when ended by a signal
    signal: Optional[int] = None  # the signal that ended it, None otherwise
    ended_by_launcher: bool = False  # the launcher itself sent the signal (reclaim, fence)
    exited_age_seconds: Optional[float] = None
    tail: str = for_people(MAX_TAIL_CHARS)  # its last output; only once it has failed
    corruption: str = limited(
        "", 0, 64
    )  # what it has found wrong with its own results, one of CORRUPTIONS; "" = nothing
    found_at: Optional[int] = None  # the step at which it found that; None = it did not say
    last_good: Optional[int] = None  # the last step of which it is sure; None = it did not say


@dataclasses.dataclass(frozen=True)
class CheckpointReport:
    """One checkpoint as this worker sees it."""

    step: int
    path: str = limited(dataclasses.MISSING, 1, MAX_PATH_CHARS)
    # When the file that completes it was written, by the clock of its file system; 0 = not known.
    written_ns: int = limited(0, 0, MAX_NANOSECONDS)
    verified: bool = True  # False: it is there and has its marker, but whether all of it is there others have to say
    incomplete: bool = False  # looked at, and not all of it is there; not judged then
    format: str = limited("", 0, 64)  # how it is written (muster.node.checkpoint.formats); "" = not told
    size_bytes: Optional[int] = None  # of all its files; like the rest only where it was judged complete
    save_seconds: Optional[float] = None  # from the end of its first file to the end of its last one
    # Of the training of this worker's ranks, where their steps tell: by how much the steps around it took longer than
    # usual,
    stall_seconds: Optional[float] = None
    durable_seconds: Optional[float] = None  # and from the end of its step to the moment when it was seen whole.


@dataclasses.dataclass(frozen=True)
class LocalReport:
    """One checkpoint of which this worker's node holds its whole share on its own disk."""

    step: int
    path: str = limited(dataclasses.MISSING, 1, MAX_PATH_CHARS)
    attempt: int = 0  # that has saved it
    format: str = limited("", 0, 64)


@dataclasses.dataclass(frozen=True)
class PeerReport:
    """For how long a neighbour has not answered this worker's pings."""

    index: int
    silent_seconds: float


@dataclasses.dataclass(frozen=True)
class Report:
    """A launcher's whole state. Each report replaces the one before; `sequence` grows within one launcher process."""

    sequence: int
    state: str
    attempt: int = (
        0  # the attempt that `state` speaks of; for IDLE the one whose Wait it has converged to, 0 = none yet
    )
    ranks: Tuple[RankReport, ...] = ()
    step: Optional[int] = None  # the newest finished step of this attempt, lowest over the local ranks that report one
    step_age_seconds: Optional[float] = None  # since that step was finished
    started_age_seconds: Optional[float] = None  # since the ranks of this attempt were started
    standstill_seconds: float = 0.0  # of the shorter one of these two ages: in which the launcher itself did not run
    step_seconds: Optional[float] = None  # median time of a step in this attempt
    step_p90_seconds: Optional[float] = None  # one step in ten took longer; None also: too few
    # Cut off from everybody and without a step, ranks are dead after this long.
    fence_seconds: float = limited(15.0, 0, LONGEST_FENCE_SECONDS)
    fenced: bool = False  # the ranks of `attempt` were ended by the fence
    previous_attempt: int = 0  # the attempt that ran here before `attempt`; 0 = none
    previous_ranks: Tuple[
        RankReport, ...
    ] = ()  # how its ranks ended: reclaim may be faster than the report of a failure
    previous_step: Optional[int] = None  # its newest finished step, as `step` tells it
    previous_fenced: bool = False  # its ranks were ended by the fence
    peer_port: int = limited(0, 0, 65535)  # UDP port on which this launcher answers its neighbours' pings
    peers: Tuple[PeerReport, ...] = ()
    # At most 8 of the highest steps, highest first: while ranks run those that were judged complete. While none runs
    # also those that are not judged yet, those that were asked for, and after them at most 8 that are torn.
    checkpoints: Tuple[CheckpointReport, ...] = ()
    # Of all that are there, other histories' included, as `write_stamps` in muster.protocol.checkpoints writes them.
    # From those who judge, while no rank runs; None = not looked for (yet).
    stamps: Optional[str] = limited(None, 0, MAX_STAMPS_CHARS)
    # Of the directory that Directive.requested_directory names, the newest, and the one that was asked for.
    other_directory: Tuple[CheckpointReport, ...] = ()
    other_directory_error: str = for_people()  # why that directory cannot be seen, "" if it can
    other_directory_error_kind: str = limited(
        "", 0, 64
    )  # of muster.protocol.checkpoints.ERROR_KINDS; "" = none of them
    checkpoints_scanned_for_attempt: int = 0  # a scan that began when no rank was alive, for this attempt; 0 = none
    listing_round: int = 0  # Directive.listing_round when that scan began
    scanned_age_seconds: Optional[float] = None  # since the first scan that counts for that attempt and that listing
    checkpoint_error: str = for_people()  # why the scan failed, "" if it did not
    checkpoint_error_kind: str = limited("", 0, 64)  # likewise
    free_bytes: Optional[int] = None  # what may still be written into the checkpoint directory; None = not known
    checkpoint_warning: str = for_people()  # what is there may not be what people think: why, "" if nothing is doubtful
    # Why a framework that follows its own pointer file would not go on at all, or from what is torn: of the newest
    # listing; "" = it would go on.
    checkpoint_trap: str = for_people()
    lists_after_end: bool = False  # its ranks have ended well, and the directory is looked through once more
    address: str = ""  # this pod's IP as the launcher knows it (downward API)
    launcher_version: str = ""
    loop_age_seconds: float = (
        0.0  # since the supervisor itself last turned: other threads may speak for one that is stuck
    )
    first_step: Optional[int] = None  # the first step that was finished in this attempt; lowest over the local ranks
    progress_error: str = for_people()  # why finished steps are not counted any more, "" if they are
    progress_preset: str = limited("", 0, 64)  # by which steps are read from the output (muster.protocol.presets)
    # Of the newest of these lines that says so: the loss as it is printed, "" = none does, and the tokens that each
    # accelerator trains in a second.
    printed_loss: str = limited("", 0, MAX_VALUE_CHARS)
    printed_tokens: Optional[float] = None
    printed_step_seconds: Optional[float] = None  # what a step takes, as the newest of these lines says
    printed_tflops: Optional[float] = None  # 10^12 operations of each accelerator in a second, likewise
    printed_mfu: Optional[float] = None  # the share of its peak, likewise
    likely_preset: str = limited("", 0, 64)  # a preset that does not count unless people name it, and whose lines came
    quiet_age_seconds: Optional[float] = None  # since any rank printed or wrote of its progress, or was started
    reads_fence_file: bool = (
        False  # without its coordinator it ends its ranks once a newer attempt stands in the fence file
    )
    fence_file_attempt: int = 0  # the attempt that stands in the fence file, as last read; 0 = none
    fence_file_age_seconds: Optional[float] = None  # since this launcher wrote it there by order; None = it did not
    # The fence file's identity, told by who wrote it first and kept by all who write it later: only in one and the same
    # directory it is the same. "" = none stands there.
    fence_file_id: str = limited("", 0, MAX_FENCE_FILE_CHARS)
    gossips: bool = False  # it tells its neighbours, and asks them, whether somebody of the gang is missed
    first_step_age_seconds: Optional[float] = None  # since `first_step` was finished
    # What of the time in the steps of this attempt so far went elsewhere, as the program tells; None = it does not.
    input_wait_seconds: Optional[float] = None
    communication_seconds: Optional[float] = None
    checkpoint_stall_seconds: Optional[float] = None
    # By how much the steps around the saves of this attempt took longer than usual, of all saves of which that is
    # known.
    measured_stall_seconds: float = 0.0
    measured_saves: int = 0
    # What the accelerators of this worker have used since the ranks of this attempt were started, and in what time,
    # times how many they are; None = the driver does not tell.
    energy_joules: Optional[int] = None
    energy_gpu_milliseconds: Optional[int] = None
    # What the ranks of this attempt have made and taken back by themselves, without having been started anew.
    lost_steps: int = 0
    lost_seconds: float = 0.0
    lowest_restarted_step: Optional[int] = (
        None  # the lowest step from which they went on so; None = they never went back
    )
    step_stride: Optional[int] = None  # steps from one line that tells of them to the next; None = there was only one
    collectives: str = limited("", 0, 64)  # the library of collectives that its ranks have loaded; "" = not known
    fence_file_error: str = for_people()  # why the fence file could not be written or read, "" if it could
    # The newest attempt for which Directive.move_incomplete_beyond was done or given up, and nothing is under way for
    # it any more; 0 = none yet.
    moved_attempt: int = 0
    moved: str = for_people()  # what was moved, "" = nothing
    moved_error: str = for_people()  # why not all was that should have been, "" if it was
    # Of the node's own disk (Directive.local_share): what it held when no rank was alive here, for this attempt and
    # this Directive.listing_round; 0 = not looked (yet).
    local: Tuple[LocalReport, ...] = ()
    local_attempt: int = 0
    local_listing_round: int = 0
    local_error: str = (
        for_people()
    )  # why nothing there counts, and what this attempt saves there will not, "" if it may
    directive_seen: str = ""  # digest of the directive last received; the answer is held while it stays the same
    hold_seconds: float = 0.0  # how long the answer may be held
    protocol: int = PROTOCOL_VERSION


@dataclasses.dataclass(frozen=True)
class Peer:
    """A neighbour to ping."""

    index: int
    address: str
    port: int


@dataclasses.dataclass(frozen=True)
class Directive:
    """What a launcher shall converge to: declared state, sent again on every poll."""

    kind: str
    attempt: int = 0
    node_rank: int = 0
    node_count: int = 0
    processes_per_node: int = 1
    master_address: str = ""
    master_port: int = 0
    resume_path: str = ""  # "" = from scratch
    resume_step: Optional[int] = None
    resume_preset: Optional[str] = None  # by which the command is told of it (muster.protocol.resuming)
    peers: Tuple[Peer, ...] = ()
    neighbours: int = 0  # to ping; more than `peers` where a new leader has not heard them all yet; 0 = not told
    exit_code: int = 0
    reason: str = ""  # for people: why this directive
    poll_seconds: float = 1.0  # when to report again although nothing happened and nothing is held
    hold_seconds: float = 5.0  # what to ask for as hold_seconds from now on
    fence_seconds: float = 0.0  # the length of the fence in this attempt; 0 = as the launcher itself finds right
    writes_fence_file: bool = False  # write the attempt into the fence file in the checkpoint directory, and say so
    verifies: bool = True  # judge checkpoints; False: only tell which there are
    listing_round: Optional[int] = (
        None  # when it grows within an attempt, what was listed before does not count; None = 0
    )
    branch_step: Optional[int] = None  # beyond this step checkpoints of another history do not count:
    excluded_checkpoints: Optional[str] = None  # those with these stamps (see Report.stamps)
    branch_frozen: Optional[bool] = None  # True: none beyond it counts, whenever it was written
    requested_resume: Optional[str] = (
        None  # a step or path that a person asked to go on from: look for it, whatever is newer
    )
    # The checkpoint that the attempt will go on from: what lies beside it with a higher step and is none is to be moved
    # aside, while no rank can be alive, and before any starts.
    move_incomplete_beyond: Optional[str] = None
    # Look for checkpoints on the node's own disk, too: of this share of the gang; None = the job names none.
    local_share: Optional[str] = None
    requested_directory: Optional[str] = None  # look for it there, too: in another directory than the job's own
    protocol: int = PROTOCOL_VERSION


def digest(directive: Directive) -> str:
    """A short fingerprint, equal for equal directives, that a launcher returns as `directive_seen`."""
    return digest_of(encode(directive))


def digest_of(encoded: bytes) -> str:
    """The same of a directive's bytes, as they were received or are to be sent."""
    return hashlib.sha256(encoded).hexdigest()[:16]


def encode(message: Any) -> bytes:
    """The JSON of a message, keys sorted, None left out."""
    return _ENCODER.encode(_to_json(message)).encode()


def decode_report(data: bytes) -> Report:
    """Parse a report.

    Raises:
        ProtocolError: not JSON, not an object, or a field of the wrong type or beyond its bounds (named).
    """
    return decode(Report, data, "report")


def decode(kind: Type[T], data: bytes, where: str) -> T:
    """Parse a message that somebody sent who is not trusted, within the limits of its fields.

    Raises:
        ProtocolError: not JSON, not an object, or a field of the wrong type or beyond its bounds (named).
    """
    return _within_limits(_from_json(kind, _load(data), where), where)


def limits(kind: Any) -> Dict[str, Limit]:
    """The limits of a part of a report, by the names of its fields; a truth value and a part have none."""
    if kind not in _LIMITS:
        hints = _hints(kind)
        found = {
            field.name: field.metadata.get("limit") or _OF_TYPE.get(_bare(hints[field.name]))
            for field in dataclasses.fields(kind)
        }
        _LIMITS[kind] = {name: limit for name, limit in found.items() if limit is not None}
    return _LIMITS[kind]


def _within_limits(part: T, where: str) -> T:
    """A part of a report, its texts for people cut where they are too long.

    Raises:
        ProtocolError: another field is beyond its limits (named).
    """
    kept = {}
    of_kind = limits(type(part))
    for name, key in _keys(type(part)):
        value, at = getattr(part, name), "%s.%s" % (where, key)
        if value is not None and name in of_kind:
            kept[name] = _limited_value(value, of_kind[name], at)
    return dataclasses.replace(part, **kept)  # type: ignore[type-var]


def _limited_value(value: Any, limit: Limit, where: str) -> Any:
    if isinstance(value, (int, float)):
        if not limit.least <= value <= limit.most:
            raise ProtocolError("%s: %.80s is not from %s to %s" % (where, value, limit.least, limit.most))
        return value
    if limit.for_people:
        return readable(value, limit)
    _check_length(value, limit, where)
    if isinstance(value, str):
        _check_text(value, where)
    if isinstance(value, tuple):
        return tuple(_within_limits(part, "%s[%d]" % (where, i)) for i, part in enumerate(value))
    return value


def readable(text: str, limit: Limit) -> str:
    """What of a text for people they are shown: its end, and nothing that steers a terminal or that is no Unicode.

    A rank shares the pod with its launcher and can say what it likes: it ends up in Events and in a job's status.
    """
    text = text[-int(limit.most) :]
    if text.isprintable():
        return text
    return "".join("\N{REPLACEMENT CHARACTER}" if _steers(c) else c for c in text)


def _steers(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in ("Cc", "Cf", "Cs")


def _check_length(value: Any, limit: Limit, where: str) -> None:
    if not limit.least <= len(value) <= limit.most:
        raise ProtocolError("%s: its length %d is not from %s to %s" % (where, len(value), limit.least, limit.most))


def _check_text(value: str, where: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError("%s: %r is no text: half of a surrogate pair" % (where, value[error.start])) from error


def _bare(hint: Any) -> Any:
    """The type of a field, without Optional and without what a tuple holds."""
    origin = getattr(hint, "__origin__", None)
    if origin is Union:
        return _bare(hint.__args__[0])
    return tuple if origin in (tuple, Tuple) else hint


_LIMITS: Dict[Any, Dict[str, Limit]] = {}
_OF_TYPE = {
    int: Limit(0, MAX_NUMBER),
    float: Limit(0, LONGEST_SECONDS),
    str: Limit(0, MAX_TEXT_CHARS),
    tuple: Limit(0, MAX_PARTS),
}


def decode_directive(data: bytes) -> Directive:
    """Parse a directive.

    Raises:
        ProtocolError: not JSON, not an object, or a field of the wrong type (named).
    """
    return decode_told(Directive, data, "directive")


def decode_told(kind: Type[T], data: bytes, where: str) -> T:
    """Parse a message of the coordinator, which may be newer and know longer ones.

    Raises:
        ProtocolError: not JSON, not an object, or a field of the wrong type (named).
    """
    return _from_json(kind, _load(data), where)


def _load(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not JSON: %s" % error) from error


def _refuse(name: str) -> Any:
    raise ValueError("%s is no number" % name)


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def _to_json(value: Any) -> Dict[str, Any]:
    """The JSON object of a message or of a part of one, keys in order."""
    found = {}
    for name, key in _keys(type(value)):
        item = getattr(value, name)
        if item is not None:
            found[key] = [_to_json(one) for one in item] if isinstance(item, tuple) else item
    return found


def _from_json(kind: Type[T], data: Any, where: str) -> T:
    if not isinstance(data, Mapping):
        raise ProtocolError("%s: an object is expected, not %s" % (where, type(data).__name__))
    hints, of_kind = _hints(kind), limits(kind)
    values = {}
    for name, key in _keys(kind):
        item = data.get(key)
        if isinstance(item, list) and name in of_kind:  # before it costs anything
            _check_length(item, of_kind[name], "%s.%s" % (where, key))
        if item is not None:
            values[name] = _convert(hints[name], item, "%s.%s" % (where, key))
    try:
        return kind(**values)
    except TypeError:
        raise ProtocolError("%s.%s is missing" % (where, _missing(kind, values))) from None


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = getattr(hint, "__origin__", None), list(getattr(hint, "__args__", ()))
    if origin is Union:  # Optional[X]; None was dealt with before
        return _convert(arguments[0], value, where)
    if origin in (tuple, Tuple):
        if not isinstance(value, list):
            raise ProtocolError("%s: a list is expected" % where)
        return tuple(_convert(arguments[0], item, "%s[%d]" % (where, i)) for i, item in enumerate(value))
    if dataclasses.is_dataclass(hint):
        return _from_json(hint, value, where)  # type: ignore[arg-type]
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return _finite(value, where)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ProtocolError("%s: %s is expected, not %s" % (where, hint.__name__, type(value).__name__))
    return value


def _finite(value: float, where: str) -> float:
    try:
        found = float(value)
    except OverflowError:
        found = float("inf")
    if not -LONGEST_SECONDS <= found <= LONGEST_SECONDS:
        raise ProtocolError("%s: %.80s is no time" % (where, value))
    return found


_HINTS: Dict[Any, Dict[str, Any]] = {}
_KEYS: Dict[Any, List[Tuple[str, str]]] = {}


def _hints(kind: Any) -> Dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def _keys(kind: Any) -> List[Tuple[str, str]]:
    """Names of a message's fields with those on the wire, in the order of the latter."""
    if kind not in _KEYS:
        _KEYS[kind] = sorted(((field.name, _camel(field.name)) for field in dataclasses.fields(kind)), key=_second)
    return _KEYS[kind]


def _second(pair: Tuple[str, str]) -> str:
    return pair[1]


def _missing(kind: Any, values: Mapping[str, Any]) -> str:
    needed = (field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING)
    return _camel(next(name for name in needed if name not in values))


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


__all__: List[str] = [
    "EXIT",
    "EXITED",
    "IDLE",
    "LONGEST_FENCE_SECONDS",
    "LONGEST_SECONDS",
    "MAX_FENCE_FILE_CHARS",
    "MAX_NUMBER",
    "MAX_PARTS",
    "MAX_PATH_CHARS",
    "MAX_REPORT_BYTES",
    "MAX_STAMPS_CHARS",
    "MAX_TAIL_CHARS",
    "MAX_TEXT_CHARS",
    "PROTOCOL_VERSION",
    "RECLAIMING",
    "REPORT_PATH",
    "RUN",
    "RUNNING",
    "TERMINATING",
    "TOKEN_AUDIENCE",
    "WAIT",
    "CheckpointReport",
    "Directive",
    "Limit",
    "LocalReport",
    "Peer",
    "PeerReport",
    "ProtocolError",
    "RankReport",
    "Report",
    "decode",
    "decode_directive",
    "decode_report",
    "decode_told",
    "digest",
    "digest_of",
    "encode",
    "for_people",
    "limited",
    "limits",
]

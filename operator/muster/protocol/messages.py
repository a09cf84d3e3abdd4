"""Define the wire format: one Report goes up, one Directive comes back.

It is versioned JSON, additive: unknown fields are ignored, missing ones have a default. An unknown kind of directive
means "continue". A pod that an older release rendered therefore works under a newer coordinator, and the reverse. Times
are monotonic ages in seconds, never clock readings: the two ends do not share a clock, and the coordinator stamps each
report on receipt.
"""

from __future__ import annotations

import dataclasses
import hashlib
import ipaddress
import json
import unicodedata
from typing import Any, Dict, List, Mapping, Optional, Tuple, Type, TypeVar, Union, get_type_hints

PROTOCOL_VERSION = 1
REPORT_PATH = "/v1/report"
TOKEN_AUDIENCE = "muster.dev/coordinator"  # noqa: S105 - the name of an audience, not a secret
MAX_REPORT_BYTES = 256 * 1024
MAX_TAIL_CHARS = 2048
MAX_STACK_CHARS = 2048
MAX_PATH_CHARS = 1024
MAX_TEXT_CHARS = 4096
MAX_ADDRESS_CHARS = 45  # of an IPv6 address that ends in an IPv4 address
MAX_STAMPS_CHARS = 16384
# Ranks, checkpoints, neighbours of one report: a worker has 64 ranks at most, of the others there are fewer.
MAX_PARTS = 128
MAX_NUMBER = 2**53 - 1  # the largest integer that every reader of JSON can hold
MAX_NANOSECONDS = 2**63 - 1
LONGEST_SECONDS = 1e8  # three years
LONGEST_FENCE_SECONDS = 86400.0
MAX_FENCE_FILE_CHARS = 64
# Of a process that a starter of processes names.
MAX_RANK, MAX_EXIT_CODE, MAX_SIGNAL = 999_999, 255, 64
MAX_VALUE_CHARS = 24  # of a number as it is printed
MAX_PROBLEM_CHARS = 256  # why one checkpoint is incomplete
MAX_LIKELY_CHARS = 200  # of a pattern that is proposed, and of the line that it would match

# What a launcher is doing (Report.state).
IDLE = "Idle"  # no rank process of any attempt is alive
RUNNING = "Running"  # at least one rank of `attempt` is alive
EXITED = "Exited"  # every rank of `attempt` has ended by itself
RECLAIMING = "Reclaiming"  # ending ranks; some are still alive
TERMINATING = "Terminating"  # by directive: no rank is alive, the launcher is about to exit

# The kinds of a directive (Directive.kind).
WAIT = "Wait"  # have no rank running, be ready for attempt `attempt`
RUN = "Run"  # run the ranks of attempt `attempt`
EXIT = "Exit"  # have no rank running and exit with `exit_code`

# What the ranks are asked for (Directive.request_kind).
SAVE = "Save"  # save as soon as possible, and go on
LEAVE = "Leave"  # save as soon as possible, and end or wait: the ranks are stopped once the checkpoint is complete

# What a rank has found wrong with its own results (RankReport.corruption).
REPLAY_MISMATCH = "ReplayMismatch"
NON_FINITE_LOSS = "NonFiniteLoss"
CORRUPTIONS = (REPLAY_MISMATCH, NON_FINITE_LOSS)
# A rank reports corruption by this exit code alone. Shells, sysexits.h (64 to 78), Python, torchrun, Megatron (16, 17),
# containers (125 to 127) and signals (128 and more) use others.
CORRUPTION_EXIT_CODE = 86


def last_unsuspected(found_at: Optional[int], last_good: Optional[int]) -> Optional[int]:
    """Return the last step whose checkpoints a report of corruption leaves unsuspected; None: it names no step.

    Without a last good step it is the one before the step at which the corruption was found.
    """
    if last_good is not None:
        return last_good
    return None if found_at is None else found_at - 1


# Reported parts of the time of steps that were not spent on computing, in seconds.
INPUT_WAIT, COMMUNICATION, CHECKPOINT_STALL = "inputWaitSeconds", "communicationSeconds", "checkpointSeconds"

T = TypeVar("T")


class ProtocolError(ValueError):
    """A message that cannot be parsed; the text names the field and the cause."""


@dataclasses.dataclass(frozen=True)
class Limit:
    """Limits of a report's field: a number from `least` to `most`, a text or list of so many characters or parts.

    A field without one has the limit of its type. `for_people`: a longer text is cut, not refused, and made readable.
    `is_address`: a text is an IP address, or empty.
    """

    least: float
    most: float
    for_people: bool = False
    is_address: bool = False


def limited(default: Any, least: float, most: float) -> Any:
    """Define a field with this default (MISSING for none) and these limits."""
    return dataclasses.field(default=default, metadata={"limit": Limit(least, most)})


def for_people(most: int = MAX_TEXT_CHARS) -> Any:
    """Define a text that is cut where it is too long."""
    return dataclasses.field(default="", metadata={"limit": Limit(0, most, for_people=True)})


@dataclasses.dataclass(frozen=True)
class RankReport:
    """State of one rank process on this worker."""

    rank: int
    local_rank: int
    alive: bool
    exit_code: Optional[int] = limited(None, -MAX_NUMBER, MAX_NUMBER)  # None while alive or when ended by a signal
    signal: Optional[int] = None  # the signal that ended it, None otherwise
    ended_by_launcher: bool = False  # the launcher itself sent the signal (reclaim, fence)
    exited_age_seconds: Optional[float] = None
    tail: str = for_people(MAX_TAIL_CHARS)  # its last output; once it has failed, or has ended with a traceback
    corruption: str = limited("", 0, 64)  # corruption of its results, one of CORRUPTIONS; "" = none
    found_at: Optional[int] = None  # the step at which it found that; None = it did not report one
    last_good: Optional[int] = None  # the last step of which it is sure; None = it did not say
    # What it is, and says, where it starts the processes that train (torchrun). Only once it has failed.
    starter: str = limited("", 0, 64)  # its name (muster.protocol.starters); "" = not known, or it starts none
    # The process that failed first, as it says at the end of its output; None = it does not. `tail` then has the last
    # lines of that process.
    failed_rank: Optional[int] = limited(None, 0, MAX_RANK)  # its number in the gang
    failed_local_rank: Optional[int] = limited(None, 0, MAX_RANK)  # its number on this node
    failed_exit_code: Optional[int] = limited(None, 1, MAX_EXIT_CODE)  # None = a signal ended it
    failed_signal: Optional[int] = limited(None, 1, MAX_SIGNAL)  # None = none ended it
    # The memory limit that its container reached while it ran, so that the kernel killed one of the processes there;
    # None = it did not, or the launcher cannot see it. Only once it has failed.
    memory_limit_bytes: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class StackReport:
    """Where the main thread of one rank stood when its attempt was ended for a hang; the rank is by its own number."""

    rank: int
    # Frames, one a line, innermost first, such as "/code/train.py:88 in main"; "" = not known.
    frames: str = for_people(MAX_STACK_CHARS)
    problem: str = for_people(256)  # why they are not known


@dataclasses.dataclass(frozen=True)
class CheckpointReport:
    """One checkpoint as this worker sees it."""

    step: int
    path: str = limited(dataclasses.MISSING, 1, MAX_PATH_CHARS)
    # When the file that completes it was written, by the clock of its file system; 0 = not known.
    written_ns: int = limited(0, 0, MAX_NANOSECONDS)
    verified: bool = True  # False: it has its commit marker, and other workers have to verify that it is complete
    incomplete: bool = False  # verified, and files are missing
    format: str = limited("", 0, 64)  # how it is written (muster.node.checkpoint.formats); "" = not reported
    size_bytes: Optional[int] = None  # of all its files; like the rest only where it was found complete
    save_seconds: Optional[float] = None  # from the end of its first file to the end of its last one
    # Of the training of this worker's ranks, where their steps tell: by how much the steps around it took longer than
    # usual,
    stall_seconds: Optional[float] = None
    durable_seconds: Optional[float] = None  # and from the end of its step to the moment when it was seen complete.
    problem: str = for_people(MAX_PROBLEM_CHARS)  # why it is incomplete; "" = it is not, or that is not reported


@dataclasses.dataclass(frozen=True)
class LocalReport:
    """One checkpoint whose whole share for this worker's node lies on the node's own disk."""

    step: int
    path: str = limited(dataclasses.MISSING, 1, MAX_PATH_CHARS)
    attempt: int = 0  # the attempt that has saved it
    format: str = limited("", 0, 64)


@dataclasses.dataclass(frozen=True)
class PeerReport:
    """Age of a neighbour's last answer to this worker's pings."""

    index: int
    silent_seconds: float


@dataclasses.dataclass(frozen=True)
class Report:
    """A launcher's whole state. Each report replaces the last one; `sequence` grows within one launcher process."""

    sequence: int
    state: str
    attempt: int = (
        0  # the attempt that `state` speaks of; for IDLE the one whose Wait it has converged to, 0 = none yet
    )
    ranks: Tuple[RankReport, ...] = ()
    step: Optional[int] = None  # the newest finished step of this attempt, lowest over the local ranks that report one
    step_age_seconds: Optional[float] = None  # since that step was finished
    started_age_seconds: Optional[float] = None  # since the ranks of this attempt were started
    standstill_seconds: float = 0.0  # of the shorter of these two ages: time in which the launcher itself did not run
    step_seconds: Optional[float] = None  # median time of a step in this attempt
    step_p90_seconds: Optional[float] = None  # one step in ten took longer; None also: too few
    # Without contact and without a step, ranks are dead after this long.
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
    # At most 8 of the highest steps, highest first: while ranks run those that were found complete. While none runs
    # also those that are not verified yet, those that were requested, and after them at most 8 that are incomplete.
    checkpoints: Tuple[CheckpointReport, ...] = ()
    # Of all that are there, other branches' included, as `write_stamps` in muster.protocol.checkpoints writes them.
    # From verifiers, while no rank runs; None = not listed (yet).
    stamps: Optional[str] = limited(None, 0, MAX_STAMPS_CHARS)
    # Of the directory that Directive.requested_directory names: the newest, and the requested one.
    other_directory: Tuple[CheckpointReport, ...] = ()
    other_directory_error: str = for_people()  # why that directory cannot be seen, "" if it can
    other_directory_error_kind: str = limited(
        "", 0, 64
    )  # of muster.protocol.checkpoints.ERROR_KINDS; "" = none of them
    checkpoints_scanned_for_attempt: int = 0  # a scan that began when no rank was alive, for this attempt; 0 = none
    listing_round: int = 0  # Directive.listing_round when that scan began
    scanned_age_seconds: Optional[float] = None  # since the first scan that counts for that attempt and that listing
    listed_age_seconds: Optional[float] = None  # since the newest scan that ended well, ranks or not; None = none has
    checkpoint_error: str = for_people()  # why the scan failed, "" if it did not
    checkpoint_error_kind: str = limited("", 0, 64)  # likewise
    free_bytes: Optional[int] = None  # what may still be written into the checkpoint directory; None = not known
    checkpoint_warning: str = for_people()  # why its content may mislead people, "" if nothing is suspect
    # Why a framework that follows its own pointer file would not resume, or from an incomplete checkpoint: of the
    # newest listing; "" = it would resume.
    checkpoint_trap: str = for_people()
    lists_after_end: bool = False  # its ranks have succeeded, and the directory is listed once more
    # This pod's IP as the launcher knows it (downward API); "" = not known.
    address: str = dataclasses.field(default="", metadata={"limit": Limit(0, MAX_ADDRESS_CHARS, is_address=True)})
    launcher_version: str = ""
    loop_age_seconds: float = 0.0  # since the supervisor's last loop: other threads may report for one that is stuck
    first_step: Optional[int] = None  # the first step that was finished in this attempt; lowest over the local ranks
    progress_error: str = for_people()  # why finished steps are no longer counted, "" if they are
    progress_preset: str = limited("", 0, 64)  # by which steps are read from the output (muster.protocol.presets)
    # From the newest of these lines that has it: the loss as it is printed, "" = none has it, and the tokens that each
    # accelerator trains in a second.
    printed_loss: str = limited("", 0, MAX_VALUE_CHARS)
    printed_tokens: Optional[float] = None
    printed_step_seconds: Optional[float] = None  # time of a step in the newest of these lines
    printed_tflops: Optional[float] = None  # 10^12 operations of each accelerator in a second, likewise
    printed_mfu: Optional[float] = None  # the share of its peak, likewise
    likely_preset: str = limited("", 0, 64)  # a preset that counts only by name, and whose lines came
    # Where nothing that is printed counts: a step pattern that would match lines whose number rises, and one of them.
    likely_pattern: str = for_people(MAX_LIKELY_CHARS)
    likely_line: str = for_people(MAX_LIKELY_CHARS)
    # The step from which on each loss that was printed is NaN or infinite; None = the newest one is finite.
    loss_not_finite_since: Optional[int] = None
    quiet_age_seconds: Optional[float] = None  # since any rank printed or wrote of its progress, or was started
    reads_fence_file: bool = (
        False  # without its coordinator it ends its ranks once a newer attempt stands in the fence file
    )
    fence_file_attempt: int = 0  # in the fence file, as last read; 0 = none
    fence_file_age_seconds: Optional[float] = None  # since this launcher wrote it there by directive; None = it did not
    # The fence file's identity, set by its first writer and kept by all later ones: it is the same only in one and the
    # same directory. "" = there is none.
    fence_file_id: str = limited("", 0, MAX_FENCE_FILE_CHARS)
    first_step_age_seconds: Optional[float] = None  # since `first_step` was finished
    # The part of this attempt's step time that was not computing, as the program reports it; None = it does not.
    input_wait_seconds: Optional[float] = None
    communication_seconds: Optional[float] = None
    checkpoint_stall_seconds: Optional[float] = None
    # By how much the steps around the saves of this attempt took longer than usual, of all saves with a known figure.
    measured_stall_seconds: float = 0.0
    measured_saves: int = 0
    # Energy of this worker's accelerators since the ranks of this attempt were started, and its time, times their
    # number; None = the driver has no counter.
    energy_joules: Optional[int] = None
    energy_gpu_milliseconds: Optional[int] = None
    # What the ranks of this attempt have made and taken back by themselves, without a new start.
    lost_steps: int = 0
    lost_seconds: float = 0.0
    lowest_restarted_step: Optional[int] = (
        None  # the lowest step from which they went on so; None = they never went back
    )
    step_stride: Optional[int] = None  # steps between two lines with a step; None = there was only one
    # The longest time between two reports of a step in this attempt; None = there were too few.
    longest_wait_seconds: Optional[float] = None
    collectives: str = limited("", 0, 64)  # the library of collectives that its ranks have loaded; "" = not known
    fence_file_error: str = for_people()  # why the fence file could not be written or read, "" if it could
    # The newest attempt for which Directive.move_incomplete_beyond was done or given up, with nothing under way for it;
    # 0 = none yet.
    moved_attempt: int = 0
    moved: str = for_people()  # what was moved, "" = nothing
    moved_error: str = for_people()  # why not all that should be was moved, "" if it was
    # Of the node's own disk (Directive.local_share): its content when no rank was alive here, for this attempt and this
    # Directive.listing_round; 0 = not listed (yet).
    local: Tuple[LocalReport, ...] = ()
    local_attempt: int = 0
    local_listing_round: int = 0
    local_error: str = for_people()  # why nothing there counts, nor what this attempt saves there; "" if it may
    stacks: Tuple[StackReport, ...] = ()  # of the ranks of attempt `stacks_attempt`; until the next ranks start
    stacks_attempt: int = 0  # the attempt for which Directive.stacks_of_attempt was done; 0 = none
    request: int = 0  # the number of the request that the ranks of `attempt` can read (Directive.request); 0 = none
    request_answered: int = 0  # the highest number of a request that one of them says it follows; 0 = none
    # Whether the ranks train on to their end without a coordinator (Directive.ejected); None = it knows no such order.
    ejected: Optional[bool] = None
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
    """Desired state of a launcher, sent again on every poll."""

    kind: str
    attempt: int = 0
    node_rank: int = 0
    node_count: int = 0
    processes_per_node: int = 1
    master_address: str = ""
    master_port: int = 0
    resume_path: str = ""  # "" = from scratch
    resume_step: Optional[int] = None
    resume_preset: Optional[str] = None  # how the command gets it (muster.protocol.resuming)
    peers: Tuple[Peer, ...] = ()
    neighbours: int = 0  # number to ping; more than `peers` while a new leader does not know them all; 0 = not known
    exit_code: int = 0
    reason: str = ""  # for people: why this directive
    poll_seconds: float = 1.0  # interval of reports when nothing happens and nothing is held
    hold_seconds: float = 5.0  # what to ask for as hold_seconds from now on
    fence_seconds: float = 0.0  # the length of the fence in this attempt; 0 = the launcher's own choice
    writes_fence_file: bool = False  # write the attempt into the fence file in the checkpoint directory, and report it
    verifies: bool = True  # verify checkpoints; False: only list them
    listing_round: Optional[int] = (
        None  # when it grows within an attempt, what was listed before does not count; None = 0
    )
    branch_step: Optional[int] = None  # beyond this step checkpoints of another branch do not count:
    excluded_checkpoints: Optional[str] = None  # those with these stamps (see Report.stamps)
    branch_frozen: Optional[bool] = None  # True: none beyond it counts, whenever it was written
    requested_resume: Optional[str] = None  # a requested step or path: search for it, whatever is newer
    # The checkpoint from which the attempt will resume: incomplete ones beside it with a higher step are to be moved
    # away, while no rank can be alive, and before any starts.
    move_incomplete_beyond: Optional[str] = None
    # List checkpoints on the node's own disk, too: of this share of the gang; None = the job has none.
    local_share: Optional[str] = None
    requested_directory: Optional[str] = None  # list this directory, too: it is another than the job's own
    stacks_of_attempt: Optional[int] = None  # ranks of this attempt print their stacks before they are ended
    # With RUN: what the ranks of this attempt are asked for, while it is asked. Its number grows within the attempt.
    request: Optional[int] = None
    request_kind: Optional[str] = None  # SAVE or LEAVE
    request_seconds: Optional[float] = None  # from when it was first asked until nothing is waited for any more
    request_reason: Optional[str] = None  # in CamelCase
    # With RUN: the gang leaves Muster. The ranks of this attempt go on to their end, whatever comes or does not come
    # from the coordinator afterwards, and the launcher exits with them. Nothing takes this back.
    ejected: Optional[bool] = None
    protocol: int = PROTOCOL_VERSION


def digest(directive: Directive) -> str:
    """Compute a short fingerprint, equal for equal directives, that a launcher returns as `directive_seen`."""
    return digest_of(encode(directive))


def digest_of(encoded: bytes) -> str:
    """Compute the digest of a directive from its bytes, as they were received or are to be sent."""
    return hashlib.sha256(encoded).hexdigest()[:16]


def encode(message: Any) -> bytes:
    """Encode a message as JSON, keys sorted, None left out."""
    return _ENCODER.encode(_to_json(message)).encode()


def decode_report(data: bytes) -> Report:
    """Parse a report.

    Raises:
        ProtocolError: not JSON, not an object, or a field of the wrong type or beyond its bounds (named).
    """
    return decode(Report, data, "report")


def decode(kind: Type[T], data: bytes, where: str) -> T:
    """Parse a message of an untrusted sender, within the limits of its fields.

    Raises:
        ProtocolError: not JSON, not an object, or a field of the wrong type or beyond its bounds (named).
    """
    return _within_limits(_from_json(kind, _load(data), where), where)


def limits(kind: Any) -> Dict[str, Limit]:
    """Return the limits of a part of a report by field name; booleans and parts have none."""
    if kind not in _LIMITS:
        hints = _hints(kind)
        field_limits = {
            field.name: field.metadata.get("limit") or _OF_TYPE.get(_bare(hints[field.name]))
            for field in dataclasses.fields(kind)
        }
        _LIMITS[kind] = {name: limit for name, limit in field_limits.items() if limit is not None}
    return _LIMITS[kind]


def _within_limits(part: T, where: str) -> T:
    """Return a part of a report with its texts for people cut where they are too long.

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
        return readable(value[-int(limit.most) :])
    _check_length(value, limit, where)
    if isinstance(value, str) and not is_plain(value):
        raise ProtocolError("%s: %r has control characters, or is not Unicode" % (where, value[:80]))
    if limit.is_address and not is_address(value):
        raise ProtocolError("%s: %r is no IP address: send the pod's status.podIP, or leave it out" % (where, value))
    if isinstance(value, tuple):
        return tuple(_within_limits(part, "%s[%d]" % (where, i)) for i, part in enumerate(value))
    return value


def readable(text: str) -> str:
    """Return a text for people, without terminal controls or what is not Unicode.

    A tenant's program can send or print any text: it is shown in Events and in a job's status.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join("\N{REPLACEMENT CHARACTER}" if c not in "\n\t" and _steers(c) else c for c in text)


def is_plain(name: str) -> bool:
    """Whether a name is Unicode, on one line, without terminal controls: people see it as it is written."""
    return name.isprintable() or not any(map(_steers, name))


def is_address(text: str) -> bool:
    """Whether a text is an IP address as a pod's status has it, without a zone, or empty."""
    try:
        return not text or (bool(ipaddress.ip_address(text)) and "%" not in text)
    except ValueError:
        return False


def _steers(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _check_length(value: Any, limit: Limit, where: str) -> None:
    if not limit.least <= len(value) <= limit.most:
        raise ProtocolError("%s: its length %d is not from %s to %s" % (where, len(value), limit.least, limit.most))


def _bare(hint: Any) -> Any:
    """Return the type of a field, without Optional and without the tuple around it."""
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
    return decode_from_coordinator(Directive, data)


def decode_from_coordinator(kind: Type[T], data: bytes) -> T:
    """Parse a message of the coordinator, which may be newer and send longer ones.

    Raises:
        ProtocolError: not JSON, not an object, or a field of the wrong type (named).
    """
    return _from_json(kind, _load(data), "directive")


def _load(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("not JSON: %s" % error) from error


def _refuse(name: str) -> Any:
    raise ValueError("%s is no number" % name)


_ENCODER = json.JSONEncoder(separators=(",", ":"))


def _to_json(value: Any) -> Dict[str, Any]:
    """Return the JSON object of a message or of a part of one, keys in order."""
    document = {}
    for name, key in _keys(type(value)):
        item = getattr(value, name)
        if item is not None:
            document[key] = [_to_json(entry) for entry in item] if isinstance(item, tuple) else item
    return document


def _from_json(kind: Type[T], data: Any, where: str) -> T:
    if not isinstance(data, Mapping):
        raise ProtocolError("%s: an object is expected, not %s" % (where, type(data).__name__))
    hints, of_kind = _hints(kind), limits(kind)
    values = {}
    for name, key in _keys(kind):
        item = data.get(key)
        if isinstance(item, list) and name in of_kind:  # before it takes memory
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
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not -LONGEST_SECONDS <= number <= LONGEST_SECONDS:
        raise ProtocolError("%s: %.80s is no time" % (where, value))
    return number


_HINTS: Dict[Any, Dict[str, Any]] = {}
_KEYS: Dict[Any, List[Tuple[str, str]]] = {}


def _hints(kind: Any) -> Dict[str, Any]:
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind)
    return _HINTS[kind]


def _keys(kind: Any) -> List[Tuple[str, str]]:
    """Return the names of a message's fields with those on the wire, in the order of the latter."""
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

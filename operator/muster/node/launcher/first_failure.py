"""Reads from the end of what a rank printed which of the processes that it had started failed first. Pure.

torchrun, and what is built on it (accelerate, tune, fabric), ends with a block that names that process, behind the
lines of all processes. The block says how the process ended, and seldom why: the reason stands in the lines before it.
DeepSpeed's launcher and accelerate's of one process end with a line of their own. Only what stands at the very end
counts, since a program may print such lines at any time. Error files are not read: the block quotes them.

Sources: torch/distributed/elastic/multiprocessing/errors/__init__.py (ChildFailedError.format_msg), torch/distributed/
__init__.py (the prefix of exceptions), deepspeed/launcher/launch.py, accelerate/commands/launch.py.

Tests: tests/unit/launcher/test_first_failure.py, tests/unit/reports/test_first_failures.py.
"""

from __future__ import annotations

import dataclasses
import re
import signal
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from muster.protocol.messages import MAX_EXIT_CODE, MAX_SIGNAL
from muster.protocol.rank_lines import LOGGED, NCCL_INFO, PREFIX, PYTHON_WARNING, TERMINAL, TRACEBACK

MAX_BYTES = 64 * 1024  # of one stream, kept and searched
_MOST_LINES = 4096  # of one stream, searched
_MOST_TRACEBACK_LINES = 256  # of torchrun's own, above its block
_MOST_LINES_BEHIND = 16  # behind the block

_LINE_END = re.compile(r"\r?\n|\r")
_BORDER = re.compile(r"={20,}\Z")
_RAISED = "ChildFailedError:"
_ROOT_CAUSE = "Root Cause (first observed failure):"
_FAILURE = re.compile(r"\[\d{1,6}\]:\Z")
_FIELD = re.compile(r"  (time|rank|exitcode|traceback) *: (.*)\Z")
_RANK = re.compile(r"(\d{1,6}) \(local_rank: (\d{1,6})\)")
_EXIT_CODE = re.compile(r"(-?\d{1,3}) \(pid: (\d{1,10})\)")
_NO_TRACEBACK = re.compile(r"To enable traceback see: |Signal \d+ \(|<N/A>|<NONE>")
# torchrun's and DeepSpeed's own log lines, old and new; a warning about OMP_NUM_THREADS, which takes several lines.
_OF_STARTER = re.compile(
    r"(?:\[?[WEI]\d{4} |\[\d{4}-\d\d-\d\d [\d:,]{8,12}\] ).{0,64}?(?:\btorch/distributed/(?:elastic|run|launcher)\b"
    r"|\btorch\.distributed\.(?:elastic|run|launcher)\b|\[launch\.py:\d)"
    r"|(?:WARNING|ERROR|INFO): ?torch\.distributed\.(?:elastic|run|launcher)\b"
    r"|\*{20,}\Z|Setting OMP_NUM_THREADS environment variable for each process"
)
_ROUND_FAILED = re.compile(r".{0,160}\bfailed \(exitcode: -?\d{1,3}\) local_rank: \d{1,6} ")
# What libraries log beside, and what the interpreter of a starter may still print behind its block.
_NOISE = re.compile(rf".{{0,96}}{NCCL_INFO}|Extension modules: ")
_WARNING = re.compile(rf"(?:\[rank\d{{1,6}}\]:)?{LOGGED}|{PYTHON_WARNING}")
_DEEPSPEED = re.compile(
    r"\[[\d :,-]{19,23}\] \[ERROR\] \[launch\.py:\d{1,5}:sigkill_handler\] \[.*\] exits with return code = "
    r"(-?\d{1,3})\Z"
)
_DEEPSPEED_RANK = re.compile(r"'--local_rank=(\d{1,6})'")
_CALLED = re.compile(
    r"subprocess\.CalledProcessError: Command '\[.*\]' (?:returned non-zero exit status (\d{1,3})"
    r"|died with <Signals\.(SIG\w{1,10}): (\d{1,3})>)\.\Z"
)
# A process that such a signal ended is no consequence of another's end; torchrun's clock has whole seconds.
_SUDDEN = frozenset((signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE))


@dataclasses.dataclass(frozen=True)
class FirstFailure:
    """The process that failed first, as the program that started it says.

    Attributes:
        rank: its number in the gang; None: not named.
        local_rank: its number on this node; None: not named.
        exit_code: its exit code; None: a signal ended it.
        signal: the number of the signal that ended it; None: none did.
        lines: what it printed last, as far as that can be told from what others printed. Where a signal ended it, the
            last line says so.
    """

    rank: Optional[int] = None
    local_rank: Optional[int] = None
    exit_code: Optional[int] = None
    signal: Optional[int] = None
    lines: Tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class _Ended:
    """How a process ended: by a code, or a signal as a negative one, which `how` says."""

    rank: Optional[int]
    local_rank: Optional[int]
    code: int
    lines: Sequence[str]
    how: str


@dataclasses.dataclass(frozen=True)
class _Failed:
    """One process of a block of torchrun."""

    time: str
    rank: int
    local_rank: int
    code: int
    pid: str
    traceback: Sequence[str]

    def ended(self, printed: Sequence[str]) -> _Ended:
        how = "Signal %d (%s) received by PID %s" % (-self.code, _signal_name(-self.code), self.pid)
        return _Ended(self.rank, self.local_rank, self.code, self.traceback or printed, how)


class LastBytes:
    """Keeps the last bytes of a stream, in time that does not grow with what is kept."""

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most = most
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        """Take in what follows."""
        self._kept += data[-self._most :]
        if len(self._kept) > 2 * self._most:
            del self._kept[: -self._most]

    def get(self) -> bytes:
        """Return the last bytes that were taken in, as many as are kept."""
        return bytes(self._kept[-self._most :])


def find(streams: Iterable[bytes]) -> Optional[FirstFailure]:
    """Return the process that failed first, as the end of one of the streams names it; None: none does.

    Args:
        streams: the last bytes that a rank printed, of each stream; the rank has ended with a failure.
    """
    texts = [_LINE_END.split(TERMINAL.sub("", data.decode("utf-8", "replace")))[-_MOST_LINES:] for data in streams]
    for place, lines in enumerate(texts):
        beside = [line for at, other in enumerate(texts) if at != place for line in other]
        ended = _of_torchrun(lines) or _of_deepspeed(lines, beside) or _of_accelerate(lines)
        if ended is None or ended.code == 0 or not -MAX_SIGNAL <= ended.code <= MAX_EXIT_CODE:
            continue
        printed = ended.lines or _informative(beside)
        how = (ended.how,) if ended.code < 0 else ()
        return FirstFailure(
            ended.rank,
            ended.local_rank,
            ended.code if ended.code > 0 else None,
            -ended.code if ended.code < 0 else None,
            (*printed, *how),
        )
    return None


def _of_torchrun(lines: Sequence[str]) -> Optional[_Ended]:
    end = _end(lines)
    if end is None or not _BORDER.match(lines[end]):
        return None
    top = next((at for at in range(end - 1, 0, -1) if lines[at] == lines[end]), None)
    if top is None or not lines[top - 1].rstrip().endswith(_RAISED) or not lines[top + 1].endswith(" FAILED"):
        return None
    failed = _failures(lines[top + 2 : end])
    if not failed:
        return None
    earlier_lines = _of_last_round(lines[: _start_of_traceback(lines, top - 1)])
    first = _first(failed, earlier_lines)
    return first.ended(_lines_of(earlier_lines, first.rank, first.local_rank))


def _end(lines: Sequence[str]) -> Optional[int]:
    """Return the place of the last line that the interpreter of a starter does not print while it ends."""
    for at in range(len(lines) - 1, max(-1, len(lines) - 1 - _MOST_LINES_BEHIND), -1):
        if lines[at].strip() and not _WARNING.match(lines[at]):
            return at
    return None


def _failures(block: Sequence[str]) -> List[_Failed]:
    """Return the processes of a block, the one that it calls the root cause first; [] where it names none."""
    if _ROOT_CAUSE not in block:
        return []
    root = len(block) - 1 - block[::-1].index(_ROOT_CAUSE)
    failures = _parsed(block[root + 1 :])
    return failures[:1] + _parsed(block[:root]) if failures else []


def _parsed(block: Sequence[str]) -> List[_Failed]:
    starts = [at for at, line in enumerate(block) if _FAILURE.match(line)]
    parts = [_failed(block[at + 1 : end]) for at, end in zip(starts, [*starts[1:], len(block)])]
    return [part for part in parts if part is not None]


def _failed(part: Sequence[str]) -> Optional[_Failed]:
    fields: Dict[str, str] = {}
    traceback: List[str] = []
    for at, line in enumerate(part):
        field = _FIELD.match(line)
        if field is not None:
            fields.setdefault(field[1], field[2])
            if field[1] == "traceback":
                traceback = [field[2], *(text[2:] for text in part[at + 1 :])]
                break
    rank, code = _RANK.match(fields.get("rank", "")), _EXIT_CODE.match(fields.get("exitcode", ""))
    if rank is None or code is None:
        return None
    lines = [] if _NO_TRACEBACK.match("".join(traceback[:1])) else [line for line in traceback if line.strip()]
    return _Failed(fields.get("time", ""), int(rank[1]), int(rank[2]), int(code[1]), code[2], tuple(lines))


def _first(failed: Sequence[_Failed], earlier_lines: Sequence[str]) -> _Failed:
    """Return the process that failed first: the root cause, unless another failed in the same second, and before it.

    torchrun compares whole seconds, and takes the lowest rank of several. A process that was ended suddenly comes
    before those that noticed. Of exceptions the one that was printed first is the cause.
    """
    same = [failure for failure in failed if failure.time and failure.time == failed[0].time] or list(failed[:1])
    sudden = [failure for failure in same if -failure.code in _SUDDEN]
    if sudden:
        return sudden[0]
    ranks: Dict[Optional[int], _Failed] = {failure.rank: failure for failure in same}
    printed = (ranks.get(_rank_of(line)) for line in earlier_lines if TRACEBACK + ":" in line)
    return next((failure for failure in printed if failure is not None), failed[0])


def _rank_of(line: str) -> Optional[int]:
    """Return the rank that PyTorch has put before a line; None: it has put none there."""
    prefix = PREFIX.match(line)
    return int(prefix[2]) if prefix is not None and prefix[2] is not None else None


def _start_of_traceback(lines: Sequence[str], raised: int) -> int:
    """Return the place where the traceback begins that ends with this line; also of one within a drawn frame."""
    for at in range(raised - 1, max(-1, raised - _MOST_TRACEBACK_LINES), -1):
        if TRACEBACK in lines[at]:
            return at
        if lines[at][:1] not in (" ", "│", "╰"):
            break
    return raised


def _of_last_round(lines: Sequence[str]) -> List[str]:
    """Return the lines since torchrun last started its processes again."""
    ends = [at for at, line in enumerate(lines) if _ROUND_FAILED.match(line) and _OF_STARTER.match(line)]
    return list(lines[ends[-2] + 1 :] if len(ends) > 1 else lines)


def _lines_of(lines: Sequence[str], rank: Optional[int], local_rank: Optional[int]) -> List[str]:
    """Return the lines of one process: its exceptions, else its others by prefix, else what is of no other one."""
    exceptions: List[str] = []
    by_role: List[str] = []
    rest: List[str] = []
    for line in lines:
        prefix = PREFIX.match(line)
        assert prefix is not None
        text = line[prefix.end() :]
        is_others = rank is not None and prefix[2] is not None and int(prefix[2]) != rank
        if prefix[1] is not None:
            is_others = is_others or int(prefix[1]) != local_rank
            by_role += [] if is_others else [text]
        if is_others:
            continue
        if rank is not None and prefix[2] is not None and text[:1] in (" ", ""):
            exceptions.append(text[1:])
        rest.append(line)
    return _informative(exceptions) or _informative(by_role) or _informative(rest)


def _informative(lines: Sequence[str]) -> List[str]:
    kept = [line for line in lines if line.strip() and not _OF_STARTER.match(line) and not _NOISE.match(line)]
    # What libraries warn of stands beside an exception; without one it may be all that there is.
    if any(TRACEBACK + ":" in line for line in kept):
        kept = [line for line in kept if not _WARNING.match(line)]
    return kept


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _of_deepspeed(lines: Sequence[str], beside: Sequence[str]) -> Optional[_Ended]:
    """Return the process that DeepSpeed's launcher names, by its local rank, in the other stream than exceptions."""
    end = _end(lines)
    match = _DEEPSPEED.match(lines[end]) if end is not None else None
    if match is None:
        return None
    named, how = _DEEPSPEED_RANK.search(match[0]), "exits with return code = %s" % match[1]
    local_rank = int(named[1]) if named else None
    # It is the rank, too, on the only node; on another one no line has this number.
    rank = local_rank if any(_rank_of(line) == local_rank is not None for line in (*beside, *lines)) else None
    printed = _lines_of(beside, rank, local_rank) or _lines_of(lines[:end], rank, local_rank)
    return _Ended(None, local_rank, int(match[1]), printed, how)


def _of_accelerate(lines: Sequence[str]) -> Optional[_Ended]:
    """Return the one process of `accelerate launch`, which names no rank for it."""
    end = _end(lines)
    match = _CALLED.match(lines[end]) if end is not None else None
    if match is None or end is None:
        return None
    start = _start_of_traceback(lines, end)
    if not any("accelerate/commands/launch.py" in line for line in lines[start:end]):
        return None
    code, how = (int(match[1]), "") if match[1] else (-int(match[3]), "died with <Signals.%s: %s>" % match.group(2, 3))
    return _Ended(None, None, code, _informative(lines[:start]), how)

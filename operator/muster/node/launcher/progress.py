"""Reads which steps a rank has finished: from its MUSTER_PROGRESS file, or from a line of its output.

Tests: tests/unit/launcher/test_pure.py.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from typing import Any, Container, Dict, List, NamedTuple, Optional, Pattern, Tuple

from muster.protocol.messages import (
    CHECKPOINT_STALL,
    COMMUNICATION,
    CORRUPTIONS,
    INPUT_WAIT,
    LONGEST_SECONDS,
    MAX_NUMBER,
    last_unsuspected,
)

_READ_BYTES = 64 * 1024  # at a time: even if each line is nonsense, that takes a few hundredths of a second
# A trainer may put a pipe, a device or a link to storage that hangs in the place of the file: these are not waited for.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINE_BYTES = 64 * 1024
MAX_MATCHED_BYTES = 4096  # of a line of output
_MOST_READS = 16  # of a rank that has ended: so much of what it wrote last is looked through at once
_MAX_SHOWN_CHARS = 200
# What a line may tell besides its step, of the time since the line before.
_SECONDS = (INPUT_WAIT, COMMUNICATION, CHECKPOINT_STALL)


class ReportedCorruption(NamedTuple):
    """A fault that a rank has reported in its own results.

    Attributes:
        reason: one of muster.protocol.messages.CORRUPTIONS.
        found_at: the step at which the fault was found; None where the rank does not say.
        last_good: the last step whose results are certainly right; None where the rank does not say.
    """

    reason: str
    found_at: Optional[int] = None
    last_good: Optional[int] = None


class ProgressFile:
    """Reads what a rank appends to its progress file, a bounded piece at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._partial = b""
        self._skipping = False  # inside a line that is too long
        self._has_finished = False  # an earlier line has told a finished step
        self.tells_steps = False  # a complete line has told a finished one; 0 is none
        self.corruption: Optional[ReportedCorruption] = (
            None  # of the lines that tell of any the one that reaches furthest back
        )
        self.answered = 0  # the highest number of a request, of those made, that a line says the rank follows; 0 = none
        self.seconds: Dict[str, float] = {}  # by what they went into, of those that any line has told of
        self.problem = ""  # why the first line that reports something else than steps is ignored, "" if none is

    @property
    def position(self) -> int:
        """The number of bytes of the file that were read."""
        return self._offset

    def read_rest(self, asked: Container[int] = ()) -> List[int]:
        """The steps in the rest of the file, of a rank that writes no more; `asked` as of `read`."""
        steps: List[int] = []
        for _ in range(_MOST_READS):
            offset = self._offset
            steps += self.read(asked)
            if self._offset == offset:
                break
        return steps

    def read(self, asked: Container[int] = ()) -> List[int]:
        """The steps in the complete lines that came since the last call.

        Args:
            asked: the numbers of all requests that the rank could ever read.
        """
        try:
            data = self._new_data()
        except OSError:
            return []
        self._offset += len(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        steps = [step for step in (self._step(line, asked) for line in lines) if step is not None]
        self.tells_steps |= any(steps)
        if len(self._partial) > _MAX_LINE_BYTES:
            self._partial, self._skipping = b"", True
        return steps

    def _new_data(self) -> bytes:
        descriptor = os.open(self._path, _FLAGS)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return b""
            if status.st_size < self._offset:  # the trainer truncated it
                self._offset, self._partial, self._skipping = 0, b"", False
            return os.pread(descriptor, _READ_BYTES, self._offset)
        finally:
            os.close(descriptor)

    def _step(self, line: bytes, asked: Container[int]) -> Optional[int]:
        if self._skipping:  # the end of it
            self._skipping = False
            return None
        if not line.strip():
            return None
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        if isinstance(document, dict) and "corruption" in document:
            self._note_corruption(document, line)
            return None
        if isinstance(document, dict) and "request" in document:
            self._note_answer(document["request"], asked, line)
        step: Any = document.get("step") if isinstance(document, dict) else None
        if not _is_step(step):
            return None
        self._note_seconds(document)
        finished: int = step
        self._has_finished |= finished > 0
        return finished

    def _note_answer(self, number: Any, asked: Container[int], line: bytes) -> None:
        """Note a request that the rank says it follows: only one that was made, lest it hides the answers to later
        ones."""
        if not _is_step(number):
            self._ignore(line, "request has to be the number of a request")
        elif number not in asked:
            self._ignore(line, "no request of that number was made")
        else:
            self.answered = max(self.answered, number)

    def _ignore(self, line: bytes, why: str) -> None:
        shown = line[:_MAX_SHOWN_CHARS].decode("utf-8", "replace")
        self.problem = self.problem or "the line %s is ignored: %s" % (shown, why)

    def _note_seconds(self, document: Dict[str, Any]) -> None:
        """Add up the times that a line reports as not spent on computing.

        The time before the first step is part of the start, so of its line only the names count.
        """
        for name in _SECONDS:
            seconds: Any = document.get(name)
            if _is_duration(seconds):
                more = seconds if self._has_finished else 0.0
                self.seconds[name] = min(self.seconds.get(name, 0.0) + more, LONGEST_SECONDS)

    def _note_corruption(self, document: Dict[str, Any], line: bytes) -> None:
        reason: Any = document["corruption"]
        found_at: Any = document.get("foundAt")
        last_good: Any = document.get("lastGood")
        why = ""
        if reason not in CORRUPTIONS:
            why = "corruption has to be one of %s" % ", ".join(CORRUPTIONS)
        elif not all(number is None or _is_step(number) for number in (found_at, last_good)):
            why = "foundAt and lastGood have to be numbers of steps"
        elif found_at is not None and last_good is not None and last_good > found_at:
            why = "lastGood is beyond foundAt"
        if why:
            self._ignore(line, why)
            return
        corruption = ReportedCorruption(reason, found_at, last_good)
        if self.corruption is None or _reach(corruption) < _reach(self.corruption):
            self.corruption = corruption


def _reach(corruption: ReportedCorruption) -> Tuple[bool, int]:
    """The sort key of a reported fault: those that reach further back come first, and those without a step last."""
    beyond = last_unsuspected(corruption.found_at, corruption.last_good)
    return beyond is None, beyond or 0


def _is_step(number: Any) -> bool:
    """Whether a JSON value is a number that a step, or a request, can have."""
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= MAX_NUMBER


def _is_duration(seconds: Any) -> bool:
    """Whether a JSON value is a finite number of seconds that something can have taken (Python's JSON has NaN and
    Infinity)."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return False
    return 0 <= seconds <= LONGEST_SECONDS and math.isfinite(seconds)


def compile_pattern(pattern: str) -> Pattern[str]:
    """Compile a job's step pattern.

    Raises:
        ValueError: it is no regular expression, or has no group.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:  # all of them from patterns
        raise ValueError("not a regular expression: %s" % error) from error
    if compiled.groups < 1:
        raise ValueError("it needs a group that matches the step")
    return compiled


def step_in_line(pattern: Pattern[str], line: bytes) -> Optional[int]:
    """The step that the pattern finds in a line of output; None if it finds none."""
    match = pattern.search(line[:MAX_MATCHED_BYTES].decode("utf-8", "replace"))
    if match is None:
        return None
    try:
        step = int(match.group(1))
    except (TypeError, ValueError):
        return None
    return step if 0 <= step <= MAX_NUMBER else None

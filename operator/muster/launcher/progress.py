"""Which step each rank has reached and how long a step takes, from the MUSTER_PROGRESS file or from the output."""

from __future__ import annotations

import collections
import json
import os
import re
import stat
import statistics
from typing import Deque, List, Optional, Pattern

from muster.protocol.messages import MAX_NUMBER

_READ_BYTES = 64 * 1024  # at a time: even if each line is nonsense, that takes a few hundredths of a second
# A trainer may put a pipe, a device or a link to storage that hangs in the place of the file: these are not waited for.
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINE_BYTES = 64 * 1024
MAX_MATCHED_BYTES = 4096  # of a line of output
_WINDOW = 64


class StepClock:
    """The newest step of one rank, when it was seen, and the usual time of a step."""

    def __init__(self) -> None:
        self.step: Optional[int] = None
        self.finished_at: Optional[float] = None
        self._intervals: Deque[float] = collections.deque(maxlen=_WINDOW)

    def note(self, step: int, now: float) -> None:
        """A step was finished. Only a higher one is progress."""
        if self.step is not None and step <= self.step:
            return
        if self.step is not None and self.finished_at is not None:
            self._intervals.append((now - self.finished_at) / (step - self.step))
        self.step, self.finished_at = step, now

    def step_seconds(self) -> Optional[float]:
        """Median over the last steps."""
        return statistics.median(self._intervals) if self._intervals else None


class ProgressFile:
    """Reads what a rank appends to its progress file, a bounded piece at a time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._offset = 0
        self._partial = b""
        self._skipping = False  # inside a line that is too long
        self.ignored_lines = 0
        self.first_step: Optional[int] = None  # in the first complete line that tells a finished one; 0 is none

    def read(self) -> Optional[int]:
        """The highest step in the complete lines that came since the last call, None if there is none."""
        try:
            data = self._new_data()
        except OSError:
            return None
        self._offset += len(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        steps = [step for step in map(self._step, lines) if step is not None]
        if self.first_step is None:
            self.first_step = next(filter(None, steps), None)
        if len(self._partial) > _MAX_LINE_BYTES:
            self._partial, self._skipping = b"", True
        return max(steps) if steps else None

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

    def _step(self, line: bytes) -> Optional[int]:
        if self._skipping:  # the end of it
            self._skipping = False
            self.ignored_lines += 1
            return None
        if not line.strip():
            return None
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            document = None
        step = document.get("step") if isinstance(document, dict) else None
        if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step <= MAX_NUMBER:
            self.ignored_lines += 1
            return None
        return step


def compile_pattern(pattern: str) -> Pattern[str]:
    """The step pattern.

    Raises:
        ValueError: not a regular expression, or without a group.
    """
    try:
        compiled = re.compile(pattern)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:  # all of them from patterns
        raise ValueError("not a regular expression: %s" % error) from error
    if compiled.groups < 1:
        raise ValueError("it needs a group that matches the step")
    return compiled


def step_in_line(pattern: Pattern[str], line: bytes) -> Optional[int]:
    """The step that a line of output tells, None if it tells none."""
    match = pattern.search(line[:MAX_MATCHED_BYTES].decode("utf-8", "replace"))
    if match is None:
        return None
    try:
        step = int(match.group(1))
    except (TypeError, ValueError):
        return None
    return step if 0 <= step <= MAX_NUMBER else None


def lowest(clocks: List[StepClock]) -> Optional[StepClock]:
    """The clock of the rank that is furthest behind, among those that report; of equals the one that came last."""
    reporting = [clock for clock in clocks if clock.step is not None]
    return min(reporting, key=lambda clock: (clock.step or 0, -(clock.finished_at or 0.0))) if reporting else None

"""Looks for steps in the ranks' output, in a child process: a pattern that takes for ever stops only the child.

Users write the patterns: one like `(a+)+$` takes years for some lines, and while the regular expression engine works
no thread of its process does, a launcher's fence among them. So the child ends itself when a line takes too long
(`match_child.py`), and after a few of these the pattern is given up and people are told.

Output that comes faster than it is looked through is left out, the oldest first.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import signal
import threading
from typing import Callable, Deque, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from muster.node.launcher.children import Child, converse
from muster.node.launcher.match_child import LINE_SECONDS, MAX_STEPS
from muster.node.launcher.progress import MAX_MATCHED_BYTES
from muster.protocol.messages import LONGEST_SECONDS

_MAX_KEPT_BYTES = 64 * 1024  # of each rank's output that waits
_BATCH_BYTES = 32 * 1024  # a pipe that is not read yet takes twice that
_BETWEEN_SECONDS = 0.02  # between batches, however much is printed
_PAUSE_SECONDS = 1.0  # before a child that has ended is replaced
_MAX_FAILURES = 3
_FORGIVEN_SECONDS = 3600.0
_MAX_ANSWER_BYTES = 64 * 1024
_NUMBERS = itertools.count(1)


class Printed:
    """The output of a rank that was not searched yet, and the steps found in the rest. Output threads fill it."""

    def __init__(self, resumed_step: int = 0) -> None:
        """Begin for a rank that resumed from the checkpoint of this step; 0 = from none."""
        self.resumed_step = resumed_step
        self.preset = ""  # by which its steps were found; "" where by a pattern, or none was
        self.loss = ""  # beside the newest of them that has one
        self.figures: Dict[str, float] = {}  # likewise, by what muster.node.launcher.printed calls them
        self.seconds: Dict[str, float] = {}  # that its steps have spent otherwise than computing, as it prints
        self.problem = ""  # why steps of a loop of the user's own do not count any more; "" = they do, or none did
        self.not_finite_since: Optional[int] = (
            None  # the step from which on its loss is NaN or infinite; None = it is not
        )
        self.number = next(_NUMBERS)  # of this start: none has the same
        self._has_steps = False
        self._is_taken = False  # some lines are being looked through
        self._steps: List[int] = []
        self._lock = threading.Lock()
        self._lines: Deque[bytes] = collections.deque()
        self._bytes = 0

    def put(self, lines: Sequence[bytes]) -> None:
        """Add lines of output; the oldest are dropped where they are too many."""
        with self._lock:
            for line in lines:
                self._lines.append(line[:MAX_MATCHED_BYTES])
                self._bytes += len(self._lines[-1]) + 1
                while self._bytes > _MAX_KEPT_BYTES:
                    self._bytes -= len(self._lines.popleft()) + 1

    def take_lines(self, least_bytes: int) -> List[bytes]:
        """Remove and return the oldest lines, until they have this many bytes together or none is left."""
        taken_lines: List[bytes] = []
        length = 0
        with self._lock:
            while self._lines and length < least_bytes:
                taken_lines.append(self._lines.popleft())
                length += len(taken_lines[-1]) + 1
            self._bytes -= length
            self._is_taken = bool(taken_lines)
        return taken_lines

    @property
    def is_waiting(self) -> bool:
        """Whether there are lines that the child has not searched yet."""
        return self._is_taken or bool(self._lines)

    def note_answer(self) -> None:
        """Note that the lines handed out last have been searched, or are lost."""
        self._is_taken = False

    def note_steps(
        self,
        steps: Sequence[int],
        preset: str,
        loss: str,
        figures: Mapping[str, float],
        seconds: Mapping[str, float],
    ) -> None:
        """Add steps and figures that were found in lines that had been handed out.

        Args:
            steps: numbers of finished steps, in the order of the lines.
            preset: the preset whose lines they were; "" = a pattern's.
            loss: the loss printed last; "" = none.
            figures: the last value of each figure, by name.
            seconds: the time that did not go into computing, by name. What comes before the first step is part of the
                start:
            then only the names count.
        """
        self._has_steps |= bool(steps)
        for name, more in seconds.items():
            so_far = self.seconds.get(name, 0.0) + (more if self._has_steps else 0.0)
            self.seconds[name] = min(so_far, LONGEST_SECONDS)
        self._steps = [*self._steps, *steps][-MAX_STEPS:]
        self.preset = preset or self.preset
        self.loss = loss or self.loss
        self.figures.update(figures)

    def note_state(self, problem: str, not_finite_since: Optional[int]) -> None:
        """Note what the lines searched so far say of the rank."""
        self.problem, self.not_finite_since = problem, not_finite_since

    def take_steps(self) -> List[int]:
        """Remove and return the steps that were found since the last call."""
        steps, self._steps = self._steps, []
        return steps


class Matcher:
    """Passes the ranks' output to the child and takes in the steps that it finds; never waits.

    Used from the supervisor's thread only.

    Attributes:
        error: why steps in the output are not counted any more; "" while they are.
        looks_like: a preset that counts only where the job names it, and of which several lines in order were seen;
            "" = none.
        proposed: a step pattern that would match lines whose number rises and which do not count, and one of these
            lines; "" = none.
    """

    def __init__(self, pattern: str, log: Callable[[str], None], preset: str = "") -> None:
        """Search output by a pattern if there is one, else by a preset (muster.protocol.presets) if there is one."""
        self.error = ""
        self.looks_like = ""
        self.proposed = ("", "")
        self._asked_by = ("--match-steps", pattern) if pattern else ("--match-preset", preset)
        self._what = "progress.stepPattern %r" % pattern if pattern else "progress.preset %s" % preset
        self._log = log
        self._child: Optional[Child] = None
        self._asked: Tuple[Printed, ...] = ()  # whose lines the child looks through
        self._unsent = b""
        self._answer = b""
        self._next_at = 0.0
        self._has_more = False
        self._failures = 0
        self._failed_at = 0.0

    @property
    def is_on(self) -> bool:
        """Whether output is searched for steps at all."""
        return bool(self._asked_by[1]) and not self.error

    @property
    def pids(self) -> FrozenSet[int]:
        """The pid of the child process, which belongs to no rank; empty while there is none."""
        return frozenset([self._child.pid]) if self._child is not None else frozenset()

    @property
    def descriptor(self) -> Optional[int]:
        """The file descriptor to wait on for the child's answer; None while there is none to wait for."""
        return self._child.descriptor if self._child is not None and self._asked else None

    def next_at(self) -> Optional[float]:
        """The time at which `poll` next has something to do; None = no such time. New output does not change it."""
        return self._next_at if self._has_more and not self._asked else None

    def poll(self, now: float, ended: Dict[int, int], printed: Sequence[Printed]) -> None:
        """Read the child's answer, and pass the next lines of output to it.

        Args:
            now: seconds of the monotonic clock.
            ended: exit statuses of reaped child processes, by pid.
            printed: the output of each rank.
        """
        self._note_answer()
        if self._child is not None and self._child.pid in ended:
            self._note_end(now, ended[self._child.pid])
        if self.is_on and not self._asked and now >= self._next_at:
            self._ask(now, printed)
        self._send()

    def stop(self) -> None:
        """End the child without waiting for it, because the launcher exits."""
        if self._child is not None:
            self._child.kill()

    def _ask(self, now: float, printed: Sequence[Printed]) -> None:
        share = _BATCH_BYTES // max(1, len(printed))
        batch = [
            (place, rank_output.number, rank_output.resumed_step, line)
            for place, rank_output in enumerate(printed)
            for line in rank_output.take_lines(share)
        ]
        self._has_more = bool(batch)
        if not batch:
            return
        self._next_at, self._asked = now + _BETWEEN_SECONDS, tuple(printed)
        if self._child is None:
            try:
                self._child = self._spawn()
            except OSError as error:
                self._failed(now, "the process that looks for it cannot be started: %s" % error)
                self._note_searched()
                return
        self._unsent = b"".join([b"%d %d %d %s\n" % item for item in batch]) + b"\n"

    def _spawn(self) -> Child:
        child = converse(*self._asked_by)
        self._answer = b""
        return child

    def _send(self) -> None:
        if self._child is None or not self._unsent:
            return
        try:
            self._unsent = self._unsent[self._child.write(self._unsent) :]
        except BlockingIOError:  # full: later
            return
        except OSError:  # it has ended, and is about to be reaped
            self._unsent = b""

    def _note_answer(self) -> None:
        if self._child is None or not self._asked:
            return
        try:
            self._answer += self._child.read(_MAX_ANSWER_BYTES)
        except BlockingIOError:
            return
        line, end, _ = self._answer.partition(b"\n")
        if not end:
            return
        self._answer = b""
        try:
            message = json.loads(line)
            if "error" in message:
                self._give_up("%s is ignored: %s" % (self._what, message["error"]))
                return
            for place, *reported in message["steps"]:
                self._asked[place].note_steps(*reported)
            for place, *state in message["states"]:
                self._asked[place].note_state(*state)
            self.looks_like = message["looksLike"]
            pattern, line = message["proposed"]
            self.proposed = pattern, line
        except (ValueError, KeyError, IndexError, TypeError):  # nothing that the child has written
            self.stop()
        self._note_searched()

    def _note_end(self, now: float, status: int) -> None:
        if self._child is not None:
            self._child.hang_up()
        self._child = None
        self._note_searched()
        if self.error:
            return
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
            self._failed(now, "a line of output takes more than %g s of processor time" % LINE_SECONDS)
        else:
            self._failed(now, "the process that looks for it has ended unexpectedly, with status %d" % status)

    def _note_searched(self) -> None:
        for printed in self._asked:
            printed.note_answer()
        self._asked, self._unsent = (), b""

    def _failed(self, now: float, why: str) -> None:
        if now >= self._failed_at + _FORGIVEN_SECONDS:
            self._failures = 0
        self._failures, self._failed_at, self._next_at = self._failures + 1, now, now + _PAUSE_SECONDS
        if self._failures >= _MAX_FAILURES:
            self._give_up("%s is given up after %d failures: %s" % (self._what, _MAX_FAILURES, why))

    def _give_up(self, why: str) -> None:
        self.error = "%s; steps in the output are not counted" % why
        self._has_more = False
        self._note_searched()
        self._log(self.error)
        self.stop()

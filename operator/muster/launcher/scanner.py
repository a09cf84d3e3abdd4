"""Scans the checkpoint directory in a child process: a stalled filesystem then stalls only the child.

The child lives on between scans, because it remembers what it parsed. It scans once per line on its stdin and answers
with one line of JSON. One that misses its deadline is killed; a process in the D state cannot be, and then no second
one is sent after it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from typing import Dict, FrozenSet, List, Optional, Tuple

from muster.protocol.messages import MAX_PATH_CHARS, CheckpointReport

_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from muster.launcher.__main__ import main; main()"
_MAX_ANSWER_BYTES = 256 * 1024
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # the archive, or the source root


@dataclasses.dataclass(frozen=True)
class ScanResult:
    """The outcome of one scan; `attempt` is the attempt for which nothing ran when it began, 0 = something may have."""

    attempt: int
    checkpoints: Tuple[CheckpointReport, ...]
    error: str = ""


class Scanner:
    """Asks the child for a scan when it is time, and never waits for it. Used from the supervisor's thread only."""

    def __init__(self, directory: str, period_seconds: float, deadline_seconds: float) -> None:
        self._directory = directory
        self._period_seconds = period_seconds
        self._deadline_seconds = deadline_seconds
        self._child: Optional["subprocess.Popen[bytes]"] = None
        self._dying = False  # the child was killed and is not reaped yet
        self._answer = b""
        self._asked_at: Optional[float] = None  # a scan is under way since
        self._asked_for = 0
        self._next_at = 0.0
        self._idle_attempt = 0  # no rank is alive, ready for this attempt; 0 = ranks may be alive
        self._wanted = False  # scan as soon as possible

    @property
    def pids(self) -> FrozenSet[int]:
        """The child, which is no rank's."""
        return frozenset([self._child.pid]) if self._child is not None else frozenset()

    @property
    def descriptor(self) -> Optional[int]:
        """What to wait on for the answer."""
        if self._child is None or self._child.stdout is None or self._asked_at is None:
            return None
        return self._child.stdout.fileno()

    def scan_for(self, attempt: int) -> Optional[ScanResult]:
        """No rank is alive: scans that begin from now on count for the attempt. Without a directory that is at once."""
        if not self._directory:
            return ScanResult(attempt, ())
        self._idle_attempt, self._wanted = attempt, True
        return None

    def ranks_start(self) -> None:
        """Ranks are about to run: a scan that begins later counts for no attempt."""
        self._idle_attempt = 0

    def next_at(self) -> Optional[float]:
        """When `turn` has something to do, as far as the clock is concerned."""
        if not self._directory:
            return None
        if self._asked_at is not None:
            return self._asked_at + self._deadline_seconds
        return None if self._dying else (0.0 if self._wanted else self._next_at)

    def turn(self, now: float, ended: Dict[int, int]) -> Optional[ScanResult]:
        """Begin, take in or give up a scan; returns the outcome of one that is over."""
        if not self._directory:
            return None
        result = self._take(now)
        if self._child is not None and self._child.pid in ended:
            if self._asked_at is not None and not self._dying:
                result = self._over(now, "the process that scans %s ended unexpectedly" % self._directory)
            self._forget()
        if self._asked_at is not None and now >= self._asked_at + self._deadline_seconds:
            self._kill()
            text = "no answer from %s within %g s: is the filesystem stalled?"
            result = self._over(now, text % (self._directory, self._deadline_seconds))
        if self._asked_at is None and not self._dying and (self._wanted or now >= self._next_at):
            result = self._ask(now) or result
        return result

    def stop(self) -> None:
        """The launcher leaves: end the child, and do not wait for it."""
        self._kill()

    def _ask(self, now: float) -> Optional[ScanResult]:
        self._asked_for, self._wanted = self._idle_attempt, False
        self._asked_at = now
        try:
            if self._child is None:
                self._child = self._spawn()
            os.write(_descriptor(self._child.stdin), b"scan\n")
        except OSError as error:
            return self._over(now, "cannot scan %s: %s" % (self._directory, error))
        return None

    def _spawn(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable or "python3", "-I", "-S", "-c", _BOOT, ROOT, "--scan-on-request", self._directory]
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        child.returncode = 0  # this launcher reaps by itself
        os.set_blocking(_descriptor(child.stdout), False)
        os.set_blocking(_descriptor(child.stdin), False)
        return child

    def _take(self, now: float) -> Optional[ScanResult]:
        if self._child is None or self._asked_at is None or self._dying:
            return None
        try:
            self._answer += os.read(_descriptor(self._child.stdout), _MAX_ANSWER_BYTES)
        except BlockingIOError:
            return None
        if len(self._answer) > _MAX_ANSWER_BYTES:
            self._kill()
            return self._over(now, "the scan of %s answered too much" % self._directory)
        if not self._answer.endswith(b"\n"):
            return None
        try:
            document = json.loads(self._answer)
            found = tuple(
                CheckpointReport(int(item["step"]), str(item["path"]))
                for item in document["checkpoints"]
                if len(str(item["path"])) <= MAX_PATH_CHARS
            )
            return self._over(now, str(document["error"]), found)
        except (ValueError, KeyError, TypeError) as error:
            self._kill()
            return self._over(now, "the scan of %s answered nonsense: %s" % (self._directory, error))

    def _over(self, now: float, error: str, found: Tuple[CheckpointReport, ...] = ()) -> ScanResult:
        self._asked_at = None
        self._answer = b""
        self._next_at = now + self._period_seconds
        return ScanResult(0, (), error) if error else ScanResult(self._asked_for, found)

    def _kill(self) -> None:
        if self._child is not None and not self._dying:
            os.kill(self._child.pid, signal.SIGKILL)
            self._dying = True

    def _forget(self) -> None:
        if self._child is not None:
            for stream in (self._child.stdin, self._child.stdout):
                if stream is not None:
                    stream.close()
        self._child = None
        self._dying = False


def _descriptor(stream: object) -> int:
    return int(stream.fileno())  # type: ignore[attr-defined]


__all__: List[str] = ["ROOT", "ScanResult", "Scanner"]

"""The marker: a small file in the shared checkpoint directory that names the newest attempt that may save there.

A gang that is cut off as a whole misses nobody, so no fence ends it. But it needs the directory to do harm, and there
its successor says that it comes: it writes its attempt before it starts, and waits. Whoever trains without his
coordinator reads the marker, and ends his ranks when a later attempt stands there, or when it cannot be read.

That is proof only where both see the same directory, and a volume that is missing in one pod looks like an empty directory.
So whoever writes the first marker gives it a lineage, a random name, which all who write later ones keep. Each launcher
tells the lineage that it has read: where it is the same the directory is. Every attempt is written, whether or not it has
anything to wait for, so that its launchers have something to read.

Storage may hang for ever, so each look is a small process that is started in a thread and killed after a time. One in
the D state cannot be killed; no second one is sent after it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import threading
from typing import Callable, FrozenSet, Optional

from muster.launcher.children import own_command

SILENT_SECONDS = 5.0  # without the coordinator, before the marker is asked
PERIOD_SECONDS = 5.0
DEADLINE_SECONDS = 10.0
# An attempt is looked for when it is about to start, then ever more seldom until it is seen: directories are shown late.
FIRST_SEEK_SECONDS = 1.0
LAST_SEEK_SECONDS = 320.0
_MAX_ANSWER_BYTES = 64 * 1024


@dataclasses.dataclass(frozen=True)
class Standing:
    """What one look has found: the attempt that stands there (0 = none), the marker's lineage, why it failed."""

    attempt: int = 0
    lineage: str = ""
    error: str = ""


class Storage:
    """The file behind a thin port: one look at a time, each by a process of its own."""

    def __init__(self, path: str, wake: Callable[[], None]) -> None:
        self.path = path
        self._wake = wake
        self._look: Optional[_Look] = None
        self._is_open = False

    @property
    def pids(self) -> FrozenSet[int]:
        """The process that looks, which is no rank's."""
        return frozenset([self._look.pid]) if self._look is not None and self._look.pid else frozenset()

    @property
    def is_busy(self) -> bool:
        """Whether a look is under way, be it one that was killed."""
        return self._look is not None

    def read(self) -> None:
        """Begin to read; the directory is made before it was ever read."""
        self._begin(["--read-marker" if self._is_open else "--open-marker", self.path])

    def claim(self, attempt: int) -> None:
        """Begin to write the attempt, unless a later one stands there."""
        self._begin(["--claim-marker", self.path, str(attempt)])

    def take(self) -> Optional[Standing]:
        """What was found, once."""
        if self._look is None or not self._look.is_over:
            return None
        look, self._look = self._look, None
        self._is_open = self._is_open or not look.standing.error
        return look.standing

    def kill(self) -> None:
        """Give the look up; it is busy until its process is gone."""
        if self._look is not None and self._look.pid and not self._look.is_over:
            try:
                os.kill(self._look.pid, signal.SIGKILL)
            except OSError:  # gone meanwhile
                return

    def _begin(self, arguments: "list[str]") -> None:
        self._look = _Look(own_command(*arguments), self._wake)


class _Look:
    def __init__(self, command: "list[str]", wake: Callable[[], None]) -> None:
        self.pid = 0
        self.is_over = False
        self.standing = Standing()
        self._command = command
        self._wake = wake
        threading.Thread(target=self._run, name="marker", daemon=True).start()

    def _run(self) -> None:
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            process.returncode = 0  # the supervisor reaps
            self.pid = process.pid
            assert process.stdout is not None
            with process.stdout as stream:
                self.standing = _parse(stream.read(_MAX_ANSWER_BYTES))
        except OSError as error:
            self.standing = Standing(error="cannot look at the marker: %s" % error)
        self.is_over = True
        self._wake()


def _parse(data: bytes) -> Standing:
    try:
        document = json.loads(data)
        return Standing(int(document["attempt"]), str(document["lineage"]), str(document["error"]))
    except (ValueError, KeyError, TypeError):
        return Standing(error="the process that looks at the marker ended unexpectedly")


def path_of(directory: str, gang: str) -> str:
    """Where the marker of a gang stands, "" where there can be none."""
    return os.path.join(directory, ".muster-" + gang) if directory and gang else ""


class Marker:
    """What this launcher knows of the marker. Used from the supervisor's thread only.

    Attributes:
        standing: what the last look has found.
        claimed_at: since when the claimed attempt has stood there; None while none is claimed, or another is found.
        has_looked: whether a look has come to an end, or there is nothing to look at.
        is_readable: whether it has ever been read: only then this launcher may be told to obey it.
    """

    def __init__(self, storage: Optional[Storage]) -> None:
        self._storage = storage
        self._asked_at: Optional[float] = None  # a look that still counts is under way since
        self._asked_for = 0  # the attempt that it is to write, 0 = none
        self._next_at = 0.0
        self._claim = 0
        self._read_at = float("-inf")  # when the last look that succeeded began
        self._sought = 0  # the attempt that is looked for
        self._seek_at = 0.0
        self._seek_pause = FIRST_SEEK_SECONDS
        self.standing = Standing()
        self.claimed_at: Optional[float] = None
        self.has_looked = storage is None
        self.is_readable = False

    @property
    def pids(self) -> FrozenSet[int]:
        """Processes that are no rank's."""
        return self._storage.pids if self._storage is not None else frozenset()

    def unread_seconds(self, now: float, since: float) -> float:
        """For how long nobody knows what stands there, counted from `since` at the earliest."""
        return now - max(since, self._read_at)

    def next_at(self) -> Optional[float]:
        """When a look under way is given up."""
        return self._asked_at + DEADLINE_SECONDS if self._asked_at is not None else None

    def turn(self, now: float, claim: int, reads: bool, attempt: int = 0) -> None:
        """Take in what was found, and look again when it is time.

        Args:
            claim: the attempt that is to stand there by order, 0 = none.
            reads: whether to read it otherwise.
            attempt: the one that is to start or runs here, to be looked for now and then until it is seen; 0 = none.
        """
        if self._storage is None:
            return
        if attempt != self._sought:
            self._sought, self._seek_at, self._seek_pause = attempt, now + FIRST_SEEK_SECONDS, FIRST_SEEK_SECONDS
        if claim != self._claim:
            self._claim, self._next_at, self.claimed_at = claim, 0.0, None
        self._take(self._storage, now)
        seeks = self.standing.attempt < self._sought and now >= self._seek_at
        if not self._storage.is_busy and (seeks or (now >= self._next_at and (claim or reads))):
            if seeks:
                self._seek_pause = min(2 * self._seek_pause, LAST_SEEK_SECONDS)
                self._seek_at = now + self._seek_pause
            self._asked_at, self._asked_for, self._next_at = now, claim, now + PERIOD_SECONDS
            if claim:
                self._storage.claim(claim)
            else:
                self._storage.read()

    def stop(self) -> None:
        """The launcher leaves: end the look, and do not wait for it."""
        if self._storage is not None:
            self._storage.kill()

    def _take(self, storage: Storage, now: float) -> None:
        found = storage.take()
        if self._asked_at is None:
            return
        if found is None and now >= self._asked_at + DEADLINE_SECONDS:
            storage.kill()
            text = "no answer about the marker %s within %g s: is the file system stalled?"
            found = Standing(error=text % (storage.path, DEADLINE_SECONDS))
        if found is not None:
            self._note(found, self._asked_at, now)
            self._asked_at = None

    def _note(self, found: Standing, asked_at: float, now: float) -> None:
        self.has_looked = True
        if found.error:  # what stood there may stand there still
            self.standing = dataclasses.replace(self.standing, error=found.error)
            return
        lowered = found.attempt < self.standing.attempt
        self.standing, self._read_at, self.is_readable = found, asked_at, True
        if lowered:
            self.claimed_at = None
        if self._asked_for and self._asked_for == self._claim and found.attempt >= self._claim:
            self.claimed_at = now if self.claimed_at is None else self.claimed_at

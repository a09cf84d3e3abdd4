"""The fence file: a small file in the shared checkpoint directory that names the newest attempt that may save there.

Where a whole gang is cut off, each launcher still hears its neighbours, so no fence ends the ranks. But the ranks need
the directory to do harm. There the next attempt writes its number before it starts, and waits. A launcher whose ranks
train without the coordinator reads the fence file. It ends its ranks when the file names a later attempt, or when the
file cannot be read.

That is proof only where both see the same directory, and a volume that is missing in one pod looks like an empty
directory. So the launcher that writes the first fence file gives it an identity, a random name, and later writers keep
the identity. Each launcher reports the identity that it has read: where it is the same, the directory is the same.
Every attempt is written, whether or not it has anything to wait for, so that its launchers have something to read.

Storage may hang for ever. So a thread asks a small process to read or write, and the process is killed when it has not
answered after a time. A process in the D state cannot be killed; no second one is sent after it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import threading
from typing import Callable, Collection, Dict, FrozenSet, Optional

from muster.node.launcher.children import start
from muster.protocol.checkpoint_names import is_url
from muster.protocol.messages import WAIT, Directive

SILENT_SECONDS = 5.0  # without the coordinator, before the fence file is asked
PERIOD_SECONDS = 5.0
DEADLINE_SECONDS = 10.0
# An attempt is looked for when it is about to start, then ever more seldom until it is seen: directories are shown
# late.
FIRST_SEEK_SECONDS = 1.0
LAST_SEEK_SECONDS = 320.0
_MAX_ANSWER_BYTES = 64 * 1024


@dataclasses.dataclass(frozen=True)
class FenceState:
    """What was found in the fence file: the attempt (0 = none), the file's identity, and why reading or writing
    failed."""

    attempt: int = 0
    identity: str = ""
    error: str = ""


class Storage:
    """Reads and writes the fence file through a child process, one request at a time.

    The process is kept, since to start one takes seconds where processors are busy.
    """

    def __init__(self, path: str, wake: Callable[[], None]) -> None:
        self.path = path
        self._wake = wake
        self._process: "Optional[subprocess.Popen[bytes]]" = None
        self._look: Optional[_FenceRequest] = None
        self._is_open = False

    @property
    def pids(self) -> FrozenSet[int]:
        """The pid of the child process, which belongs to no rank; empty while there is none."""
        process = self._look.process if self._look is not None else self._process
        return frozenset([process.pid]) if process is not None else frozenset()

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way, even one whose process was killed and is not gone yet."""
        return self._look is not None

    def read(self) -> None:
        """Begin to read the fence file. Its directory is created if the file was never read before."""
        self._begin({"makes": not self._is_open})

    def claim(self, attempt: int) -> None:
        """Begin to write this attempt into the fence file, unless it has a later one. `pop_result` has the outcome."""
        self._begin({"claim": attempt})

    def pop_result(self) -> Optional[FenceState]:
        """The answer to the last request, handed out once; None while there is none."""
        if self._look is None or not self._look.is_over:
            return None
        look, self._look = self._look, None
        self._process = look.process
        self._is_open = self._is_open or not look.standing.error
        return look.standing

    def kill(self) -> None:
        """Give up the request under way and kill its process. The storage is busy until that process is gone."""
        if self._look is not None and self._look.process is not None and not self._look.is_over:
            with contextlib.suppress(OSError):  # gone meanwhile
                os.kill(self._look.process.pid, signal.SIGKILL)

    def note_ended(self, pids: Collection[int]) -> None:
        """Note that these processes have ended: their pids may belong to other processes from now on."""
        if self._process is not None and self._process.pid in pids:
            self._process = None
        if self._look is not None:
            self._look.note_ended(pids)

    def _begin(self, request: Dict[str, object]) -> None:
        self._look = _FenceRequest(self._process, self.path, request, self._wake)


class _FenceRequest:
    """One request to the child and its answer, in a thread.

    Attributes:
        process: the process that was asked; None before there is one, and once it has ended.
    """

    def __init__(
        self,
        process: "Optional[subprocess.Popen[bytes]]",
        path: str,
        request: Dict[str, object],
        wake: Callable[[], None],
    ) -> None:
        self.process = process
        self.is_over = False
        self.standing = FenceState()
        self._path = path
        self._request = request
        self._wake = wake
        threading.Thread(target=self._run, name="fence_file", daemon=True).start()

    def note_ended(self, pids: Collection[int]) -> None:
        """Note that these processes have ended: their pids may belong to other processes from now on."""
        if self.process is not None and self.process.pid in pids:
            self.process = None

    def _run(self) -> None:
        try:
            process = self.process = self.process or start("--fence-file", self._path)
            answer = _asked(process, self._request)
            if answer is None:
                self.process = None  # its number may soon be another's
            self.standing = answer or FenceState(error="the process that looks at the fence file ended unexpectedly")
        except OSError as error:
            self.standing = FenceState(error="cannot look at the fence file: %s" % error)
        self.is_over = True
        self._wake()


def _asked(process: "subprocess.Popen[bytes]", request: Dict[str, object]) -> Optional[FenceState]:
    """Send a request to the process and wait for the answer; None where the process has ended or ends soon."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        document = json.loads(process.stdout.readline(_MAX_ANSWER_BYTES))
        return FenceState(int(document["attempt"]), str(document["id"]), str(document["error"]))
    except (OSError, ValueError, KeyError, TypeError):
        with contextlib.suppress(OSError):
            process.stdin.close()
        return None


def path_of(directory: str, gang: str) -> str:
    """The path of a gang's fence file in a checkpoint directory; "" for an object store, where there is none."""
    return os.path.join(directory, ".muster-" + gang) if directory and gang and not is_url(directory) else ""


class FenceFile:
    """What this launcher knows of the fence file. Used from the supervisor's thread only.

    Attributes:
        standing: the content of the fence file as it was last read or written.
        claimed_at: since when the claimed attempt has been in the file; None while none is claimed, or another is
            found.
        has_looked: whether a first read or write has ended, or there is no fence file.
        is_readable: whether the file has ever been read. Only then the coordinator may rely on this launcher to obey
            it.
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
        self.standing = FenceState()
        self.claimed_at: Optional[float] = None
        self.has_looked = storage is None
        self.is_readable = False

    @property
    def pids(self) -> FrozenSet[int]:
        """The pids of child processes, which belong to no rank."""
        return self._storage.pids if self._storage is not None else frozenset()

    def note_ended(self, pids: Collection[int]) -> None:
        """Note that the processes of these pids were reaped."""
        if self._storage is not None:
            self._storage.note_ended(pids)

    def unread_seconds(self, now: float, since: float) -> float:
        """The seconds for which the content of the fence file has been unknown, counted from `since` at the
        earliest."""
        return now - max(since, self._read_at)

    def next_at(self) -> Optional[float]:
        """The time at which the request under way is given up; None where there is no request."""
        return self._asked_at + DEADLINE_SECONDS if self._asked_at is not None else None

    def follow(
        self, now: float, directive: Optional[Directive], attempt: Optional[int], idle_attempt: int, *, is_alone: bool
    ) -> None:
        """Claim, read or seek what the launcher's situation asks for; see `poll`.

        Args:
            now: seconds of the monotonic clock.
            directive: the newest directive; None: there is none, or ranks are being ended.
            attempt: of the launcher's ranks; 0: they were fenced; None: there are none.
            idle_attempt: the attempt for which the launcher waits while it has no ranks.
            is_alone: whether the coordinator is overdue.
        """
        if attempt is not None:
            self.poll(now, 0, is_alone and attempt > 0, attempt)
            return
        claim = 0
        if directive is not None and directive.kind == WAIT and directive.writes_fence_file:
            claim = directive.attempt
        self.poll(now, claim, not self.is_readable, idle_attempt)

    def poll(self, now: float, claim: int, reads: bool, attempt: int = 0) -> None:
        """Take in the answer of the child, and read or write the fence file again when it is time.

        Args:
            now: seconds of the monotonic clock.
            claim: the attempt to write into the file by the coordinator's order; 0 = none.
            reads: whether to read the file where there is nothing to claim.
            attempt: the attempt that is to start or runs here; it is looked for now and then until it is seen. 0 =
                none.
        """
        if self._storage is None:
            return
        if attempt != self._sought:
            self._sought, self._seek_at, self._seek_pause = attempt, now + FIRST_SEEK_SECONDS, FIRST_SEEK_SECONDS
        if claim != self._claim:
            self._claim, self._next_at, self.claimed_at = claim, 0.0, None
        self._note_result(self._storage, now)
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
        """End the request under way without waiting for it, because the launcher exits."""
        if self._storage is not None:
            self._storage.kill()

    def _note_result(self, storage: Storage, now: float) -> None:
        state = storage.pop_result()
        if self._asked_at is None:
            return
        if state is None and now >= self._asked_at + DEADLINE_SECONDS:
            storage.kill()
            text = "no answer about the fence file %s within %g s: is the file system stalled?"
            state = FenceState(error=text % (storage.path, DEADLINE_SECONDS))
        if state is not None:
            self._note(state, self._asked_at, now)
            self._asked_at = None

    def _note(self, state: FenceState, asked_at: float, now: float) -> None:
        self.has_looked = True
        if state.error:  # what stood there may stand there still
            self.standing = dataclasses.replace(self.standing, error=state.error)
            return
        lowered = state.attempt < self.standing.attempt
        self.standing, self._read_at, self.is_readable = state, asked_at, True
        if lowered:
            self.claimed_at = None
        if self._asked_for and self._asked_for == self._claim and state.attempt >= self._claim:
            self.claimed_at = now if self.claimed_at is None else self.claimed_at

"""Manages the NVML child from the parent: at most one batch at a time, each with a deadline; it never waits for
anything.

A child that does not answer in time is killed and started again, with a growing pause. A child that cannot even be
killed (it hangs inside the driver) is left alone, and no other is started beside it.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

_MAX_BACKOFF_SECONDS = 60.0
_MAX_LINE_BYTES = 4 * 1024 * 1024
_READ_BYTES = 256 * 1024


@dataclass(frozen=True)
class Outstanding:
    """A batch that has not been answered yet."""

    batch: str
    asked_at: float
    deadline: float
    """Both times are on the monotonic clock."""
    gpu: int | None = None
    """The GPU at which the batch is delayed, when that takes long."""


class NvmlProcess:
    """Starts, queries and kills the child. `now` is always the monotonic clock."""

    def __init__(self, command: tuple[str, ...] = (sys.executable, "-m", "muster.node.agent.nvml_child")) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._dying: list[subprocess.Popen[bytes]] = []
        self._buffer = b""
        self._failures = 0
        self._ended = False
        self._not_before = 0.0
        self.outstanding: Outstanding | None = None
        self.left_out: frozenset[int] = frozenset()
        """GPUs that a `start` leaves out, and so do all batches after it."""
        self.started_at = 0.0
        self.starts = 0
        self.hangs = 0

    @property
    def pid(self) -> int | None:
        """Return the process ID of the child."""
        return self._process.pid if self._process is not None else None

    @property
    def running(self) -> bool:
        """Whether there is a child that can be queried."""
        return self._process is not None

    @property
    def stuck(self) -> bool:
        """Whether a killed child still exists."""
        self._dying = [process for process in self._dying if process.poll() is None]
        return bool(self._dying)

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the child has written something."""
        if self._process is None or self._process.stdout is None:
            raise ValueError("there is no child")
        return self._process.stdout.fileno()

    def start(self, now: float) -> bool:
        """Start a child if there is none and it is time; return whether one was started."""
        if self._process is not None or now < self._not_before or self.stuck:
            return False
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, close_fds=True
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._buffer = b""
        self.started_at = now
        self.starts += 1
        return True

    def ask(self, batch: str, now: float, deadline_seconds: float) -> None:
        """Send the name of a batch to the child. The child is idle, so the line fits into the pipe."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self.outstanding is None
        self.outstanding = Outstanding(batch, now, now + deadline_seconds)
        try:
            left_out = sorted(self.left_out) if batch == "start" else []
            self._process.stdin.write(f"{' '.join([batch, *map(str, left_out)])}\n".encode())
        except OSError:  # the child has ended: `read` notices
            return

    def read(self, now: float) -> Iterator[dict[str, Any]]:
        """Yield the child's messages. A child that writes anything else is killed; the end of the child is noticed."""
        if self._process is None:
            return
        ended = False
        while not ended:
            try:
                data = os.read(self.fileno(), _READ_BYTES)
            except BlockingIOError:
                break
            ended = not data
            self._buffer += data
            if len(data) < _READ_BYTES:
                break
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            try:
                message = json.loads(line)
            except ValueError:
                ended = True
                break
            if "held_by" in message:
                if self.outstanding is not None:
                    self.outstanding = replace(self.outstanding, gpu=message["held_by"])
                continue
            if "batch" in message:
                self.outstanding = None
                self._failures = 0
            yield message
        if ended or len(self._buffer) > _MAX_LINE_BYTES:
            self._ended = True
            self.end(now)

    def has_ended(self) -> bool:
        """Whether a child has ended by itself since the last call."""
        ended, self._ended = self._ended, False
        return ended

    def hung(self, now: float) -> Outstanding | None:
        """Return the batch whose deadline has passed, and kill the child; None: there is none."""
        late = self.outstanding
        if late is None or now < late.deadline:
            return None
        self.hangs += 1
        self.end(now)
        return late

    def end(self, now: float) -> None:
        """Kill the child; the pause before the next start grows each time."""
        self._stop()
        self._failures += 1
        self._not_before = now + min(_MAX_BACKOFF_SECONDS, 0.5 * 2.0 ** min(self._failures, 10))

    def renew(self) -> None:
        """Kill a healthy child; another may start at once."""
        self._stop()

    def close(self) -> None:
        """Kill the child for good."""
        self._stop()

    def _stop(self) -> None:
        process, self._process, self.outstanding = self._process, None, None
        if process is None:
            return
        process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            self._dying.append(process)

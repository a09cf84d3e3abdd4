"""The launcher's own few lines for the researcher, on stderr among the ranks' output.

Writing may block for as long as nothing reads the container's log, and supervision must not; so a thread writes, and a
full queue drops lines.

Tests: tests/unit/launcher/test_pure.py.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from typing import Dict

_LOCKS: Dict[int, threading.Lock] = {1: threading.Lock(), 2: threading.Lock()}
_MAX_QUEUED_LINES = 1000


def write_line_at_once(descriptor: int, data: bytes) -> None:
    """Write all the data, not interleaved with the output of other threads; give up when nothing can read the
    descriptor."""
    with _LOCKS[descriptor]:
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:
                select.select([], [descriptor], [])
            except OSError:  # closed: keep going, ranks must be drained all the same
                return


class Log:
    """Writes the launcher's log lines, prefixed with `muster: `, from a thread."""

    def __init__(self) -> None:
        self._lines: "queue.Queue[str]" = queue.Queue(_MAX_QUEUED_LINES)
        threading.Thread(target=self._write, name="log", daemon=True).start()

    def __call__(self, message: str) -> None:
        """Queue one line; it is dropped where the queue is full."""
        try:
            self._lines.put_nowait(message)
        except queue.Full:
            return

    def flush(self, timeout_seconds: float) -> None:
        """Wait until the queued lines are written, but no longer than `timeout_seconds`."""
        waiter = threading.Thread(target=self._lines.join, daemon=True)
        waiter.start()
        waiter.join(timeout_seconds)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            write_line_at_once(2, ("muster: %s\n" % line).encode("utf-8", "replace"))
            self._lines.task_done()

"""Drives a zygote from its owner: starts it, sends orders, receives answers, kills it.

The zygote limits its probes; the owner limits the zygote: its import may never end, or it may die. Start it from a
thread that lives as long as the zygote has to: the kernel ends it with that thread.

Tests: tests/unit/preflight_probes/test_zygote.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

COMMAND = (sys.executable, "-m", "muster.node.checker.probes.zygote")
_READ_BYTES = 256 * 1024
_MAX_LINE_BYTES = 8 * 1024 * 1024


class ZygoteError(Exception):
    """The zygote cannot be used: it did not start, or has ended."""


class Prober:
    """A running zygote.

    Attributes:
        ready: its message after the import of torch: `import_seconds`, `pid`, and `key` with the versions of torch,
            CUDA, NCCL and the probes; None before that.
    """

    def __init__(self, command: Sequence[str] = COMMAND, environment: Optional[Mapping[str, str]] = None) -> None:
        """Start the zygote; `environment` replaces this process's own.

        Raises:
            OSError: the command cannot be started.
        """
        self._process = subprocess.Popen(
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=environment
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self.ready: Optional[Dict[str, Any]] = None
        self._buffer = b""
        self._messages: List[Dict[str, Any]] = []

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the zygote has written something."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def wait_until_ready(self, seconds: float) -> Dict[str, Any]:
        """Wait until torch is imported, at most for this long.

        Raises:
            ZygoteError: the import failed; the message says why: no torch, a wrong architecture, or too slow. The
                zygote has been killed.
        """
        message = self.receive(seconds)
        if message is None:
            self.close()
            raise ZygoteError("torch was not imported within %g s" % seconds)
        if not message.get("ready"):
            self.close()
            raise ZygoteError("torch cannot be imported: %s" % message.get("message"))
        self.ready = message
        return message

    def send(self, order: Mapping[str, Any]) -> None:
        """Send an order, or cancel one ({"cancel": id}).

        Raises:
            ZygoteError: it has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(order, separators=(",", ":")) + "\n").encode())
        except OSError as error:
            raise ZygoteError("the zygote has ended: %s" % self._end()) from error

    def cancel(self, order_id: Optional[str] = None) -> None:
        """Cancel an order at once; the answer comes when the devices are free. None: the running one."""
        self.send({"cancel": order_id})

    def receive(self, seconds: float) -> Optional[Dict[str, Any]]:
        """Return the next answer, None if there is none within this many seconds.

        Raises:
            ZygoteError: it has ended.
        """
        until = time.monotonic() + seconds
        while not self._messages:
            readable, _, _ = select.select([self], [], [], max(0.0, until - time.monotonic()))
            if not readable:
                return None
            self._read()
        return self._messages.pop(0)

    def close(self) -> None:
        """Kill the zygote and all processes that it has forked."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(OSError):
                stream.close()
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)

    def _read(self) -> None:
        data = os.read(self.fileno(), _READ_BYTES)
        if not data:
            raise ZygoteError("the zygote has ended: %s" % self._end())
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > _MAX_LINE_BYTES:
            self.close()
            raise ZygoteError("the zygote talks nonsense")
        for line in lines:
            self._messages.append(json.loads(line))

    def _end(self) -> str:
        try:
            code = self._process.wait(1)
        except subprocess.TimeoutExpired:
            return "it closed its pipes"
        return "exit code %d" % code if code >= 0 else "signal %d" % -code

"""How the launcher starts small processes of its own code, for work that may hang: on storage, or in a pattern."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import List

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # the archive, or the source root
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from muster.launcher.__main__ import main; main()"


def own_command(*arguments: str) -> List[str]:
    """What runs this launcher's code with these arguments, whatever the user's environment says of Python."""
    return [sys.executable or "python3", "-I", "-S", "-c", _BOOT, ROOT, *arguments]


def converse(*arguments: str) -> "subprocess.Popen[bytes]":
    """Start it to be asked and to answer, again and again, by pipes that never block; the supervisor reaps it.

    Raises:
        OSError: it cannot be started.
    """
    child = subprocess.Popen(
        own_command(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    child.returncode = 0
    for stream in (child.stdin, child.stdout):
        os.set_blocking(descriptor(stream), False)
    return child


def descriptor(stream: object) -> int:
    """The file descriptor of a pipe of such a process."""
    return int(stream.fileno())  # type: ignore[attr-defined]


def kill(child: "subprocess.Popen[bytes]") -> None:
    """End such a process, which may have ended by itself, and have been reaped before what it said last was read."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGKILL)


def hang_up(child: "subprocess.Popen[bytes]") -> None:
    """Close the pipes of such a process, which has ended."""
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()

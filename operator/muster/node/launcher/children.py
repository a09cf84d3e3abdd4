"""How the launcher starts small processes of its own code, for work that may hang: on storage, or in a pattern."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from typing import Callable, List

ROOT = os.path.abspath(os.path.join(__file__, *[os.pardir] * 4))  # the archive, or the source root
_BOOT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from muster.node.launcher.__main__ import main; main()"
# The same among the packages of the image, and not in the directory where it was started.
_BOOT_IN_IMAGE = (
    "import sys; sys.path[:] = [sys.argv.pop(1)] + list(filter(None, sys.path)); "
    "from muster.node.launcher.__main__ import main; main()"
)


def own_command(*arguments: str) -> List[str]:
    """What runs this launcher's code with these arguments, whatever the user's environment says of Python."""
    return [sys.executable or "python3", "-I", "-S", "-c", _BOOT, ROOT, *arguments]


def command_in_image(*arguments: str) -> List[str]:
    """The same with the packages of the image, as its own programs see them."""
    return [sys.executable or "python3", "-c", _BOOT_IN_IMAGE, ROOT, *arguments]


class Child:
    """A process that is asked and answers, again and again, by pipes that never block; the supervisor reaps it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self._stdin = process.stdin
        self._stdout = process.stdout
        for stream in (process.stdin, process.stdout):
            os.set_blocking(stream.fileno(), False)

    @property
    def descriptor(self) -> int:
        """What to wait on for what it says."""
        return self._stdout.fileno()

    def write(self, data: bytes) -> int:
        """Say something; returns how much of it.

        Raises:
            OSError: it has ended; BlockingIOError: it has to read first.
        """
        return os.write(self._stdin.fileno(), data)

    def read(self, limit: int) -> bytes:
        """What it has said, b"" once it has closed its end.

        Raises:
            BlockingIOError: nothing yet.
        """
        return os.read(self._stdout.fileno(), limit)

    def kill(self) -> None:
        """End it. It may have ended by itself, and have been reaped before what it said last was read."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """Close the pipes once it has ended."""
        self._stdin.close()
        self._stdout.close()


def start(*arguments: str, command: Callable[..., List[str]] = own_command) -> "subprocess.Popen[bytes]":
    """Start this launcher's code with these arguments, with pipes to talk through; the supervisor reaps it.

    Raises:
        OSError: it cannot be started.
    """
    process = subprocess.Popen(
        command(*arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.returncode = 0
    return process


def converse(*arguments: str) -> Child:
    """The same, to talk with it without ever waiting.

    Raises:
        OSError: it cannot be started.
    """
    return Child(start(*arguments))


def converse_in_image(*arguments: str) -> Child:
    """The same with a process that sees the packages of the image.

    Raises:
        OSError: it cannot be started.
    """
    return Child(start(*arguments, command=command_in_image))

"""How the launcher starts small processes of its own code, for work that may hang: on storage, or in a pattern.

Tests: tests/unit/launcher/test_scanner.py.
"""

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
    """The command that runs this launcher's code with these arguments, whatever Python settings the user's environment
    has."""
    return [sys.executable or "python3", "-I", "-S", "-c", _BOOT, ROOT, *arguments]


def command_in_image(*arguments: str) -> List[str]:
    """The command that runs this launcher's code with these arguments and sees the packages installed in the image."""
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
        """The file descriptor that becomes readable when the child has printed something."""
        return self._stdout.fileno()

    def write(self, data: bytes) -> int:
        """Write to the child's standard input; returns how many bytes were taken.

        Raises:
            BlockingIOError: the pipe is full: the child has to read first.
            OSError: the child has ended.
        """
        return os.write(self._stdin.fileno(), data)

    def read(self, limit: int) -> bytes:
        """The next bytes that the child has printed, at most `limit`; b"" once the child has closed its end.

        Raises:
            BlockingIOError: the child has printed nothing yet.
        """
        return os.read(self._stdout.fileno(), limit)

    def kill(self) -> None:
        """Kill the child. It may have ended by itself, and have been reaped before its last output was read."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def hang_up(self) -> None:
        """Close the pipes of a child that has ended."""
        self._stdin.close()
        self._stdout.close()


def start(*arguments: str, command: Callable[..., List[str]] = own_command) -> "subprocess.Popen[bytes]":
    """Start this launcher's code with these arguments, with pipes to its input and output; the supervisor reaps it.

    Raises:
        OSError: the process cannot be started.
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
    """Start this launcher's code with these arguments, to be asked and answer through pipes that never block.

    Raises:
        OSError: the process cannot be started.
    """
    return Child(start(*arguments))


def converse_in_image(*arguments: str) -> Child:
    """Start this launcher's code like `converse`, in a process that sees the packages installed in the image.

    Raises:
        OSError: the process cannot be started.
    """
    return Child(start(*arguments, command=command_in_image))

"""Progress for people, and commands whose output matters only when they fail."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

_STARTED = time.monotonic()
_TAIL_LINES = 40


class BuildError(Exception):
    """A step of the build failed; the message says which and what to do."""


def say(message: str) -> None:
    print(f"[{time.monotonic() - _STARTED:6.1f} s] {message}", flush=True)


class Step:
    """Context manager that announces a slow step and says how long it took."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.monotonic()
        say(f"{self._name} ...")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.monotonic() - self._started
        say(f"{self._name}: {'failed' if error else 'done'} after {seconds:.1f} s")


def run_quietly(command: Sequence[str], env: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """Run a command and return its standard output; on failure raise with the end of what it printed."""
    try:
        result = subprocess.run(command, check=False, capture_output=True, text=True, env=env, cwd=folder)
    except FileNotFoundError as error:
        raise BuildError(f"{command[0]} is not installed: install it and try again") from error
    if result.returncode != 0:
        tail = "\n".join((result.stdout + result.stderr).splitlines()[-_TAIL_LINES:])
        raise BuildError(f"{command[0]} ended with {result.returncode}:\n{tail}")
    return result.stdout

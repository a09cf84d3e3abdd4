"""Keeps a small JSON file that survives its writer: it is replaced as a whole, and begun again where it cannot be read.

A full disk must not stop a burn-in: a failed write is logged once, and tried again with the next change.

Tests: tests/unit/checker/test_keeping.py.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Callable, Optional

_MAX_BYTES = 1024 * 1024


class File:
    """One JSON file. `log` is called once for each kind of error."""

    def __init__(self, path: str, log: Callable[..., None]) -> None:
        self._path = path
        self._log = log
        self._problem = ""

    def load(self, read: Callable[[Any], Any], default: Any) -> Any:
        """Return the content as `read` decodes it; `default` where there is none, or none that can be read."""
        try:
            with open(self._path, "rb") as file:
                data = file.read(_MAX_BYTES)
            return read(json.loads(data))
        except FileNotFoundError:
            return default
        except (OSError, ValueError, RecursionError) as error:
            self._log("a file cannot be read and starts again empty", path=self._path, problem=str(error))
            return default

    def save(self, data: Any) -> bool:
        """Replace the content; return whether that worked."""
        problem = self._write(json.dumps(data, separators=(",", ":")).encode())
        if problem is not None and problem != self._problem:
            self._log("a file cannot be written", path=self._path, problem=problem)
        self._problem = problem or ""
        return problem is None

    def _write(self, data: bytes) -> Optional[str]:
        temporary = self._path + ".new"
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            return str(error)
        return None

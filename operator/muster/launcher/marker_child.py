"""The other end of `marker.py`: reads or writes the marker and prints what stands there as one line of JSON."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Tuple

from muster.protocol.messages import MAX_NUMBER

_MAX_BYTES = 4096


def read_marker(path: str, makes: bool = False) -> str:
    """`{"attempt", "written_ns", "error"}`; attempt 0 where no marker is.

    Args:
        makes: the directory, if it is not there: before its first checkpoint a job may have none, and its first attempt has
            to be told like any other. Later that would hide that a file system is gone.
    """
    try:
        if makes:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        return _answer(*_standing(path))
    except (OSError, ValueError) as error:
        return _answer(0, 0, "cannot read the marker %s: %s" % (path, error))


def claim_marker(path: str, attempt: int) -> str:
    """The same, once the attempt or a later one stands there: a number is never lowered."""
    try:
        if _standing(path)[0] < attempt:
            _write(path, attempt)
        return _answer(*_standing(path))
    except (OSError, ValueError) as error:
        return _answer(0, 0, "cannot write the marker %s: %s" % (path, error))


def _answer(attempt: int, written_ns: int, error: str = "") -> str:
    return json.dumps({"attempt": attempt, "written_ns": written_ns, "error": error})


def _standing(path: str) -> Tuple[int, int]:
    """The attempt in the marker, 0 if there is none, and when it was written, in ns by the clock of the file system.

    Raises:
        OSError: the directory is not there or cannot be read.
        ValueError: something else than a marker is there.
    """
    os.stat(os.path.dirname(path))
    try:
        with open(path, "rb") as stream:
            data = stream.read(_MAX_BYTES)
            written_ns = os.fstat(stream.fileno()).st_mtime_ns
    except FileNotFoundError:
        return 0, 0
    document = json.loads(data)
    attempt = document.get("attempt") if isinstance(document, dict) else None
    if not isinstance(attempt, int) or isinstance(attempt, bool) or not 0 <= attempt <= MAX_NUMBER:
        raise ValueError("no attempt stands in it")
    return attempt, max(0, written_ns)


def _write(path: str, attempt: int) -> None:
    temporary = "%s.%d.new" % (path, os.getpid())
    try:
        with open(temporary, "wb") as stream:
            stream.write(json.dumps({"attempt": attempt}).encode())
            stream.flush()
            os.fsync(stream.fileno())
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(directory)
    except OSError:  # not every file system can do that with a directory; then it need not
        pass
    finally:
        os.close(directory)

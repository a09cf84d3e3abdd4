"""The other end of `fence_file.py`: reads or writes the fence file for each request, a line of JSON.

Prints the content of the file as a line of JSON.

Tests: tests/unit/launcher/test_fence_file.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any, BinaryIO, Callable, Mapping, NamedTuple

from muster.node.checkpoint.listing import THIS_MACHINE
from muster.node.checkpoint.untrusted_json import parse_json
from muster.protocol.messages import MAX_FENCE_FILE_CHARS, MAX_NUMBER, is_plain

_MAX_BYTES = 4096
_IDENTITY_BYTES = 8


def answer_on_request(path: str, requests: BinaryIO) -> None:
    """Answer each request, `{"makes"}` to read or `{"claim": attempt}` to write, until standard input is closed."""
    for line in requests:
        request = json.loads(line)
        claim = int(request.get("claim", 0))
        answer = claim_fence_file(path, claim) if claim else read_fence_file(path, bool(request.get("makes")))
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()


def read_fence_file(path: str, makes: bool = False) -> str:
    """The content of the fence file as JSON: `{"attempt", "id", "error"}`; attempt 0 and identity "" where there is no
    file.

    Args:
        path: of the fence file.
        makes: whether to create a missing directory. Before its first checkpoint a job may have none, and its first
            attempt
        has to be written like any other. Later this would hide that a file system is gone.
    """
    try:
        if makes:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        return _answer(_read_state(path))
    except (OSError, ValueError) as error:
        return _answer(_NO_FILE, "cannot read the fence file %s: %s" % (path, error))


def claim_fence_file(path: str, attempt: int) -> str:
    """Write an attempt into the fence file, and return the file's content as `read_fence_file` does.

    The number in the file is never lowered, and its identity and the fields of a later version are kept.
    """
    try:
        current = _read_state(path)
        if current.attempt == 0 and not current.identity:
            _write(path, _State(attempt, os.urandom(_IDENTITY_BYTES).hex(), current.others), _put_first)
            current = _read_state(path)  # as the faster writer has named it
        if current.attempt < attempt:
            identity = current.identity or os.urandom(_IDENTITY_BYTES).hex()
            _write(path, _State(attempt, identity, current.others), os.rename)
        return _answer(_read_state(path))
    except (OSError, ValueError) as error:
        return _answer(_NO_FILE, "cannot write the fence file %s: %s" % (path, error))


class _State(NamedTuple):
    """The content of the fence file: an attempt (0 = there is no file), the file's identity ("" = it has none), and
    the fields that only a later version knows."""

    attempt: int
    identity: str
    others: Mapping[str, Any]


_NO_FILE = _State(0, "", {})


def _answer(state: _State, error: str = "") -> str:
    return json.dumps({"attempt": state.attempt, "id": state.identity, "error": error})


def _read_state(path: str) -> _State:
    """The content of the fence file.

    Raises:
        OSError: the directory is not there or cannot be read.
        ValueError: the path is something else than a fence file.
    """
    os.stat(os.path.dirname(path))
    try:
        data = THIS_MACHINE.part(path, 0, _MAX_BYTES)
    except FileNotFoundError:
        return _NO_FILE
    document = parse_json(data)
    attempt = document.get("attempt") if isinstance(document, dict) else None
    if not isinstance(attempt, int) or isinstance(attempt, bool) or not 0 <= attempt <= MAX_NUMBER:
        raise ValueError("no attempt stands in it")
    identity = document.get("id")
    if not isinstance(identity, str) or len(identity) > MAX_FENCE_FILE_CHARS or not is_plain(identity):
        identity = ""  # no report may have it
    others = {name: value for name, value in document.items() if name not in ("attempt", "id")}
    return _State(attempt, identity, others)


def _put_first(temporary: str, path: str) -> None:
    """Move the temporary file to the fence file's path unless there is a fence file.

    So of two launchers that write first at once, only one gives the file its identity. Where the file system cannot do
    that, the last writer does, and a launcher that has read another identity is not relied on.
    """
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass
    except OSError:
        os.rename(temporary, path)
        return
    os.unlink(temporary)


def _write(path: str, state: _State, put: Callable[[str, str], None]) -> None:
    temporary = "%s.%s.new" % (path, os.urandom(_IDENTITY_BYTES).hex())  # others write here, too
    try:
        with open(temporary, "wb") as stream:
            stream.write(json.dumps({"attempt": state.attempt, "id": state.identity, **state.others}).encode())
            stream.flush()
            os.fsync(stream.fileno())
        put(temporary, path)
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

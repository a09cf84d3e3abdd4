"""Reads a directory tree into plain data, bounded, so that the rules for completeness can be pure functions of it."""

from __future__ import annotations

import dataclasses
import io
import os
from typing import Callable, Dict, List, Mapping, Optional, Tuple

MAX_DEPTH = 3
MAX_ENTRIES = 50_000
MAX_CHILDREN = 100_000
MAX_CONTENT_BYTES = 1024 * 1024 * 1024
_READ_BYTES = 4 * 1024 * 1024  # at once: a slow file system answers so much within seconds


@dataclasses.dataclass(frozen=True)
class File:
    """One regular file; symbolic links to files count as what they point to."""

    size_bytes: int
    modified_ns: int


@dataclasses.dataclass(frozen=True)
class Listing:
    """The files below one directory, keyed by their path relative to it, separated by slashes."""

    path: str
    files: Mapping[str, File]
    truncated: bool = False  # there is more than MAX_ENTRIES


def no_sign() -> None:
    """Nobody waits for signs of life."""


def child_directories(directory: str, sign: Callable[[], None] = no_sign) -> List[str]:
    """Names of the directories in `directory`, links left out.

    Args:
        sign: called after each entry, as a sign of life.

    Raises:
        OSError: it cannot be read.
    """
    names: List[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                names.append(entry.name)
            if len(names) >= MAX_CHILDREN:
                break
            sign()
    return names


def read_listing(directory: str, sign: Callable[[], None] = no_sign) -> Listing:
    """List the files down to MAX_DEPTH, each looked at once; what vanishes meanwhile is left out.

    Args:
        sign: called after each file, as a sign of life.

    Raises:
        OSError: a directory cannot be read for another reason than that it vanished.
    """
    files: Dict[str, File] = {}
    pending: List[Tuple[str, int]] = [("", 1)]
    while pending:
        prefix, depth = pending.pop()
        try:
            with os.scandir(os.path.join(directory, prefix)) as entries:
                for entry in entries:
                    relative = prefix + entry.name
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MAX_DEPTH:
                            pending.append((relative + "/", depth + 1))
                        continue
                    if len(files) >= MAX_ENTRIES:
                        return Listing(directory, files, truncated=True)
                    found = _stat(entry)
                    if found is not None:
                        files[relative] = found
                    sign()
        except FileNotFoundError:
            continue
    return Listing(directory, files)


def _stat(entry: "os.DirEntry[str]") -> Optional[File]:
    try:
        if not entry.is_file():
            return None
        status = entry.stat()
    except FileNotFoundError:
        return None
    return File(status.st_size, status.st_mtime_ns)


def read_content(path: str, sign: Callable[[], None] = no_sign) -> bytes:
    """The bytes of a file of moderate size.

    Args:
        sign: called after each part, as a sign of life.

    Raises:
        OSError: it cannot be read or is larger than MAX_CONTENT_BYTES.
    """
    content = io.BytesIO()
    with open(path, "rb", buffering=0) as stream:
        while content.tell() <= MAX_CONTENT_BYTES:
            part = stream.read(_READ_BYTES)
            if not part:
                return content.getvalue()
            content.write(part)
            sign()
    raise OSError("%s is larger than %d bytes" % (path, MAX_CONTENT_BYTES))

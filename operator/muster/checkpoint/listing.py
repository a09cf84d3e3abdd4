"""Reads a directory tree into plain data, bounded, so that the rules for completeness can be pure functions of it.

`Files` is all that whoever looks for checkpoints asks of a file system. The simulator has one of its own.
"""

from __future__ import annotations

import dataclasses
import io
import os
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from muster.protocol.messages import MAX_NUMBER

MAX_DEPTH = 3
MAX_ENTRIES = 50_000
MAX_CHILDREN = 100_000
MAX_CONTENT_BYTES = 1024 * 1024 * 1024
SINGLE_FILES = (".ckpt", ".pt")  # endings of files that may be checkpoints by themselves
_READ_BYTES = 4 * 1024 * 1024  # at once: a slow file system answers so much within seconds


@dataclasses.dataclass(frozen=True)
class File:
    """One regular file; symbolic links to files count as what they point to."""

    size_bytes: int
    modified_ns: int
    version: int = 0  # as in Status


class Status(NamedTuple):
    """What a path leads to, a file or a directory."""

    inode: int
    size_bytes: int
    modified_ns: int
    version: int = 0  # tells one writing of an object from another beside its size and time; 0 = nothing does

    @property
    def file(self) -> File:
        """What is told of it in a listing."""
        return File(self.size_bytes, self.modified_ns, self.version)


@dataclasses.dataclass(frozen=True)
class Listing:
    """The files below one directory, keyed by their path relative to it, separated by slashes."""

    path: str
    files: Mapping[str, File]
    truncated: bool = False  # there is more than MAX_ENTRIES


class StorageError(OSError):
    """The storage as a whole tells nothing: what is there is not known. Says what to mend."""


def no_sign() -> None:
    """Nobody waits for signs of life."""


class Files:
    """The file system of this machine.

    Attributes:
        is_store: it is an object store: directories are renamed file by file.
        settle_seconds: what has no atomic marker has to stay the same for so long, at least.
    """

    is_store = False
    settle_seconds = 0.0

    def refresh(self) -> None:
        """A look begins: what is remembered of an earlier one does not count."""

    def free_bytes(self, directory: str) -> Optional[int]:
        """What may still be written below it; None: nobody knows, as in a store.

        A quota that the file system does not tell of does not count. Waits for as long as the file system does, so only a
        thread of its own may ask.
        """
        try:
            found = os.statvfs(directory)
        except OSError:
            return None
        return min(found.f_bavail * found.f_frsize, MAX_NUMBER) if found.f_blocks else None

    def status(self, path: str) -> Optional[Status]:
        """What is there; None: nothing.

        Raises:
            OSError: it cannot be looked at.
        """
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Status(status.st_ino, status.st_size, status.st_mtime_ns)

    def children(self, directory: str, sign: Callable[[], None] = no_sign) -> Tuple[List[str], List[str]]:
        """Names of the directories in `directory`, and of the files that may be checkpoints; links left out.

        Args:
            sign: called after each entry, as a sign of life.

        Raises:
            OSError: it cannot be read.
        """
        directories: List[str] = []
        files: List[str] = []
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                elif (
                    entry.name.endswith(SINGLE_FILES)
                    and len(files) < MAX_CHILDREN
                    and entry.is_file(follow_symlinks=False)
                ):
                    files.append(entry.name)
                if len(directories) >= MAX_CHILDREN:
                    break
                sign()
        return directories, files

    def listing(self, directory: str, sign: Callable[[], None] = no_sign) -> Listing:
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

    def content(self, path: str, sign: Callable[[], None] = no_sign) -> bytes:
        """The bytes of a file of moderate size.

        Args:
            sign: called after each part, as a sign of life.

        Raises:
            OSError: it cannot be read or is larger than MAX_CONTENT_BYTES.
        """
        content = io.BytesIO()
        with open(path, "rb", buffering=0, opener=_at_once) as stream:
            while content.tell() <= MAX_CONTENT_BYTES:
                part = stream.read(_READ_BYTES)
                if not part:
                    return content.getvalue()
                content.write(part)
                sign()
        raise OSError("%s is larger than %d bytes" % (path, MAX_CONTENT_BYTES))

    def part(self, path: str, start: int, length: int, sign: Callable[[], None] = no_sign) -> bytes:
        """So many bytes from `start` on, or what of them is there.

        Args:
            sign: called once it is read, as a sign of life.

        Raises:
            OSError: it cannot be read.
        """
        with open(path, "rb", opener=_at_once) as stream:
            stream.seek(start)
            data = stream.read(min(length, MAX_CONTENT_BYTES))
        sign()
        return data

    def link(self, path: str) -> Optional[str]:
        """Where a symbolic link leads; None: there is none.

        Raises:
            OSError: it cannot be looked at, or is no link.
        """
        try:
            return os.readlink(path)
        except FileNotFoundError:
            return None


def _at_once(path: str, flags: int) -> int:
    """Open a file, and do not wait for a writer where it is a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def _stat(entry: "os.DirEntry[str]") -> Optional[File]:
    try:
        if not entry.is_file():
            return None
        status = entry.stat()
    except FileNotFoundError:
        return None
    return File(status.st_size, status.st_mtime_ns)


THIS_MACHINE = Files()

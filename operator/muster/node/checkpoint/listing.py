"""Reads a directory tree into plain data, bounded, so that the rules for completeness can be pure functions of it.

`Files` is all that the search for checkpoints needs of a file system. The simulator has one of its own.
"""

from __future__ import annotations

import dataclasses
import errno
import io
import itertools
import os
import stat
from typing import Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from muster.protocol.checkpoints import ERROR_KINDS
from muster.protocol.messages import MAX_NUMBER

MAX_DEPTH = 3
MAX_ENTRIES = 200_000
MAX_CHILDREN = 100_000
MAX_LINKS = 1024  # to directories or not: each costs some looks
MAX_CONTENT_BYTES = 1024 * 1024 * 1024
_UNREACHABLE_ERRNOS = (errno.ELOOP, errno.ENAMETOOLONG)  # nothing can be there
_AT_ONCE = 256  # names
_READ_BYTES = 4 * 1024 * 1024  # at once: a slow file system answers so much within seconds


class File(NamedTuple):
    """One regular file; symbolic links to files count as what they point to."""

    size_bytes: int
    modified_ns: int
    version: int = 0  # as in Status


class Status(NamedTuple):
    """The state of what a path leads to, a file or a directory."""

    inode: int
    size_bytes: int
    modified_ns: int
    version: int = 0  # tells one writing of an object from another beside its size and time; 0 = nothing does

    @property
    def file(self) -> File:
        """The size and time of the file, as listings have them."""
        return File(self.size_bytes, self.modified_ns, self.version)


@dataclasses.dataclass(frozen=True)
class Listing:
    """The files below one directory, keyed by their path relative to it, separated by slashes.

    Attributes:
        truncated: whether there are more than MAX_ENTRIES files and directories.
        deeper: the directories whose files lie deeper than was asked for, and are not listed.
    """

    path: str
    files: Mapping[str, File]
    truncated: bool = False
    deeper: FrozenSet[str] = frozenset()


def directories_at(names: Iterable[str], depth: int) -> FrozenSet[str]:
    """The directories that lie so deep, of the paths of files."""
    return frozenset("/".join(name.split("/")[:depth]) for name in names if name.count("/") >= depth)


class Children(NamedTuple):
    """The names in a directory.

    Attributes:
        directories: including links to directories that are not there under a name of their own.
        files: those that were wanted, including links to such files.
        strange: links to another file system, which are not followed.
    """

    directories: List[str]
    files: List[str]
    strange: Tuple[str, ...] = ()


class StorageError(OSError):
    """The storage as a whole gives no answer, so its content is not known. The message says what to repair.

    Attributes:
        kind: one of `muster.protocol.checkpoints.ERROR_KINDS`.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(ERROR_KINDS[kind] % text)
        self.kind = kind


def no_sign() -> None:
    """Do nothing; used where no caller needs signs of life."""


class Files:
    """The file system of this machine.

    Attributes:
        is_store: whether this is an object store, where directories are renamed file by file.
        settle_seconds: the least time for which a checkpoint without an atomic marker has to stay the same.
    """

    is_store = False
    settle_seconds = 0.0

    def refresh(self) -> None:
        """Discard what is cached of the look before, because another one begins."""

    def free_bytes(self, directory: str) -> Optional[int]:
        """The bytes that may still be written below a directory; None where that cannot be known, as in a store.

        A quota that the file system does not report does not count. The call waits for as long as the file system does,
        so it needs a thread of its own.
        """
        try:
            file_system = os.statvfs(directory)
        except OSError:
            return None
        return min(file_system.f_bavail * file_system.f_frsize, MAX_NUMBER) if file_system.f_blocks else None

    def status(self, path: str) -> Optional[Status]:
        """The state of what is at a path; None where nothing is.

        Raises:
            OSError: the path cannot be looked at.
        """
        try:
            status = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError:  # a zero byte is in it: a file that a power cut left may say so
            return None
        except OSError as error:
            if error.errno in _UNREACHABLE_ERRNOS:
                return None
            raise
        return Status(status.st_ino, status.st_size, status.st_mtime_ns)

    def children(
        self, directory: str, is_wanted: Callable[[str], bool], sign: Callable[[], None] = no_sign
    ) -> Children:
        """The names of the directories in `directory`, and of the wanted files.

        Args:
            directory: to list.
            is_wanted: whether to return a file, by its name: there may be a million others.
            sign: called after some entries, as a sign of life.

        Raises:
            OSError: the directory cannot be read.
        """
        directories: List[str] = []
        files: List[str] = []
        links: List[str] = []
        with os.scandir(directory) as entries:
            for some in _batches(entries):
                directories += [entry.name for entry in some if entry.is_dir(follow_symlinks=False)]
                links += [entry.name for entry in some if entry.is_symlink()]
                names = [entry for entry in some if is_wanted(entry.name)]
                files += [entry.name for entry in names if entry.is_file(follow_symlinks=False)]
                sign()
                if len(directories) >= MAX_CHILDREN:
                    break
        strange: List[str] = []
        for name in links[:MAX_LINKS]:
            followed = _followed(directory, name, is_wanted)
            if followed is not None:
                (strange if not followed.is_here else directories if followed.is_directory else files).append(name)
            sign()
        return Children(directories[:MAX_CHILDREN], files[:MAX_CHILDREN], tuple(strange))

    def listing(self, directory: str, sign: Callable[[], None] = no_sign, max_depth: int = MAX_DEPTH) -> Listing:
        """List the files below a directory, each looked at once; files that vanish meanwhile are left out.

        Args:
            directory: the first level.
            sign: called after each file and directory, as a sign of life.
            max_depth: the levels of directories, this one included.

        Raises:
            OSError: a directory cannot be read for another reason than that it vanished.
        """
        files: Dict[str, File] = {}
        deeper: Set[str] = set()
        directories = 0
        pending: List[Tuple[str, int]] = [("", 1)]
        while pending:
            prefix, depth = pending.pop()
            try:
                with os.scandir(os.path.join(directory, prefix)) as entries:
                    for entry in entries:
                        if len(files) + directories >= MAX_ENTRIES:
                            return Listing(directory, files, truncated=True)
                        if entry.is_dir(follow_symlinks=False):
                            directories += 1
                            if depth < max_depth:
                                pending.append((prefix + entry.name + "/", depth + 1))
                            else:
                                deeper.add(prefix + entry.name)
                            sign()
                            continue
                        try:
                            if entry.is_file():
                                status = entry.stat()
                                files[prefix + entry.name] = File(status.st_size, status.st_mtime_ns)
                        except FileNotFoundError:
                            pass
                        except OSError as error:
                            if error.errno not in _UNREACHABLE_ERRNOS:
                                raise
                        sign()
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, *_UNREACHABLE_ERRNOS):
                    raise
        return Listing(directory, files, deeper=frozenset(deeper))

    def content(self, path: str, sign: Callable[[], None] = no_sign) -> bytes:
        """The bytes of a file of moderate size.

        Args:
            path: of the file.
            sign: called after each part, as a sign of life.

        Raises:
            OSError: the file cannot be read.
            ValueError: the path is no regular file, or the file is larger than MAX_CONTENT_BYTES.
        """
        content = io.BytesIO()
        with open(path, "rb", buffering=0, opener=_open_regular) as stream:
            while content.tell() <= MAX_CONTENT_BYTES:
                part = stream.read(_READ_BYTES)
                if not part:
                    return content.getvalue()
                content.write(part)
                sign()
        raise ValueError("%s is larger than %d bytes" % (path, MAX_CONTENT_BYTES))

    def part(self, path: str, start: int, length: int, sign: Callable[[], None] = no_sign) -> bytes:
        """At most `length` bytes of a file from `start` on; fewer where the file ends before. `sign` is called once the
        part is read, as a sign of life.

        Raises:
            OSError: the file cannot be read.
            ValueError: the path is no regular file.
        """
        with open(path, "rb", opener=_open_regular) as stream:
            stream.seek(start)
            data = stream.read(min(length, MAX_CONTENT_BYTES))
        sign()
        return data

    def leads_out(self, path: str) -> bool:
        """Whether a file is a link that leads out of the directory in which it lies."""
        if not os.path.islink(path):
            return False
        inside = os.path.realpath(os.path.dirname(path))
        return os.path.commonpath((os.path.realpath(path), inside)) != inside

    def link(self, path: str) -> Optional[str]:
        """The target of a symbolic link; None where there is none.

        Raises:
            OSError: the path cannot be looked at, or is no link.
        """
        try:
            return os.readlink(path)
        except FileNotFoundError:
            return None


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file; returns its descriptor.

    Pipes, devices and circular links are refused: to open a device may have effects.

    Raises:
        OSError: the file cannot be opened.
        ValueError: the path is no regular file.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno in _UNREACHABLE_ERRNOS:
            raise ValueError("%s leads nowhere" % path) from None
        raise
    if not stat.S_ISREG(mode):
        raise ValueError("%s is no regular file" % path)
    return os.open(path, flags | os.O_NONBLOCK)  # it may have become a pipe meanwhile


class _Followed(NamedTuple):
    """The target of a link: a directory or a file, on the same file system or another."""

    is_directory: bool
    is_here: bool


def _followed(directory: str, name: str, is_wanted: Callable[[str], bool]) -> Optional[_Followed]:
    """The directory, or wanted file, at the end of a link; None where there is none to list.

    Targets in the same directory, which are listed by their own names, and circular links are not listed.
    """
    path = os.path.join(directory, name)
    try:
        status = os.stat(path)
        is_directory = stat.S_ISDIR(status.st_mode)
        if not is_directory and not (stat.S_ISREG(status.st_mode) and is_wanted(name)):
            return None
        target, itself = os.path.realpath(path), os.path.realpath(directory)
        if os.path.dirname(target) == itself or os.path.commonpath((target, itself)) == target:
            return None
        return _Followed(is_directory, status.st_dev == os.stat(directory).st_dev)
    except OSError:
        return None


def _batches(entries: "Iterator[os.DirEntry[str]]") -> "Iterator[List[os.DirEntry[str]]]":
    """The entries in lists of many, so that nothing is done for each of a million but to read its name."""
    while True:
        some = list(itertools.islice(entries, _AT_ONCE))
        if not some:
            return
        yield some


THIS_MACHINE = Files()

"""A directory or file that may be a checkpoint, as the formats' rules see it: its files by name, size and time, and
small reads.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import os
from typing import Callable, Dict, FrozenSet, List, Mapping, Sequence, Tuple, TypeVar, Union

from muster.node.checkpoint.listing import File, Files
from muster.node.checkpoint.untrusted_json import MAX_BYTES
from muster.protocol.checkpoint_names import joined

# Clients of a shared file system may stamp times by their own clocks, which differ by less than this. A saver
# over an older checkpoint begins later: it was used since, or the training went back behind it.
CLOCKS_DIFFER_NS = 2_000_000_000
_MAX_REMEMBERED = 65536  # files; what is found in most is a word or nothing

MAX_TEXT_BYTES = 4096  # of a file that holds a name or a number

T = TypeVar("T")


def ask_rule(rule: Callable[[], T]) -> T:
    """The result of a format's rule about files that a tenant wrote, whatever these contain.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is not what it should be. Any other error of a rule becomes one: a single file must not end
            the
        listing of all others.
    """
    try:
        return rule()
    except (OSError, ValueError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a file makes of a rule
        raise ValueError("%s: %s" % (type(error).__name__, error)) from None


class Reading:
    """Reads files for candidates, and caches what was found in each while its size and time stay the same."""

    def __init__(self, files: Files, sign: Callable[[], None]) -> None:
        self.files = files
        self.sign = sign
        self._found: Dict[Tuple[str, object], Tuple[File, Union[object, ValueError]]] = {}

    def remembered(self, path: str, file: File, compute: Callable[[], T], key: object) -> T:
        """The result of `compute` about a file, or the ValueError that it raised; computed again only when the file has
        changed. Several results about one file are told apart by `key`.
        """
        cached = self._found.get((path, key))
        if cached is None or cached[0] != file:
            if len(self._found) > _MAX_REMEMBERED:
                self._found.clear()
            try:
                result: Union[object, ValueError] = ask_rule(compute)
            except ValueError as error:
                result = error
            self._found[(path, key)] = cached = (file, result)
        if isinstance(cached[1], ValueError):
            raise cached[1].with_traceback(None)
        return cached[1]  # type: ignore[return-value]


class Candidate:
    """A directory, or a single file, that may be a checkpoint.

    Attributes:
        path: absolute path of the directory, also where the checkpoint is a single file in it.
        name: of the checkpoint.
        files: by path relative to the directory, `../` for a file beside it that belongs to it. Before the directory is
        listed, only the files that made it a candidate.
        siblings: the names of some other files beside a single file that are checkpoints of the same format by their
        names; empty for a directory.
        deeper: the directories whose files lie deeper than those in `files`.
    """

    def __init__(
        self,
        path: str,
        name: str,
        files: Mapping[str, File],
        reading: Reading,
        siblings: Callable[[], Sequence[str]] = tuple,
        deeper: FrozenSet[str] = frozenset(),
    ) -> None:
        self.path = path
        self.name = name
        self.files = dict(files)
        self.siblings = siblings
        self.deeper = deeper
        self._reading = reading

    def below(self, directory: str) -> "Candidate":
        """The candidate that consists of one directory inside this one."""
        prefix = directory + "/"
        inner = {name[len(prefix) :]: file for name, file in self.files.items() if name.startswith(prefix)}
        return Candidate(os.path.join(self.path, directory), directory, inner, self._reading)

    @property
    def in_store(self) -> bool:
        """Whether the candidate lies in an object store, where a directory is renamed file by file."""
        return self._reading.files.is_store

    def content(self, name: str) -> bytes:
        """All bytes of a file of moderate size.

        Raises:
            OSError: the file cannot be read, or is too large.
        """
        return self._reading.files.content(joined(self.path, name), self._reading.sign)

    def document(self, name: str) -> bytes:
        """All bytes of a file that is to be parsed as JSON.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is larger than such a file can be.
        """
        if self.files[name].size_bytes > MAX_BYTES:
            raise ValueError("%s is larger than %d bytes" % (name, MAX_BYTES))
        return self.content(name)

    def text(self, name: str) -> str:
        """The text of a file of one line, stripped.

        Raises:
            OSError: the file cannot be read.
        """
        return self.part(name, 0, MAX_TEXT_BYTES).decode("utf-8", "replace").strip()

    def part(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes of a file from `start` on; fewer where the file ends before.

        Raises:
            OSError: the file cannot be read.
        """
        return self._reading.files.part(joined(self.path, name), start, length, self._reading.sign)

    def has_file(self, name: str) -> bool:
        """Whether there is a file of this name, also before the directory was listed; if so, the file is added to
        `files`.

        Raises:
            OSError: the path cannot be looked at.
        """
        status = self._reading.files.status(joined(self.path, name))
        if status is not None:
            self.files[name] = status.file
        return status is not None

    def remembered(self, name: str, compute: Callable[["Candidate", str], T]) -> T:
        """The result of `compute` about this candidate and a file's name, computed once for each version of the file.

        Raises:
            OSError: the file cannot be read.
            ValueError: the file is not what it should be.
        """
        path = joined(self.path, name)
        return self._reading.remembered(path, self.files[name], lambda: compute(self, name), compute)

    def sign(self) -> None:
        """Give a sign of life."""
        self._reading.sign()

    def later_than(self, marker: str) -> List[str]:
        """The names of the files that were written later than the marker by more than clocks differ."""
        newest_ns = self.files[marker].modified_ns + CLOCKS_DIFFER_NS
        return [name for name, file in self.files.items() if file.modified_ns > newest_ns]

"""The result of looking into one directory, in a form that outlives the process that looked.

A verdict holds as long as the files are the same: names, sizes and times of all of them, or, for a cheap look, of those
that change first.

Tests: tests/unit/checkpoint/test_listing.py.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Dict, Mapping

from muster.node.checkpoint.listing import Listing, Status

_ONE_SAVE_NS = 600 * 1_000_000_000  # files of one save end closer together


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The answer whether a directory is a complete checkpoint.

    Attributes:
        path: of the directory.
        files: digest of the names, sizes and times of all files in it when it was verified.
        glance: stamps of the directory, the marker and the probe when it was verified.
        probe: the file that a save over this checkpoint touches among the first, relative to the directory.
        problem: why it is not complete; "" = it is.
        size_bytes: the size of all files in it; where some of those of an open format are gone, as it was before.
        newest_ns: when the last of them was written.
        saving_ns: the nanoseconds from the end of its first file to the end of its last one.
    """

    path: str
    files: str
    glance: str
    probe: str
    problem: str
    size_bytes: int = 0
    saving_ns: int = 0
    newest_ns: int = 0

    def to_json(self) -> Dict[str, Any]:
        """The verdict as plain data for JSON."""
        return dataclasses.asdict(self)


def verdict_from(data: Mapping[str, Any]) -> Verdict:
    """The verdict from the plain data of `to_json`.

    Raises:
        KeyError: a field is missing.
        ValueError: a number is none.
    """
    texts = {name: str(data[name]) for name in ("path", "files", "glance", "probe", "problem")}
    size_bytes, saving, newest_ns = (int(data.get(name, 0)) for name in ("size_bytes", "saving_ns", "newest_ns"))
    return Verdict(size_bytes=size_bytes, saving_ns=saving, newest_ns=newest_ns, **texts)


def digest(listing: Listing) -> str:
    """The digest of a listing, which is equal for equal names, sizes and times."""
    names = sorted(listing.files)
    hashed = hashlib.sha256("\0".join(names).encode("utf-8", "surrogateescape"))
    for column in zip(*map(listing.files.__getitem__, names)):
        hashed.update(repr(column).encode())
    return hashed.hexdigest()[:32]


def saving_ns(listing: Listing) -> int:
    """The nanoseconds from the end of the first of the files to the end of the last one: what can be seen of a past
    save.

    A file that was copied with its time, such as a tokenizer's, is older than the save. So time counts back from the
    last file as long as no two lie further apart than files of one save do.
    """
    times = [file.modified_ns for file in listing.files.values()]
    if not times or max(times) - min(times) <= _ONE_SAVE_NS:
        return max(times) - min(times) if times else 0
    ended = sorted(times, reverse=True)
    first = next((i for i, (later, earlier) in enumerate(zip(ended, ended[1:])) if later - earlier > _ONE_SAVE_NS), -1)
    return ended[0] - ended[first]


def stamp(status: Status) -> str:
    """A text that changes with a file's content, or with the names in a directory."""
    return "%d-%d-%d-%d" % status

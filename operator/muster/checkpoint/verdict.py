"""What a look into one directory found, in a form that outlives the process that looked.

A verdict holds as long as the files are the same: names, sizes and times of all of them, or, for a cheap look, of those
that change first.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Dict, Mapping

from muster.checkpoint.listing import Listing, Status

_ONE_SAVE_NS = 600 * 1_000_000_000  # files of one save end closer together


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a directory is a complete checkpoint.

    Attributes:
        files: digest of the names, sizes and times of all files in it when it was judged.
        glance: the directory, the marker and the probe when it was judged.
        probe: the file that a save over this checkpoint touches among the first, relative to the directory.
        problem: why it is not complete; "" = it is.
        size_bytes: of all files in it.
        saving_ns: from the end of its first file to the end of its last one.
    """

    path: str
    files: str
    glance: str
    probe: str
    problem: str
    size_bytes: int = 0
    saving_ns: int = 0

    def to_json(self) -> Dict[str, Any]:
        """As plain data."""
        return dataclasses.asdict(self)


def verdict_from(data: Mapping[str, Any]) -> Verdict:
    """The verdict that was written down.

    Raises:
        KeyError: a field is missing.
        ValueError: a number is none.
    """
    texts = {name: str(data[name]) for name in ("path", "files", "glance", "probe", "problem")}
    return Verdict(size_bytes=int(data.get("size_bytes", 0)), saving_ns=int(data.get("saving_ns", 0)), **texts)


def digest(listing: Listing) -> str:
    """The same for the same names, sizes and times."""
    lines = (
        "%s\0%d\0%d\0%d\n" % (name, file.size_bytes, file.modified_ns, file.version)
        for name, file in sorted(listing.files.items())
    )
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def saving_ns(listing: Listing) -> int:
    """From the end of the first of its files to the end of the last one: what can be seen of a save when it is over.

    A file that was copied with its time, such as a tokenizer's, is older than the save. So time counts back from the last
    file as long as no two lie further apart than files of one save do.
    """
    ended = sorted((file.modified_ns for file in listing.files.values()), reverse=True)
    first = next((i for i, (later, earlier) in enumerate(zip(ended, ended[1:])) if later - earlier > _ONE_SAVE_NS), -1)
    return ended[0] - ended[first] if ended else 0


def stamp(status: Status) -> str:
    """What changes with a file's content, or with the names in a directory."""
    return "%d-%d-%d-%d" % status

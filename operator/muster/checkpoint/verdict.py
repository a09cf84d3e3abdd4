"""What a look into one directory found, in a form that outlives the process that looked.

A verdict holds as long as the files are the same: names, sizes and times of all of them, or, for a cheap look, of those
that change first.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, Dict, Mapping

from muster.checkpoint.listing import Listing, Status


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a directory is a complete checkpoint.

    Attributes:
        files: digest of the names, sizes and times of all files in it when it was judged.
        glance: the directory, the marker and the probe when it was judged.
        probe: the file that a save over this checkpoint touches among the first, relative to the directory.
        problem: why it is not complete; "" = it is.
    """

    path: str
    files: str
    glance: str
    probe: str
    problem: str

    def to_json(self) -> Dict[str, str]:
        """As plain data."""
        return dataclasses.asdict(self)


def verdict_from(data: Mapping[str, Any]) -> Verdict:
    """The verdict that was written down.

    Raises:
        KeyError: a field is missing.
    """
    return Verdict(**{field.name: str(data[field.name]) for field in dataclasses.fields(Verdict)})


def digest(listing: Listing) -> str:
    """The same for the same names, sizes and times."""
    lines = (
        "%s\0%d\0%d\0%d\n" % (name, file.size_bytes, file.modified_ns, file.version)
        for name, file in sorted(listing.files.items())
    )
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def stamp(status: Status) -> str:
    """What changes with a file's content, or with the names in a directory."""
    return "%d-%d-%d-%d" % status

"""The rules: which directories may be checkpoints, in which order, and which of them are complete. Pure."""

from __future__ import annotations

import dataclasses
import re
from typing import Iterable, List, Mapping, Optional

from muster.checkpoint.dcp import METADATA_NAME
from muster.checkpoint.listing import Listing
from muster.checkpoint.manifest import MANIFEST_NAME, Manifest

# Where frameworks assemble a checkpoint before they rename it: complete today, gone tomorrow.
_UNFINISHED = re.compile(r"\A\.|(?:\A|[._-])(?:tmp|temp|unfinished)(?:[._-]|\d*\Z)", re.IGNORECASE)
_INTEGER = re.compile(r"\d+")
# Clients of a shared file system may stamp times by their own clocks, which differ by less than this. Whoever saves over
# an older checkpoint begins later: it was used since, or the training went back behind it.
CLOCKS_DIFFER_NS = 2_000_000_000
_MAX_STEP_DIGITS = 15  # what a report can tell (muster.protocol.messages.MAX_NUMBER)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A checkpoint that has its marker.

    Attributes:
        written_ns: when the marker was written, by the clock of the file system.
        judged: whether it was found complete; False: nobody has looked yet.
    """

    step: int
    path: str
    written_ns: int = 0
    judged: bool = True


@dataclasses.dataclass(frozen=True)
class Lineage:
    """A person sent the training back to `step`: what was written beyond it until `since_ns` is another history."""

    step: int
    since_ns: int

    def has(self, checkpoint: Checkpoint) -> bool:
        """Whether it belongs to the history that goes on."""
        return checkpoint.step <= self.step or checkpoint.written_ns > self.since_ns


def step_in_name(name: str) -> Optional[int]:
    """The last whole number in a directory's name."""
    numbers = _INTEGER.findall(name)
    return int(numbers[-1]) if numbers and len(numbers[-1]) <= _MAX_STEP_DIGITS else None


def order_candidates(names: Iterable[str]) -> List[str]:
    """Names that may hold a finished checkpoint, those without a step first, then from the highest step down."""
    kept = [name for name in names if not _UNFINISHED.search(name)]
    return sorted(kept, key=lambda name: (step_in_name(name) is not None, -(step_in_name(name) or 0), name))


def manifest_problem(listing: Listing, manifest: Manifest) -> str:
    """Why a checkpoint with this manifest is not complete; "" = it is."""
    for path, size_bytes in manifest.sizes.items():
        file = listing.files.get(path)
        if file is None:
            return "%s names %s, which does not exist" % (MANIFEST_NAME, path)
        if file.size_bytes != size_bytes:
            return "%s has %d bytes, not %d" % (path, file.size_bytes, size_bytes)
    return ""


def dcp_problem(listing: Listing, sizes: Mapping[str, int]) -> str:
    """Why a DCP checkpoint whose `.metadata` needs these shards is not complete; "" = it is.

    A save over an older checkpoint writes its shards in place while the old `.metadata` still stands. Until a shard is
    whole its size tells, afterwards only the time does: it is newer than `.metadata` by more than clocks differ.
    """
    metadata = listing.files.get(METADATA_NAME)
    if metadata is None:
        return "%s does not exist" % METADATA_NAME
    for path, size_bytes in sizes.items():
        shard = listing.files.get(path)
        if shard is None:
            return "%s names %s, which does not exist" % (METADATA_NAME, path)
        if shard.size_bytes < size_bytes:
            return "%s has %d bytes, %d are needed" % (path, shard.size_bytes, size_bytes)
    newest_ns = metadata.modified_ns + CLOCKS_DIFFER_NS
    for path, file in listing.files.items():
        if path.endswith(".distcp") and file.modified_ns > newest_ns:
            return "%s is newer than %s" % (path, METADATA_NAME)
    return ""


def newest_first(checkpoints: Iterable[Checkpoint], limit: int) -> List[Checkpoint]:
    """The `limit` checkpoints of the highest steps."""
    return sorted(checkpoints, key=lambda checkpoint: (-checkpoint.step, checkpoint.path))[:limit]

"""Decide which reported checkpoints are the newest, and which belong to the current branch. Pure.

Tests: tests/unit/checkpoint/test_listing.py, tests/unit/checkpoint/test_store.py.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

# Two mounts may report one file's time a second apart: some keep no fractions of it.
_SAME_TIME_NS = 1_000_000_000
MAX_STAMPS = 256
MAX_LISTED = 8  # checkpoints that a launcher reports, the newest first
# Kinds of a store's error: a person has to repair it, and another node would fail, too; or it may pass by itself.
UNVERIFIED = "Unverified"
UNVERIFIED_FOR_NOW = "UnverifiedForNow"
ERROR_KINDS = {UNVERIFIED: "unverified: %s", UNVERIFIED_FOR_NOW: "unverified for now: %s"}
_STAMP = re.compile(r"(\d{1,16}):(\d{1,19})")

Stamp = Tuple[int, int]  # step and written_ns: what is written later has another


@dataclasses.dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint that has its commit marker.

    Attributes:
        written_ns: when the marker was written, by the clock of the file system.
        judged: whether it was found complete; False: it was not verified yet.
        format: how it is written (muster.node.checkpoint.formats); "" = not known.
        size_bytes: of all its files, once verified.
        save_seconds: from the end of its first file to the end of its last one, once verified.
        problem: why it is not complete; "" = it is, or that is not known.
    """

    step: int
    path: str
    written_ns: int = 0
    judged: bool = True
    format: str = ""
    size_bytes: Optional[int] = None
    save_seconds: Optional[float] = None
    problem: str = ""

    @property
    def stamp(self) -> "Stamp":
        """Identify this checkpoint, as opposed to one that is written to the same place later."""
        return self.step, self.written_ns


@dataclasses.dataclass(frozen=True)
class BranchFilter:
    """The training went back to `step`: checkpoints that were there beyond it belong to another branch.

    Attributes:
        excluded: times of these checkpoints, by step.
        frozen: no checkpoint beyond the step belongs to this branch, whenever it was written.
    """

    step: int
    excluded: Mapping[int, Sequence[int]]
    frozen: bool = False

    def has(self, step: int, written_ns: int) -> bool:
        """Whether a checkpoint belongs to this branch.

        A checkpoint beyond the step without a known time (0) does not: it may be one of the excluded ones.
        """
        if any(abs(written_ns - then_ns) <= _SAME_TIME_NS for then_ns in self.excluded.get(step, ())):
            return False
        return step <= self.step or (not self.frozen and written_ns > 0)


def branch_of(step: int, excluded: str, frozen: bool = False) -> BranchFilter:
    """Build the branch from a record's fields: `excluded` as `write_stamps` wrote it."""
    times: Dict[int, List[int]] = {}
    for excluded_step, written_ns in read_stamps(excluded):
        times.setdefault(excluded_step, []).append(written_ns)
    return BranchFilter(step, times, frozen)


def write_stamps(stamps: Iterable[Stamp]) -> str:
    """Write stamps as one short text for repeated sending: `200:1700000000000000000,100:...`, highest step first."""
    return ",".join("%d:%d" % stamp for stamp in sorted(set(stamps), reverse=True))


def read_stamps(text: str) -> List[Stamp]:
    """Return the stamps in such a text; malformed ones are skipped."""
    return [(int(step), int(written_ns)) for step, written_ns in _STAMP.findall(text)]


def kind_in_text(error: str) -> str:
    """Return the kind of a store's error that its text begins with; "" = none of ERROR_KINDS."""
    return next((kind for kind, text in ERROR_KINDS.items() if error.startswith(text % "")), "")


def newest_first(checkpoints: Iterable[FoundCheckpoint], limit: int) -> List[FoundCheckpoint]:
    """Return the `limit` checkpoints of the highest steps."""
    return sorted(checkpoints, key=lambda checkpoint: (-checkpoint.step, checkpoint.path))[:limit]

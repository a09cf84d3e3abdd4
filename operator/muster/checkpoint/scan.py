"""The rules: which directories may be checkpoints, in which order, and which of them are complete. Pure."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from muster.checkpoint.dcp import METADATA_NAME
from muster.checkpoint.listing import Listing
from muster.checkpoint.manifest import MANIFEST_NAME, Manifest

# Where frameworks assemble a checkpoint before they rename it: complete today, gone tomorrow.
_UNFINISHED = re.compile(r"\A\.|(?:\A|[._-])(?:tmp|temp|unfinished)(?:[._-]|\d*\Z)", re.IGNORECASE)
# The number that a framework calls the step, whatever else it tells: Lightning `epoch=9-step=9000-val_loss=1.25`, NeMo
# `model--val_loss=1.25-epoch=3-step=500-consumed_samples=64.0`, DeepSpeed `global_step500`, Megatron `iter_0000500`,
# Composer `ep1-ba500-rank0`.
_STEP = re.compile(
    r"(?:\A|[^a-z])(?:(?:global|train)[_-]?)?(?:step|iter|iteration|ba|batch)s?[=_.-]?(\d+)", re.IGNORECASE
)
# A whole number that is neither part of a decimal one nor a version (`last-v1`).
_INTEGER = re.compile(r"(?<!\d)(?<!-v)(?<!\d\.)\d+(?!\d|\.\d)")
# Clients of a shared file system may stamp times by their own clocks, which differ by less than this. Whoever saves over
# an older checkpoint begins later: it was used since, or the training went back behind it.
CLOCKS_DIFFER_NS = 2_000_000_000
_MAX_STEP_DIGITS = 15  # what a report can tell (muster.protocol.messages.MAX_NUMBER)
# Two mounts may tell one file's time with a second's difference: some keep no fractions of it.
_SAME_TIME_NS = 1_000_000_000
MAX_STAMPS = 256
# What Hugging Face's Trainer writes last, and the parts of it that are checkpoints of their own where ranks are sharded.
TRAINER_STATE_NAME = "trainer_state.json"
FSDP_PARTS = ("pytorch_model_fsdp_0", "optimizer_0")
_STAMP = re.compile(r"(\d{1,16}):(\d{1,19})")

Stamp = Tuple[int, int]  # step and written_ns: whatever is written later has another


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

    @property
    def stamp(self) -> "Stamp":
        """By which it is told from one that is written to the same place later."""
        return self.step, self.written_ns


@dataclasses.dataclass(frozen=True)
class Lineage:
    """A person sent the training back to `step`: what was there beyond it then is another history.

    Attributes:
        disowned: times of what was there, by step.
        since_ns: in records of old, which do not name them: what was written beyond the step until then.
    """

    step: int
    since_ns: int
    disowned: Mapping[int, Sequence[int]]

    def has(self, step: int, written_ns: int) -> bool:
        """Whether a checkpoint belongs to the history that goes on.

        One beyond the step whose time is not known (0) does not: nobody could tell it from those of before.
        """
        if any(abs(written_ns - then_ns) <= _SAME_TIME_NS for then_ns in self.disowned.get(step, ())):
            return False
        return step <= self.step or written_ns > self.since_ns


def lineage_of(step: int, since_ns: int, disowned: str) -> Lineage:
    """As it stands in a record: the disowned as `write_stamps` wrote them."""
    times: Dict[int, List[int]] = {}
    for disowned_step, written_ns in read_stamps(disowned):
        times.setdefault(disowned_step, []).append(written_ns)
    return Lineage(step, since_ns, times)


def write_stamps(stamps: Iterable[Stamp]) -> str:
    """Stamps as one text, short enough to be sent again and again: `200:1700000000000000000,100:...`, highest step first."""
    return ",".join("%d:%d" % stamp for stamp in sorted(set(stamps), reverse=True))


def read_stamps(text: str) -> List[Stamp]:
    """The stamps in such a text; what is none is passed over."""
    return [(int(step), int(written_ns)) for step, written_ns in _STAMP.findall(text)]


def step_in_name(name: str) -> Optional[int]:
    """The step that a directory's name tells: the number that is called so, else the last whole one."""
    numbers = _STEP.findall(name)[:1] or _INTEGER.findall(name)[-1:]
    return int(numbers[0]) if numbers and len(numbers[0]) <= _MAX_STEP_DIGITS else None


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


def part_of(listing: Listing, part: str) -> Listing:
    """The files of one directory of a listing."""
    prefix = part + "/"
    inner = {path[len(prefix) :]: file for path, file in listing.files.items() if path.startswith(prefix)}
    return Listing(os.path.join(listing.path, part), inner)


def trainer_step(data: bytes) -> Optional[int]:
    """The step that Hugging Face's `trainer_state.json` tells; None where it is torn."""
    try:
        state = json.loads(data)
    except ValueError:
        return None
    step = state.get("global_step") if isinstance(state, dict) else None
    return step if isinstance(step, int) else None


def newest_first(checkpoints: Iterable[Checkpoint], limit: int) -> List[Checkpoint]:
    """The `limit` checkpoints of the highest steps."""
    return sorted(checkpoints, key=lambda checkpoint: (-checkpoint.step, checkpoint.path))[:limit]

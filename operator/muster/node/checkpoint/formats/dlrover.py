"""DLRover's flash checkpoint: `500/rank_0.pt`, and `dlrover_latest.txt` beside it, written once all shards are on disk.

dlrover/python/elastic_agent/torch/ckpt_saver.py (`CommonDirCheckpointSaver`); what is read,
dlrover/trainer/torch/flash_checkpoint/full_ckpt_engine.py. Agents write them from memory, while training goes on and
after it has died. What they write for Megatron-LM, DeepSpeed and FSDP lies as these let it lie, and is judged so. How
many shards there are is written nowhere: the file names the step for which they were counted, and an older step has to
have as many as that.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import re
from typing import Optional

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.dcp import FLASH_TRACKER
from muster.node.checkpoint.formats.base import Format, Words
from muster.node.checkpoint.formats.parts import files_problem, gap, named

_SHARD = re.compile(r"rank_\d{1,9}\.pt\Z")
_STEP = re.compile(r"\d{1,15}\Z")


def is_step(name: str) -> bool:
    """Whether a directory name is a step as DLRover writes it."""
    return _STEP.match(name) is not None


def _tracked(candidate: Candidate, name: str) -> Optional[int]:
    text = candidate.text(name)
    return int(text) if _STEP.match(text) else None


def is_over(candidate: Candidate, step: int) -> bool:
    """Whether DLRover's file beside the checkpoint says that the save of this step, or a later one, is over."""
    tracked = candidate.remembered(FLASH_TRACKER, _tracked) if FLASH_TRACKER in candidate.files else None
    return tracked is not None and tracked >= step


def _problem(candidate: Candidate) -> str:
    step, name = int(candidate.name), FLASH_TRACKER[3:]
    if FLASH_TRACKER not in candidate.files:
        return "%s does not exist: no save was said to be over yet" % name
    tracked = candidate.remembered(FLASH_TRACKER, _tracked)
    if tracked is None or tracked < step:
        return "%s names %s: this one was not said to be over yet" % (name, tracked)
    missing = gap(candidate.files, "rank_%d.pt")
    shards = named(candidate, _SHARD)
    if not missing and tracked > step and candidate.has_file("../%d/rank_%d.pt" % (tracked, len(shards))):
        missing = "rank_%d.pt" % len(shards)
    if missing:
        return "%s does not exist" % missing
    later = set(candidate.later_than(FLASH_TRACKER)).intersection(shards)
    return "%s is newer than %s" % (min(later), name) if later else files_problem(candidate, shards)


DLROVER = Format(
    "DLRover",
    Words(
        written_by="DLRover's flash checkpoint. What it saves for Megatron-LM, DeepSpeed or FSDP is found as theirs",
        place="`500/rank_0.pt`",
        step="the name",
        complete="`dlrover_latest.txt` names this step or a later one and is not older than its files. These are "
        "whole, numbered without a gap, and as many as that later one has. Of the one that it names a last shard that "
        "was removed later is not missed",
    ),
    ("rank_0.pt",),
    _problem,
    claims=is_step,
    beside=lambda name: FLASH_TRACKER,
    settles=True,
    is_open=True,
)

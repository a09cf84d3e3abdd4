"""Rules that several formats share: parts that are checkpoints of their own, and files that are numbered."""

from __future__ import annotations

import re
from typing import Iterable, List, Pattern

from muster.checkpoint.candidate import Candidate
from muster.checkpoint.dcp import METADATA_NAME
from muster.checkpoint.formats.base import json_object
from muster.checkpoint.formats.torch_dcp import dcp_problem
from muster.checkpoint.whole import file_problem

FSDP_MODEL = re.compile(r"pytorch_model_fsdp_\d+\Z")  # what accelerate.utils.save_fsdp_model and
FSDP_OPTIMIZER = re.compile(r"optimizer_\d+\Z")  # save_fsdp_optimizer call a DCP of sharded ranks
# PEFT gives each adapter that is not called `default` a directory (peft/peft_model.py, save_pretrained).
_ADAPTER = r"[^/]{1,128}"
_CONFIG = re.compile(r"(?:(%s)/)?adapter_config\.json\Z" % _ADAPTER)
_WEIGHTS = re.compile(
    r"(?:model(?:_\d+)?\.safetensors|pytorch_model(?:_fsdp)?(?:_\d+)?\.bin|(?:%s/)?adapter_model\.(?:safetensors|bin))\Z"
    % _ADAPTER
)
_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def directories(candidate: Candidate, pattern: Pattern[str]) -> List[str]:
    """The directories in it whose names match."""
    names = {name.partition("/")[0] for name in candidate.files if "/" in name}
    return sorted(name for name in names if pattern.match(name))


def dcp_parts_problem(candidate: Candidate, parts: Iterable[str], marker: str) -> str:
    """Why not each of these directories is a whole DCP that was there before the marker was written; "" = they are."""
    later = candidate.later_than(marker)
    for part in parts:
        metadata = "%s/%s" % (part, METADATA_NAME)
        if metadata not in candidate.files:
            return "%s does not exist" % metadata
        if metadata in later:
            return "%s is newer than %s" % (part, marker)
        problem = dcp_problem(candidate.below(part))
        if problem:
            return "%s: %s" % (part, problem)
    return ""


def files_problem(candidate: Candidate, names: Iterable[str]) -> str:
    """Why not each of these files is whole; "" = they are."""
    return next(filter(None, (file_problem(candidate, name) for name in names)), "")


def weights(candidate: Candidate) -> List[str]:
    """The files that hold all weights; none where not all of them are there.

    Raises:
        ValueError: an index of them is torn, or names a file that does not exist; an adapter has a configuration only.
    """
    found = [name for name in candidate.files if _WEIGHTS.match(name)]
    for config in filter(None, map(_CONFIG.match, candidate.files)):
        adapter = config[1] + "/" if config[1] else ""
        if not any(adapter + name in candidate.files for name in _ADAPTERS):
            raise ValueError("%s is there, and no %sadapter_model.safetensors" % (config[0], adapter))
    for index in _INDEXES:
        found += indexed(candidate, index) if index in candidate.files else []
    return found


def indexed(candidate: Candidate, index: str) -> List[str]:
    """The files that an index of weights names, which lie beside it.

    Raises:
        ValueError: it is torn, or one of them does not exist.
    """
    shards = json_object(candidate, index).get("weight_map")
    place = index[: index.rfind("/") + 1]
    names = sorted({place + str(name) for name in shards.values()}) if isinstance(shards, dict) else []
    missing = [name for name in names if name not in candidate.files]
    if missing or not names:
        raise ValueError("%s names %s, which does not exist" % (index, missing[0] if missing else "no file"))
    return names


def named(candidate: Candidate, pattern: Pattern[str]) -> List[str]:
    """The files in it whose names match; what a program keeps beside them is its own."""
    return [name for name in candidate.files if pattern.match(name)]


def gap(names: Iterable[str], numbered: str) -> str:
    """The first file that is missing of those that are numbered from 0 on; "" = none.

    Args:
        numbered: with %d for the number.
    """
    before, _, behind = numbered.partition("%d")
    pattern = re.compile(re.escape(before) + r"(\d{1,9})" + re.escape(behind) + r"\Z")
    numbers = {int(found[1]) for found in map(pattern.match, names) if found}
    missing = next((n for n in range(len(numbers)) if n not in numbers), None)
    return "" if missing is None else numbered % missing

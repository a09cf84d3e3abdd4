"""Rules that several formats share: parts that are checkpoints of their own, and files that are numbered.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, Pattern, Sequence, Set

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.dcp import METADATA_NAME
from muster.node.checkpoint.formats.base import json_object
from muster.node.checkpoint.formats.torch_dcp import dcp_problem
from muster.node.checkpoint.untrusted_json import parse_json
from muster.node.checkpoint.whole import file_problem, own_file_problem

FSDP_MODEL = re.compile(r"pytorch_model_fsdp_\d+\Z")  # what accelerate.utils.save_fsdp_model and
FSDP_OPTIMIZER = re.compile(r"optimizer_\d+\Z")  # save_fsdp_optimizer call a DCP of sharded ranks
# PEFT gives each adapter that is not called `default` a directory (peft/peft_model.py, save_pretrained).
_ADAPTER = r"[^/]{1,128}"
_CONFIG = re.compile(r"(?:(%s)/)?adapter_config\.json\Z" % _ADAPTER)
_WEIGHTS = re.compile(
    r"(?:model(?:_\d+)?\.safetensors|pytorch_model(?:_fsdp)?(?:_\d+)?\.bin|(?:%s/)?adapter_model\.(?:safetensors|bin))\Z"
    % _ADAPTER
)
# Weights under names and in directories that a program chooses: what saves them lets it.
_OWN = re.compile(r".*\.(?:safetensors|bin|pt|pth|ckpt)\Z")
_OWN_INDEX = re.compile(r".*\.(?:safetensors|bin)\.index\.json\Z")
_ONE_OF_SEVERAL = re.compile(
    r"-\d{5}-of-\d{5}\.[a-z]+\Z"
)  # as `save_pretrained` of transformers and diffusers calls them
# What each rank saves for itself without DCP (accelerate/utils/fsdp_utils.py: LOCAL_STATE_DICT, `use_dcp=False`).
_OF_RANK = re.compile(r"((?:pytorch_model_fsdp|optimizer)(?:_\d+)?)_rank(\d{1,6})\.bin\Z")
# sentence_transformers/SentenceTransformer.py (_load_sbert_model): it loads each module from the directory that this
# file names. These modules save weights; others, such as the one that pools, have none.
_MODULES = "modules.json"
_WITH_WEIGHTS = re.compile(
    r"(?:.*\.)?(?:Transformer|CLIPModel|MLMTransformer|Dense|CNN|LSTM|LayerNorm|StaticEmbedding|WordEmbeddings"
    r"|WeightedLayerPooling|SparseAutoEncoder|SparseStaticEmbedding)\Z"
)
_ADAPTERS = ("adapter_model.safetensors", "adapter_model.bin")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def directories(candidate: Candidate, pattern: Pattern[str]) -> List[str]:
    """The directories in a candidate whose names match the pattern."""
    names = {name.partition("/")[0] for name in candidate.files if "/" in name}
    return sorted(name for name in names if pattern.match(name))


def dcp_parts_problem(candidate: Candidate, parts: Iterable[str], marker: str) -> str:
    """Why not each of these directories is a whole DCP that was there before the marker was written; "" = each is."""
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
    """Why not each of these files is whole; "" = each is."""
    return next(filter(None, (file_problem(candidate, name) for name in names)), "")


def weights(candidate: Candidate) -> List[str]:
    """The files that hold all weights; none where not all of them are there.

    Raises:
        ValueError: an index of them is incomplete, or names a file that does not exist; an adapter has a configuration
        only.
    """
    names = [name for name in candidate.files if _WEIGHTS.match(name)]
    for config in filter(None, map(_CONFIG.match, candidate.files)):
        adapter = config[1] + "/" if config[1] else ""
        if not any(adapter + name in candidate.files for name in _ADAPTERS):
            raise ValueError("%s is there, and no %sadapter_model.safetensors" % (config[0], adapter))
    for index in _INDEXES:
        names += indexed(candidate, index) if index in candidate.files else []
    return names


def module_weights(candidate: Candidate) -> List[str]:
    """The weights of the modules of which Sentence Transformers makes a model; none where it does not.

    Raises:
        OSError: the file that names the modules cannot be read.
        ValueError: this file is incomplete, or a module has no weights.
    """
    paths: List[str] = []
    for place in candidate.remembered(_MODULES, _module_places) if _MODULES in candidate.files else ():
        names = weights(candidate.below(place) if place else candidate)
        if not names:
            raise ValueError("%s names %s, which has no weights" % (_MODULES, place or "a model"))
        paths += ["%s/%s" % (place, name) if place else name for name in names]
    return paths


def _module_places(candidate: Candidate, name: str) -> List[str]:
    try:
        modules = parse_json(candidate.document(name))
    except ValueError as error:
        raise ValueError("%s is incomplete: %s" % (name, error)) from error
    listed = [module for module in modules if isinstance(module, dict)] if isinstance(modules, list) else []
    return [
        str(module.get("path", "")).strip("/") for module in listed if _WITH_WEIGHTS.match(str(module.get("type", "")))
    ]


def own_weights(candidate: Candidate, states: Sequence[Pattern[str]], parts: Sequence[str]) -> List[str]:
    """The files that may hold weights under names that a program has chosen, and those that an index of them names.

    Args:
        candidate: the checkpoint.
        states: patterns of the names of files with other content.
        parts: directories that have rules of their own.

    Raises:
        ValueError: an index is incomplete, or names a file that does not exist; or a file is one of several, and no
            index
        names it.
    """

    def is_own(name: str) -> bool:
        return name.partition("/")[0] not in parts and not any(pattern.match(name) for pattern in states)

    indexes = filter(is_own, named(candidate, _OWN_INDEX))
    listed = {name for index in indexes for name in indexed(candidate, index)}
    names = listed.union(filter(is_own, named(candidate, _OWN)))
    alone = min((name for name in names if name not in listed and _ONE_OF_SEVERAL.search(name)), default="")
    if alone:
        raise ValueError("%s is one of several, and no index names them" % alone)
    return sorted(names)


def own_problem(candidate: Candidate, names: Iterable[str]) -> str:
    """Why not each of these files, whose names a program has chosen, is whole; "" = each is, as far as the files
    tell."""
    return next(filter(None, (own_file_problem(candidate, name) for name in names)), "")


def missing_rank(candidate: Candidate, random: Pattern[str]) -> str:
    """The missing file among those that each rank saves for itself; "" = none. The pattern of the names of random
    states has the rank's number as its first group. Each rank saves them later than its other files.
    """
    ranks: Dict[str, Set[int]] = {}
    for match in filter(None, map(_OF_RANK.match, candidate.files)):
        ranks.setdefault(match[1], set()).add(int(match[2]))
    if not ranks:
        return ""
    states = {int(match[1]) for match in filter(None, map(random.match, candidate.files))}
    count = max(states.union(*ranks.values())) + 1
    for part, saved_ranks in sorted(ranks.items()):
        missing = next((rank for rank in range(len(saved_ranks) + 1) if rank not in saved_ranks), count)
        if missing < count:
            return "%s_rank%d.bin" % (part, missing)
    return ""


def indexed(candidate: Candidate, index: str) -> List[str]:
    """The files that an index of weights names, which lie beside it.

    Raises:
        ValueError: the index is incomplete, or one of the files does not exist.
    """
    shards = json_object(candidate, index).get("weight_map")
    place = index[: index.rfind("/") + 1]
    names = sorted({place + str(name) for name in shards.values()}) if isinstance(shards, dict) else []
    missing = [name for name in names if name not in candidate.files]
    if missing or not names:
        raise ValueError("%s names %s, which does not exist" % (index, missing[0] if missing else "no file"))
    return names


def named(candidate: Candidate, pattern: Pattern[str]) -> List[str]:
    """The files in a candidate whose names match the pattern; what a program keeps beside them is its own."""
    return [name for name in candidate.files if pattern.match(name)]


def gap(names: Iterable[str], numbered: str) -> str:
    """The first missing file of those that are numbered from 0 on; "" = none.

    Args:
        names: of the files that are there.
        numbered: the name with %d for the number.
    """
    prefix, _, suffix = numbered.partition("%d")
    pattern = re.compile(re.escape(prefix) + r"(\d{1,9})" + re.escape(suffix) + r"\Z")
    numbers = {int(match[1]) for match in map(pattern.match, names) if match}
    missing = next((n for n in range(len(numbers)) if n not in numbers), None)
    return "" if missing is None else numbered % missing

"""NeMo RL and NeMo AutoModel: `step_N/` and `epoch_E_step_N/`, each with checkpoints of DCP, Megatron Core or Hugging
Face in parts of it.

NeMo RL assembles `tmp_step_N` and renames it (nemo_rl/utils/checkpoint.py, `_rename_checkpoint`). AutoModel removes
`.incomplete` last (nemo_automodel/components/checkpoint/lifecycle.py, `_publish_checkpoint`); older versions end with
nothing.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import re
from typing import List, Optional, Tuple

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.dcp import METADATA_NAME
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words, json_object
from muster.node.checkpoint.formats.megatron import CONFIG_NAME, distributed_problem
from muster.node.checkpoint.formats.parts import named, own_problem
from muster.node.checkpoint.formats.torch_dcp import dcp_problem, shards_of
from muster.protocol.checkpoint_names import named_step

_INFO = "training_info.json"
_UNFINISHED = ".incomplete"
_RL = re.compile(r"step_\d{1,15}\Z")
_AUTO = re.compile(r"epoch_\d{1,9}_step_\d{1,15}\Z")
_SHARD = re.compile(r"((?:.+/)?)[^/]+\.distcp\Z")
_MARK = re.compile(r"((?:.+/)?)(?:\.metadata|metadata\.json)\Z")
_WEIGHTS = re.compile(r".*\.(?:safetensors|bin|pt)\Z")
# What Hugging Face's writer of DCP calls them: the last number is how many there are of one rank.
_NUMBERED = re.compile(r"((?:.+/)?(?:shard-\d{5}-)?model-)(\d{5})-of-(\d{5})\.safetensors\Z")


def _parts_problem(candidate: Candidate) -> Tuple[str, bool]:
    """Why not each part is whole, "" = each is; and whether any of them holds the state of an optimizer."""
    has_optimizer = False
    places = {match[1] for pattern in (_SHARD, _MARK) for match in map(pattern.match, candidate.files) if match}
    for place in sorted(places):
        inner = candidate.below(place[:-1]) if place else candidate
        if METADATA_NAME not in inner.files:
            return "%s%s does not exist" % (place, METADATA_NAME), False
        problem = distributed_problem(inner) if CONFIG_NAME in inner.files else dcp_problem(inner)
        if problem and problem != WEIGHTS_ONLY:
            return "%s: %s" % (place[:-1], problem), False
        has_optimizer = has_optimizer or shards_of(inner).has_optimizer
    weights = named(candidate, _WEIGHTS)
    problem = own_problem(candidate, weights) or _numbered_problem(weights)
    if not problem and not places and not weights:
        problem = "there are no weights"
    return problem, has_optimizer


def _numbered_problem(names: List[str]) -> str:
    """The first missing file of weights among files whose names say how many there are; "" = none."""
    for match in filter(None, map(_NUMBERED.match, names)):
        for number in range(1, min(int(match[3]), len(names) + 1) + 1):
            name = "%s%05d-of-%s.safetensors" % (match[1], number, match[3])
            if name not in names:
                return "%s does not exist" % name
    return ""


def _rl_problem(candidate: Candidate) -> str:
    json_object(candidate, _INFO)
    return _problem_without(candidate, "train_dataloader", "train_dataloader.pt")


def _auto_problem(candidate: Candidate) -> str:
    if _UNFINISHED in candidate.files:
        return "%s says that it is being saved" % _UNFINISHED
    return _problem_without(candidate, "model/", "model/")


def _problem_without(candidate: Candidate, prefix: str, name: str) -> str:
    """The problem of the parts, or that no file begins with the prefix; used where the file `name` is missing."""
    problem, has_optimizer = _parts_problem(candidate)
    if problem:
        return problem
    if not any(file.startswith(prefix) for file in candidate.files):
        return "%s does not exist" % name
    return "" if has_optimizer else WEIGHTS_ONLY


def _step(candidate: Candidate) -> Optional[int]:
    return named_step(candidate.name)


NEMO_RL = Format(
    "NeMoRL",
    Words(
        written_by="NeMo RL",
        place="`step_500/` with `training_info.json`",
        step="the name",
        complete=(
            "it is renamed from `tmp_step_500`, and `train_dataloader.pt` is there. Each part below `policy/` "
            "(`value/`) is a whole `TorchDCP`, a whole `iter_0000000/` of Megatron Core, or weights in whole files. "
            "With `save_optimizer: false` it holds weights only"
        ),
    ),
    (_INFO,),
    _rl_problem,
    _step,
    claims=lambda name: _RL.match(name) is not None,
    settles=True,
    is_open=True,
    depth=4,
)
NEMO_AUTO = Format(
    "NeMoAutoModel",
    Words(
        written_by="NeMo AutoModel",
        place="`epoch_0_step_500/` with `optim/.metadata`",
        step="the name",
        complete=(
            "`.incomplete` is not there; `optim/` is a whole `TorchDCP`, and so is `model/`, or its files of weights "
            "are there and whole"
        ),
    ),
    ("optim/" + METADATA_NAME, "step_scheduler.pt", "config.yaml"),
    _auto_problem,
    _step,
    claims=lambda name: name.startswith("epoch_") and _AUTO.match(name) is not None,
    settles=True,
    is_open=True,
)

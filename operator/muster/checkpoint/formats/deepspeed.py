"""DeepSpeed, ZeRO 0 to 3: `<tag>/` with a file of each rank.

Rank 0 writes `latest` beside it once its own files are there, so that says nothing about those of others. How many
there have to be stands in the model's states (deepspeed/runtime/engine.py, `_common_checkpoint_state`).
"""

from __future__ import annotations

import re
from typing import Dict, NamedTuple, Optional, Set

from muster.checkpoint.candidate import Candidate
from muster.checkpoint.formats.base import Format, Words
from muster.checkpoint.formats.parts import files_problem, named
from muster.checkpoint.names import named_step, step_in_name
from muster.checkpoint.whole import pickled

MARKERS = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt")
_MODEL = re.compile(r"(?:zero_pp_rank_(\d{1,6})_)?mp_rank_(\d{1,6})_model_states\.pt\Z")
_STATES = re.compile(r"[^/]+_(?:model|optim)_states\.pt\Z")
_OPTIMIZER = re.compile(r"(?:bf16_)?zero_pp_rank_(\d{1,6})_mp_rank_(\d{1,6})_optim_states\.pt\Z")


class _Said(NamedTuple):
    """What the model's states say of the save; None: nothing.

    Attributes:
        has_optimizer: the state of an optimizer is in them, so that no file of its own is needed.
    """

    step: Optional[int]
    data_ranks: Optional[int]
    model_ranks: Optional[int]
    has_optimizer: bool


def _said(candidate: Candidate, name: str) -> _Said:
    states = pickled(candidate, name)
    numbers = [states.number(key) for key in ("global_steps", "dp_world_size", "mp_world_size")]
    return _Said(numbers[0], numbers[1], numbers[2], not states.is_none("optimizer"))


def tag_problem(candidate: Candidate) -> str:
    """Why a directory with the files of ranks is not complete; "" = it is."""
    marker = next((name for name in MARKERS if name in candidate.files), None)
    if marker is None:
        return "%s does not exist" % MARKERS[0]
    problem = files_problem(candidate, named(candidate, _STATES))
    if problem:
        return problem
    states = candidate.remembered(marker, _said)
    models, optimizers = _ranks(candidate, _MODEL), _ranks(candidate, _OPTIMIZER)
    ranks = states.data_ranks or max((len(found) for found in optimizers.values()), default=1)
    for model_rank in range(max(states.model_ranks or 1, len(models), len(optimizers))):
        expected = set(range(ranks))
        if model_rank not in models:
            return "mp_rank_%02d_model_states.pt does not exist" % model_rank
        if marker == MARKERS[1] and models[model_rank] != expected:
            return "model states of %d ranks are there, %d are needed" % (len(models[model_rank]), ranks)
        if optimizers and optimizers.get(model_rank) != expected:
            return "optimizer states of %d ranks are there, %d are needed" % (
                len(optimizers.get(model_rank, ())),
                ranks,
            )
    if not optimizers and (marker == MARKERS[1] or not states.has_optimizer):
        return "there are no optimizer states"
    return ""


def _ranks(candidate: Candidate, pattern: "re.Pattern[str]") -> Dict[int, Set[int]]:
    """Data-parallel ranks with such a file, by model-parallel rank."""
    found: Dict[int, Set[int]] = {}
    for match in filter(None, map(pattern.match, candidate.files)):
        found.setdefault(int(match[2]), set()).add(int(match[1] or 0))
    return found


def _step(candidate: Candidate) -> Optional[int]:
    """By the tag, where it says a step; else what DeepSpeed itself would read."""
    told = named_step(candidate.name)
    if told is not None:
        return told
    marker = next(iter(candidate.files))
    try:
        inside = candidate.remembered(marker, _said).step
    except ValueError:
        inside = None
    return step_in_name(candidate.name) if inside is None else inside


DEEPSPEED = Format(
    "DeepSpeed",
    Words(
        written_by="DeepSpeed, ZeRO 0 to 3",
        place="`global_step500/`, or any tag",
        step="the tag, where it says `step`; else `global_steps` in the model's states",
        complete="files of all ranks are there and whole: as many as `dp_world_size` and `mp_world_size` in the model's states say",
    ),
    MARKERS,
    tag_problem,
    _step,
    settles=True,
)

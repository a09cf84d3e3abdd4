"""DeepSpeed, ZeRO 0 to 3: `<tag>/` with a file of each rank.

Rank 0 writes `latest` beside it once its own files are there, so that says nothing about those of others. How many
there have to be stands in the model's states (deepspeed/runtime/engine.py, `_common_checkpoint_state`).

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import itertools
import re
from typing import Dict, FrozenSet, NamedTuple, Optional, Sequence, Set, Tuple

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.formats.base import NO_OPTIMIZER, WEIGHTS_ONLY, Format, Words
from muster.node.checkpoint.formats.parts import files_problem, named
from muster.node.checkpoint.whole import pickled
from muster.protocol.checkpoint_names import named_step, step_in_name

MARKERS = ("mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_model_states.pt")
_MODEL = re.compile(r"(?:zero_pp_rank_(\d{1,6})_)?mp_rank_(\d{1,6})_model_states\.pt\Z")
_STATES = re.compile(r"[^/]+[_-](?:model|optim)_states\.pt\Z")
_OPTIMIZER = re.compile(r"(?:bf16_)?zero_pp_rank_(\d{1,6})_mp_rank_(\d{1,6})_optim_states\.pt\Z")
_LATEST = "../latest"
# Of a program that gives each save a directory of its own. Hugging Face's Trainer does so, too, and saves more. To look
# for it in directories of any name costs a request for each.
_LATEST_INSIDE = "latest"
_INSIDE = re.compile(r"(?:checkpoint|ckpt)[-_]\d{1,15}[-_]?steps?\Z")
# Of a PipelineModule: each layer that has a state, for each rank of the other axes (deepspeed/runtime/pipe/module.py,
# ckpt_layer_path).
_LAYER = re.compile(r"layer_(\d{1,6})(-[^/]+)?-model_states\.pt\Z")
_LAYER_OF_PARAMETER = rb"(\d{1,6})\.[A-Za-z_]"
# Of a mixture of experts (deepspeed/runtime/engine.py, _save_moe_checkpoint).
_EXPERT = re.compile(r"layer_(\d{1,6})_expert_(\d{1,6})_mp_rank_(\d{1,6})_model_states\.pt\Z")
_EXPERTS_OPTIMIZER = re.compile(r"expp_rank_(\d{1,6})_mp_rank_(\d{1,6})_optim_states\.pt\Z")
# Of what `ds_to_universal.py` makes (deepspeed/checkpoint/ds_to_universal.py).
_UNIVERSAL_STATE = "zero/optimizer_state.pt"
_PARAMETER = re.compile(r"zero/([^/]+)/([^/]+)\.pt\Z")


class _SaveFacts(NamedTuple):
    """The facts about the save in the model's states; None = the file does not say.

    Attributes:
        has_optimizer: whether the optimizer's state is in that file, so that no file of its own is needed.
        experts: the number of experts of each layer that has any.
        layers: the layers of a PipelineModule after which the parameters of this rank are named.
    """

    step: Optional[int]
    data_ranks: Optional[int]
    model_ranks: Optional[int]
    has_optimizer: bool
    experts: Tuple[int, ...]
    layers: FrozenSet[int]


def _read_facts(candidate: Candidate, name: str) -> _SaveFacts:
    states = pickled(candidate, name)
    return _SaveFacts(
        step=states.number("global_steps"),
        data_ranks=states.number("dp_world_size"),
        model_ranks=states.number("mp_world_size"),
        has_optimizer=states.has("optimizer") and not states.is_none("optimizer"),
        experts=states.numbers("num_experts"),
        layers=frozenset(map(int, states.found(_LAYER_OF_PARAMETER))),
    )


def tag_problem(candidate: Candidate) -> str:
    """Why a directory with the files of ranks is not a complete DeepSpeed checkpoint; "" = it is."""
    marker = next((name for name in MARKERS if name in candidate.files), None)
    if marker is None:
        return "%s does not exist" % MARKERS[0]
    problem = files_problem(candidate, named(candidate, _STATES))
    if problem:
        return problem
    states = candidate.remembered(marker, _read_facts)
    models, optimizers = _ranks(candidate, _MODEL), _ranks(candidate, _OPTIMIZER)
    of_experts = _ranks(candidate, _EXPERTS_OPTIMIZER)
    ranks = states.data_ranks or max((len(data_ranks) for data_ranks in optimizers.values()), default=1)
    for model_rank in range(max(states.model_ranks or 1, len(models), len(optimizers))):
        if model_rank not in models:
            return "mp_rank_%02d_model_states.pt does not exist" % model_rank
        if marker == MARKERS[1] and not _is_each(models[model_rank], ranks):
            return "model states of %d ranks are there, %d are needed" % (len(models[model_rank]), ranks)
        if optimizers and not _is_each(optimizers.get(model_rank, set()), ranks):
            return "optimizer states of %d ranks are there, %d are needed" % (
                len(optimizers.get(model_rank, ())),
                ranks,
            )
    problem = _layers_problem(candidate) or _experts_problem(candidate, states.experts, len(models))
    if not problem and not optimizers and (of_experts or states.experts):
        problem = _experts_optimizers_problem(candidate, states.experts, len(models))
    if problem:
        return problem
    if not optimizers and not of_experts and (marker == MARKERS[1] or not states.has_optimizer):
        return NO_OPTIMIZER
    return ""


def _is_each(saved_ranks: Set[int], ranks: int) -> bool:
    """Whether `saved_ranks` is exactly the ranks 0 to `ranks` - 1. The number comes from a file, and may be any."""
    return len(saved_ranks) == ranks and max(saved_ranks, default=-1) == ranks - 1


def _layers_problem(candidate: Candidate) -> str:
    """Why not all layers of a PipelineModule are there; "" = they are, as far as anything tells, or there is no such
    module.

    A layer without a state has no file, so numbers may be missing. Each layer has a file for all ranks of the other
    axes, and each whose parameters are named has one.
    """
    layers: Dict[int, Set[str]] = {}
    for match in filter(None, map(_LAYER.match, candidate.files)):
        layers.setdefault(int(match[1]), set()).add(match[2] or "")
    axes = sorted(set().union(*layers.values()))
    if layers:
        for name in named(candidate, _MODEL):
            for layer in candidate.remembered(name, _read_facts).layers:
                layers.setdefault(layer, set())
    missing = ((layer, axis) for layer, layer_axes in sorted(layers.items()) for axis in axes if axis not in layer_axes)
    return next(("layer_%02d%s-model_states.pt does not exist" % layer_and_axis for layer_and_axis in missing), "")


def _experts_problem(candidate: Candidate, expert_counts: Sequence[int], model_ranks: int) -> str:
    """Why not all experts are there; "" = they are, or there are none.

    Args:
        candidate: the save.
        expert_counts: the number of experts of each layer that has any.
        model_ranks: the number of model-parallel ranks.
    """
    pairs_by_layer: Dict[int, Set[Tuple[int, int]]] = {}
    for match in filter(None, map(_EXPERT.match, candidate.files)):
        pairs_by_layer.setdefault(int(match[1]), set()).add((int(match[2]), int(match[3])))
    counts = dict(enumerate(expert_counts))
    for layer, pairs in pairs_by_layer.items():
        counts[layer] = max(counts.get(layer, 0), *(expert + 1 for expert, _ in pairs))
    for layer, count in sorted(counts.items()):
        for expert in range(count):
            for model_rank in range(model_ranks):
                if (expert, model_rank) not in pairs_by_layer.get(layer, ()):
                    return "layer_%d_expert_%d_mp_rank_%02d_model_states.pt does not exist" % (
                        layer,
                        expert,
                        model_rank,
                    )
    return ""


def _experts_optimizers_problem(candidate: Candidate, expert_counts: Sequence[int], model_ranks: int) -> str:
    """Why not all optimizer files of experts are there; "" = they are, or there are none.

    Without ZeRO each rank with experts of its own writes one. Their number is not written anywhere. It divides the
    number of experts of some layer, and the save that `latest` names has as many.

    Args:
        candidate: the save.
        expert_counts: the number of experts of each layer that has any.
        model_ranks: the number of model-parallel ranks.
    """
    optimizers, previous_tag = _ranks(candidate, _EXPERTS_OPTIMIZER), _before(candidate)
    for model_rank in range(model_ranks):
        saved_ranks = optimizers.get(model_rank, set())
        missing = next(rank for rank in itertools.count() if rank not in saved_ranks)
        name = "expp_rank_%d_mp_rank_%02d_optim_states.pt" % (missing, model_rank)
        is_odd = (
            len(saved_ranks) != missing
            or not missing
            or (expert_counts and all(experts % missing for experts in expert_counts))
        )
        if is_odd or (previous_tag and candidate.has_file("../%s/%s" % (previous_tag, name))):
            return "%s does not exist" % name
    return ""


def _before(candidate: Candidate) -> str:
    """The directory beside this one that `latest` names, which rank 0 writes at the end of a save; "" = none."""
    if not candidate.has_file(_LATEST):
        return ""
    tag = candidate.text(_LATEST)
    return tag if tag not in ("", ".", "..", candidate.name) and "/" not in tag else ""


def _universal_problem(candidate: Candidate) -> str:
    """Why not each parameter of a universal checkpoint has all that its optimizer keeps for it; "" = each has."""
    if MARKERS[0] not in candidate.files:  # those are copied last
        return "%s does not exist" % MARKERS[0]
    states = candidate.remembered(MARKERS[0], _read_facts)
    models = _ranks(candidate, _MODEL)
    for model_rank in range(max(states.model_ranks or 1, len(models))):
        if model_rank not in models:
            return "mp_rank_%02d_model_states.pt does not exist" % model_rank
    parameters: Dict[str, Set[str]] = {}
    for match in filter(None, map(_PARAMETER.match, candidate.files)):
        parameters.setdefault(match[1], set()).add(match[2])
    kept = set().union(*parameters.values())
    if not kept - {"fp32", "step"}:
        return WEIGHTS_ONLY
    for parameter, states_of_parameter in sorted(parameters.items()):
        if states_of_parameter != kept:
            return "zero/%s/%s.pt does not exist" % (parameter, min(kept - states_of_parameter))
    whole = [name for name in candidate.files if _PARAMETER.match(name)]
    return files_problem(candidate, [*named(candidate, _MODEL), _UNIVERSAL_STATE, *whole])


def _ranks(candidate: Candidate, pattern: "re.Pattern[str]") -> Dict[int, Set[int]]:
    """The data-parallel ranks that have a file matching the pattern, by model-parallel rank."""
    data_ranks: Dict[int, Set[int]] = {}
    for match in filter(None, map(pattern.match, candidate.files)):
        data_ranks.setdefault(int(match[2]), set()).add(int(match[1] or 0))
    return data_ranks


def _step(candidate: Candidate) -> Optional[int]:
    """The step in the tag, where there is one; else the step that DeepSpeed itself would read; None = not known."""
    step = named_step(candidate.name)
    if step is not None:
        return step
    marker = next(name for name in (*MARKERS, *candidate.files) if name in candidate.files)
    try:
        inside = candidate.remembered(marker, _read_facts).step
    except ValueError:
        inside = None
    return step_in_name(candidate.name) if inside is None else inside


def _universal_step(candidate: Candidate) -> Optional[int]:
    return _step(candidate) if candidate.has_file(MARKERS[0]) else named_step(candidate.name)


def _inside_step(candidate: Candidate) -> Optional[int]:
    """The step in the name, where `latest` in the directory names the tag of the same step."""
    step = step_in_name(candidate.name)
    return step if candidate.text(_LATEST_INSIDE) == "global_step%s" % step else None


def _inside_problem(candidate: Candidate) -> str:
    tag = candidate.text(_LATEST_INSIDE)
    problem = tag_problem(candidate.below(tag))
    return "%s: %s" % (tag, problem) if problem else ""


DEEPSPEED = Format(
    "DeepSpeed",
    Words(
        written_by="DeepSpeed, ZeRO 0 to 3",
        place="`global_step500/`, or any tag",
        step="the tag, where it says `step`; else `global_steps` in the model's states",
        complete=(
            "files of all ranks are there and whole: as many as `dp_world_size` and `mp_world_size` in the model's "
            "states say. So are each layer of a `PipelineModule` for each rank that has a part of it, and those of "
            "each parameter that is named. So is each expert that `num_experts` counts"
        ),
    ),
    MARKERS,
    tag_problem,
    _step,
    settles=True,
)
DEEPSPEED_INSIDE = Format(
    "DeepSpeedInside",
    Words(
        written_by="programs that give each save of DeepSpeed a directory of its own",
        place="`checkpoint-500step/` with `latest`, which names `global_step500` in it",
        step="the name, which is that of the tag",
        complete="the tag's directory is whole as those of `DeepSpeed`. With `training_args.bin` it is the Trainer's "
        "of Hugging Face, and with random states Accelerate's",
    ),
    (_LATEST_INSIDE,),
    _inside_problem,
    _inside_step,
    claims=lambda name: _INSIDE.match(name) is not None,
    unless=("training_args.bin", "random_states_0.pkl"),
    settles=True,
)
DEEPSPEED_UNIVERSAL = Format(
    "DeepSpeedUniversal",
    Words(
        written_by="DeepSpeed's `ds_to_universal.py`",
        place="`global_step500_universal/`, or any other name with `universal`, with `zero/optimizer_state.pt` in it",
        step="the tag, where it says `step`; else `global_steps` in the model's states",
        complete=(
            "each directory below `zero/` has the same files, all of them whole, and model states of all "
            "`mp_world_size` ranks are there. Beside the directory of the same step that it was made of, it is passed "
            "over. Only a program with `load_universal` loads it"
        ),
    ),
    (_UNIVERSAL_STATE,),
    _universal_problem,
    _universal_step,
    claims=lambda name: "universal" in name,  # as its documents call them: to look for it in any other costs a request
    settles=True,
    is_open=True,
    made_of=DEEPSPEED.name,
)

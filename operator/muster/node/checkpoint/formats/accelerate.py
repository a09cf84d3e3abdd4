"""Accelerate's `save_state`: weights, optimizers, schedulers, and last the random states of each rank.

Order and names: accelerate/accelerator.py (`save_state`), accelerate/checkpointing.py (`save_accelerator_state`). What
a program registers for itself is written after that. How much of each kind there has to be only the save before tells.
A rank whose random states are missing or cut short goes on with a warning (`load_accelerator_state`), so those of
others are not read. `checkpoint_I` counts saves; its number is taken for the step, as Accelerate itself knows none.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import re

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words
from muster.node.checkpoint.formats.deepspeed import tag_problem
from muster.node.checkpoint.formats.megatron import TRACKER, iteration_problem
from muster.node.checkpoint.formats.parts import (
    FSDP_MODEL,
    FSDP_OPTIMIZER,
    dcp_parts_problem,
    directories,
    files_problem,
    gap,
    missing_rank,
    named,
    own_problem,
    own_weights,
    weights,
)

STATES_NAME = "random_states_0.pkl"
_CUSTOM = "custom_checkpoint_%d.pkl"
# The first file of each kind, and what the others are called by their numbers; "" = there is one.
_SERIES = (
    ("optimizer.bin", "optimizer_%d.bin"),
    ("scheduler.bin", "scheduler_%d.bin"),
    ("sampler.bin", "sampler_%d.bin"),
    ("dl_state_dict.bin", "dl_state_dict_%d.bin"),
    ("scaler.pt", ""),
    (_CUSTOM % 0, _CUSTOM),
)
_ARCHIVES = re.compile(
    r"(?:(?:optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?(?:_rank\d+)?\.bin|scaler\.pt|random_states_0\.pkl|custom_checkpoint_\d+\.pkl)\Z"
)
_AFTER = re.compile(r"(?:random_states_0|custom_checkpoint_\d+)\.pkl\Z")  # what is not written before the first rank's
_SAVE = re.compile(r"checkpoint_(\d{1,15})\Z")
_STATES = re.compile(r"(?:optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?(?:_rank\d+)?\.bin\Z|scaler\.pt\Z")
_RANDOM = re.compile(r"random_states_(\d{1,6})\.pkl\Z")
_ITERATION = re.compile(r"iter_\d{7,15}\Z")  # with Megatron-LM
_DEEPSPEED = re.compile(r"pytorch_model(?:_\d+)?\Z")


def _problem(candidate: Candidate) -> str:
    missing = gap(candidate.files, _CUSTOM) or _less_than_before(candidate) or missing_rank(candidate, _RANDOM)
    if missing:
        return "%s does not exist" % missing
    engines = directories(candidate, _DEEPSPEED)
    models, optimizers = directories(candidate, FSDP_MODEL), directories(candidate, FSDP_OPTIMIZER)
    iteration = TRACKER[3:] if TRACKER[3:] in candidate.files else ""
    parts = (*engines, *models, *optimizers, *directories(candidate, _ITERATION))
    files, later = weights(candidate), set(candidate.later_than(STATES_NAME))
    own = own_weights(candidate, (_STATES,), parts)
    if (
        files or engines or models or iteration
    ):  # then no hook saves weights in their place, and a program may add to them later
        own = [name for name in own if name not in later]
    if not engines and not models and not iteration and not files and not own:
        return "there are no weights"
    is_optimizer = any(name in candidate.files for name in ("optimizer.bin", "optimizer_0_rank0.bin"))
    if not engines and not optimizers and not iteration and not is_optimizer:
        return WEIGHTS_ONLY
    for tag in engines:
        problem = tag_problem(candidate.below(tag))
        if problem:
            return "%s: %s" % (tag, problem)
    problem = iteration_problem(candidate) if iteration else ""
    if problem:
        return problem
    archives = named(candidate, _ARCHIVES)
    written_first = {*files, *own, *(name for name in archives if not _AFTER.match(name))}
    newer = [name for name in later if name in written_first or name.partition("/")[0] in engines]
    if newer:
        return "%s is newer than %s" % (min(newer), STATES_NAME)
    problem = dcp_parts_problem(candidate, models + optimizers, STATES_NAME)
    return problem or files_problem(candidate, files + archives) or own_problem(candidate, own)


def _less_than_before(candidate: Candidate) -> str:
    """The file that the save before this one has and this one lacks; "" = none.

    A program prepares and registers the same for each save, and no file says how much that is.
    """
    number = _SAVE.match(candidate.name)
    if number is None or number[1] == "0":
        return ""
    previous_save = "../checkpoint_%d/" % (int(number[1]) - 1)
    names = filter(None, (_missing(candidate, first, others) for first, others in _SERIES))
    return next((name for name in names if candidate.has_file(previous_save + name)), "")


def _missing(candidate: Candidate, first: str, others: str) -> str:
    """The first file of a numbered series that this save lacks; "" = none, also for a series of one."""
    number, name = 0, first
    while name in candidate.files:
        number += 1
        if not others:
            return ""
        name = others % number
    return name


ACCELERATE = Format(
    "Accelerate",
    Words(
        written_by="Accelerate's `save_state`",
        place="`checkpoint_7/`, or any directory with `random_states_0.pkl`",
        step="the name; in `checkpoint_7` it is the number of the save, as Accelerate knows no step",
        complete=(
            "weights (without Accelerate's own any `*.safetensors`, `*.bin`, `*.pt`, `*.pth`, `*.ckpt` that a hook "
            "saves, as diffusers' `unet/diffusion_pytorch_model.safetensors`) and optimizer are there and all files "
            "whole. Sharded parts, DeepSpeed's and Megatron-LM's are complete as in those formats. Files of ranks "
            "(`pytorch_model_fsdp_0_rank1.bin`) are there for all that have random states. None of them is newer than "
            "`random_states_0.pkl`, which is whole. `custom_checkpoint_*.pkl` are numbered without a gap. Random "
            "states of other ranks are not missed. `checkpoint_7` also has of optimizers, schedulers, scaler, "
            "samplers, data loaders and `custom_checkpoint_*.pkl` as many as `checkpoint_6` has, where that is there"
        ),
    ),
    (STATES_NAME,),
    _problem,
    settles=True,
    is_open=True,
)

"""Accelerate's `save_state`: weights, optimizers, schedulers, and last the random states of each rank.

Order and names: accelerate/accelerator.py (`save_state`), accelerate/checkpointing.py (`save_accelerator_state`). What a
program registers for itself is written after that; only the save before tells how much of it there has to be.
`checkpoint_I` counts saves; its number is taken for the step, as Accelerate itself knows none.
"""

from __future__ import annotations

import re

from muster.checkpoint.candidate import Candidate
from muster.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words
from muster.checkpoint.formats.deepspeed import tag_problem
from muster.checkpoint.formats.parts import (
    FSDP_MODEL,
    FSDP_OPTIMIZER,
    dcp_parts_problem,
    directories,
    files_problem,
    gap,
    named,
    weights,
)

STATES_NAME = "random_states_0.pkl"
_CUSTOM = "custom_checkpoint_%d.pkl"
_ARCHIVES = re.compile(
    r"(?:(?:optimizer|scheduler|sampler|dl_state_dict)(?:_\d+)?\.bin|scaler\.pt|(?:random_states|custom_checkpoint)_\d+\.pkl)\Z"
)
_SAVE = re.compile(r"checkpoint_(\d{1,15})\Z")
_DEEPSPEED = re.compile(r"pytorch_model(?:_\d+)?\Z")


def _problem(candidate: Candidate) -> str:
    missing = (
        gap(candidate.files, "random_states_%d.pkl") or gap(candidate.files, _CUSTOM) or _less_than_before(candidate)
    )
    if missing:
        return "%s does not exist" % missing
    engines = directories(candidate, _DEEPSPEED)
    models, optimizers = directories(candidate, FSDP_MODEL), directories(candidate, FSDP_OPTIMIZER)
    files = weights(candidate)
    if not engines and not models and not files:
        return "there are no weights"
    if not engines and not optimizers and "optimizer.bin" not in candidate.files:
        return WEIGHTS_ONLY
    for tag in engines:
        problem = tag_problem(candidate.below(tag))
        if problem:
            return "%s: %s" % (tag, problem)
    problem = dcp_parts_problem(candidate, models + optimizers, STATES_NAME)
    return problem or files_problem(candidate, files + named(candidate, _ARCHIVES))


def _less_than_before(candidate: Candidate) -> str:
    """What the save before this one has of the program's own, and this one has not; "" = nothing."""
    number = _SAVE.match(candidate.name)
    if number is None or number[1] == "0":
        return ""
    own = sum(1 for name in candidate.files if name.startswith("custom_checkpoint_"))
    before = "../checkpoint_%d/" % (int(number[1]) - 1)
    return _CUSTOM % own if candidate.look_at(before + _CUSTOM % own) else ""


ACCELERATE = Format(
    "Accelerate",
    Words(
        written_by="Accelerate's `save_state`",
        place="`checkpoint_7/`, or any directory with `random_states_0.pkl`",
        step="the name; in `checkpoint_7` it is the number of the save, as Accelerate knows no step",
        complete="weights and optimizer are there and all files whole, sharded parts and DeepSpeed's as above, random states and `custom_checkpoint_*.pkl` numbered without a gap, and as many of the latter as the save before has",
    ),
    (STATES_NAME,),
    _problem,
    settles=True,
)

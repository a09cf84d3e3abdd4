"""Hugging Face's Trainer: `checkpoint-N/`, where `trainer_state.json` is written last by the first rank.

Order and names: transformers/trainer.py (`_save_checkpoint`); of DLRover's FlashCkptTrainer, whose agents write the
tensors later, dlrover/trainer/torch/flash_checkpoint/hf_trainer.py. Other ranks may still write their random states
then, which it does without when it loads; what it does not do without is asked for here. With `save_only_model` it
would go on with a new optimizer, without a word.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import re

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.dcp import FLASH_TRACKER
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words, json_object
from muster.node.checkpoint.formats.deepspeed import tag_problem
from muster.node.checkpoint.formats.dlrover import is_over
from muster.node.checkpoint.formats.parts import (
    FSDP_MODEL,
    FSDP_OPTIMIZER,
    dcp_parts_problem,
    directories,
    files_problem,
    gap,
    missing_rank,
    module_weights,
    named,
    own_problem,
    own_weights,
    weights,
)
from muster.protocol.checkpoint_names import step_in_name

STATE_NAME = "trainer_state.json"
_SENTINEL = "checkpoint-is-incomplete.txt"  # transformers/trainer_jit_checkpoint.py
_SCHEDULER = "scheduler.pt"
_OF_PADDLE = "scheduler.pdparams"  # PaddleNLP, paddlenlp/trainer/trainer.py, which names the state of its Trainer alike
_OPTIMIZER_NAME = r"(?:optimizer(?:_\d+_rank\d+)?\.(?:pt|bin)|rank\d+-of-\d+-optimizer\.pt)"
_OPTIMIZER = re.compile(_OPTIMIZER_NAME + r"\Z")
_ARCHIVES = re.compile(r"(?:%s|scheduler\.pt|scaler\.pt|rng_state(?:_\d+)?\.pth)\Z" % _OPTIMIZER_NAME)
# With FSDP of PyTorch/XLA each rank saves its own of these. From the shards of weights the first makes the whole
# weights, and only those are loaded.
_OF_RANK = re.compile(r"rank(\d{1,6})-of-(\d{1,6})-optimizer\.pt\Z")
_SHARD = re.compile(r"rank\d+-of-\d+-pytorch_model\.bin\Z")
_RANDOM = re.compile(r"rng_state(?:_\d+)?\.pth\Z")
_RANDOM_OF_RANK = re.compile(r"rng_state_(\d{1,6})\.pth\Z")
_ARGUMENTS = re.compile(r"training_args\.bin\Z")
_VALUE_HEAD = re.compile(r"value_head\.(?:safetensors|bin)\Z")  # trl's, beside the weights of the model
_TAG = re.compile(r"global_step\d+\Z")


def _problem(candidate: Candidate) -> str:
    step = step_in_name(candidate.name)
    recorded_step = json_object(candidate, STATE_NAME).get("global_step")
    if isinstance(recorded_step, bool) or not isinstance(recorded_step, int) or recorded_step != step:
        return "%s does not name step %s" % (STATE_NAME, step)
    if _SENTINEL in candidate.files:
        return "%s says that it is being saved" % _SENTINEL
    problem = _deepspeed_problem(candidate) if directories(candidate, _TAG) else _parts_problem(candidate)
    if problem:
        return problem
    missing = (
        gap(candidate.files, "rng_state_%d.pth") or missing_rank(candidate, _RANDOM_OF_RANK) or _missing(candidate)
    )
    if missing or not named(candidate, _RANDOM):
        return "%s does not exist" % (missing or "rng_state.pth")
    return files_problem(candidate, named(candidate, _ARCHIVES))


def _deepspeed_problem(candidate: Candidate) -> str:
    if "latest" not in candidate.files:
        return "latest does not exist, and DeepSpeed would begin from scratch without it"
    tag = candidate.text("latest")
    if tag not in directories(candidate, _TAG):
        return "latest names what does not exist"
    problem = tag_problem(candidate.below(tag))
    return "%s: %s" % (tag, problem) if problem else ""


def _parts_problem(candidate: Candidate) -> str:
    """Why weights or optimizer, each in one file or sharded, are not complete; "" = they are."""
    models, optimizers = directories(candidate, FSDP_MODEL), directories(candidate, FSDP_OPTIMIZER)
    state = _written_last(candidate)
    problem = dcp_parts_problem(candidate, models + optimizers, state)
    if problem:
        return problem
    files = weights(candidate)
    files += [] if models else module_weights(candidate)
    own = [] if files or models else own_weights(candidate, (_ARCHIVES, _ARGUMENTS, _VALUE_HEAD, _SHARD), optimizers)
    if not files and not models and not own:
        return "there are no weights"
    names = [name for name in candidate.files if _OPTIMIZER.match(name)]
    if not names and not optimizers:
        return WEIGHTS_ONLY + " (save_only_model)"
    if _SCHEDULER not in candidate.files:
        return "%s does not exist, and without it the optimizer's state is not loaded either" % _SCHEDULER
    later = {*files, *own, *names, _SCHEDULER}.intersection(candidate.later_than(state))
    if later:
        return "%s is newer than %s" % (min(later), state.replace("../", ""))
    return files_problem(candidate, files) or own_problem(candidate, own)


def _missing(candidate: Candidate) -> str:
    """The missing file among the optimizer's states of FSDP's ranks on PyTorch/XLA; "" = none."""
    counts = {match[2] for match in filter(None, map(_OF_RANK.match, candidate.files))}
    needed = ("rank%d-of-%s-optimizer.pt" % (rank, count) for count in sorted(counts) for rank in range(int(count)))
    return next((name for name in needed if name not in candidate.files), "")


def _written_last(candidate: Candidate) -> str:
    """The file that is written last: the Trainer's state, or with DLRover's trainer the file that says that all is
    written."""
    if not is_over(candidate, step_in_name(candidate.name) or 0):
        return STATE_NAME
    return max(STATE_NAME, FLASH_TRACKER, key=lambda name: candidate.files[name].modified_ns)


HUGGING_FACE = Format(
    "HuggingFaceTrainer",
    Words(
        written_by="Hugging Face's Trainer: one rank, DDP, FSDP, DeepSpeed; DLRover's",
        place="`checkpoint-500/`, without PaddleNLP's `scheduler.pdparams`",
        step="`global_step` in `trainer_state.json`, which is that of the name",
        complete=(
            "weights (where the program saves them itself, under any name), optimizer and scheduler are there and "
            "whole. So are each file of `*.index.json`, each adapter with an `adapter_config.json`, in its own "
            "directory or not, and each module of Sentence Transformers' `modules.json`. With FSDP of PyTorch/XLA so "
            "is each rank's optimizer. Random states are numbered without a gap. `trainer_state.json` (with DLRover's "
            "trainer `dlrover_latest.txt`, which names this step or a later one) is not older than they are. There is "
            "no `checkpoint-is-incomplete.txt`. With FSDP each part is a whole `TorchDCP`, with DeepSpeed `latest` "
            "names a whole directory of it. `save_only_model` leaves weights only"
        ),
    ),
    (STATE_NAME,),
    _problem,
    unless=(_OF_PADDLE,),
    beside=lambda name: FLASH_TRACKER,
    settles=True,
)

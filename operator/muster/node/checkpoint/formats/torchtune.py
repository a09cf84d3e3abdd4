"""torchtune: weights in `epoch_N/` or `step_N/`, and all else in `recipe_state.pt`, which is written last.

torchtune/training/checkpointing/_checkpointer.py, `save_checkpoint`. It lies with the weights; up to 0.6, and from
checkpointers other than Hugging Face's, in `recipe_state/` beside them, where each epoch overwrites it: then only the
newest can be gone on from, and only if it is of the same epoch. The number in the name is taken for the step. What is
saved asynchronously is DCP, and `recipe_state.pt` is there first; of adapters alone it is a DCP in `adapter_model/`
(_checkpoint_client.py, `_save_checkpoint_async`).

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import re
from typing import Optional

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.dcp import METADATA_NAME
from muster.node.checkpoint.formats.base import Format, Words
from muster.node.checkpoint.formats.parts import files_problem
from muster.node.checkpoint.formats.torch_dcp import dcp_problem
from muster.node.checkpoint.whole import archive_problem, pickled

_STATE = "recipe_state.pt"
_STATE_BESIDE = "../recipe_state/" + _STATE
_NAME = re.compile(r"(epoch|step)_(\d{1,15})\Z")
_SHARD = re.compile(r"(?:ft-)?model-(\d{5})-of-(\d{5})\.(?:safetensors|bin)\Z")
_OTHERS = (
    "model.safetensors",
    "pytorch_model.bin",
    "adapter_model.pt",
    "adapter_model.safetensors",
    "adapter_model.bin",
)
_SAVED_APART = "adapter_model"  # a DCP of adapters


def _number(name: str) -> Optional[int]:
    match = _NAME.match(name)
    return int(match[2]) if match else None


def _epochs_run(candidate: Candidate, name: str) -> Optional[int]:
    return pickled(candidate, name).number("epochs_run")


def _problem(candidate: Candidate) -> str:
    shards = [match for match in map(_SHARD.match, candidate.files) if match]
    others = [name for name in _OTHERS if name in candidate.files]
    if not shards and not others:
        apart = candidate.below(_SAVED_APART)
        if _STATE not in candidate.files or METADATA_NAME not in apart.files:
            return "there are no weights"
        problem = dcp_problem(apart)
        return "%s: %s" % (_SAVED_APART, problem) if problem else candidate.remembered(_STATE, archive_problem)
    numbers, totals = {int(shard[1]) for shard in shards}, {int(shard[2]) for shard in shards}
    if len(totals) > 1 or any(numbers != set(range(1, total + 1)) for total in totals):
        return "of %d files of weights %d are there" % (max(totals), len(numbers))
    files = [shard[0] for shard in shards] + others
    state = _STATE if _STATE in candidate.files else _STATE_BESIDE
    later = set(candidate.later_than(state)).intersection(files)
    if later:
        return "%s is newer than %s" % (min(later), state.replace("../", ""))
    problem = files_problem(candidate, files) or candidate.remembered(state, archive_problem)
    if problem or state == _STATE:
        return problem
    number, epochs = _number(candidate.name), candidate.remembered(state, _epochs_run)
    if number is None or epochs not in (None, number + 1):
        return "%s is of another epoch: there are weights only" % state[3:]
    return ""


TORCHTUNE = Format(
    "torchtune",
    Words(
        written_by="torchtune",
        place=(
            "`epoch_3/` or `step_500/` with `recipe_state.pt` in it, or `epoch_3/` with "
            "`recipe_state/recipe_state.pt` beside it"
        ),
        step="the number of the epoch or the step in the name",
        complete=(
            "all files of weights are there and whole, and `recipe_state.pt` is not older than they are. Beside them "
            "it is of the same epoch: so of the newest alone"
        ),
    ),
    (_STATE, _STATE_BESIDE),
    _problem,
    lambda candidate: _number(candidate.name),
    claims=lambda name: _number(name) is not None,
    beside=lambda name: _STATE_BESIDE,
    settles=True,
)

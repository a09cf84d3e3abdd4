"""torchtune: weights in `epoch_N/`, and all else in `recipe_state/` beside it, which each epoch overwrites.

torchtune/training/checkpointing/_checkpointer.py, `save_checkpoint`. So only the newest can be gone on from, and only if
`recipe_state.pt` is of the same epoch. The number of the epoch is taken for the step. What is saved asynchronously is DCP.
"""

from __future__ import annotations

import re
from typing import Optional

from muster.checkpoint.candidate import Candidate
from muster.checkpoint.formats.base import Format, Words
from muster.checkpoint.formats.parts import files_problem
from muster.checkpoint.whole import archive_problem, pickled

RECIPE_STATE = "../recipe_state/recipe_state.pt"
_EPOCH = re.compile(r"epoch_(\d{1,15})\Z")
_SHARD = re.compile(r"(?:ft-)?model-(\d{5})-of-(\d{5})\.(?:safetensors|bin)\Z")
_ADAPTERS = ("adapter_model.pt", "adapter_model.safetensors", "adapter_model.bin")


def _epoch(name: str) -> Optional[int]:
    found = _EPOCH.match(name)
    return int(found[1]) if found else None


def _epochs_run(candidate: Candidate, name: str) -> Optional[int]:
    return pickled(candidate, name).number("epochs_run")


def _problem(candidate: Candidate) -> str:
    shards = [found for found in map(_SHARD.match, candidate.files) if found]
    adapters = [name for name in _ADAPTERS if name in candidate.files]
    if not shards and not adapters:
        return "there are no weights"
    numbers, totals = {int(found[1]) for found in shards}, {int(found[2]) for found in shards}
    if len(totals) > 1 or any(numbers != set(range(1, total + 1)) for total in totals):
        return "of %d files of weights %d are there" % (max(totals), len(numbers))
    files = [found[0] for found in shards] + adapters
    later = set(candidate.later_than(RECIPE_STATE)).intersection(files)
    if later:
        return "%s is newer than %s" % (min(later), RECIPE_STATE[3:])
    problem = files_problem(candidate, files) or candidate.remembered(RECIPE_STATE, archive_problem)
    if problem:
        return problem
    epochs, epoch = candidate.remembered(RECIPE_STATE, _epochs_run), _epoch(candidate.name)
    if epoch is None or epochs not in (None, epoch + 1):
        return "%s is of another epoch: there are weights only" % RECIPE_STATE[3:]
    return ""


TORCHTUNE = Format(
    "torchtune",
    Words(
        written_by="torchtune",
        place="`epoch_3/`, with `recipe_state/recipe_state.pt` beside it",
        step="the number of the epoch",
        complete="all files of weights are there and whole, and `recipe_state.pt` is of the same epoch: so of the newest alone",
    ),
    (RECIPE_STATE,),
    _problem,
    lambda candidate: _epoch(candidate.name),
    claims=lambda name: _epoch(name) is not None,
    beside=lambda name: RECIPE_STATE,
    settles=True,
)

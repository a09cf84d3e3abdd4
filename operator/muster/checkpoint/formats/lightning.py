"""PyTorch Lightning: one file `epoch=E-step=S.ckpt`, or where ranks are sharded a directory of that name.

The file is made elsewhere and moved here (lightning/fabric/utilities/cloud_io.py, `_atomic_save`). That is a copy where the
other place is on another disk, so its end is looked at. In a directory `meta.pt` is written after the shards
(lightning/pytorch/strategies/fsdp.py and model_parallel.py, `save_checkpoint`).
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from muster.checkpoint.candidate import Candidate
from muster.checkpoint.dcp import METADATA_NAME
from muster.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words
from muster.checkpoint.formats.torch_dcp import dcp_problem, shards_of
from muster.checkpoint.names import step_in_name
from muster.checkpoint.whole import archive_problem, pickled

META_NAME = "meta.pt"
_STEP = re.compile(r"(?:\A|[^a-z])step=(\d{1,15})(?!\d)")


class _Inside(NamedTuple):
    step: Optional[int]
    has_optimizer: bool


def _inside(candidate: Candidate, name: str) -> _Inside:
    states = pickled(candidate, name)
    return _Inside(states.number("global_step"), states.mentions("optimizer_states"))


def _step_of(candidate: Candidate, name: str) -> Optional[int]:
    """By the name, where Lightning wrote a step there; else what it would read itself."""
    told = _STEP.search(candidate.name)
    if told is not None:
        return int(told[1])
    try:
        inside = candidate.remembered(name, _inside).step
    except ValueError:
        inside = None
    return step_in_name(candidate.name) if inside is None else inside


def _file_problem(candidate: Candidate) -> str:
    problem = candidate.remembered(candidate.name, archive_problem)
    if not problem and not candidate.remembered(candidate.name, _inside).has_optimizer:
        return WEIGHTS_ONLY
    return problem


def _directory_problem(candidate: Candidate) -> str:
    if METADATA_NAME in candidate.later_than(META_NAME):
        return "%s is newer than %s" % (METADATA_NAME, META_NAME)
    problem = candidate.remembered(META_NAME, archive_problem) or dcp_problem(candidate)
    if not problem and candidate.remembered(META_NAME, _is_trainers) and not shards_of(candidate).is_lightning:
        return WEIGHTS_ONLY
    return problem


def _is_trainers(candidate: Candidate, name: str) -> bool:
    """Whether Lightning's Trainer wrote it, which names the optimizers; with Fabric a program does."""
    return pickled(candidate, name).mentions("pytorch-lightning_version")


LIGHTNING = Format(
    "Lightning",
    Words(
        written_by="PyTorch Lightning, Fabric",
        place="a file `epoch=0-step=500.ckpt`, `last.ckpt`",
        step="the number behind `step=` in the name; else `global_step` in the file",
        complete="the archive has its end. `save_weights_only` leaves weights only",
    ),
    (),
    _file_problem,
    lambda candidate: _step_of(candidate, candidate.name),
    claims=lambda name: name.endswith(".ckpt"),
)
LIGHTNING_SHARDED = Format(
    "LightningSharded",
    Words(
        written_by="PyTorch Lightning, Fabric, with sharded ranks",
        place="a directory with `meta.pt`",
        step="the same, with `meta.pt`",
        complete="`meta.pt` is whole, and before it a whole `TorchDCP`",
    ),
    (META_NAME,),
    _directory_problem,
    lambda candidate: _step_of(candidate, META_NAME),
)

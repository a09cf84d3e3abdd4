"""PyTorch Lightning: one file `epoch=E-step=S.ckpt`, or where ranks are sharded a directory of that name.

The file is made elsewhere and moved here (lightning/fabric/utilities/cloud_io.py, `_atomic_save`). That is a copy where
the other place is on another disk, so its end is looked at. In a directory `meta.pt` is written after the shards
(lightning/pytorch/strategies/fsdp.py and model_parallel.py, `save_checkpoint`). With DeepSpeed the directory is what
that calls its own, with `checkpoint` for a tag.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.dcp import METADATA_NAME
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words
from muster.node.checkpoint.formats.deepspeed import MARKERS, tag_problem
from muster.node.checkpoint.formats.torch_dcp import dcp_problem, shards_of
from muster.node.checkpoint.whole import archive_problem, own_file_problem, pickled
from muster.protocol.checkpoint_names import step_in_name

META_NAME = "meta.pt"
_TAG = "checkpoint"  # what Lightning calls DeepSpeed's part
ENDING = ".ckpt"
_TRAINERS = "pytorch-lightning_version"  # a key in what Lightning's Trainer saves
_STEP = re.compile(r"(?:\A|[^a-z])step=(\d{1,15})(?!\d)")


def _hides_step(name: str) -> bool:
    """Whether a file name has no number that is certainly the step: an epoch, a metric or a model's name is none.

    Examples are `epoch=9-resnet50.ckpt` and `last.ckpt`.
    """
    return name.endswith(ENDING) and _STEP.search(name) is None


class _Inside(NamedTuple):
    step: Optional[int]
    has_optimizer: bool


def _inside(candidate: Candidate, name: str) -> _Inside:
    states = pickled(candidate, name)
    # With Fabric a program names what it saves.
    optimizer = "optimizer_states" if states.mentions(_TRAINERS) else "optim"
    return _Inside(states.number("global_step"), states.mentions(optimizer))


def _step_of(candidate: Candidate, name: str) -> Optional[int]:
    """The step in the name, where Lightning wrote one; else the step that it would read itself; None = not known."""
    match = _STEP.search(candidate.name)
    if match is not None:
        return int(match[1])
    try:
        inside = candidate.remembered(name, _inside).step
    except ValueError:
        problem = own_file_problem(candidate, name)
        if problem:  # else it is no archive: another framework's
            raise ValueError(problem) from None
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
    """Whether Lightning's Trainer wrote the file, which names the optimizers; with Fabric a program writes it."""
    return pickled(candidate, name).mentions(_TRAINERS)


def _deepspeed_problem(candidate: Candidate) -> str:
    """Why Lightning cannot load a DeepSpeed checkpoint; "" = it can.

    Lightning loads without a tag, so DeepSpeed goes by `latest` (lightning/pytorch/strategies/deepspeed.py).
    """
    problem = tag_problem(candidate.below(_TAG))
    if problem:
        return "%s: %s" % (_TAG, problem)
    if "latest" not in candidate.files:
        return "latest does not exist, and DeepSpeed would load nothing without it"
    return "" if candidate.text("latest") == _TAG else "latest does not name %s" % _TAG


def _deepspeed_step(candidate: Candidate) -> Optional[int]:
    return _step_of(candidate, next(iter(candidate.files)))


LIGHTNING = Format(
    "Lightning",
    Words(
        written_by="PyTorch Lightning, Fabric",
        place="a file `epoch=0-step=500.ckpt`, `last.ckpt`",
        step="the number behind `step=` in the name; else `global_step` in the file, whatever the name says",
        complete="the archive has its end. `save_weights_only` leaves weights only",
    ),
    (),
    _file_problem,
    lambda candidate: _step_of(candidate, candidate.name),
    claims=lambda name: name.endswith(ENDING),
    hides_step=_hides_step,
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
LIGHTNING_DEEPSPEED = Format(
    "LightningDeepSpeed",
    Words(
        written_by='PyTorch Lightning, Fabric, with `strategy="deepspeed"`',
        place=(
            "a directory `epoch=0-step=500.ckpt/` with `checkpoint/mp_rank_00_model_states.pt`, or "
            "`checkpoint/zero_pp_rank_0_mp_rank_00_model_states.pt`"
        ),
        step="the same, with that file",
        complete="`checkpoint/` is a whole directory of `DeepSpeed`, and `latest` names it",
    ),
    tuple("%s/%s" % (_TAG, name) for name in MARKERS),
    _deepspeed_problem,
    _deepspeed_step,
    claims=lambda name: name.endswith(ENDING),
    settles=True,
)

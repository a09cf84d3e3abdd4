"""PyTorch DCP (`torch.distributed.checkpoint`), and what others build on it: `.metadata` is renamed into place last.

Tests: tests/unit/checkpoint/test_dcp.py, tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import re
from typing import Mapping, NamedTuple, Optional

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.dcp import FLASH_TRACKER, METADATA_NAME, shard_sizes
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words
from muster.node.checkpoint.whole import file_problem
from muster.protocol.checkpoint_names import is_iteration, step_in_name

COMPOSER_LINK = "../latest-rank0.pt.symlink"  # in a store
_COMPOSERS = re.compile(r"ep\d+-ba\d+\Z")
# fms_fsdp/utils/checkpointing_utils.py: its first rank writes this file after all others are done, and nothing is
# loaded from a directory without it.
_FMS, _FMS_LAST = re.compile(r"step_\d+_ckp\Z"), "metadata.pth"
# What it is called itself, and what Adam and torch's optimizers call their parts, whatever key a program keeps them
# under.
_OF_AN_OPTIMIZER = (b"optim", b"exp_avg", b"param_groups")


class Shards(NamedTuple):
    """The facts in `.metadata`.

    Attributes:
        sizes: the least size in bytes of each shard, by its name.
        has_optimizer: whether a tensor or a value has a name that belongs to an optimizer.
        is_torchtitan: whether its tensors are named as TorchTitan names those of a language model.
        is_lightning: whether the optimizer is named as Lightning's trainer names it.
        is_megatron_core: whether it has what the ranks have in common, which Megatron Core's torch_dist kept in a file
        before.
    """

    sizes: Mapping[str, int]
    has_optimizer: bool
    is_torchtitan: bool
    is_lightning: bool
    is_megatron_core: bool


def shards_of(candidate: Candidate) -> Shards:
    """The facts in the candidate's `.metadata`.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is incomplete.
    """
    return candidate.remembered(METADATA_NAME, _shards)


def _shards(candidate: Candidate, name: str) -> Shards:
    data = candidate.content(name)
    return Shards(
        shard_sizes(data, candidate.sign),
        has_optimizer=any(name in data for name in _OF_AN_OPTIMIZER),
        is_torchtitan=b"tok_embeddings.weight" in data,
        is_lightning=b"optimizer_0" in data,
        is_megatron_core=b"common_state" in data,
    )


def dcp_problem(candidate: Candidate) -> str:
    """Why a directory with DCP's files is not complete; "" = it is.

    A save over an older checkpoint writes its shards in place while the old `.metadata` is still there. Until a shard
    is whole its size shows that. Afterwards only its time does: the shard is newer than `.metadata`, or than the file
    that is written last of all, by more than clocks differ.
    """
    if METADATA_NAME not in candidate.files:
        return "%s does not exist" % METADATA_NAME
    for path, size_bytes in shards_of(candidate).sizes.items():
        shard = candidate.files.get(path)
        if shard is None:
            return "%s names %s, which does not exist" % (METADATA_NAME, path)
        if shard.size_bytes < size_bytes:
            return "%s has %d bytes, %d are needed" % (path, shard.size_bytes, size_bytes)
    marker = _written_last(candidate)
    newer = [name for name in candidate.later_than(marker) if name.endswith(".distcp")]
    return "%s is newer than %s" % (newer[0], marker.replace("../", "")) if newer else ""


def _written_last(candidate: Candidate) -> str:
    """The name of the file that shows that all shards are there.

    DLRover's first agent writes `.metadata` before the others are done, and a file of its own then. Composer uploads
    `.metadata` first, and an object in place of a link once it has seen all shards in the store
    (composer/callbacks/checkpoint_saver.py).
    """
    if FLASH_TRACKER in candidate.files:
        return FLASH_TRACKER
    if COMPOSER_LINK in candidate.files:
        linked_step, step = candidate.remembered(COMPOSER_LINK, _linked), step_in_name(candidate.name)
        if linked_step is not None and step is not None and linked_step >= step:
            return max(METADATA_NAME, COMPOSER_LINK, key=lambda name: candidate.files[name].modified_ns)
    return METADATA_NAME


def _linked(candidate: Candidate, name: str) -> Optional[int]:
    text = candidate.text(name)
    return step_in_name(text.rpartition("/")[2])


def _problem(candidate: Candidate) -> str:
    problem = dcp_problem(candidate) or _fms_problem(candidate)
    if problem:
        return problem
    shards = shards_of(candidate)
    if shards.is_lightning and candidate.name.endswith(".ckpt"):
        return "meta.pt does not exist: Lightning writes it last"
    # It is unknown what others call an optimizer; TorchTitan's models have these tensors, and its optimizers
    # that name.
    if shards.is_torchtitan and not shards.has_optimizer:
        return WEIGHTS_ONLY + " (last_save_model_only)"
    return ""


def _fms_problem(candidate: Candidate) -> str:
    if not _FMS.match(candidate.name):
        return ""
    if _FMS_LAST not in candidate.files:
        return "%s does not exist, and fms-fsdp writes it last" % _FMS_LAST
    return file_problem(candidate, _FMS_LAST)


def _beside(name: str) -> str:
    """The file beside a directory of this name that belongs to it; "" = none.

    DLRover calls directories by the step alone, Composer by epoch and batch.
    """
    return FLASH_TRACKER if name.isdecimal() else COMPOSER_LINK if _COMPOSERS.match(name) else ""


def _claims(name: str) -> bool:
    """Whether a name may be a plain DCP. Names of Megatron-LM's are not: with it more is written after `.metadata`."""
    return not is_iteration(name)


TORCH_DCP = Format(
    "TorchDCP",
    Words(
        written_by="`torch.distributed.checkpoint`, synchronous or not; TorchTitan, Composer with sharded ranks, "
        "torchtune where it saves asynchronously",
        place="a directory with `.metadata`: `step-500`, `ep1-ba500`, `epoch_3`",
        step=(
            "the name: the number behind `step` or `iter`, else behind `ba` or `batch`. Else the last whole one "
            "without a letter next to it, else the last whole one. `10k` is 10,000"
        ),
        complete="every shard that `.metadata` names is at least as long as it says, and none is newer than it by more "
        "than 2 s. Composer's in a store must not be newer than `latest-rank0.pt.symlink`, once that names it or a "
        "later one. In fms-fsdp's `step_500_ckp/`, `metadata.pth` is there and whole. What TorchTitan keeps of its "
        "last step holds weights only, by default",
    ),
    (METADATA_NAME,),
    _problem,
    claims=_claims,
    beside=_beside,
)

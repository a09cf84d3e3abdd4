"""PyTorch DCP (`torch.distributed.checkpoint`), and what others build on it: `.metadata` is renamed into place last."""

from __future__ import annotations

from typing import Mapping, NamedTuple

from muster.checkpoint.candidate import Candidate
from muster.checkpoint.dcp import METADATA_NAME, shard_sizes
from muster.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words
from muster.checkpoint.names import is_iteration


class Shards(NamedTuple):
    """What `.metadata` tells.

    Attributes:
        sizes: bytes that each shard has at least, by its name.
        has_optimizer: whether a tensor or a value in it is called something of an optimizer.
        is_torchtitan: whether its tensors are called as TorchTitan calls those of a language model.
        is_lightning: whether the optimizer is called as Lightning's trainer calls it.
    """

    sizes: Mapping[str, int]
    has_optimizer: bool
    is_torchtitan: bool
    is_lightning: bool


def shards_of(candidate: Candidate) -> Shards:
    """What `.metadata` tells.

    Raises:
        OSError: it cannot be read.
        ValueError: it is torn.
    """
    return candidate.remembered(METADATA_NAME, _shards)


def _shards(candidate: Candidate, name: str) -> Shards:
    data = candidate.content(name)
    names = (b"optim", b"tok_embeddings.weight", b"optimizer_0")
    return Shards(shard_sizes(data, candidate.sign), *(name in data for name in names))


def dcp_problem(candidate: Candidate) -> str:
    """Why a directory with DCP's files is not complete; "" = it is.

    A save over an older checkpoint writes its shards in place while the old `.metadata` still stands. Until a shard is
    whole its size tells, afterwards only the time does: it is newer than `.metadata` by more than clocks differ.
    """
    if METADATA_NAME not in candidate.files:
        return "%s does not exist" % METADATA_NAME
    for path, size_bytes in shards_of(candidate).sizes.items():
        shard = candidate.files.get(path)
        if shard is None:
            return "%s names %s, which does not exist" % (METADATA_NAME, path)
        if shard.size_bytes < size_bytes:
            return "%s has %d bytes, %d are needed" % (path, shard.size_bytes, size_bytes)
    newer = [name for name in candidate.later_than(METADATA_NAME) if name.endswith(".distcp")]
    return "%s is newer than %s" % (newer[0], METADATA_NAME) if newer else ""


def _problem(candidate: Candidate) -> str:
    problem = dcp_problem(candidate)
    if problem:
        return problem
    shards = shards_of(candidate)
    if shards.is_lightning and candidate.name.endswith(".ckpt"):
        return "meta.pt does not exist: Lightning writes it last"
    # Of others nobody knows what they call an optimizer; TorchTitan's models have these tensors, and its optimizers that name.
    if shards.is_torchtitan and not shards.has_optimizer:
        return WEIGHTS_ONLY + " (last_save_model_only)"
    return ""


def _claims(name: str) -> bool:
    """Not what Megatron-LM calls so: with it there is more to come after `.metadata`."""
    return not is_iteration(name)


TORCH_DCP = Format(
    "TorchDCP",
    Words(
        written_by="`torch.distributed.checkpoint`, synchronous or not; TorchTitan, Composer with sharded ranks, torchtune where "
        "it saves asynchronously",
        place="a directory with `.metadata`: `step-500`, `ep1-ba500`, `epoch_3`",
        step="the name: the number behind `step`, `iter`, `ba` or `batch`, else the last whole one",
        complete="every shard that `.metadata` names is at least as long as it says, and none is newer than it by more than 2 s. "
        "What TorchTitan keeps of its last step holds weights only, by default",
    ),
    (METADATA_NAME,),
    _problem,
    claims=_claims,
)

"""Megatron-LM: `iter_0000500/`, distributed (`torch_dist`), plain DCP (`torch_dcp`, `fsdp_dtensor`) or of old
(`mp_rank_*/`).

Distributed ones end with `metadata.json`, written once all ranks are done
(megatron/core/dist_checkpointing/serialization.py, `save`); `common.pt`, which not every version has, is written first.
The others have nothing of that kind: the tracker beside them is written last, and names the newest
(megatron/training/checkpointing.py, `save_checkpoint`). NeMo 2 keeps one in `weights/`, ms-swift in a directory of its
own with the tracker in it, Accelerate in its save. NeMo puts `<name>-unfinished` beside a checkpoint while it is
written or removed.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import itertools
import re
from typing import Dict, NamedTuple, Optional, Set, Tuple

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.dcp import METADATA_NAME
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words, json_object
from muster.node.checkpoint.formats.parts import files_problem
from muster.node.checkpoint.formats.torch_dcp import dcp_problem, shards_of
from muster.node.checkpoint.whole import pickled
from muster.protocol.checkpoint_names import is_iteration, named_step, step_in_name

CONFIG_NAME = "metadata.json"
TRACKER = "../latest_checkpointed_iteration.txt"
_COMMON_NAME = "common.pt"
_MODEL_NAME, _OPTIMIZER_NAME = "model_optim_rng.pt", "distrib_optim.pt"
_FIRST = tuple("mp_rank_00%s/%s" % (more, _MODEL_NAME) for more in ("", "_000", "_000_000"))
_NUMBER = re.compile(r"\d{1,15}\Z")
_MAX_RANKS = 100_000
_DIRECTIONS = ("tensor", "pipeline", "expert")
_SWIFT = re.compile(r"checkpoint-\d{1,15}\Z")  # swift/megatron/trainers/base.py, save_checkpoint
_RANK = re.compile(r"mp_rank_(\d{2,6})(?:_(\d{3,6}))?(?:_(\d{3,6}))?/(.+)\Z")


def distributed_problem(candidate: Candidate) -> str:
    """Why a distributed checkpoint of Megatron Core is not complete; "" = it is."""
    config = json_object(candidate, CONFIG_NAME)
    backend = config.get("sharded_backend")
    if not isinstance(backend, str):
        return "%s names no backend" % CONFIG_NAME
    later = candidate.later_than(CONFIG_NAME)
    newer = [name for name in later if name in (METADATA_NAME, _COMMON_NAME) or name.endswith(".distcp")]
    if newer:
        return "%s is newer than %s" % (newer[0], CONFIG_NAME)
    problem = files_problem(candidate, [_COMMON_NAME] if _COMMON_NAME in candidate.files else [])
    if problem or backend != "torch_dist":  # zarr has a directory for each tensor, and no list of them
        return problem
    problem = dcp_problem(candidate)
    if not problem and not shards_of(candidate).has_optimizer:
        return WEIGHTS_ONLY
    return problem


def _tracked(candidate: Candidate) -> Optional[int]:
    """The iteration that the tracker names; None where the tracker is incomplete."""
    text = candidate.text(TRACKER)
    return int(text) if _NUMBER.match(text) else None


class _Run(NamedTuple):
    """The facts in the first rank's file (megatron/training/checkpointing.py, generate_state_dict and save_checkpoint).

    Attributes:
        sizes: the number of ranks in each direction that has more than one, the tensor's first; the directories are
            named
        by them (get_checkpoint_name). Empty where the file does not say.
        has_optimizer: whether the optimizer's state is in the file, or in a file beside it.
        is_distributed: whether the optimizer's state is in the file beside it.
    """

    sizes: Tuple[int, ...] = ()
    has_optimizer: bool = True
    is_distributed: bool = False


def _run(candidate: Candidate, name: str) -> _Run:
    states = pickled(candidate, name)
    tensor, pipeline, expert = (states.number("%s_model_parallel_size" % kind) for kind in _DIRECTIONS)
    if tensor is None:
        return _Run()
    sizes = (tensor, *(size for size in (pipeline, expert) if size is not None and size > 1))
    has_optimizer = not states.is_true("no_save_optim")
    return _Run(sizes, has_optimizer, has_optimizer and states.is_true("use_distributed_optimizer"))


def _read_facts(candidate: Candidate) -> _Run:
    """The facts in the first rank's file of a whole checkpoint."""
    name = next((name for name in _FIRST if name in candidate.files), "")
    return candidate.remembered(name, _run) if name else _Run()


def _untracked(candidate: Candidate) -> str:
    """Why the tracker does not say that this iteration was written; "" = it does."""
    step = named_step(candidate.name)
    if TRACKER not in candidate.files:
        return "%s does not exist: it was not said to be written yet" % TRACKER[3:]
    tracked = _tracked(candidate)
    if tracked is None or step is None or tracked < step:
        return "%s names %s: this one was not said to be written yet" % (TRACKER[3:], tracked)
    later = [name for name in candidate.later_than(TRACKER) if name != TRACKER]
    return "%s is newer than %s" % (later[0], TRACKER[3:]) if tracked == step and later else ""


def _dcp_problem(candidate: Candidate) -> str:
    """Why what torch_dcp or fsdp_dtensor wrote is not complete; "" = it is.

    A torch_dist that was cut short before `metadata.json` has the same files, but for what its ranks have in common.
    """
    if _COMMON_NAME in candidate.files or shards_of(candidate).is_megatron_core:
        return "%s does not exist: it was cut short" % CONFIG_NAME
    problem = _untracked(candidate) or dcp_problem(candidate)
    return problem or ("" if shards_of(candidate).has_optimizer else WEIGHTS_ONLY)


def iteration_problem(candidate: Candidate) -> str:
    """Why the iteration that is saved within a directory of another framework is not complete; "" = it is.

    The directory is what Megatron-LM calls `--save`, and holds one iteration with its tracker.
    """
    tracker = TRACKER[3:]
    text = candidate.text(tracker) if tracker in candidate.files else ""
    if not _NUMBER.match(text):
        return "%s names no iteration" % tracker
    inner = candidate.below("iter_%07d" % int(text))
    inner.files[TRACKER] = candidate.files[tracker]
    if CONFIG_NAME in inner.files:
        problem = distributed_problem(inner)
    elif METADATA_NAME in inner.files:
        problem = _dcp_problem(inner)
    elif any(map(_RANK.match, inner.files)):
        problem = _legacy_problem(inner)
    else:
        problem = WEIGHTS_ONLY if _COMMON_NAME in inner.files else "%s does not exist" % CONFIG_NAME
    return "%s: %s" % (inner.name, problem) if problem and problem != WEIGHTS_ONLY else problem


def _legacy_problem(candidate: Candidate) -> str:
    problem = _untracked(candidate)
    if problem:
        return problem
    ranks: Dict[Tuple[int, ...], Set[str]] = {}
    for match in filter(None, map(_RANK.match, candidate.files)):
        ranks.setdefault(tuple(int(part) for part in match.groups()[:3] if part), set()).add(match[4])
    if len({len(rank) for rank in ranks}) > 1:
        return "its ranks are those of several saves"
    sizes = [max(side) + 1 for side in zip(*ranks)]
    facts = _read_facts(candidate)
    if len(facts.sizes) == len(sizes):
        sizes = [max(seen, min(size, _MAX_RANKS)) for seen, size in zip(sizes, facts.sizes)]
    sides = [range(size) for size in sizes]
    is_distributed = facts.is_distributed or any(_OPTIMIZER_NAME in rank_files for rank_files in ranks.values())
    names = {_MODEL_NAME} | ({_OPTIMIZER_NAME} if is_distributed else set())
    for rank in itertools.islice(itertools.product(*sides), len(ranks) + 1):
        missing = names - ranks.get(rank, set())
        if missing:
            return "%s of rank %s does not exist" % (min(missing), "_".join(map(str, rank)))
    problem = files_problem(candidate, [name for name in candidate.files if _RANK.match(name) and name.endswith(".pt")])
    return problem or ("" if facts.has_optimizer else WEIGHTS_ONLY)


def _nemo_unfinished(name: str) -> str:
    """The file that NeMo puts beside a checkpoint that is not finished.

    See nemo/utils/callbacks/nemo_model_checkpoint.py, format_checkpoint_unfinished_marker_path.
    """
    for ending in (".ckpt", "-EMA"):
        name = name[: -len(ending)] if name.endswith(ending) else name
    return "../%s-unfinished" % name


def _nemo_problem(candidate: Candidate) -> str:
    if _nemo_unfinished(candidate.name) in candidate.files:
        return "%s says that it is being saved or removed" % _nemo_unfinished(candidate.name)[3:]
    problem = distributed_problem(candidate.below("weights"))
    return "weights: %s" % problem if problem and problem != WEIGHTS_ONLY else problem


def _global_step(candidate: Candidate, name: str) -> Optional[int]:
    return pickled(candidate, name).number("global_step")


def _nemo_step(candidate: Candidate) -> Optional[int]:
    """The step in the name, where there is one; else the step that NeMo itself would read. An epoch or samples are no
    step."""
    step = named_step(candidate.name)
    if step is not None:
        return step
    common = "weights/" + _COMMON_NAME
    if not candidate.has_file(common):
        return None
    return candidate.remembered(common, _global_step)


def _swift_step(candidate: Candidate) -> Optional[int]:
    """The iteration saved in the directory; None where the directory holds all iterations and is called so by
    chance."""
    named, text = step_in_name(candidate.name), candidate.text(TRACKER[3:])
    return named if text == str(named) else None


MEGATRON = Format(
    "Megatron",
    Words(
        written_by="Megatron-LM and Megatron Core, `torch_dist`",
        place="`iter_0000500/`",
        step="the name",
        complete="`metadata.json`, and before it a whole `TorchDCP`. With `--no-save-optim` it holds weights only",
    ),
    (CONFIG_NAME,),
    distributed_problem,
    claims=is_iteration,
)
MEGATRON_DCP = Format(
    MEGATRON.name,
    Words(
        written_by="Megatron-LM and Megatron Bridge, `--ckpt-format torch_dcp` or `fsdp_dtensor`",
        place="`iter_0000500/.metadata` without `metadata.json`",
        step="the name",
        complete=(
            "a whole `TorchDCP`, and `latest_checkpointed_iteration.txt` names this iteration or a later one. What "
            "has `common.pt`, or `common_state` in `.metadata`, is a `torch_dist` that was cut short. With "
            "`--no-save-optim` it holds weights only"
        ),
    ),
    (METADATA_NAME,),
    _dcp_problem,
    claims=is_iteration,
    beside=lambda name: TRACKER,
)
MEGATRON_LEGACY = Format(
    "MegatronLegacy",
    Words(
        written_by="Megatron-LM, `--ckpt-format torch`",
        place="`iter_0000500/mp_rank_*/`",
        step="the name",
        complete=(
            "that file is there and whole of as many ranks as the arguments in `model_optim_rng.pt` say. So is "
            "`distrib_optim.pt` where they say so or any has it. `latest_checkpointed_iteration.txt` names this "
            "iteration or a later one. With `--no-save-optim` it holds weights only"
        ),
    ),
    _FIRST,
    _legacy_problem,
    claims=is_iteration,
    beside=lambda name: TRACKER,
)
MEGATRON_SWIFT = Format(
    "MegatronSwift",
    Words(
        written_by="ms-swift with Megatron (`megatron sft` and the like)",
        place="`checkpoint-500/` with `latest_checkpointed_iteration.txt` and `iter_0000500/` in it",
        step="the name, which is that in its `latest_checkpointed_iteration.txt`",
        complete="the iteration in it is complete as Megatron's. With `--no_save_optim` it holds weights only",
    ),
    (TRACKER[3:],),
    iteration_problem,
    _swift_step,
    claims=lambda name: _SWIFT.match(name) is not None,
    settles=True,
)
NEMO = Format(
    "NeMo",
    Words(
        written_by="NeMo 2",
        place="any directory with `weights/metadata.json`",
        step=(
            "the number behind `step=` in the name; else `global_step` in `weights/common.pt`. Epochs and samples "
            "are none"
        ),
        complete="`weights/` is complete as Megatron's, and there is no `<name>-unfinished` beside it",
    ),
    ("weights/" + CONFIG_NAME,),
    _nemo_problem,
    _nemo_step,
    beside=_nemo_unfinished,
)

"""verl, SkyRL and EasyR1: `global_step_N/` with a directory for each model that is trained (`actor/`, `critic/`), each
a checkpoint of FSDP or Megatron Core.

verl: verl/trainer/ppo/ray_trainer.py (`_save_checkpoint`), verl/utils/checkpoint/fsdp_checkpoint_manager.py and
megatron_checkpoint_manager.py (`save_checkpoint`: one `dist_ckpt/`, later one each below `model/`, `optimizer/` and
`extra/`, with weights in `model/huggingface/` in place of the first); its SFT trainer has one model, in the directory
itself. SkyRL:
skyrl/train/trainer.py (`save_checkpoints`). EasyR1, which is made from verl: verl/trainer/ray_trainer.py
(`_save_checkpoint`), verl/utils/checkpoint/checkpoint_manager.py (`find_latest_ckpt`). Of FSDP each rank saves its
files, which are called by how many ranks there are. The state of the data follows, then the file beside all, by which
all three resume.

Tests: tests/unit/checkpoint/test_formats.py.
"""

from __future__ import annotations

import functools
import re
from typing import Dict, List, Optional, Sequence, Set

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.dcp import METADATA_NAME
from muster.node.checkpoint.formats.base import WEIGHTS_ONLY, Format, Words, json_object
from muster.node.checkpoint.formats.megatron import CONFIG_NAME, TRACKER, distributed_problem
from muster.node.checkpoint.formats.parts import files_problem, own_problem, own_weights
from muster.node.checkpoint.listing import MAX_DEPTH
from muster.protocol.checkpoint_names import named_step

SKYRL_TRACKER = "../latest_ckpt_global_step.txt"
EASY_R1_TRACKER = "../checkpoint_tracker.json"
EASY_R1_STEP = "last_global_step"
"""The member of EasyR1's tracker that names the newest checkpoint."""
_NAME = re.compile(r"global_step_\d{1,15}\Z")
_SHARD = re.compile(r"(?:(.+)/)?(model|optim|extra_state)_world_size_(\d{1,6})_rank_(\d{1,6})\.pt\Z")
_DATA = re.compile(r"data(?:_\d{1,6}|loader)?\.pt\Z")
_STATE = "trainer_state.pt"
# Weights that no rank of these saves: by SkyRL's documentation, and those of DeepSpeed, with which SkyRL once trained.
_OF_OTHERS = ("policy/model_state.pt", "policy/latest")
_QUEUE = "transfer_queue"  # prompts under way (verl/trainer/ppo/v1/trainer_base.py): a start does without them
_DISTRIBUTED = re.compile(r"(?!transfer_queue/)((?:.+/)?)(?:\.metadata|metadata\.json|[^/]+\.distcp)\Z")
# What one model has in several places, which no rank reads alone.
_PART = re.compile(r"((?:[^/]+/)?)(?:model|optimizer|extra)/dist_ckpt/\Z")
_OTHERS = re.compile(
    r"(?:.+/)?(?:(?:model|optim|extra_state)_world_size_\d+_rank_\d+|data(?:_\d+|loader)?|common|trainer_state)\.pt\Z"
)


def _problem(tracker: str, candidate: Candidate) -> str:
    problem = _untracked(tracker, candidate)
    if problem:
        return problem
    problem = _shards_problem(candidate)
    if problem and problem != WEIGHTS_ONLY:
        return problem
    distributed = sorted({match[1] for match in map(_DISTRIBUTED.match, candidate.files) if match})
    inside = _distributed_problem(candidate, distributed)
    if inside and inside != WEIGHTS_ONLY:
        return inside
    if not distributed and not any(map(_SHARD.match, candidate.files)):
        return "there are no weights"
    states = [name for name in candidate.files if _DATA.match(name) or name == _STATE]
    if not any(map(_DATA.match, states)):
        return "data.pt does not exist, and the data would start from the beginning without it"
    if tracker == SKYRL_TRACKER and _STATE not in states:
        return "%s does not exist" % _STATE
    exported = own_weights(candidate, (_OTHERS,), (_QUEUE,))  # adapters, and weights for others if asked for
    for model in sorted({part[1] for part in map(_PART.match, distributed) if part}):
        if not any(name.startswith(model + "model/") for name in (*distributed, *exported)):
            return "there are no weights in %smodel" % model
    return files_problem(candidate, states) or own_problem(candidate, exported) or problem or inside


def _distributed_problem(candidate: Candidate, places: Sequence[str]) -> str:
    """Why a distributed checkpoint of Megatron Core in one of these places is not complete; "" = each is."""
    problems: Dict[str, Set[str]] = {}
    for place in places:
        inner = candidate.below(place[:-1]) if place else candidate
        if METADATA_NAME not in inner.files or CONFIG_NAME not in inner.files:
            return "%s%s does not exist" % (place, METADATA_NAME if CONFIG_NAME in inner.files else CONFIG_NAME)
        problem = distributed_problem(inner)
        if problem and problem != WEIGHTS_ONLY:
            return "%s: %s" % (place[:-1], problem)
        part = _PART.match(place)
        problems.setdefault(part[1] if part else place, set()).add(problem)
    return WEIGHTS_ONLY if {WEIGHTS_ONLY} in problems.values() else ""


def _untracked(tracker: str, candidate: Candidate) -> str:
    """Why the tracker file beside a checkpoint does not say that the checkpoint was written; "" = it does."""
    if tracker not in candidate.files:
        return "%s does not exist: it was not said to be written yet" % tracker[3:]
    step, tracked = named_step(candidate.name), _tracked_step(tracker, candidate)
    if tracked is None or step is None or tracked < step:
        return "%s names %s: this one was not said to be written yet" % (tracker[3:], tracked)
    later = [name for name in candidate.later_than(tracker) if name != tracker]
    return "%s is newer than %s" % (min(later), tracker[3:]) if tracked == step and later else ""


def _tracked_step(tracker: str, candidate: Candidate) -> Optional[int]:
    """The step that the tracker file names; None where it names none."""
    if tracker == EASY_R1_TRACKER:
        text = str(json_object(candidate, tracker).get(EASY_R1_STEP))
    else:
        text = candidate.text(tracker)
    return int(text) if re.match(r"\d{1,15}\Z", text) else None


def _shards_problem(candidate: Candidate) -> str:
    """Why not each rank's files of each model are there and whole; "" = they are, or there are none."""
    models: Dict[str, Dict[str, Set[int]]] = {}
    worlds: Dict[str, Set[int]] = {}
    shards: List[str] = []
    for match in filter(None, map(_SHARD.match, candidate.files)):
        models.setdefault(match[1] or "", {}).setdefault(match[2], set()).add(int(match[4]))
        worlds.setdefault(match[1] or "", set()).add(int(match[3]))
        shards.append(match[0])
    for model, kinds in sorted(models.items()):
        place = model + "/" if model else ""
        if len(worlds[model]) > 1:
            return "%sfiles of %s ranks are there: they are those of several saves" % (
                place,
                " and ".join(map(str, sorted(worlds[model]))),
            )
        (world,) = worlds[model]
        for kind in ("model", *sorted(kinds)):
            saved_ranks = kinds.get(kind, set())
            if len(saved_ranks) != world or max(saved_ranks) != world - 1:
                missing = next(rank for rank in range(len(saved_ranks) + 1) if rank not in saved_ranks)
                return "%s%s_world_size_%d_rank_%d.pt does not exist" % (place, kind, world, missing)
    problem = files_problem(candidate, shards)
    if not problem and any("optim" not in kinds for kinds in models.values()):
        return WEIGHTS_ONLY
    return problem


def _step(candidate: Candidate) -> Optional[int]:
    return named_step(candidate.name)


def _claims(name: str) -> bool:
    return name.startswith("global_step_") and _NAME.match(name) is not None


VERL = Format(
    "verl",
    Words(
        written_by="verl",
        place=(
            "`global_step_500/` with `actor/`, `critic/` (or, of its SFT trainer, the files of one model) and `data.pt`"
        ),
        step="the name",
        complete=(
            "of each model `model_`, `optim_` and `extra_state_world_size_8_rank_0.pt` of as many ranks as they say, "
            "or a whole `dist_ckpt/` of Megatron Core, or one each below `optimizer/`, `extra/` and `model/` (or "
            "weights in `model/huggingface/`). `data.pt` is there, and `latest_checkpointed_iteration.txt` "
            "names this step or a later one. Without optimizers it holds weights only"
        ),
    ),
    ("data.pt", "data_0.pt", "fsdp_config.json", "actor/fsdp_config.json", "actor/dist_ckpt/metadata.json"),
    functools.partial(_problem, TRACKER),
    _step,
    claims=_claims,
    unless=_OF_OTHERS,
    beside=lambda name: TRACKER,
    settles=True,
    depth=MAX_DEPTH + 1,
)
SKYRL = Format(
    "SkyRL",
    Words(
        written_by="SkyRL",
        place="`global_step_500/` with `policy/`, `critic/` and `trainer_state.pt`",
        step="the name",
        complete="as verl's, with `trainer_state.pt` and `latest_ckpt_global_step.txt`",
    ),
    (_STATE, "policy/fsdp_config.json", "policy/metadata.json"),
    functools.partial(_problem, SKYRL_TRACKER),
    _step,
    claims=_claims,
    unless=_OF_OTHERS,
    beside=lambda name: SKYRL_TRACKER,
    settles=True,
)
EASY_R1 = Format(
    "EasyR1",
    Words(
        written_by="EasyR1",
        place="`global_step_500/` with `actor/`, `critic/` and `dataloader.pt`",
        step="the name",
        complete="as verl's, with `dataloader.pt` for `data.pt`, and `last_global_step` of `checkpoint_tracker.json`",
    ),
    ("dataloader.pt",),
    functools.partial(_problem, EASY_R1_TRACKER),
    _step,
    claims=_claims,
    beside=lambda name: EASY_R1_TRACKER,
    settles=True,
)

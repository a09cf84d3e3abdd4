"""Trainers whose saves a row describes: what a directory is called, the files that it needs, and what is written last.

- Levanter: levanter/checkpoint.py (`save_checkpoint`): `metadata.json` once all processes have committed their arrays
- AXLearn: axlearn/common/checkpointer.py (`write_index_file`): `index`, likewise
- LLaMA-Factory's v1: llamafactory/v1/core/utils/checkpoint.py (`mark_checkpoint_complete`)
- NxD Training and Core: neuronx_distributed/trainer/checkpoint.py (`CheckpointIOState.end`): `done`
- TorchTitan: torch_checkpointing/checkpoint_writer.py: a temporary directory is renamed
- LeRobot: lerobot/common/train_utils.py (`save_checkpoint`): the optimizer's parameter groups come last
- Cosmos-RL: cosmos_rl/utils/checkpoint.py (`save_checkpoint`): an empty file of each rank
- OLMo-core: olmo_core/train/checkpoint.py (`dir_is_checkpoint`): `.metadata.json`
- OLMo: olmo/checkpoint.py (`_temporary_wd`): a temporary directory is renamed
- fairseq2: fairseq2/checkpoint/manager.py (`_commit_checkpoint`): a temporary directory is renamed
- MindSpore Transformers: mindformers/checkpoint/checkpoint.py (`save_checkpoint`): the tracker beside all
- XTuner's v1: xtuner/v1/train/trainer.py (`_maybe_save`)
- nanotron: nanotron/trainer.py (`save_checkpoint`), nanotron/serialize/: the tracker beside all once all
  ranks have saved, but for their random states

Tests: tests/unit/reports/test_trees.py.
"""

from __future__ import annotations

import functools
import re
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from muster.node.checkpoint.candidate import Candidate
from muster.node.checkpoint.formats.base import NO_OPTIMIZER, WEIGHTS_ONLY, Format, Words, json_object
from muster.node.checkpoint.formats.megatron import TRACKER
from muster.node.checkpoint.formats.parts import own_problem, own_weights, weights
from muster.node.checkpoint.formats.torch_dcp import dcp_problem, shards_of
from muster.node.checkpoint.untrusted_json import parse_json
from muster.node.checkpoint.whole import Pickled, pickled
from muster.protocol.checkpoint_names import named_step, step_in_name

_DEPTH = 9  # of directories: arrays of zarr lie in one for each part of their names
_TENSORS = (".pt", ".pth", ".pkl", ".safetensors")


class _Row(NamedTuple):
    """One trainer's way to save.

    A kind of files is a path in which `*` is any name, `**` any path, and `{n}` the number of a rank.

    Attributes:
        name: as a format's.
        page: the text about it.
        called: pattern of the directory's name.
        markers: as a format's.
        last: the file that is written once all others are whole; "" = there is none.
        ends: kinds of files of which each is written after all others, or after those of its rank.
        needs: kinds of files, of each of which there is one at least.
        ranks: kinds of files that each rank writes: there are as many of each, numbered from 0 on.
        dcp: directories that are a whole DCP each where one has any file of DCP.
        optimizer: kinds of files that hold the state of the optimizer, where no DCP does.
        rule: why more than that is missing.
        step: as a format's.
        beside: the file outside of the directory that belongs to it; "" = none.
    """

    name: str
    page: Words
    called: str
    markers: Tuple[str, ...]
    last: str = ""
    ends: Tuple[str, ...] = ()
    needs: Tuple[str, ...] = ()
    ranks: Tuple[str, ...] = ()
    dcp: Tuple[str, ...] = ()
    optimizer: Tuple[str, ...] = ()
    rule: Callable[[Candidate], str] = lambda candidate: ""
    step: Callable[[Candidate], Optional[int]] = lambda candidate: step_in_name(candidate.name)
    beside: str = ""


@functools.lru_cache(maxsize=256)
def _pattern(kind: str) -> "re.Pattern[str]":
    text = re.escape(kind).replace(r"\*\*", ".+").replace(r"\*", "[^/]+").replace(re.escape("{n}"), r"(\d{1,7})")
    return re.compile(text + r"\Z")


def _files_of_kind(candidate: Candidate, kind: str) -> List[str]:
    # Of `**` some lie deeper than the listing goes: those of arrays that are called after many modules.
    names = (*candidate.files, *candidate.deeper) if kind.endswith("**") else candidate.files
    return [name for name in names if _pattern(kind).match(name)]


def _numbers(candidate: Candidate, kind: str) -> Set[int]:
    return {int(match[1]) for match in map(_pattern(kind).match, candidate.files) if match}


def _problem(row: _Row, candidate: Candidate) -> str:
    if row.last and row.last not in candidate.files:
        return "%s does not exist, and it is written last" % row.last
    needed = {kind: _files_of_kind(candidate, kind) for kind in (*row.needs, *row.ranks)}
    optimizer = [name for kind in row.optimizer for name in _files_of_kind(candidate, kind)]
    for kind in row.needs:
        if not needed[kind]:
            return "%s does not exist" % kind
        if kind in candidate.files and not candidate.files[kind].size_bytes:
            return "%s is empty" % kind
    parts = _parts(candidate, row.dcp)
    problem = _dcp_problem(candidate, parts)
    if problem:
        return problem
    if not optimizer and not any(shards_of(candidate.below(part)).has_optimizer for part in parts):
        return WEIGHTS_ONLY if row.last else NO_OPTIMIZER
    files = {*optimizer, *(name for names in needed.values() for name in names)}
    return (
        _order_problem(row, candidate, files)
        or _ranks_problem(candidate, row.ranks)
        or _tensors_problem(candidate, files)
        or row.rule(candidate)
    )


def _order_problem(row: _Row, candidate: Candidate, files: Set[str]) -> str:
    """Why a file is of another save than the one that was written after it; "" = none is. `files` are those that are
    needed.
    """
    for kind in filter(None, (row.last, *row.ends)):
        for end in _files_of_kind(candidate, kind):
            number = _pattern(kind).match(end)
            same_rank = re.compile("rank_%s(?!\\d)" % number[1] if number and number.groups() else "")
            # OLMo-core writes a file of options beside the last one later: what lies deeper is none.
            later = [
                name for name in candidate.later_than(end) if ("/" in name or name in files) and same_rank.search(name)
            ]
            if later:
                return "%s is newer than %s" % (min(later), end)
    return ""


def _parts(candidate: Candidate, directories: Sequence[str]) -> List[str]:
    """Those of the directories that have files of DCP."""
    return [
        part
        for part in directories
        if _files_of_kind(candidate, part + "/*.distcp") or part + "/.metadata" in candidate.files
    ]


def _dcp_problem(candidate: Candidate, parts: Sequence[str]) -> str:
    for part in parts:
        problem = dcp_problem(candidate.below(part))
        if problem:
            return "%s: %s" % (part, problem)
    return ""


def _ranks_problem(candidate: Candidate, kinds: Tuple[str, ...], count: int = 0) -> str:
    """The first missing file of those that each rank writes; "" = none. There are at least `count` ranks."""
    numbers_by_kind = {kind: _numbers(candidate, kind) for kind in kinds}
    count = max([count, *(max(numbers) + 1 for numbers in numbers_by_kind.values() if numbers)])
    for kind, numbers in numbers_by_kind.items():
        if len(numbers) != count:
            rank = next(rank for rank in range(len(numbers) + 1) if rank not in numbers)
            return "%s does not exist" % kind.replace("{n}", str(rank))
    return ""


def _tensors_problem(candidate: Candidate, names: "Set[str]") -> str:
    """Why not each of these files that hold tensors is whole; "" = each is."""
    return own_problem(candidate, sorted(name for name in names if name.endswith(_TENSORS)))


def _json_problem(candidate: Candidate, name: str) -> str:
    """Why a JSON file is not there and whole, by its two ends: it may have megabytes."""
    if name not in candidate.files:
        return "%s does not exist" % name
    size = candidate.files[name].size_bytes
    start, end = candidate.part(name, 0, 1), candidate.part(name, max(0, size - 16), 16).rstrip()[-1:]
    return "" if end and end == {b"[": b"]", b"{": b"}"}.get(start) else "%s is cut short" % name


_METADATA = "metadata.json"


def _levanter_step(candidate: Candidate) -> Optional[int]:
    """The step of a checkpoint, also of one that is called by its epoch."""
    step = json_object(candidate, _METADATA).get("step") if candidate.has_file(_METADATA) else None
    return step if type(step) is int else step_in_name(candidate.name)


def _levanter(candidate: Candidate) -> str:
    json_object(candidate, _METADATA)
    if "manifest.ocdbt" not in candidate.files:  # each array in a directory of its own
        return "" if _files_of_kind(candidate, "model/**") else "there are no weights"
    if not _files_of_kind(candidate, "d/*") or not candidate.files["manifest.ocdbt"].size_bytes:
        return "the files that manifest.ocdbt leads to are gone"
    return ""


def _axlearn(candidate: Candidate) -> str:
    try:
        parse_json(candidate.document("index"))
    except ValueError as error:
        return "index is incomplete: %s" % error
    return ""


def _saved_world(candidate: Candidate, name: str) -> int:
    return Pickled(candidate.content(name)).number("world_size") or 0


_TORCHTITAN_RANKS = ("model_{n}.pt", "optimizer_{n}.pt")


def _torchtitan(candidate: Candidate) -> str:
    size = candidate.files["metadata.pkl"].size_bytes
    if candidate.part("metadata.pkl", 0, 1) == b"\x80" and candidate.part("metadata.pkl", size - 1, 1) != b".":
        return "metadata.pkl is cut short"
    return _ranks_problem(candidate, _TORCHTITAN_RANKS, candidate.remembered("metadata.pkl", _saved_world))


_STATE_FILE = re.compile(rb'"state_file"\s*:\s*"([^"/]{1,200})"')
_LEROBOT_DCP = ("pretrained_model/pytorch_model_fsdp_0", "training_state/optimizer_0")


def _lerobot(candidate: Candidate) -> str:
    step = json_object(candidate, "training_state/training_step.json").get("step")
    if step != step_in_name(candidate.name):
        return "training_state/training_step.json names step %s" % step
    model = candidate.below("pretrained_model")
    files = set(weights(model))
    if not files and _LEROBOT_DCP[0] not in _parts(candidate, _LEROBOT_DCP):
        return "there are no weights"
    for config in filter(model.files.__contains__, ("policy_preprocessor.json", "policy_postprocessor.json")):
        files.update(state.decode("utf-8", "replace") for state in _STATE_FILE.findall(model.document(config)))
    missing = min(files.difference(model.files), default="")
    if missing:
        return "pretrained_model/%s does not exist" % missing
    for name in candidate.files:
        groups = name.replace("optimizer_state.safetensors", "optimizer_param_groups.json")
        problem = "" if groups == name else _json_problem(candidate, groups)
        if problem:
            return problem
    return _tensors_problem(model, files)


def _cosmos_ranks(candidate: Candidate, name: str) -> int:
    """How many ranks write files, as far as the configuration says it: the rest is that of replicas."""
    configuration = json_object(candidate, name)
    sizes = configuration.get("policy")
    sizes = sizes.get("parallelism") if isinstance(sizes, dict) else None
    count = 1
    for size in ("tp_size", "cp_size", "pp_size", "dp_shard_size"):
        number = sizes.get(size) if isinstance(sizes, dict) else None
        if not isinstance(number, int) or not 0 < number < 2**20:
            return 0
        count *= number
    return count


_COSMOS_RANKS = (
    *("policy/%s_rank_{n}.pth" % kind for kind in ("model", "optimizer", "scheduler", "extra_info")),
    "policy/.rank_{n}_complete",
)


def _cosmos(candidate: Candidate) -> str:
    return _ranks_problem(candidate, _COSMOS_RANKS, candidate.remembered("policy/cosmos_config", _cosmos_ranks))


def _olmo_core(candidate: Candidate) -> str:
    json_object(candidate, ".metadata.json")
    return ""


_SHARD = "pp_*/tp_*/sdp_*.pt"


def _fairseq2(candidate: Candidate) -> str:
    """Why not each rank's files are there, of each place in the mesh; "" = they are."""
    model, optimizer = (
        {name.partition("/")[2] for name in _files_of_kind(candidate, "%s/%s" % (kind, _SHARD))}
        for kind in ("model", "optimizer")
    )
    other = min(model.symmetric_difference(optimizer), default="")
    if other:
        return "%s/%s does not exist" % ("optimizer" if other in model else "model", other)
    pipeline, tensor, shard = ({name.split("/")[axis] for name in model} for axis in range(3))
    data = _numbers(candidate, "data_reader/dp_{n}.pt")
    if data != set(range(len(data))):
        return "data_reader/dp_%02d.pt does not exist" % min(set(range(max(data))).difference(data))
    ranks = len(_numbers(candidate, "trainer/rank_{n}.pt"))
    if len(model) != len(pipeline) * len(tensor) * len(shard) or len(pipeline) * len(tensor) * len(data) != ranks:
        return "files of %d ranks are there, and not all of their models and readers of data" % ranks
    return "" if len(data) % len(shard) == 0 else "files of %d of the model's shards are there" % len(shard)


def _tracker_problem(candidate: Candidate, tracker: str) -> str:
    """Why not the file beside the checkpoint names its step or a later one; "" = it does."""
    if tracker not in candidate.files:
        return "%s does not exist: it was not said to be written yet" % tracker[3:]
    tracked, step = candidate.text(tracker), step_in_name(candidate.name)
    if not re.match(r"\d{1,15}\Z", tracked) or step is None or int(tracked) < step:
        return "%s names %s: this one was not said to be written yet" % (tracker[3:], tracked)
    return ""


_MINDSPORE = re.compile(r"(.*)-(model|opt)-(\d{7})-(\d{7})\.safetensors\Z")


def _mindspore(candidate: Candidate) -> str:
    problem = _tracker_problem(candidate, TRACKER)
    if problem:
        return problem
    numbers_by_name: Dict[Tuple[str, str, str], Set[int]] = {}
    for match in filter(None, map(_MINDSPORE.match, candidate.files)):
        numbers_by_name.setdefault((match[1], match[2], match[4]), set()).add(int(match[3]))
    if len({key[:2] for key in numbers_by_name}) != len(numbers_by_name):
        return "files of several saves are there"
    for (prefix, kind, total), numbers in sorted(numbers_by_name.items()):
        if len(numbers) != int(total):
            missing = next(number for number in range(len(numbers) + 1) if number not in numbers)
            return "%s-%s-%07d-%s.safetensors does not exist" % (prefix, kind, missing, total)
    if any(int(total) > 1 for _, _, total in numbers_by_name) and "metadata.json" not in candidate.files:
        return "metadata.json does not exist"
    names = ("common.json", "metadata.json")
    return next(filter(None, (_json_problem(candidate, name) for name in names if name in candidate.files)), "")


def _xtuner(candidate: Candidate) -> str:
    if json_object(candidate, "train_state.json").get("cur_step") != named_step(candidate.name):
        return "train_state.json names another step"
    if "weights/.metadata" not in candidate.files and "model/.metadata" not in candidate.files:
        return "there are no weights"
    states = [name for name in ("lr_scheduler", "dataloader") if name in candidate.files]
    return own_problem(candidate, states)


def _llama_factory(candidate: Candidate) -> str:
    model = candidate.below("model")
    if not weights(model) and not own_weights(model, (), ()) and "model/.metadata" not in candidate.files:
        return "there are no weights"
    return _tensors_problem(model, set(own_weights(model, (), ())))


_NXD = re.compile(r"(model|optim)/(?:ep_rank_\d+_)?dp_rank_(\d+)_(.+)\.pt\Z")


def _neuron(candidate: Candidate) -> str:
    places: Dict[str, Dict[str, Set[int]]] = {}
    for match in filter(None, map(_NXD.match, candidate.files)):
        places.setdefault(match[1], {}).setdefault(match[3], set()).add(int(match[2]))
    if "model" in places and places["model"].keys() != places.get("optim", places["model"]).keys():
        return "files of the model and of the optimizer are those of different ranks"
    for kind, ranks_by_place in places.items():
        ranks = max(ranks_by_place.values(), key=len)
        if any(numbers != set(range(len(ranks))) for numbers in ranks_by_place.values()):
            return "not each data-parallel rank's file is there below %s" % kind
        axes: Dict[str, Set[str]] = {}
        for axis, number in re.findall(r"([a-z]+)_rank_(\d+)", " ".join(ranks_by_place)):
            axes.setdefault(axis, set()).add(number)
        if len(ranks_by_place) != functools.reduce(lambda product, numbers: product * len(numbers), axes.values(), 1):
            return "%d files of the mesh's places are there below %s" % (len(ranks_by_place), kind)
    return _tensors_problem(candidate, set(_files_of_kind(candidate, "model/*.pt")))


_NANOTRON_TRACKER = "../latest.txt"
_OF_COUNT = re.compile(r"-(\d{1,6})-of-(\d{1,6})")
_NANOTRON_WEIGHTS = re.compile(r"model/(.+)/model_([^/]+?)(?:_(?:pp|tp|exp)-rank-[^/]*)?\.safetensors\Z")


def _nanotron_step(candidate: Candidate) -> Optional[int]:
    """The step in the name, once all but other ranks' random states was written."""
    return step_in_name(candidate.name) if candidate.has_file("model_config.json") else None


def _parameters(candidate: Candidate, name: str) -> List[str]:
    return [text.decode("utf-8", "replace") for text in pickled(candidate, name).texts(b"model.")]


def _nanotron(candidate: Candidate) -> str:
    names = (*_files_of_kind(candidate, "*/*.pt"), *_files_of_kind(candidate, "model/**.safetensors"))
    problem = _tracker_problem(candidate, _NANOTRON_TRACKER) or _grid_problem(names)
    if problem:
        return problem
    weights = {
        ".".join((match[1].replace("/", "."), match[2])) for match in map(_NANOTRON_WEIGHTS.match, names) if match
    }
    for name in _files_of_kind(candidate, "optimizer/*.pt"):  # each names the parameters of which it has a part
        missing = min(set(candidate.remembered(name, _parameters)).difference(weights), default="")
        if missing:
            return "weights of %s do not exist" % missing
    return _tensors_problem(candidate, set(names))


def _grid_problem(names: Sequence[str]) -> str:
    """Why not each place in the mesh has its file, of those that name one (`pp-0-of-1_tp-1-of-2`); "" = each has.

    Of weights each lies in one stage of the pipeline.
    """
    count_by_shape: Dict[str, int] = {}
    for name in names:
        shape = _OF_COUNT.sub(r"-*-of-\2", name)
        count_by_shape[shape] = count_by_shape.get(shape, 0) + 1
    for shape, count in sorted(count_by_shape.items()):
        axes = re.findall(r"(\w+?)(?:-rank)?-\*-of-(\d+)", shape)
        needed = 1
        for axis, size in axes:
            needed *= 1 if axis.endswith("pp") and shape.startswith("model/") else int(size)
        if count != needed:
            return "of %s %d are there, and %d are needed" % (shape, count, needed)
    return ""


_ROWS: Tuple[_Row, ...] = (
    _Row(
        "Levanter",
        Words(
            written_by="Levanter",
            place="`step-500/` or `epoch-3/` with `manifest.ocdbt`, or of old `step/.zarray`",
            step="`step` in `metadata.json`",
            complete=(
                "`metadata.json`, which is written last, and before it `manifest.ocdbt` with its `d/`, or arrays of "
                "zarr below `model/` and `opt_state/`. The arrays' own files are not looked at"
            ),
        ),
        called=r"(?:step|epoch)-\d{1,15}",
        markers=("manifest.ocdbt", "step/.zarray"),
        last=_METADATA,
        optimizer=("manifest.ocdbt", "opt*/**"),
        rule=_levanter,
        step=_levanter_step,
    ),
    _Row(
        "AXLearn",
        Words(
            written_by="AXLearn",
            place="`step_00000500/` with `index`",
            step="the name",
            complete="`index`, which is written last, and before it arrays of zarr below `gda/model/` and "
            "`gda/learner/`. The arrays' own files are not looked at",
        ),
        called=r"step_\d{8,15}",
        markers=("index",),
        last="index",
        needs=("gda/model/**",),
        optimizer=("gda/learner/**",),
        rule=_axlearn,
    ),
    _Row(
        "LlamaFactory",
        Words(
            written_by="LLaMA-Factory's v1",
            place="`checkpoint-500/` with `CHECKPOINT_COMPLETE`",
            step="the name",
            complete="`CHECKPOINT_COMPLETE`, which is written last, and before it `model/` and `optimizer/`, each a "
            "whole `TorchDCP` or whole files, and states of the data and of random numbers, which are as many",
        ),
        called=r"checkpoint-\d{1,15}",
        markers=("CHECKPOINT_COMPLETE", "rng_state/rank_0.pt", "optimizer/state_dict.pt"),
        last="CHECKPOINT_COMPLETE",
        needs=("scheduler.pt",),
        ranks=("dataloader/rank_{n}.pt", "rng_state/rank_{n}.pt"),
        dcp=("model", "optimizer"),
        optimizer=("optimizer/state_dict.pt",),
        rule=_llama_factory,
    ),
    _Row(
        "NeuronxDistributed",
        Words(
            written_by="neuronx-distributed",
            place="`step_500/` with `optim/dp_rank_00_tp_rank_00_pp_rank_00.pt`",
            step="the name",
            complete="`done`, which is written last, and before it whole files below `optim/` and, unless the "
            "optimizer has the weights, of the same ranks below `model/`",
        ),
        called=r"step_\d{1,15}",
        markers=("optim/dp_rank_00_tp_rank_00_pp_rank_00.pt", "model/dp_rank_00_tp_rank_00_pp_rank_00.pt"),
        last="done",
        needs=("checkpoint",),
        optimizer=("optim/*.pt",),
        rule=_neuron,
    ),
    _Row(
        "TorchTitanRanks",
        Words(
            written_by="TorchTitan with `torch_checkpointing`",
            place="`step-500/` with `metadata.pkl`",
            step="the name",
            complete="it is renamed from a temporary name; `metadata.pkl`, and `model_0.pt` and `optimizer_0.pt` of "
            "as many ranks as that says, are there and whole",
        ),
        called=r"step-\d{1,15}",
        markers=("metadata.pkl",),
        needs=("metadata.pkl",),
        ranks=_TORCHTITAN_RANKS,
        optimizer=_TORCHTITAN_RANKS[1:],
        rule=_torchtitan,
    ),
    _Row(
        "LeRobot",
        Words(
            written_by="LeRobot",
            place="`005000/` with `pretrained_model/` and `training_state/`",
            step="the name, which is that in `training_state/training_step.json`",
            complete="weights, or adapters, the files that their processors name, `rng_state.safetensors` and "
            "`optimizer_state.safetensors` are there and whole, and `optimizer_param_groups.json`, which is written "
            "last. With FSDP `optimizer_0/` (and `pytorch_model_fsdp_0/`) is a whole `TorchDCP`",
        ),
        called=r"\d{6,15}",
        markers=("training_state/training_step.json", "pretrained_model/train_config.json"),
        ends=("training_state/optimizer_param_groups.json",),
        needs=("training_state/training_step.json", "training_state/rng_state.safetensors"),
        dcp=_LEROBOT_DCP,
        optimizer=("training_state/optimizer_state.safetensors", "training_state/*/optimizer_state.safetensors"),
        rule=_lerobot,
    ),
    _Row(
        "CosmosRL",
        Words(
            written_by="Cosmos-RL",
            place="`step_500/policy/` with `cosmos_config`",
            step="the name",
            complete="of each rank `.rank_0_complete`, which it writes last, and files of the model, the optimizer, "
            "the scheduler and `extra_info_rank_0.pth`, whole. They are as many as the sizes in `cosmos_config` "
            "say, where none of these is left to the program",
        ),
        called=r"step_\d{1,15}",
        markers=("policy/cosmos_config",),
        ends=("policy/.rank_{n}_complete",),
        ranks=_COSMOS_RANKS,
        optimizer=("policy/optimizer_rank_{n}.pth",),
        rule=_cosmos,
    ),
    _Row(
        "OLMoCore",
        Words(
            written_by="OLMo-core",
            place="`step500/` with `train/rank0.pt`",
            step="the name",
            complete="`.metadata.json`, which is renamed into place last, and before it `train/rank0.pt` and "
            "`model_and_optim/`, a whole `TorchDCP`",
        ),
        called=r"step\d{1,15}",
        markers=(".metadata.json", "train/rank0.pt"),
        last=".metadata.json",
        needs=("train/rank0.pt", "model_and_optim/.metadata"),
        dcp=("model_and_optim",),
        rule=_olmo_core,
    ),
    _Row(
        "OLMo",
        Words(
            written_by="OLMo",
            place="`step500-unsharded/` with `train.pt`",
            step="the name",
            complete="it is renamed from its temporary name; `model.pt`, `optim.pt`, `train.pt` and `config.yaml` "
            "are there and whole",
        ),
        called=r"step\d{1,15}(?:-unsharded)?",
        markers=("train.pt",),
        needs=("train.pt", "model.pt", "config.yaml"),
        optimizer=("optim.pt",),
    ),
    _Row(
        "fairseq2",
        Words(
            written_by="fairseq2",
            place="`step_500/` with `trainer/rank_00.pt`",
            step="the name",
            complete="it is renamed from `step_500.tmp`. Files of the trainer, the reader of data, the model and "
            "the optimizer are there and whole for each place in the mesh of ranks. What is kept of an older one "
            "holds weights only",
        ),
        called=r"step_\d{1,15}",
        markers=("trainer/rank_00.pt",),
        needs=("model/" + _SHARD, "data_reader/*.pt"),
        ranks=("trainer/rank_{n}.pt",),
        optimizer=("optimizer/" + _SHARD,),
        rule=_fairseq2,
    ),
    _Row(
        "MindSpore",
        Words(
            written_by="MindSpore Transformers, Checkpoint 2.0",
            place="`iteration_00000500/` with `common.json`",
            step="the name",
            complete="`NAME-model-0000000-0000008.safetensors` and `NAME-opt-…` are there and whole, as many as "
            "their names say, so is `common.json`, and `metadata.json` where they are several, and "
            "`latest_checkpointed_iteration.txt` names this iteration or a later one",
        ),
        called=r"iteration_\d{8,15}",
        markers=("common.json", "metadata.json"),
        needs=("common.json", "*-model-*-*.safetensors"),
        optimizer=("*-opt-*-*.safetensors",),
        rule=_mindspore,
        beside=TRACKER,
    ),
    _Row(
        "XTuner",
        Words(
            written_by="XTuner's v1",
            place="`ckpt-step-500/` with `train_state.json`",
            step="the name, which is `cur_step` in `train_state.json`",
            complete="`weights/` (before 2026 `model/` and `optimizer/`) is a whole `TorchDCP`, and "
            "`train_state.json` is there. So are the states of the data and the scheduler, or were before it",
        ),
        called=r"(?:ckpt|snapshot)-step-\d{1,15}",
        markers=("train_state.json", "weights/.metadata", "model/.metadata"),
        ends=("train_state.json",),
        needs=("train_state.json",),
        dcp=("weights", "model", "optimizer"),
        rule=_xtuner,
    ),
    _Row(
        "nanotron",
        Words(
            written_by="nanotron",
            place="`500/` with `checkpoint_metadata.json` and `model_config.json`",
            step="the name",
            complete="`latest.txt` names this step or a later one. Files of the optimizer, the scheduler, random "
            "states and weights are there and whole for each place in the mesh of ranks that their names count, and "
            "weights of each parameter that the optimizer's name",
        ),
        called=r"\d{1,15}",
        markers=("checkpoint_metadata.json",),
        needs=("model/**.safetensors", "lr_scheduler/*.pt", "random/*.pt"),
        optimizer=("optimizer/*.pt",),
        rule=_nanotron,
        step=_nanotron_step,
        beside=_NANOTRON_TRACKER,
    ),
)


def _format(row: _Row) -> Format:
    called = re.compile(row.called + r"\Z")
    return Format(
        row.name,
        row.page,
        row.markers,
        functools.partial(_problem, row),
        row.step,
        claims=lambda text: called.match(text) is not None,
        beside=lambda text: row.beside,
        settles=not row.last,
        is_open=True,
        depth=_DEPTH,
    )


ROWS: Tuple[Format, ...] = tuple(map(_format, _ROWS))

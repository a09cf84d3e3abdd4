"""What may be a checkpoint of no known format: files and directories that hold weights, by their names alone.

It is reported and never counts, so a guess costs a message. What only looks alike (a model to begin from, shards of
data, a cache) gives none.
"""

from __future__ import annotations

import re
from typing import Callable, Iterable, List

from muster.node.checkpoint.listing import Files
from muster.protocol.checkpoint_names import dated, order_candidates, step_in_name

MOST_INSIDE = 8  # directories of one directory that are looked into
_MOST_LISTED, _MOST_LISTED_IN_STORE = 40, 16  # directories for one answer: each costs a request in a store
_DEEPEST = 8  # tensor stores have a directory for each name of a parameter
# Endings of files that hold weights, and of those that may hold anything else.
_WEIGHTS = (
    ".pt",
    ".pth",
    ".ckpt",
    ".safetensors",
    ".distcp",
    ".keras",
    ".msgpack",
    ".pdparams",
    ".torch",
    ".zarr",
    ".pt.tar",
    ".pth.tar",
    ".pth.lora",  # LitGPT, by what it has trained
    ".pth.adapter",
    ".pth.adapter_v2",
    ".th",  # AllenNLP
    ".params",  # MXNet
    ".eqx",  # Equinox
    ".mdlus",  # PhysicsNeMo
    ".caffemodel",
    ".solverstate",
)
_ANYTHING = (".bin", ".h5", ".hdf5", ".npz", ".pkl", ".index", ".tar", ".zip")
_WEIGHT_FILES = _WEIGHTS + _ANYTHING
_OF_TRAINING = re.compile(r"checkpoint|ckpt|model|network|weight|state|step|iter|epoch|param|optim", re.IGNORECASE)
# In a directory of their own for each array: zarr, OCDBT.
_OF_TENSOR_STORES = frozenset({".zarray", "zarr.json", "manifest.ocdbt"})
_ONE_OF_SEVERAL = re.compile(r"\d-of-\d")  # files of weights alone
# Files without an ending: Flax `checkpoint_500`, EasyLM `streaming_train_state_5000`.
_BARE = re.compile(r"(?:.*[^a-z])?(?:checkpoint|ckpt|train_state)[_-]\d+\Z", re.IGNORECASE)
# Files that a program writes over again and again: nanoGPT `ckpt.pt`, nnU-Net `checkpoint_latest.pth`.
_NEWEST = re.compile(r"(?!.*best)(?:.*[^a-z])?(?:checkpoint|ckpt|latest|last)(?:[^a-z].*)?\Z", re.IGNORECASE)
# What is a checkpoint itself by its name has parts in it that are called so, too, and may be under way.
_CALLED_SO = re.compile(
    r"\d+\Z|(?:.*[^a-z])?(?:checkpoint|ckpt|backup|snapshot|step|iter(?:ation)?|epoch|ep|ba)s?[=_.+-]?\d", re.IGNORECASE
)
_CACHE = re.compile(r"(?:models|datasets|spaces)--")  # of Hugging Face's hub
# A directory with one of these and weights, and without any state of a training, is a model.
_MODEL_CONFIGS = frozenset({"config.json", "model_index.json", "params.json", "adapter_config.json"})
_NUMBER = re.compile(r"[0-9]+")
_STATE = re.compile(r"optim|sched|rng|random|state", re.IGNORECASE)
# The state of a training beside weights: without a step in any name, a sign that they are no model to begin from.
_TRAINED = re.compile(r"optim|sched|(?:rng|random|train(?:er|ing)?)_?state", re.IGNORECASE)
# In a directory that is called a checkpoint: what says of which step it is, beside arrays of any name.
_METADATA = re.compile(
    r"\.?(?:(?:checkpoint|ckpt)[_-])?(?:metadata|meta|manifest|train(?:er|ing)?_state)(?:\.[a-z]+)?\Z"
)


def misleading(names: List[str], chosen: str) -> List[str]:
    """The names that look like the chosen checkpoint's name but have a higher step; the highest first.

    Args:
        names: of the directories beside the chosen checkpoint.
        chosen: the name of the checkpoint to resume from. Only numbers may differ from it: what else lies beside
        checkpoints (logs, exports) has names of another form.
    """
    step = step_in_name(chosen)
    if step is None:
        return []
    lookalikes = [name for name in order_candidates(names) if shape(name) == shape(chosen)]
    return [name for name in lookalikes if (step_in_name(name) or 0) > step]


def shape(name: str) -> str:
    """The name with its numbers replaced, so that names that differ in numbers only become equal."""
    return _NUMBER.sub("0", name)


def is_stray(name: str) -> bool:
    """Whether a file may be a checkpoint by itself, or the newest one, by its name."""
    if name.endswith(_WEIGHT_FILES):
        if _ONE_OF_SEVERAL.search(name) or not (name.endswith(_WEIGHTS) or _OF_TRAINING.search(name)):
            return False
        return step_in_name(name) is not None or _NEWEST.match(name) is not None
    return name[-1:].isdigit() and _BARE.match(name) is not None


def is_stray_below(name: str) -> bool:
    """Whether a file further below may be one: there a number alone is rather that of a model."""
    return is_stray(name) and (is_called_so(name) or bool(_OF_TRAINING.search(name) or _NEWEST.match(name)))


def highest_stray(names: Iterable[str]) -> str:
    """The file that is reported of these: that of the highest step, then with the shortest name; "" = there is none."""
    return max(names, key=lambda name: (_step(name), -len(name), name), default="")


def is_called_so(name: str) -> bool:
    """Whether the name of a directory or file is that of a checkpoint, and not of a run that began at some time."""
    return _CALLED_SO.match(name) is not None and not dated(name)


def may_lead_to_checkpoints(names: Iterable[str]) -> List[str]:
    """The directories that are looked into for checkpoints further below."""
    ordered = order_candidates(names)
    return [name for name in ordered if not is_called_so(name) and not _CACHE.match(name)][:MOST_INSIDE]


def holds_weights(files: Files, path: str, sign: Callable[[], None]) -> bool:
    """Whether a directory, or one in it, has files of weights, and is no model that a user has put there.

    The metadata of a checkpoint count as well, in a directory that is called one.

    Raises:
        OSError: the storage fails.
    """
    name = path.rpartition("/")[2]
    if _CACHE.match(name):
        return False
    is_called = is_called_so(name)
    may_be_model, left = not is_called, _MOST_LISTED_IN_STORE if files.is_store else _MOST_LISTED
    waiting = [(path, 0)]
    while waiting and left:
        place, depth = waiting.pop()
        left -= 1
        try:
            inner = files.children(place, is_evidence, sign)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            continue
        evidence = [
            name for name in inner.files if _is_weights(name) or (is_called and not depth and _is_metadata(name))
        ]
        if may_be_model and _MODEL_CONFIGS.intersection(inner.files) and not any(map(_STATE.search, inner.files)):
            return False
        if evidence:
            return True
        if depth < _DEEPEST:
            waiting += [
                ("%s/%s" % (place, name), depth + 1) for name in sorted(inner.directories)[MOST_INSIDE - 1 :: -1]
            ]
    return False


def has_trained_weights(names: Iterable[str]) -> bool:
    """Whether some of the files in a directory hold weights, and others the state of the training that made them."""
    names = list(names)
    return any(map(_TRAINED.search, names)) and any(_is_weights(name) and not _TRAINED.search(name) for name in names)


def is_evidence(name: str) -> bool:
    """Whether a file says something of whether its directory is a checkpoint."""
    return _is_weights(name) or name in _MODEL_CONFIGS or _STATE.search(name) is not None or _is_metadata(name)


def _is_metadata(name: str) -> bool:
    return _METADATA.match(name) is not None


def _step(name: str) -> int:
    step = step_in_name(name)
    return -1 if step is None else step


def _is_weights(name: str) -> bool:
    """Whether a file in a directory that is called after a step holds weights; what is zipped may be samples."""
    if name.endswith(".zip"):
        return _OF_TRAINING.search(name) is not None
    return name.endswith(_WEIGHT_FILES) or name in _OF_TENSOR_STORES

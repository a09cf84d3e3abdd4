"""Makes the files of a tree in tests/data/reports/trees, and what is left of it when a save, a copy or a removal was
cut short.

A tree has the files of one checkpoint directory in the order in which they are finished, each with what is in it:

- a number: so many bytes of whatever files of this name have: tensors with a header in `.safetensors`, an archive of
  `torch.save` in `.pt`, `.pth`, `.bin`, `.pkl` and `.ckpt`
- a text
- `bytes: HEX` and `zeros: N`: these bytes, then so many zeros
- `state: {...}`: what `torch.save` wrote; a mapping `args` in it becomes a namespace
- `json: {...}`
- `index: [names]`: an index of weights that names these files
- `dcp: [names]`: what DCP calls tensors and values, and as its shards those beside it; or `dcp: {names: [...], shards:
  {name: bytes}}`

`{0..3}` in a name stands for a file of each number.
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.unit.checkpoint.recordings import ROOT, InMemory, StorageInfo, Written, archive, safetensors

from muster.node.checkpoint.listing import MAX_DEPTH, Listing, directories_at, no_sign

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_ARCHIVE = (".pt", ".pth", ".bin", ".pkl", ".ckpt")
_NEEDED = re.compile(
    r".*(?:\.distcp|\.safetensors|\.pt|\.pth|\.bin|\.pkl|\.ckpt|\.metadata|/metadata\.json|\.index\.json)\Z"
)
_TELLS_ITS_SIZE = (".distcp", ".safetensors", *_ARCHIVE)


class Deep(InMemory):
    """A file system in memory that lists as deep as it is asked to."""

    def listing(self, directory: str, sign: Callable[[], None] = no_sign, max_depth: int = MAX_DEPTH) -> Listing:
        found = super().listing(directory, sign)
        reached = {name: file for name, file in found.files.items() if name.count("/") < max_depth}
        return Listing(directory, reached, deeper=directories_at(found.files, max_depth))


def written(tree: Mapping[str, Any]) -> Written:
    """The files of a tree with their contents, the first that was finished first."""
    spread = [(name, value) for path, value in tree.items() for name in _spread(path)]
    sizes = {name: value for name, value in spread if isinstance(value, int)}
    return [(name, _content(name, value, sizes)) for name, value in spread]


def _spread(path: str) -> Iterator[str]:
    found = _RANGE.search(path)
    if found is None:
        yield path
        return
    for number in range(int(found[1]), int(found[2]) + 1):
        text = f"{number:0{len(found[1])}}"
        yield from _spread(path[: found.start()] + text + path[found.end() :])


def _content(name: str, value: Any, sizes: Mapping[str, int]) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int):
        if name.endswith(".safetensors"):
            return safetensors(value)
        return archive({}) if name.endswith(_ARCHIVE) else b"\1" * value
    if "bytes" in value or "zeros" in value:
        return bytes.fromhex(value.get("bytes", "")) + bytes(value.get("zeros", 0))
    if "state" in value:
        return archive({key: _inside(inner, key) for key, inner in value["state"].items()})
    if "json" in value:
        return json.dumps(value["json"]).encode()
    if "index" in value:
        files = [spread for one in value["index"] for spread in _spread(one)]
        return json.dumps({"metadata": {}, "weight_map": {f"w{i}": one for i, one in enumerate(files)}}).encode()
    told = value["dcp"] if isinstance(value["dcp"], dict) else {"names": value["dcp"]}
    place = name[: name.rindex("/") + 1] if "/" in name else ""
    beside = {
        one[len(place) :]: size for one, size in sizes.items() if one.startswith(place) and one.endswith(".distcp")
    }
    shards = told.get("shards", {path: size for path, size in beside.items() if "/" not in path})
    return pickle.dumps([told["names"], [StorageInfo(path, 0, size) for path, size in shards.items()]], protocol=4)


def _inside(value: Any, key: str) -> Any:
    return argparse.Namespace(**value) if key == "args" else value


def broken(files: Written, path: str, dispensable: str) -> Iterator[tuple[str, Written]]:
    """The same with one file of a checkpoint missing, or one that tells its size shorter by a byte, and what was done.

    Args:
        path: of the checkpoint.
        dispensable: a pattern of files that the framework does without when it loads; "" = there are none.
    """
    for name, content in files:
        if not (name == path or name.startswith(path + "/")) or not _NEEDED.match(name):
            continue
        if dispensable and re.search(dispensable, name):
            continue
        yield f"{name} is missing", [item for item in files if item[0] != name]
        if name.endswith(_TELLS_ITS_SIZE):
            yield f"{name} is cut short", [(one, content[:-1] if one == name else data) for one, data in files]


def begun(files: Written, path: str, dispensable: str) -> Iterator[tuple[str, Written]]:
    """The same as far as a save had come that was stopped before a file that it needs, and where that was.

    Args:
        path: of the checkpoint.
        dispensable: as above.
    """
    for number, (name, _) in enumerate(files):
        is_inside = name == path or name.startswith(path + "/")
        if is_inside and _NEEDED.match(name) and not (dispensable and re.search(dispensable, name)):
            yield f"stopped before {name}", files[:number]


def place(path: str) -> str:
    """A path as it is told, by where it lies in a tree."""
    return f"{ROOT}/{path}" if path else ROOT

"""`muster-checkpoint.json`: the marker that a trainer of any framework can rename into a checkpoint last.

Tests: tests/unit/checkpoint/test_find.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping

from muster.node.checkpoint.untrusted_json import parse_json
from muster.protocol.messages import MAX_NUMBER

MANIFEST_NAME = "muster-checkpoint.json"


class ManifestError(ValueError):
    """The manifest lacks something that it needs; the message names the field."""


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The step, and the exact size in bytes of each file by its path relative to the checkpoint."""

    step: int
    sizes: Mapping[str, int]


def parse_manifest(data: bytes) -> Manifest:
    """Parse `{"step": 40, "files": [{"path": "model.bin", "bytes": 123}]}`; more keys are allowed.

    Raises:
        ManifestError: the data is incomplete, of another shape, or has a path that leaves the checkpoint.
    """
    try:
        document = parse_json(data)
    except ValueError as error:
        raise ManifestError("not JSON: %s" % error) from error
    if not isinstance(document, dict):
        raise ManifestError("an object is expected")
    files = document.get("files")
    if not isinstance(files, list):
        raise ManifestError("files: a list is expected")
    sizes = {}
    for i, item in enumerate(files):
        if not isinstance(item, dict) or not isinstance(item.get("path"), str):
            raise ManifestError("files[%d].path: a string is expected" % i)
        sizes[_inside(item["path"], i)] = _natural(item.get("bytes"), "files[%d].bytes" % i)
    step = _natural(document.get("step"), "step")
    if step > MAX_NUMBER:
        raise ManifestError("step: %d is larger than a report can hold" % step)
    return Manifest(step, sizes)


def _natural(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ManifestError("%s: a whole number of 0 or more is expected" % where)
    return value


def _inside(path: str, i: int) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts or not parts:
        raise ManifestError("files[%d].path: %r is not a path inside the checkpoint" % (i, path))
    return "/".join(parts)

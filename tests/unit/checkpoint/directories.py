"""Directories of checkpoints with a manifest, many of them, and checkpoints of many shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from bench import dcp_files
from tests.unit.checkpoint.recordings import START_NS, InMemory, complete

from muster.node.checkpoint import find
from muster.node.checkpoint.find import Finder


def write(directory: Path, name: str, step: int, changes: Mapping[str, object] | None = None) -> Path:
    target = directory / name
    (target / "shards").mkdir(parents=True)
    (target / "shards" / "model.bin").write_bytes(b"x" * 10)
    manifest = {"step": step, "files": [{"path": "shards/model.bin", "bytes": 10}], "more": "is allowed"}
    (target / "muster-checkpoint.json").write_text(json.dumps({**manifest, **(changes or {})}))
    return target


def assert_that_directories_cost_a_few_looks(directory: Path, count: int) -> None:
    bound = 18 * find.MAX_EXAMINED
    assert count > bound
    for step in range(count):
        (directory / f"step-{step}").mkdir()
    write(directory, "step-20000", 20_000)
    finder = Finder(str(directory))
    assert [checkpoint.step for checkpoint in finder.find()] == [20_000]
    assert finder.looks < bound


def assert_that_shards_are_one_checkpoint(count: int) -> None:
    tensors = dcp_files.sharded(1, count, rows=1, columns=1)
    (pieces,) = tensors.values()
    content = bytes(pieces[0].length)
    files = InMemory([("step-500/.metadata", dcp_files.metadata_of(tensors))])
    for piece in pieces:
        files.put(f"step-500/{piece.shard}", content, at_ns=START_NS)
    assert complete(files) == [(500, "step-500")]
    files.put(f"step-500/__{count * 7 // 9}_0.distcp", content[:-1], at_ns=START_NS)
    assert complete(files) == []

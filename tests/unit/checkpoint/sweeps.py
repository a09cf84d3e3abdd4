"""What the gate tries a few times, and the nightly tests many times over."""

from __future__ import annotations

import contextlib
import pickletools
import random
from unittest.mock import patch

import pytest
from bench import dcp_files
from tests.unit.checkpoint import objects
from tests.unit.checkpoint.objects import URL, Objects
from tests.unit.checkpoint.recordings import InMemory, complete, incomplete
from tests.unit.checkpoint.saves import Save

from muster.node.checkpoint import dcp as walk
from muster.node.checkpoint.dcp import MetadataError, shard_sizes

Tensors = dict[str, list[dcp_files.Piece]]


def among(files: InMemory, save: Save) -> bool:
    """Whether the save is found complete."""
    for path, content in save.lasting:
        files.put(path, content, at_ns=1)
    return save.found in complete(files)


def assert_that_torn_it_is_never_complete(save: Save, times: int) -> None:
    for whole, files in incomplete(save.written, seed=1, times=times):
        assert not among(files, save) or save.needed <= whole, files.contents.keys()


def judge_any_bytes_and_names(save: Save, times: int) -> None:
    """No error comes of it."""
    chance = random.Random(7)
    for _ in range(times):
        files = InMemory(save.written)
        for _ in range(chance.choice((1, 1, 3))):
            spoil(files, chance)
        complete(files)


def spoil(files: InMemory, chance: random.Random) -> None:
    """One file changed, replaced, renamed, or written twice over."""
    path = chance.choice(list(files.contents))
    content = files.contents[path]
    what = chance.randrange(4)
    if what == 0 and content:
        data = bytearray(content)
        for _ in range(chance.choice((1, 5, 100))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        files.contents[path] = bytes(data)
    elif what == 1:
        files.contents[path] = chance.randbytes(chance.randrange(300))
    elif what == 2:
        name = path + chance.choice(("\udcff", "x", ".tmp", "/y"))
        files.contents[name], files.times[name] = files.contents.pop(path), files.times.pop(path)
    else:
        files.contents[path] = content * 2


def assert_that_late_objects_are_not_complete_too_early(save: Save, seeds: int) -> None:
    """Where a store shows objects late and in any order."""
    for seed in range(seeds):
        shown = list(range(len(save.written)))
        random.Random(seed).shuffle(shown)
        for count in range(len(shown) + 1):
            store = Objects()
            for path, content in save.lasting:
                store.put(f"run-7/{path}", content)
            for place, (path, content) in enumerate(save.written):  # written in order, and each with its time
                store.put(f"run-7/{path}", content)
                if place not in shown[:count]:
                    del store.infos[f"bucket/run-7/{path}"]
            there = {save.written[place][0] for place in shown[:count]}
            step, path = save.found
            is_found = (step, f"{URL}/{path}") in objects.found(objects.finder_of(store))
            assert is_found <= (save.needed <= there), (seed, sorted(there))
        assert is_found


def assert_that_metadata_that_ends_early_is_refused(data: bytes, every: int) -> None:
    for length in range(0, len(data), every):
        with pytest.raises(MetadataError):
            shard_sizes(data[:length])


def assert_that_a_changed_byte_is_read_or_refused(metadata: bytes, every: int) -> None:
    data = bytearray(metadata)
    for place in range(0, len(data), every):
        right, data[place] = data[place], (data[place] * 7 + place) % 256
        with contextlib.suppress(MetadataError):
            assert shard_sizes(bytes(data))
        data[place] = right


def of_frames_that_end_within_pieces(ranks: int) -> Tensors:
    return {
        f"tensor-{place}": [
            dcp_files.Piece((rank, 0), (8, 70000), f"__{rank}_0.distcp", place * 3_000_000_000, 3_000_000_000 + rank)
            for rank in range(ranks)
        ]
        for place in range(3)
    }


def assert_that_all_sizes_are_read(tensors: Tensors) -> None:
    needed: dict[str, int] = {}
    for piece in (piece for pieces in tensors.values() for piece in pieces):
        needed[piece.shard] = max(needed.get(piece.shard, 0), piece.offset + piece.length)
    assert shard_sizes(dcp_files.metadata_of(tensors)) == needed


def assert_that_a_piece_costs_a_few_turns(tensors: int, ranks: int) -> None:
    """And not one for each opcode."""
    metadata = dcp_files.metadata_of(dcp_files.sharded(tensors, ranks))
    turns: list[int] = []
    with patch.object(walk, "_TURNS_BETWEEN_SIGNS", 1):
        shard_sizes(metadata, lambda: turns.append(1))
    assert len(list(pickletools.genops(metadata))) > 40 * tensors * ranks
    assert len(turns) < 5 * tensors * ranks

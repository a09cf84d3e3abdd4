"""Saves on a real file system, with what no file system in memory has: links, pipes, names of any bytes, lengths
without content."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.unit.checkpoint.recordings import START_NS
from tests.unit.checkpoint.saves import Save

from muster.node.checkpoint.find import Finder, ScanOptions

Spoil = Callable[[Path, random.Random], None]
TARGETS = (".", "..", "/", "round", "gone", "/dev/zero")
NAMES = ("round", "latest", ".metadata", "last.ckpt", "step-900", "checkpoint-900", "ep1-ba900-rank0.pt")
ENDINGS = (b"\xff", b".tmp", b" ", b"\n", b"-old", b"x" * 200)


def removed(path: Path, _chance: random.Random) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def renamed(path: Path, chance: random.Random) -> None:
    path.rename(os.fsdecode(os.fsencode(path) + chance.choice(ENDINGS)))


def replaced(path: Path, chance: random.Random) -> None:
    removed(path, chance)
    chance.choice((Path.mkdir, os.mkfifo, lambda place: place.symlink_to(place.name)))(path)


def with_a_link_beside(path: Path, chance: random.Random) -> None:
    (path.parent / chance.choice(NAMES)).symlink_to(chance.choice(TARGETS))


def emptied(path: Path, _chance: random.Random) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def dated(path: Path, chance: random.Random) -> None:
    moment = chance.choice((0, 1, 2**62))
    os.utime(path, ns=(moment, moment))


LOSING: tuple[Spoil, ...] = (removed, renamed, replaced)
OTHERS: tuple[Spoil, ...] = (with_a_link_beside, emptied, dated)


def assert_that_spoiled_it_is_not_complete(save: Save, directory: Path, seeds: int) -> None:
    """Whatever becomes of it the answer is one, and nothing that lacks a file is complete."""
    for seed in range(seeds):
        chance, root = random.Random(seed), directory / str(seed)
        for number, (path, content) in enumerate([*save.lasting, *save.written]):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(content)
            os.utime(root / path, ns=(START_NS + number * 10**8,) * 2)
        lost = chance.choice(sorted(save.needed))
        chance.choice(LOSING)(root / lost, chance)
        others = [path for path in sorted(root.rglob("*")) if path.is_file()]
        for path in chance.sample(others, min(2, len(others))):
            with contextlib.suppress(FileExistsError):
                chance.choice(OTHERS)(path, chance)
        *_, found = Finder(str(root)).scan(ScanOptions(stamps=True))
        told = [found.warning, found.trap, found.note, *(one.path for one in found.checkpoints)]
        assert all(text.encode() is not None for text in told)
        assert str(root / save.found[1]) not in told, (seed, lost)

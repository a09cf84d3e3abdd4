"""Checkpoints that frameworks wrote, as `data/*.tar.xz`: the files of one save in the order in which they were
finished.

They are played into a file system in memory: as far as the writer had come at some moment, or incomplete at random.
"""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from muster.node.checkpoint.find import Finder, ScanOptions
from muster.node.checkpoint.formats.base import Format
from muster.node.checkpoint.formats.table import FORMATS
from muster.node.checkpoint.listing import MAX_DEPTH, MAX_ENTRIES, Children, File, Files, Listing, Status, no_sign

DATA = Path(__file__).parent / "data"
ROOT = "/ckpt"
START_NS = 1_700_000_000_000_000_000
BETWEEN_NS = 100_000_000

Written = list[tuple[str, bytes]]
"""Paths below the checkpoint directory with contents, the first that was finished first."""


def recorded(name: str) -> Written:
    """What a framework wrote; without line ends at the end of text, which nobody misses."""
    with tarfile.open(DATA / f"{name}.tar.xz") as archive:
        written = [(item.name, archive.extractfile(item).read()) for item in archive]
    return [(path, content.rstrip() if path.endswith(".json") else content) for path, content in written]


class StorageInfo:
    """What DCP says of a piece of a tensor."""

    def __init__(self, path: str | bytes, offset: int, length: int) -> None:
        self.relative_path, self.offset, self.length = path, offset, length


class InMemory(Files):
    """A file system; times are in the order in which files are put."""

    def __init__(self, written: Written = ()) -> None:
        self.contents: dict[str, bytes] = {}
        self.times: dict[str, int] = {}
        self.links: dict[str, str] = {}
        for path, content in written:
            self.put(path, content)

    def put(self, path: str, content: bytes, at_ns: int | None = None) -> None:
        self.contents[f"{ROOT}/{path}"] = content
        self.times[f"{ROOT}/{path}"] = START_NS + BETWEEN_NS * len(self.times) if at_ns is None else at_ns

    def status(self, path: str) -> Status | None:
        if path in self.contents:
            return Status(1, len(self.contents[path]), self.times[path])
        below = [name for name in self.contents if name.startswith(path + "/")]
        return Status(2, len(below), max(self.times[name] for name in below)) if below else None

    def children(
        self, directory: str, is_wanted: Callable[[str], bool], _sign: Callable[[], None] = no_sign
    ) -> Children:
        inner = [name[len(directory) + 1 :] for name in self.contents if name.startswith(directory + "/")]
        return Children(
            sorted({name.partition("/")[0] for name in inner if "/" in name}),
            sorted(name for name in inner if "/" not in name and is_wanted(name)),
        )

    def listing(self, directory: str, _sign: Callable[[], None] = no_sign, _max_depth: int = MAX_DEPTH) -> Listing:
        prefix = directory + "/"
        names = [name for name in self.contents if name.startswith(prefix)]
        there = {name[len(prefix) :]: File(len(self.contents[name]), self.times[name]) for name in names}
        return Listing(directory, there, truncated=len(there) > MAX_ENTRIES)

    def content(self, path: str, _sign: Callable[[], None] = no_sign) -> bytes:
        if path not in self.contents:
            raise FileNotFoundError(path)
        return self.contents[path]

    def link(self, path: str) -> str | None:
        return self.links.get(path)

    def part(self, path: str, start: int, length: int, _sign: Callable[[], None] = no_sign) -> bytes:
        return self.content(path)[start : start + length]


def finder_of(files: Files, formats: Sequence[Format] = FORMATS) -> Finder:
    """A finder for whom waiting takes no time."""
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    return Finder(ROOT, now=lambda: clock[0], files=files, pause=pause, formats=formats)


def complete(files: Files) -> list[tuple[int, str]]:
    """Step and path of what is found complete, the newest first."""
    return [(one.step, one.path.removeprefix(ROOT + "/")) for one in finder_of(files).find()]


def told(files: Files) -> str:
    """Why the newest that is not complete is not."""
    finder = finder_of(files)
    list(finder.scan(ScanOptions()))
    return next((verdict.problem for verdict in finder._verdicts.values() if verdict.problem), "")


def prefixes(written: Written, cuts: int = 4) -> Iterator[tuple[set[str], InMemory]]:
    """Each moment of the save: which files are whole, and what is there."""
    for count, (path, content) in enumerate(written):
        for cut in sorted({len(content) * part // cuts for part in range(cuts)} | {max(0, len(content) - 1)}):
            before = written[:count]
            yield {name for name, _ in before}, InMemory([*before, (path, content[:cut])])
    yield {name for name, _ in written}, InMemory(written)


def incomplete(written: Written, seed: int, times: int) -> Iterator[tuple[set[str], InMemory]]:
    """Any of the files in any order, some cut short at random: which are whole, and what is there."""
    chance = random.Random(seed)
    for _ in range(times):
        kept = [item for item in written if chance.random() < 0.9]
        chance.shuffle(kept)
        whole, there = set(), []
        for path, content in kept:
            cut = chance.randrange(len(content)) if content and chance.random() < 0.1 else len(content)
            there.append((path, content[:cut]))
            whole |= {path} if cut == len(content) else set()
        yield whole, InMemory(there)


def archive(state: object, name: str = "archive") -> bytes:
    """As torch.save writes it: stored, the pickle first, and something behind that stands for tensors."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as packed:
        packed.writestr(f"{name}/data.pkl", pickle.dumps(state, protocol=2))
        packed.writestr(f"{name}/data/0", bytes(200))
    return stream.getvalue()


def safetensors(size: int = 64) -> bytes:
    header = json.dumps({"weight": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(size)

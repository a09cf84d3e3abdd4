"""What a tenant may put in the place of any file of a checkpoint, and what a scan has to make of it."""

from __future__ import annotations

import os
import random
import shutil
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.unit.checkpoint.recordings import START_NS
from tests.unit.checkpoint.saves import SAVES, Save

from muster.node.checkpoint.find import Finder, Found, ScanOptions
from muster.node.checkpoint.verdict import Verdict

Place = Callable[[Path], object]
DEEP = 200_000


def contains(content: bytes) -> Place:
    return lambda path: path.write_bytes(content)


def of_length(size: int) -> Place:
    def place(path: Path) -> None:
        path.touch()
        os.truncate(path, size)

    return place


def as_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            one.bind(f"/proc/self/fd/{directory}/{path.name}")
        finally:
            os.close(directory)


PLACES: dict[str, Place] = {
    "nested lists": contains(b"[" * DEEP + b"]" * DEEP),
    "nested objects": contains(b'{"step":' * DEEP + b"0" + b"}" * DEEP),
    "nested in a field": contains(b'{"step": 5, "files": ' + b"[" * DEEP + b"]" * DEEP + b"}"),
    "a number of 5,000 digits": contains(b'{"step": ' + b"9" * 5000 + b', "files": [], "global_step": 1}'),
    "a text number of 5,000 digits": contains(b"9" * 5000),
    "NaN": contains(b'{"step": NaN, "files": [], "global_step": NaN}'),
    "infinity": contains(b'{"step": 1e999, "files": [], "global_step": 1e999, "eras": [[1e999, "", 0]]}'),
    "wrong types": contains(b'{"step": [], "files": {"path": 1}, "global_step": {}, "weight_map": [], "eras": 5}'),
    "no UTF-8": contains(b"\xff\xfe\x00\xc3" * 100),
    "half a surrogate": contains(b'{"step": 5, "files": [{"path": "\\ud800", "bytes": 1}]}'),
    "nothing": contains(b""),
    "zeros": of_length(100_000),
    "3 GiB without content": of_length(3 * 1024**3),
    "copies of a field's name": contains(b"\x80\x04" + b"\x8c\x0drelative_path\x94" * 100_000 + b"."),
    "a decimal of a million digits": contains(b"\x80\x02I" + b"9" * 1_000_000 + b"\n."),
    "a directory": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a socket": as_socket,
    "a link round": lambda path: path.symlink_to(path.name),
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to nothing": lambda path: path.symlink_to("gone"),
    "a link to where it lies": lambda path: path.symlink_to("."),
}


def lay(save: Save, root: Path) -> list[Path]:
    """Write a save, and a whole one of another format below its step."""
    paths = []
    for number, (path, content) in enumerate([*save.lasting, *save.written]):
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        os.utime(target, ns=(START_NS + number * 10**8,) * 2)
        paths.append(target)
    other = root / "other"
    other.mkdir()
    (other / "muster-checkpoint.json").write_bytes(b'{"step": 0, "files": []}')
    return paths


def scan(root: Path) -> Found:
    """Look through all of it; the checkpoint that nobody has touched has to be found."""
    found = Found((), done=False)
    for found in Finder(str(root), pause=lambda _: None, settle_seconds=0.0).scan(ScanOptions(stamps=True, limit=64)):  # noqa: B007
        pass
    assert str(root / "other") in [one.path for one in found.checkpoints]
    for text in (found.note, found.warning, found.trap):
        assert text.isprintable()
    return found


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Change some bytes, drop some, repeat some, or put a piece of another file in."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 2, 8, 64))):
        at = chance.randrange(len(changed) + 1)
        kind = chance.randrange(5)
        if kind == 0:
            changed[at : at + 1] = bytes([chance.randrange(256)])
        elif kind == 1:
            del changed[at : at + chance.choice((1, 7, 300))]
        elif kind == 2:
            changed[at:at] = changed[at : at + chance.choice((1, 9, 200))] * chance.choice((1, 3, 40))
        elif kind == 3:
            save = SAVES[chance.choice(sorted(SAVES))]
            other = chance.choice(save.written)[1]
            start = chance.randrange(len(other) + 1)
            changed[at:at] = other[start : start + 200]
        else:
            changed[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x8a\xff", b"[[[[", b"9" * 40))
    return bytes(changed)


def assert_that_no_content_ends_the_scan(save: Save, directory: Path, kinds: Iterable[str] = PLACES) -> None:
    for number, kind in enumerate(kinds):
        root = directory / str(number)
        for path in lay(save, root):
            if path.relative_to(root).as_posix() not in save.needed:
                continue
            kept = path.with_name("kept")
            path.rename(kept)
            PLACES[kind](path)
            found = scan(root)
            hit = [one.path for one in found.checkpoints if one.path == str(root / save.found[1])]
            assert not hit or kind in ("zeros", "nothing"), (kind, path)
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            kept.rename(path)
        shutil.rmtree(root)


def mutate_one_file_and_scan(name: str, root: Path, times: int) -> None:
    chance = random.Random(name)
    paths = lay(SAVES[name], root)
    whole = [path.read_bytes() for path in paths]
    for _ in range(times):
        place = chance.randrange(len(paths))
        paths[place].write_bytes(mutate(whole[place], chance))
        scan(root)
        paths[place].write_bytes(whole[place])


IN_THE_GATE = ("Hugging Face's Trainer, two ranks", "Megatron Core", "DLRover")
"""Formats of which the gate puts a link in the place of each file; the nightly tests take the others."""


def assert_that_no_message_repeats_what_is_outside(save: Save, directory: Path) -> None:
    """A launcher may read what whoever writes into the directory may not: keys and tokens of its container."""
    (directory / "key").write_text("S3CRET-OF-THE-CONTAINER\n")
    pointers = ("latest", "latest_universal", "latest_checkpointed_iteration.txt", "dlrover_latest.txt")
    written = [path for path, _ in (*save.lasting, *save.written)]
    for number, target in enumerate(dict.fromkeys([*written, *pointers])):
        root = directory / str(number)
        lay(save, root)
        path = root / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(directory / "key")
        verdicts: list[Verdict] = []
        finder = Finder(str(root), judged=verdicts.append, settle_seconds=0)
        answers = list(finder.scan(ScanOptions(stamps=True)))
        assert answers[-1].done
        assert "CRET-OF-THE" not in repr((answers, verdicts)), target

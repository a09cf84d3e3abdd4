"""What a tenant may put in the place of any file of a checkpoint, and what a scan has to make of it."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable
from pathlib import Path

from tests.unit.checkpoint.recordings import START_NS
from tests.unit.checkpoint.test_formats import SAVES, Save

from muster.node.checkpoint.find import Finder, Found, ScanOptions

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

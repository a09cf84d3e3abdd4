"""Finds which library of collectives the processes below a launcher have mapped, and reads its version out of the file.

This runs in a child. Memory maps of a process that is stuck in the kernel may hang, and so may the file's storage. NCCL
and RCCL name their version in their constants ("NCCL version 2.21.5+cuda12.4"); PyTorch may have them in a file of its
own.

Tests: tests/unit/launcher/test_collectives.py.
"""

from __future__ import annotations

import os
import re
import struct
from typing import BinaryIO, Dict, Iterator, List, Tuple

_LIBRARIES = (re.compile(r"/lib[nr]ccl\.so[.0-9]*$"), re.compile(r"/libtorch_(?:cuda|hip)\.so$"))
_VERSION = re.compile(rb"([NR]CCL) version :? ?([0-9]+(?:\.[0-9]+){1,3}[+.\-_0-9A-Za-z]{0,32})")
_MAX_PROCESSES = 4096
_MAX_MAPS_BYTES = 8 * 1024 * 1024
_MAX_SECTIONS = 4096
_MAX_READ_BYTES = 512 * 1024 * 1024
_PIECE_BYTES = 4 * 1024 * 1024
_OVERLAP_BYTES = 128
_PROGBITS, _WRITE, _ALLOC, _EXECUTE = 1, 1, 2, 4


def version_below(launcher: int, proc: str = "/proc") -> str:
    """The name and version of the library that a descendant of the launcher has loaded, e.g. `NCCL 2.21.5+cuda12.4`; ""
    = none.

    Args:
        launcher: pid of the launcher.
        proc: where the proc file system is mounted.
    """
    paths = set()
    for pid in _below(launcher, proc):
        paths.update(_mapped(os.path.join(proc, str(pid), "maps")))
    for kind in _LIBRARIES:  # one of its own goes before what is linked into another
        for path in sorted(path for path in paths if kind.search(path)):
            version = version_in(path)
            if version:
                return version
    return ""


def version_in(path: str) -> str:
    """The version that a library file names in its constants; "" where there is none, or the file cannot be read."""
    try:
        with open(path, "rb") as file:
            for begin, size in _constants(file):
                version = _search(file, begin, size)
                if version:
                    return version
    except (OSError, struct.error, ValueError):
        pass
    return ""


def _below(launcher: int, proc: str) -> List[int]:
    parents: Dict[int, int] = {}
    for name in os.listdir(proc):
        if name.isdigit() and len(parents) < _MAX_PROCESSES:
            try:
                with open(os.path.join(proc, name, "stat"), "rb") as file:
                    parents[int(name)] = int(file.read(4096).rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
    pids = {launcher}
    while True:
        more = {pid for pid, parent in parents.items() if parent in pids} - pids
        if not more:
            return sorted(pids - {launcher, os.getpid()})
        pids |= more


def _mapped(maps: str) -> List[str]:
    try:
        with open(maps, "rb") as file:
            text = file.read(_MAX_MAPS_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return []
    paths = {line.split(None, 5)[5] for line in text.splitlines() if len(line.split(None, 5)) == 6}
    return [path for path in paths if any(kind.search(path) for kind in _LIBRARIES)]


def _constants(file: BinaryIO) -> Iterator[Tuple[int, int]]:
    """The offset and length of each section of an ELF file that is loaded, and neither written nor executed."""
    head = file.read(64)
    if len(head) < 64 or head[:6] != b"\x7fELF\x02\x01":  # of 64 bits, little-endian
        return
    (table,) = struct.unpack_from("<Q", head, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", head, 0x3A)
    if size < 64 or not 0 < count <= _MAX_SECTIONS or names_at >= count:
        return
    file.seek(table)
    sections = file.read(size * count)
    _, _, _, _, names, length = struct.unpack_from("<IIQQQQ", sections, size * names_at)
    file.seek(names)
    text = file.read(min(length, 1024 * 1024))
    left = _MAX_READ_BYTES
    for place in range(count):
        name, kind, flags, _, begin, length = struct.unpack_from("<IIQQQQ", sections, size * place)
        is_constant = kind == _PROGBITS and flags & _ALLOC and not flags & (_WRITE | _EXECUTE)
        if is_constant and text[name : name + 7] == b".rodata" and left > 0:
            yield begin, min(length, left)
            left -= length


def _search(file: BinaryIO, begin: int, size: int) -> str:
    file.seek(begin)
    overlap = b""
    while size > 0:
        piece = file.read(min(size, _PIECE_BYTES))
        if not piece:
            break
        size -= len(piece)
        match = _VERSION.search(overlap + piece)
        if match:
            return "%s %s" % (match[1].decode(), match[2].decode())
        overlap = piece[-_OVERLAP_BYTES:]
    return ""

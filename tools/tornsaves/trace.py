"""What a program did to the files below one directory, read from strace's log, and played again up to any moment.

Contents are in the log, so a prefix is what a node would have found on a shared file system had the writer died there.
Whether the log has everything is known by playing all of it: the files have to be those that are there in the end.
"""

# ruff: noqa: PTH118, PTH123 - paths of another root, as text
from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

CALLS = (
    "open,openat,creat,write,writev,pwrite64,lseek,ftruncate,truncate,rename,renameat,renameat2,unlink,unlinkat,rmdir,"
    "mkdir,mkdirat,link,linkat,symlink,symlinkat,copy_file_range,sendfile"
)
MOST_BYTES = 64 * 1024 * 1024  # of one write
_LINE = re.compile(r"(\d+)\s+(\d+\.\d+) (.*)")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_CALL = re.compile(r"(\w+)\((.*)\)\s*= (-?\d+)(?:<([^>]*)>)?")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_DESCRIPTOR = re.compile(r"(?:\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>")


class Change(NamedTuple):
    """One change, in the order in which the kernel was through with them.

    Attributes:
        path: relative to the directory.
        other: the new name, or what a link leads to.
    """

    at: float
    what: str
    path: str
    other: str = ""
    offset: int = 0
    data: bytes = b""


def _decoded(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _calls(lines: Iterable[str]) -> Iterator[tuple[float, str, str, int, str]]:
    """Time, name, arguments, result and the path of a returned descriptor, of each call that succeeded."""
    begun: dict[str, str] = {}
    for line in lines:
        found = _LINE.match(line)
        if found is None:
            continue
        process, at, rest = found[1], float(found[2]), found[3].rstrip("\n")
        if rest.endswith("<unfinished ...>"):
            begun[process] = rest[: -len("<unfinished ...>")]
            continue
        resumed = _RESUMED.match(rest)
        if resumed is not None:
            rest = begun.pop(process, "") + resumed[1]
        call = _CALL.match(rest)
        if call is not None and int(call[3]) >= 0:
            yield at, call[1], call[2], int(call[3]), call[4] or ""


def changes(lines: Iterable[str], final: Mapping[str, bytes], *directories: str) -> list[Change]:
    """What was changed below the directory.

    Args:
        final: all files as they are in the end: what the kernel itself has copied stands in no log.
        directories: its names: as the kernel tells it of descriptors, and as the program calls it.

    Raises:
        ValueError: something was done that cannot be played again.
    """
    found: list[Change] = []
    positions: dict[str, int] = {}
    sizes: dict[str, int] = {}

    def relative(path: str) -> str | None:
        path = path.removesuffix(" (deleted)")
        return next((path[len(each) + 1 :] for each in directories if path.startswith(each + "/")), None)

    def note(at: float, what: str, path: str, other: str = "", offset: int = 0, data: bytes = b"") -> None:
        found.append(Change(at, what, path, other, offset, data))
        if what == "write":
            sizes[path] = max(sizes.get(path, 0), offset + len(data))
        elif what == "truncate":
            sizes[path] = offset

    for at, name, arguments, result, returned in _calls(lines):
        texts = [_decoded(each[1]) for each in _TEXT.finditer(arguments)]
        held = [_decoded(each[1]).decode("utf-8", "surrogateescape") for each in _DESCRIPTOR.finditer(arguments)]
        names = [_absolute(text, held) for text in texts]
        if name in ("open", "openat", "creat"):
            path = relative(_decoded(returned).decode("utf-8", "surrogateescape"))
            if path is None or "O_DIRECTORY" in arguments:
                continue
            is_new = path not in sizes and (name == "creat" or "O_CREAT" in arguments)
            if is_new or name == "creat" or "O_TRUNC" in arguments:
                note(at, "truncate", path)
            positions[path] = sizes.get(path, 0) if "O_APPEND" in arguments else 0
        elif name in ("write", "writev", "pwrite64", "lseek", "ftruncate", "copy_file_range", "sendfile"):
            path = relative(held[name == "copy_file_range"]) if held else None
            if path is None:
                continue
            if name in ("copy_file_range", "sendfile"):
                offset = positions.get(path, 0)
                if path not in final:
                    raise ValueError(f"{name} on {path}: its bytes are not in the log")
                note(at, "write", path, offset=offset, data=final[path][offset : offset + result])
                positions[path] = offset + result
            elif name == "lseek":
                positions[path] = result
            elif name == "ftruncate":
                note(at, "truncate", path, offset=int(arguments.rsplit(",", 1)[1]))
            else:
                offset = int(arguments.rsplit(",", 1)[1]) if name == "pwrite64" else positions.get(path, 0)
                note(at, "write", path, offset=offset, data=b"".join(texts)[:result])
                if name != "pwrite64":
                    positions[path] = offset + result
        elif name.startswith("rename"):
            path, other = relative(names[0]), relative(names[1])
            if path is None or other is None:
                continue
            note(at, "rename", path, other)
            for known in (positions, sizes):
                for each in [each for each in known if each == path or each.startswith(path + "/")]:
                    known[other + each[len(path) :]] = known.pop(each)
        elif name.startswith(("unlink", "rmdir", "mkdir")):
            path = relative(names[0])
            if path is not None:
                note(at, "mkdir" if name.startswith("mkdir") else "remove", path)
                sizes.pop(path, None)
        elif name.startswith(("link", "symlink")):
            path = relative(names[1])
            if path is not None:
                other = relative(names[0]) if name.startswith("link") else texts[0].decode()
                note(at, "link" if name.startswith("link") else "symlink", path, other or "")
    return found


def _absolute(text: bytes, held: list[str]) -> str:
    path = text.decode("utf-8", "surrogateescape")
    return path if path.startswith("/") or not held else os.path.normpath(os.path.join(held[0], path))


def play(done: Iterable[Change], target: Path) -> None:
    """Do it again below an empty directory; files get the time of their last change."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    times: dict[str, float] = {}
    for change in done:
        path = target / change.path
        times[change.path] = change.at
        if change.what == "mkdir":
            path.mkdir()
        elif change.what == "remove":
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
        elif change.what == "rename":
            path.rename(target / change.other)
            for each in [each for each in times if each == change.path or each.startswith(change.path + "/")]:
                times[change.other + each[len(change.path) :]] = times.pop(each)
        elif change.what == "link":
            os.link(target / change.other, path)
        elif change.what == "symlink":
            path.symlink_to(change.other)
        else:
            with open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b") as file:
                if change.what == "truncate":
                    file.truncate(change.offset)
                else:
                    file.seek(change.offset)
                    file.write(change.data)
    for name, at in times.items():
        if (target / name).is_file() and not (target / name).is_symlink():
            os.utime(target / name, (at, at))


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }

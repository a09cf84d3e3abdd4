"""The folder where everything slow is kept, so that a second clone on the same machine starts warm.

An entry is made in a temporary folder and renamed into place under a lock: a killed build leaves no half-made entry,
and two clones that want the same entry build it once. What changes with the sources keeps the entries used last alone.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_DIGEST_CHARACTERS = 16


def cache_root() -> Path:
    """The cache folder: $MUSTER_CACHE, else $XDG_CACHE_HOME/muster, else ~/.cache/muster."""
    explicit = os.environ.get("MUSTER_CACHE")
    if explicit:
        return Path(explicit).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache").absolute() / "muster"


def digest_of(parts: Iterable[bytes | str]) -> str:
    """A short digest of the parts in their order."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big"))
        whole.update(data)
    return whole.hexdigest()[:_DIGEST_CHARACTERS]


def digest_of_file(path: Path) -> str:
    """A short digest of one file's bytes, which may be large."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGEST_CHARACTERS]


@contextmanager
def locked(path: Path, *, shared: bool = False, waits: bool = True) -> Iterator[None]:
    """Hold the lock file `path`, alone or together with other `shared` holders; the kernel frees it when they die.

    Raises:
        BlockingIOError: another process holds it, and this one is not to wait.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if waits else fcntl.LOCK_NB))
        yield


def lock_of(entry: Path) -> Path:
    """The lock file of an entry, held by who makes or changes it."""
    return entry.with_name(entry.name + ".lock")


def make_once(target: Path, make: Callable[[Path], None]) -> Path:
    """Return the folder `target`, made by `make(empty folder)` unless it is there already."""
    if target.is_dir():
        return target
    with locked(lock_of(target)):
        if target.is_dir():
            return target
        for leftover in target.parent.glob(f"{target.name}.making-*"):
            shutil.rmtree(leftover)
        making = Path(tempfile.mkdtemp(prefix=f"{target.name}.making-", dir=target.parent))
        making.chmod(0o755)
        try:
            make(making)
            making.rename(target)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
    return target


def keep_newest(folder: Path, count: int, current: Path) -> None:
    """Remove the entries of `folder` but `current` and those used last, `count` in all; their times say when.

    An entry whose lock is held stays. Each gets another name first, so that a killed process leaves no half of it; what
    such a process left goes, too. Hold `prune.lock` shared to read an entry that others may remove.
    """
    with locked(folder / "prune.lock"):
        for dying in folder.glob("*.making-dying"):
            shutil.rmtree(dying)
        others = [path for path in folder.iterdir() if path.is_dir() and "." not in path.name and path != current]
        for old in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[count - 1 :]:
            with suppress(BlockingIOError), locked(lock_of(old), waits=False):
                shutil.rmtree(old.rename(old.with_name(old.name + ".making-dying")))

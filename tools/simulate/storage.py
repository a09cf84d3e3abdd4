"""The shared checkpoint directory of a job, file by file, as each node sees it: late, or not at all for a while.

A checkpoint is what PyTorch DCP writes: a shard of each rank, and `.metadata` last. A writer of a file stamps it by
its own clock. A node that lags sees each file late by a part of its lag that is the file's own, so that it may see the
marker before a shard.
"""

import functools
import itertools
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from muster.node.checkpoint.dcp import METADATA_NAME
from muster.node.checkpoint.listing import MAX_DEPTH, Children, File, Files, Listing, Status, no_sign
from muster.node.launcher.fence_file import FenceState
from simulate.clocks import START, WallClock

SHARD_BYTES = 4096
CLOCK_SECONDS = 0.5  # by which the clock of a node is ahead or behind at most
SOONEST = 0.2  # the least part of its lag by which a node sees a file late
_START_NS = int(START.timestamp()) * 10**9


@dataclass(eq=False, slots=True)
class Save:
    """One save, by the ranks of an attempt, maybe over what another has left.

    Attributes:
        ranks: how many of them there are.
        ahead_seconds: of the true time, by the clocks of those who write.
        written: ranks whose shards are there.
    """

    step: int
    attempt: int
    ranks: int
    ahead_seconds: float
    written: set[int] = field(default_factory=set)


class Version(NamedTuple):
    """What a path leads to from a moment on.

    Attributes:
        status: None: nothing.
        save: that wrote it.
    """

    at: float
    status: Status | None
    save: Save | None


@dataclass(slots=True)
class Folder:
    """The directory of one checkpoint, or of what a save that was cut short has left of one.

    Attributes:
        itself: what `files` are of each file, the oldest first.
    """

    path: str
    step: int
    itself: list[Version] = field(default_factory=list)
    files: dict[str, list[Version]] = field(default_factory=dict)


@dataclass
class Directory:
    """One directory.

    Attributes:
        node_clocks: whose clock is how wrong; another life has other ones.
        folders: by path; those that are gone are kept for nodes that see it late.
        lag_seconds: by node, how late it shows what others write; 0 where it is not named.
        stalls: nodes on which nothing that touches it ever ends.
        full: nothing can be written.
        lagged_at: when a node last ceased to show late what others write.
        changes: that have been made in it, counted.
    """

    path: str
    clock: WallClock
    node_clocks: int = 0
    folders: dict[str, Folder] = field(default_factory=dict)
    fence_file: tuple[int, str] = (0, "")
    lag_seconds: dict[str, float] = field(default_factory=dict)
    stalls: set[str] = field(default_factory=set)
    full: bool = False
    lagged_at: float = float("-inf")
    changes: int = 0
    _fence_file_before: tuple[tuple[int, str], float] = ((0, ""), float("-inf"))  # and until when it stood there
    _inodes: Iterator[int] = field(default_factory=lambda: itertools.count(100))

    # Who writes.

    def begin(self, step: int, attempt: int, ranks: int) -> Save:
        """A save begins: nothing of it is there yet."""
        return Save(step, attempt, ranks, self.clock.ahead_seconds)

    def write_shard(self, save: Save, rank: int, node: str, now: float) -> None:
        """A rank has written its part, over an older one in place."""
        self._write(save, shard_name(rank), SHARD_BYTES, node, now)
        save.written.add(rank)

    def write_metadata(self, save: Save, node: str, now: float) -> None:
        """All parts are there, and the first rank says so: it renames the marker into its place."""
        self._write(save, METADATA_NAME, len(metadata_of(save.ranks)), node, now, renames=True)

    def remove(self, path: str, now: float) -> None:
        self.changes += 1
        folder = self.folders[path]
        for versions in (folder.itself, *folder.files.values()):
            versions.append(Version(now, None, None))

    def lose_shard(self, path: str, rank: int, now: float) -> None:
        """A checkpoint loses a part, and keeps its marker."""
        self.changes += 1
        folder = self.folders[path]
        folder.files[shard_name(rank)].append(Version(now, None, None))
        self._rename(folder, self._stamp("", self.clock.ahead_seconds, now), now)

    def claim(self, attempt: int, identity: str, now: float) -> FenceState:
        """Write an attempt into the fence file, unless a later one stands there; writers see it as it is."""
        if self.full:
            return FenceState(
                self.fence_file[0], self.fence_file[1], "cannot write the fence file: no space left on device"
            )
        if attempt > self.fence_file[0]:
            self._fence_file_before = self.fence_file, now
            self.fence_file = attempt, self.fence_file[1] or identity
        return FenceState(*self.fence_file)

    # Who looks.

    def lags(self, since: float) -> bool:
        """Whether any node has shown late what others write, at any moment since then."""
        return bool(self.lag_seconds) or self.lagged_at >= since

    def path_of(self, step: int) -> str:
        return f"{self.path}/step-{step}"

    def whole(self) -> dict[str, Save]:
        """The complete checkpoints as they truly are: the last save of each, by path."""
        found = {path: self._of_one_save(folder, _last) for path, folder in self.folders.items()}
        return {path: save for path, save in found.items() if save is not None}

    def saved_last(self, path: str) -> Save | None:
        """What is complete there; None: nothing."""
        folder = self.folders.get(path)
        return None if folder is None else self._of_one_save(folder, _last)

    def was_complete(self, step: int, since: float) -> bool:
        """Whether the checkpoint of a step has been complete at any moment since then."""
        folder = self.folders.get(self.path_of(step))
        if folder is None:
            return False
        changes = {version.at for versions in (folder.itself, *folder.files.values()) for version in versions}
        moments = [since, *(at for at in changes if at > since)]
        return any(self._of_one_save(folder, functools.partial(_at, moment)) is not None for moment in moments)

    def newest_shown(self, node: str, then: float, besides: Mapping[str, Save] = MappingProxyType({})) -> int:
        """The step of the newest that a node saw completely then, and that has been as it is since; 0 for none.

        Args:
            node: that looks.
            then: when it looked.
            besides: saves that do not count, by path.
        """

        def seen(versions: list[Version], path: str) -> Version | None:
            return self.version(versions, path, node, then)

        for folder in sorted(self.folders.values(), key=lambda folder: -folder.step):
            save = self._of_one_save(folder, _last)
            if save is None or save is besides.get(folder.path):
                continue
            if self._of_one_save(folder, seen) is save:
                return folder.step
        return 0

    def version(self, versions: list[Version], path: str, node: str, now: float) -> Version | None:
        """What of a path a node sees; None: nothing."""
        lag_seconds = self.lag_seconds.get(node)
        then = now - lag_seconds * max(SOONEST, _part(node, path)) if lag_seconds else now
        return _at(then, versions, path)

    def fence_file_seen_from(self, node: str, now: float) -> FenceState:
        before, until = self._fence_file_before
        attempt, identity = before if now - self.lag_seconds.get(node, 0.0) < until else self.fence_file
        return FenceState(attempt, identity)

    # Within.

    def _of_one_save(self, folder: Folder, seen: Callable[[list[Version], str], Version | None]) -> Save | None:
        """The save of which all is there."""
        if seen(folder.itself, folder.path) is None:
            return None
        marker = seen(folder.files.get(METADATA_NAME, []), f"{folder.path}/{METADATA_NAME}")
        save = marker.save if marker is not None else None
        for rank in range(save.ranks if save is not None else 0):
            name = shard_name(rank)
            shard = seen(folder.files.get(name, []), f"{folder.path}/{name}")
            if shard is None or shard.save is not save:
                return None
        return save

    def _write(self, save: Save, name: str, size: int, node: str, now: float, *, renames: bool = False) -> None:
        self.changes += 1
        path = self.path_of(save.step)
        folder = self.folders.setdefault(path, Folder(path, save.step))
        versions, stamp = folder.files.setdefault(name, []), self._stamp(node, save.ahead_seconds, now)
        before = versions[-1].status if versions else None
        inode = next(self._inodes) if before is None or renames else before.inode
        versions.append(Version(now, Status(inode, size, stamp), save))
        if before is None or renames:
            self._rename(folder, stamp, now)

    def _rename(self, folder: Folder, stamp: int, now: float) -> None:
        """Other names are in it, or others in their place."""
        before = folder.itself[-1].status if folder.itself else None
        inode = before.inode if before is not None else next(self._inodes)
        folder.itself.append(Version(now, Status(inode, 4096, stamp), None))

    def _stamp(self, node: str, ahead_seconds: float, now: float) -> int:
        wrong_seconds = CLOCK_SECONDS * (2 * _part(str(self.node_clocks), node) - 1) if node else 0.0
        return _START_NS + int((now + ahead_seconds + wrong_seconds) * 1e9)


class SimulatedFiles(Files):
    """A directory as one node sees it."""

    def __init__(self, directory: Directory, node: str, now: Callable[[], float]) -> None:
        self._directory = directory
        self._node = node
        self._now = now

    def free_bytes(self, _directory: str) -> int | None:
        """Nobody knows."""
        return None

    def status(self, path: str) -> Status | None:
        """What is there; None: nothing."""
        found = self._version(path)
        return None if found is None else found.status

    def children(
        self, directory: str, is_wanted: Callable[[str], bool], _sign: Callable[[], None] = no_sign
    ) -> Children:
        """Names of the checkpoints' directories, of which none is a single file; of one of them, names of its files.

        Raises:
            FileNotFoundError: there is no such directory.
        """
        if directory != self._directory.path:
            if self.status(directory) is None:
                raise FileNotFoundError(directory)
            names = filter(is_wanted, self._directory.folders[directory].files)
            return Children([], [name for name in names if self.status(f"{directory}/{name}") is not None])
        now, node, version = self._now(), self._node, self._directory.version
        there = (path for path, folder in self._directory.folders.items() if version(folder.itself, path, node, now))
        return Children([path.rpartition("/")[2] for path in there], [])

    def listing(self, directory: str, _sign: Callable[[], None] = no_sign, _max_depth: int = MAX_DEPTH) -> Listing:
        found = {}
        for name in self._directory.folders[directory].files:
            status = self.status(f"{directory}/{name}")
            if status is not None:
                found[name] = File(status.size_bytes, status.modified_ns)
        return Listing(directory, found)

    def content(self, path: str, _sign: Callable[[], None] = no_sign) -> bytes:
        """Of a marker: nobody reads a shard."""
        found = self._version(path)
        if found is None or found.save is None:
            raise FileNotFoundError(path)
        return metadata_of(found.save.ranks)

    def _version(self, path: str) -> Version | None:
        folder = self._directory.folders.get(path)
        if folder is not None:
            versions: list[Version] | None = folder.itself
        else:
            parent, _, name = path.rpartition("/")
            folder = self._directory.folders.get(parent)
            versions = None if folder is None else folder.files.get(name)
        return self._directory.version(versions, path, self._node, self._now()) if versions else None


@dataclass
class _StorageInfo:
    """What DCP says of a piece of a tensor."""

    relative_path: str
    offset: int
    length: int


def shard_name(rank: int) -> str:
    return f"__{rank}_0.distcp"


@functools.cache
def metadata_of(ranks: int) -> bytes:
    """The content of a marker, as far as anybody reads it: two tensors, of each of which every rank has a half."""
    half = SHARD_BYTES // 2
    pieces = [_StorageInfo(shard_name(rank), half * n, half) for rank in range(ranks) for n in range(2)]
    return pickle.dumps({"storage_data": dict(enumerate(pieces))}, protocol=4)


@functools.lru_cache(maxsize=65536)
def _part(of: str, name: str) -> float:
    """A number from 0 to 1 that is always the same for these two."""
    return zlib.crc32(f"{of} {name}".encode()) / 2**32


def _last(versions: list[Version], path: str) -> Version | None:
    return _at(float("inf"), versions, path)


def _at(moment: float, versions: list[Version], _path: str) -> Version | None:
    for version in reversed(versions):
        if version.at <= moment:
            return None if version.status is None else version
    return None

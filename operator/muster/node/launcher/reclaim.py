"""Ends every process that the ranks left behind, and removes what they left in /dev/shm.

Ranks double-fork, call setsid, ignore SIGTERM or are stopped; data loaders survive their parent. As child subreaper the
launcher inherits all orphans, so everything that ever came from a rank is below it in the process tree. Only SIGKILL is
sent: a rank that is stuck in a collective ignores SIGTERM, and frameworks save on it.

Tests: tests/unit/launcher/test_ending.py, tests/unit/launcher/test_pure.py.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import re
import signal
from typing import Dict, FrozenSet, Iterable, Iterator, List, Set, Tuple

MARK = "MUSTER_LAUNCHER_MARK"  # in the environment of every rank; finds orphans where there is no subreaper

_PR_SET_CHILD_SUBREAPER = 36
_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - where libraries put it, not a temporary file of ours
_LEFTOVER = re.compile(r"(?:torch_|nccl-|sem\.)")
_TORCH_OWNER = re.compile(r"torch_(\d+)_")


@dataclasses.dataclass(frozen=True)
class Process:
    """A process, identified by its pid and its start time in clock ticks, so that a later one with the same pid
    differs."""

    pid: int
    parent: int
    start_ticks: int
    group: int = 0  # 0 = not known
    session: int = 0


def become_subreaper() -> bool:
    """Ask the kernel to give orphans to this process; False where that is not possible."""
    if os.getpid() == 1:
        return True
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def reap() -> Dict[int, int]:
    """Reap every child that has ended, adopted orphans too; their wait statuses by pid."""
    ended: Dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def is_childless() -> bool:
    """Whether this process has no child, not even a zombie; a subreaper then has no descendant either."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def descendants(root: int) -> List[Process]:
    """Every process below the process `root` in the process tree: zombies included, `root` excluded."""
    children: Dict[int, List[Process]] = {}
    for process in _processes():
        children.setdefault(process.parent, []).append(process)
    processes: List[Process] = []
    seen: Set[int] = {root}
    pending = [root]
    while pending:
        for child in children.get(pending.pop(), ()):
            if child.pid not in seen:
                seen.add(child.pid)
                processes.append(child)
                pending.append(child.pid)
    return processes


def marked(mark: str) -> List[Process]:
    """Every process whose environment contains the mark, this process excluded."""
    wanted = ("%s=%s" % (MARK, mark)).encode()
    processes = []
    for process in _processes():
        if process.pid == os.getpid():
            continue
        try:
            with open("/proc/%d/environ" % process.pid, "rb") as stream:
                if wanted in stream.read().split(b"\0"):
                    processes.append(process)
        except OSError:
            continue
    return processes


def _processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = _process(int(name))
            if process is not None:
                yield process


def _process(pid: int) -> "Process | None":
    try:
        with open("/proc/%d/stat" % pid, "rb") as stream:
            text = stream.read()
    except OSError:
        return None
    fields = text[text.rfind(b")") + 2 :].split()  # the name before it may hold anything
    return Process(pid, int(fields[1]), int(fields[19]), int(fields[2]), int(fields[3]))


def kill(process: Process) -> None:
    """Send SIGKILL to a process, unless its pid belongs to another process by now."""
    send(process, signal.SIGKILL)


def send(process: Process, number: int) -> None:
    """Send a signal to a process, unless its pid belongs to another process by now."""
    try:
        descriptor = os.pidfd_open(process.pid)  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):
        descriptor = -1
    try:
        now = _process(process.pid)
        if now is None or now.start_ticks != process.start_ticks:
            return
        if descriptor >= 0:
            signal.pidfd_send_signal(descriptor, number)  # type: ignore[attr-defined,unused-ignore]
        else:
            os.kill(process.pid, number)
    except OSError:  # gone meanwhile, or no longer ours to kill; the next walk tells
        return
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def kill_groups(processes: Iterable[Process]) -> None:
    """Send SIGKILL to each process group of these processes at once, so that no member can escape by forking meanwhile.

    Ranks are started in sessions of their own, so a group outside the launcher's session has descendants only.
    """
    own_session = os.getsid(0)
    for group in {process.group for process in processes if process.session != own_session and process.group > 1}:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:  # gone meanwhile
            continue


class Reclaim:
    """Kills the ranks' processes in rounds, until two walks of the process tree in a row find nothing.

    One walk may miss a process that is forked meanwhile.
    """

    def __init__(self, mark: str, subreaper: bool) -> None:
        self._mark = mark
        self._subreaper = subreaper
        self._empty_walks = 0

    def step(self, spared: FrozenSet[int]) -> bool:
        """Kill in one round what is left. Returns True when only the `spared` pids are left, children of the launcher's
        own."""
        if self._subreaper and is_childless():
            return True
        left = [process for process in self._candidates() if process.pid not in spared]
        kill_groups(left)
        for process in left:
            kill(process)
        self._empty_walks = 0 if left else self._empty_walks + 1
        return self._empty_walks >= 2

    def _candidates(self) -> List[Process]:
        processes = descendants(os.getpid())
        return processes if self._subreaper else processes + marked(self._mark)


Leftover = Tuple[str, int]  # name and inode


def shared_memory() -> FrozenSet[Leftover]:
    """The files in /dev/shm that belong to this user and look like those of torch, NCCL or POSIX semaphores."""
    files = set()
    try:
        with os.scandir(_SHARED_MEMORY) as entries:
            for entry in entries:
                if _LEFTOVER.match(entry.name):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_uid == os.getuid():
                        files.add((entry.name, status.st_ino))
    except OSError:  # no /dev/shm, or a file vanished: what is missed stays, which only costs memory
        return frozenset(files)
    return frozenset(files)


def remove_shared_memory(kept: FrozenSet[Leftover]) -> int:
    """Remove the files in /dev/shm that are not in `kept`, unless a live process outside made them. Returns how
    many.

    Only for a /dev/shm that no other container sees, because the maker of a file there is not known.
    """
    removed = 0
    for name, _inode in shared_memory() - kept:
        owner = _TORCH_OWNER.match(name)
        if owner is not None and _process(int(owner.group(1))) is not None:
            continue
        try:
            os.unlink(os.path.join(_SHARED_MEMORY, name))
        except OSError:
            continue
        removed += 1
    return removed

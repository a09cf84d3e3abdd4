"""Finds the processes that train, among all that the ranks have started.

Tests: tests/unit/launcher/test_stacks.py, tests/unit/launcher/test_requests.py.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from muster.node.launcher.ranks import Rank
from muster.node.launcher.reclaim import Process, descendants

READ_SECONDS = 0.3  # for all environments: the supervisor waits for them
_MAX_ENVIRONMENT_BYTES = 256 * 1024
Environment = Mapping[bytes, bytes]


class Trainer(NamedTuple):
    """A process that trains.

    Attributes:
        rank: the launcher's own child above it, or itself.
        environment: its own.
    """

    process: Process
    rank: Rank
    environment: Environment


def find_trainers(ranks: Sequence[Rank], fits: Callable[[int], bool]) -> Tuple[List[Trainer], List[Process]]:
    """The processes that train, and all processes of the ranks.

    Args:
        ranks: those that are alive are looked at.
        fits: whether the process with a pid can be the one that trains where no program has started others; of several
            it is the first, so that a shell around it is passed over.
    """
    everything = descendants(os.getpid())
    children: Dict[int, List[Process]] = {}
    for process in everything:
        children.setdefault(process.parent, []).append(process)
    by_rank: List[Tuple[Rank, List[Process]]] = []
    for rank in ranks:
        own = next((process for process in everything if process.pid == rank.pid), None)
        if own is not None and rank.pid and not rank.is_reaped:
            by_rank.append((rank, _below(own, children)))
    processes = [process for _, below in by_rank for process in below]
    environments = _environments(processes)
    trainers = [
        Trainer(process, rank, environments.get(process.pid, {}))
        for rank, below in by_rank
        for process in _trainers(below, environments, fits)
    ]
    return trainers, processes


def has_signal(pid: int, which: str, number: int) -> bool:
    """Whether a process ignores (SigIgn) or handles (SigCgt) a signal."""
    return bool(int(status_of(pid).get(which, "0"), 16) & (1 << (number - 1)))


def _below(process: Process, children: Mapping[int, Sequence[Process]]) -> List[Process]:
    """A process and its descendants, those that are nearest to it first."""
    processes = [process]
    for parent in processes:
        processes.extend(children.get(parent.pid, ()))
    return processes


def _trainers(
    below: Sequence[Process], environments: Mapping[int, Environment], fits: Callable[[int], bool]
) -> List[Process]:
    """The processes that train, among a rank and what is below it.

    A launcher such as torchrun gives its children an environment of their own. Data loaders do not count.
    """
    identity = _identity(environments.get(below[0].pid))
    others = {p.pid for p in below[1:] if _identity(environments.get(p.pid)) not in (identity, None)}
    if others:
        return [process for process in below if process.pid in others and process.parent not in others]
    return [next((process for process in below if fits(process.pid)), below[0])]


def _identity(environment: Optional[Environment]) -> Optional[Tuple[bytes, ...]]:
    """What a launcher such as torchrun sets for each of its processes; None: it cannot be read."""
    if environment is None:
        return None
    return tuple(environment.get(name, b"") for name in (b"RANK", b"LOCAL_RANK", b"TORCHELASTIC_RUN_ID"))


def _environments(processes: Sequence[Process]) -> Mapping[int, Environment]:
    """The environments of processes by pid, without those that cannot be read.

    They lie in the memory of the process. Where the kernel holds its map, as during a page fault on storage that hangs,
    a reader waits for as long. So each has a thread of its own.
    """
    environments: Dict[int, Environment] = {}
    threads = [
        threading.Thread(target=_note_environment, args=(process.pid, environments), name="environ", daemon=True)
        for process in processes
    ]
    until = time.monotonic() + READ_SECONDS
    with contextlib.suppress(RuntimeError):  # no more threads: what is not read is not known
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
    return dict(environments)


def _note_environment(pid: int, environments: Dict[int, Environment]) -> None:
    data = read_of(pid, "environ", _MAX_ENVIRONMENT_BYTES)
    if data:
        pairs = (entry.partition(b"=") for entry in data.split(b"\0"))
        environments[pid] = {name: value for name, _, value in pairs}


def status_of(pid: int) -> Mapping[str, str]:
    """The lines of /proc/PID/status by name; empty where there is no such process."""
    lines = read_of(pid, "status", 16384).decode("ascii", "replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def read_of(pid: int, name: str, most: int) -> bytes:
    """The first bytes of a file in /proc/PID; none where it cannot be read."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as stream:
            return stream.read(most)
    except OSError:
        return b""

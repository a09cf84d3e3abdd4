"""Has the ranks of a hung attempt print their Python stacks before they are ended (docs/decisions/0069).

Python's faulthandler, which Muster switches on, prints the stacks of all threads upon SIGABRT and lets the process end
by it. The processes are about to be ended anyway, so no code of Muster runs in them. First all of them are stopped for
a moment, so that no rank leaves its place because a peer on another node is gone already. Then one after the other
prints, because they may share one pipe. All of that has a deadline, and SIGKILL follows whatever became of it.

Tests: tests/unit/launcher/test_stacks.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from muster.node.launcher.ranks import Rank
from muster.node.launcher.reclaim import Process, descendants, send
from muster.node.launcher.stack_reader import StackReader
from muster.protocol.messages import MAX_NUMBER, MAX_STACK_CHARS, StackReport

DEADLINE_SECONDS = 3.0  # for everything
HOLD_SECONDS = 0.5  # all launchers of a gang hear of the hang within this time
EACH_SECONDS = 1.0  # for one process to print
READ_SECONDS = 0.3  # for all environments: the supervisor waits for them
MAX_PROCESSES = 64
_MAX_STACKS_CHARS = 16 * 1024  # of one report, beside the last lines of its ranks
_MAX_ENVIRONMENT_BYTES = 256 * 1024
# Flags of a process in /proc/PID/stat: a signal ends it, or it is ending.
_IS_ENDING = 0x400 | 0x4
_Environment = Mapping[bytes, bytes]


@dataclasses.dataclass
class _Target:
    """A process whose stack is wanted.

    Attributes:
        rank: the launcher's own child above it, or itself.
        number: of the rank, by its own environment.
        seen: what the kernel said of it before it was stopped, for people.
    """

    process: Process
    rank: Rank
    number: int
    seen: str
    is_blocked: bool
    reader: StackReader = dataclasses.field(default_factory=StackReader)
    until: float = 0.0
    problem: str = ""


class StackDump:
    """The stacks of one attempt's ranks; `poll` never waits.

    Attributes:
        reports: the stacks, once `poll` has returned True.
    """

    def __init__(self, ranks: Sequence[Rank], now: float) -> None:
        self.reports: Tuple[StackReport, ...] = ()
        self._until = now + DEADLINE_SECONDS
        self._begins = now + HOLD_SECONDS
        self._targets, everything = _find([rank for rank in ranks if rank.pid and not rank.is_reaped])
        for process in everything:
            send(process, signal.SIGSTOP)
        # Those that the kernel holds would take the others' time.
        self._waiting = sorted(self._targets, key=lambda target: target.is_blocked)
        self._printing: Optional[_Target] = None

    def poll(self, now: float) -> bool:
        """Go on; returns whether it is over. The processes are then stopped or dead, and are to be killed."""
        if not self._targets:
            return True
        if now < self._begins:
            return False
        while now < self._until:
            if self._printing is None:
                if not self._waiting:
                    break
                self._begin(self._waiting.pop(0), now)
            elif self._is_over(self._printing, now):
                self._end(self._printing)
            else:
                return False
        if self._printing is not None:
            self._end(self._printing)
        self.reports = _reports(self._targets)
        return True

    def _begin(self, target: _Target, now: float) -> None:
        pid = target.process.pid
        target.problem = _why_silent(pid) or ("" if target.rank.is_quiet else _UNREAD)
        target.problem = target.problem or ("" if _drop_core(pid) else _DUMPS_CORE)
        if target.problem:
            return
        target.until = min(now + EACH_SECONDS, self._until)
        target.rank.begin_stack(target.reader)
        self._printing = target
        send(target.process, signal.SIGABRT)
        send(target.process, signal.SIGCONT)

    def _is_over(self, target: _Target, now: float) -> bool:
        return now >= target.until or (_is_ending(target.process) and target.rank.is_quiet)

    def _end(self, target: _Target) -> None:
        if not _is_ending(target.process):
            target.problem = "it has not printed its stack within %g s" % EACH_SECONDS
            send(target.process, signal.SIGKILL)  # nothing that it prints later may be taken for another's
        target.rank.end_stack()
        self._printing = None


_UNREAD = "it was not asked for its stack, because nothing reads what is printed beside it"
_DUMPS_CORE = (
    "it was not asked for its stack, because it would write a core dump: core_pattern is a pipe, and `ulimit -Hc` is 0"
)


def _find(ranks: Sequence[Rank]) -> Tuple[List[_Target], List[Process]]:
    """The processes whose stacks are wanted, and all processes of the ranks."""
    everything = descendants(os.getpid())
    children: Dict[int, List[Process]] = {}
    for process in everything:
        children.setdefault(process.parent, []).append(process)
    by_rank: List[Tuple[Rank, List[Process]]] = []
    for rank in ranks:
        own = next((process for process in everything if process.pid == rank.pid), None)
        if own is not None:
            by_rank.append((rank, _below(own, children)))
    processes = [process for _, below in by_rank for process in below]
    environments = _environments(processes)
    targets = [
        _target(process, rank, environments.get(process.pid, {}))
        for rank, below in by_rank
        for process in _trainers(below, environments)
    ]
    return targets[:MAX_PROCESSES], processes


def _below(process: Process, children: Mapping[int, Sequence[Process]]) -> List[Process]:
    """A process and its descendants, those that are nearest to it first."""
    processes = [process]
    for parent in processes:
        processes.extend(children.get(parent.pid, ()))
    return processes


def _trainers(below: Sequence[Process], environments: Mapping[int, _Environment]) -> List[Process]:
    """The processes that train, among a rank and what is below it.

    A launcher such as torchrun gives its children an environment of their own. Where there are none, the process that
    trains is the first that handles SIGABRT, so that a shell around it is passed over. Data loaders are not asked.
    """
    identity = _identity(environments.get(below[0].pid))
    others = {p.pid for p in below[1:] if _identity(environments.get(p.pid)) not in (identity, None)}
    if others:
        return [process for process in below if process.pid in others and process.parent not in others]
    return [next((process for process in below if not _why_silent(process.pid)), below[0])]


def _identity(environment: Optional[_Environment]) -> Optional[Tuple[bytes, ...]]:
    """What a launcher such as torchrun sets for each of its processes; None: it cannot be read."""
    if environment is None:
        return None
    return tuple(environment.get(name, b"") for name in (b"RANK", b"LOCAL_RANK", b"TORCHELASTIC_RUN_ID"))


def _environments(processes: Sequence[Process]) -> Mapping[int, _Environment]:
    """The environments of processes by pid, without those that cannot be read.

    They lie in the memory of the process. Where the kernel holds its map, as during a page fault on storage that hangs,
    a reader waits for as long. So each has a thread of its own.
    """
    environments: Dict[int, _Environment] = {}
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


def _note_environment(pid: int, environments: Dict[int, _Environment]) -> None:
    data = _read(pid, "environ", _MAX_ENVIRONMENT_BYTES)
    if data:
        pairs = (entry.partition(b"=") for entry in data.split(b"\0"))
        environments[pid] = {name: value for name, _, value in pairs}


def _target(process: Process, rank: Rank, environment: _Environment) -> _Target:
    text = environment.get(b"RANK", b"").decode("ascii", "replace")
    number = int(text) if text.isdigit() and len(text) < 10 and int(text) <= MAX_NUMBER else rank.rank
    state = _status(process.pid).get("State", "")[:40]
    waits = _read(process.pid, "wchan", 64).decode("ascii", "replace")
    seen = "state %s" % (state or "unknown") + (", waits in %s" % waits if waits not in ("", "0") else "")
    return _Target(process, rank, number, seen, state.startswith("D"))


def _why_silent(pid: int) -> str:
    """Why a process would not print its stack upon SIGABRT; "" if it may."""
    status = _status(pid)
    bit = 1 << (signal.SIGABRT - 1)
    if int(status.get("SigIgn", "0"), 16) & bit:
        return "it ignores SIGABRT"
    if not int(status.get("SigCgt", "0"), 16) & bit:
        return "Python's faulthandler is off in it, or it is no Python process"
    return ""


def _drop_core(pid: int) -> bool:
    """Have a process end by SIGABRT without a core dump, which may take minutes; returns whether it will.

    A limit of 1 byte is one that the kernel minds also where a program takes the dumps from a pipe.
    """
    import resource  # late: it is needed for a hang alone

    try:
        _, hard = resource.prlimit(pid, resource.RLIMIT_CORE)
        if hard == 0:  # to raise it takes a right that few containers have
            return _dumps_into_file()
        resource.prlimit(pid, resource.RLIMIT_CORE, (1, hard))
    except (OSError, ValueError):
        return False
    return True


def _dumps_into_file() -> bool:
    try:
        with open("/proc/sys/kernel/core_pattern", "rb") as stream:
            return stream.read(1) != b"|"
    except OSError:
        return False


def _is_ending(process: Process) -> bool:
    """Whether a process has ended, or is about to: it prints nothing any more."""
    data = _read(process.pid, "stat", 4096)
    fields = data[data.rfind(b")") + 2 :].split()
    if len(fields) < 20 or int(fields[19]) != process.start_ticks:
        return True
    return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _IS_ENDING)


def _status(pid: int) -> Mapping[str, str]:
    lines = _read(pid, "status", 16384).decode("ascii", "replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _read(pid: int, name: str, most: int) -> bytes:
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as stream:
            return stream.read(most)
    except OSError:
        return b""


def _reports(targets: Sequence[_Target]) -> Tuple[StackReport, ...]:
    max_chars = min(MAX_STACK_CHARS, _MAX_STACKS_CHARS // max(len(targets), 1))
    return tuple(_report(target, max_chars) for target in targets)


def _report(target: _Target, most: int) -> StackReport:
    frames: List[str] = []
    for frame in target.reader.frames:
        if sum(map(len, frames)) + len(frames) + len(frame) > most:
            break
        frames.append(frame)
    frames = frames or [frame[:most] for frame in target.reader.frames[:1]]
    if frames:
        return StackReport(target.number, "\n".join(frames))
    problem = target.problem or target.reader.problem or "it printed no stack"
    return StackReport(target.number, problem="%s (%s)" % (problem, target.seen))

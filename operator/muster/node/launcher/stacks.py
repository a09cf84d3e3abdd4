"""Has the ranks of a hung attempt print their Python stacks before they are ended (docs/decisions/0069).

Python's faulthandler, which Muster switches on, prints the stacks of all threads upon SIGABRT and lets the process end
by it. The processes are about to be ended anyway, so no code of Muster runs in them. First all of them are stopped for
a moment, so that no rank leaves its place because a peer on another node is gone already. Then one after the other
prints, because they may share one pipe. All of that has a deadline, and SIGKILL follows whatever became of it.

Tests: tests/unit/launcher/test_stacks.py.
"""

from __future__ import annotations

import dataclasses
import signal
from typing import List, Optional, Sequence, Tuple

from muster.node.launcher.ranks import Rank
from muster.node.launcher.reclaim import Process, send
from muster.node.launcher.stack_reader import StackReader
from muster.node.launcher.trainers import Environment, find_trainers, has_signal, read_of, status_of
from muster.protocol.messages import MAX_NUMBER, MAX_STACK_CHARS, StackReport

DEADLINE_SECONDS = 3.0  # for everything
HOLD_SECONDS = 0.5  # all launchers of a gang hear of the hang within this time
EACH_SECONDS = 1.0  # for one process to print
MAX_PROCESSES = 64
_MAX_STACKS_CHARS = 16 * 1024  # of one report, beside the last lines of its ranks
# Flags of a process in /proc/PID/stat: a signal ends it, or it is ending.
_IS_ENDING = 0x400 | 0x4


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
        trainers, everything = find_trainers(ranks, lambda pid: not _why_silent(pid))
        self._targets = [_target(*trainer) for trainer in trainers[:MAX_PROCESSES]]
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


def _target(process: Process, rank: Rank, environment: Environment) -> _Target:
    text = environment.get(b"RANK", b"").decode("ascii", "replace")
    number = int(text) if text.isdigit() and len(text) < 10 and int(text) <= MAX_NUMBER else rank.rank
    state = status_of(process.pid).get("State", "")[:40]
    waits = read_of(process.pid, "wchan", 64).decode("ascii", "replace")
    seen = "state %s" % (state or "unknown") + (", waits in %s" % waits if waits not in ("", "0") else "")
    return _Target(process, rank, number, seen, state.startswith("D"))


def _why_silent(pid: int) -> str:
    """Why a process would not print its stack upon SIGABRT; "" if it may."""
    if has_signal(pid, "SigIgn", signal.SIGABRT):
        return "it ignores SIGABRT"
    if not has_signal(pid, "SigCgt", signal.SIGABRT):
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
    data = read_of(process.pid, "stat", 4096)
    fields = data[data.rfind(b")") + 2 :].split()
    if len(fields) < 20 or int(fields[19]) != process.start_ticks:
        return True
    return fields[0] in (b"Z", b"X") or bool(int(fields[6]) & _IS_ENDING)


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

"""Imports torch once and forks a crew of processes per probe, one for each device: `python -m
muster.node.checker.probes.zygote`.

Orders come as lines of JSON on stdin, answers go out as lines of JSON on stdout. The zygote ends when stdin ends,
together with all processes that it has forked. The import takes 4 to 8 CPU seconds, a fork 0.03 s. The zygote never
uses CUDA itself: a process with a context cannot be forked into ones that need their own.

Nothing here waits for a probe: one thread polls pipes and enforces deadlines from outside. The time limit of gloo
bounds a wait, not a test: data that trickle in never end it. An endless kernel ends only by SIGKILL. Whole process
groups are killed, since a forgotten descendant keeps the GPU's memory. An order is answered once its crew is gone and
its GPUs are free again.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import importlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from muster.node.checker.probes import machine, meeting, nvml, orders, outcome, reduce
from muster.node.checker.probes.catalog import PROBES, Probe
from muster.node.checker.probes.output import Output
from muster.node.checker.probes.worker import MAX_LINE_BYTES, Worker, run, settle_in

MAX_CREWS = 4
_READ_BYTES = 64 * 1024
_POLL_SECONDS = 0.02
_STOOD_STILL_SECONDS = 1.0
"""A longer gap between two rounds means that the machine was frozen or starved, and the probes with it."""
_DEATH_SECONDS = 5.0
"""The time to end after SIGKILL; a process that outlives this hangs inside the kernel."""
_FORSAKEN_SECONDS = 1.0
_FREE_SECONDS = 15.0
"""The limit for GPUs to become free again; with 32 GiB of pinned memory that takes 5.2 s."""
_FREE_DEADLINE_SECONDS = _FREE_SECONDS + 5.0
_PR_SET_PDEATHSIG = 1
# These are set before torch is imported. The workspace makes cuBLAS repeat its sums in the same order. One thread per
# process leaves cores to the others. NVML and CUDA both count by bus.
_ENVIRONMENT = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET,P2P,SHM",
    "OMP_NUM_THREADS": "1",
    "USE_LIBUV": "0",
}


class Clock:
    """Monotonic seconds without those in which this process stood still: they make no probe count as hung."""

    def __init__(self) -> None:
        self._seen = time.monotonic()
        self._lost = 0.0

    def now(self) -> float:
        """Return the seconds since an arbitrary moment."""
        now = time.monotonic()
        if now > self._seen + _STOOD_STILL_SECONDS:
            self._lost += now - self._seen
        self._seen = now
        return now - self._lost


class Forked:
    """The zygote's side of one process of a crew."""

    def __init__(self, index: int, pid: int, hear: int, tell: int, listen: int) -> None:
        self.index = index
        self.pid = pid
        self.hear = hear
        self.tell = tell
        self.listen = listen
        self.output = Output()
        self.phase = "start"
        self.meeting: Optional[str] = None
        self.mark: Dict[str, Any] = {}
        self.puts: List[Dict[str, Any]] = []
        """What the process has put for other nodes since the last read."""
        self.answer: Optional[Dict[str, Any]] = None
        self.answered_at: Optional[float] = None
        self.status: Optional[int] = None
        """Minus the signal or the exit code, once the process has ended."""
        self.descriptors: Tuple[int, ...] = (hear, tell, listen)
        """The zygote's ends of the pipes; empty once they are closed."""
        self._said = b""

    def read(self, now: float) -> bool:
        """Read what the process has sent and printed; return whether there was anything."""
        sent, printed = _read(self.hear), _read(self.listen)
        if printed:
            self.output.feed(printed)
        if sent:
            *lines, self._said = (self._said + sent).split(b"\n")
            for line in lines:
                self._note_line(line, now)
            if len(self._said) > MAX_LINE_BYTES:
                self._said = b""
        return bool(sent or printed)

    def _note_line(self, line: bytes, now: float) -> None:
        try:
            message = json.loads(line) if len(line) <= MAX_LINE_BYTES else {}
        except ValueError:
            return
        if "phase" in message:
            self.phase = message["phase"]
        elif "meet" in message:
            self.meeting = message["meet"]
        elif "put" in message:
            self.puts.append(message["put"])
        elif "mark" in message:
            self.mark.update(message["mark"])
        elif "outcome" in message:
            self.answer, self.answered_at = message, now

    def release(self) -> None:
        """Let the process go on: all of the crew are there."""
        self.meeting = None
        with contextlib.suppress(OSError):  # the process has ended meanwhile
            os.write(self.tell, b".")

    def close(self) -> None:
        """Close the pipes, once the process has ended or cannot be ended."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()


@dataclasses.dataclass
class Crew:
    """The processes of one order.

    Attributes:
        group: their process group, the first one's pid.
        forsaken_at: since when a process has failed that the others need.
        why: the outcome of unfinished processes that were killed.
        watcher: the process that waits until the GPUs are free.
        unwatched: why there is no watcher, although there should be one.
    """

    order: orders.Order
    probe: Probe
    began: float
    deadline: float
    group: int = 0
    members: List[Forked] = dataclasses.field(default_factory=list)
    forsaken_at: float = 0.0
    why: Optional[str] = None
    killed_at: float = 0.0
    folder: str = ""
    parts: Optional[List[Dict[str, Any]]] = None
    ended_at: float = 0.0
    watcher: "Optional[Crew]" = None
    unwatched: str = ""
    puts: Dict[Tuple[int, str], Dict[str, Any]] = dataclasses.field(default_factory=dict)
    others: Tuple[Dict[str, Any], ...] = ()

    @property
    def meeting(self) -> str:
        """Return the file from which the processes read what all have put."""
        return os.path.join(self.folder, "meeting")


class Zygote:
    """The loop that runs one order at a time."""

    def __init__(self, torch: Any, orders_in: int, answers_out: int) -> None:
        self._torch = torch
        self._in = orders_in
        self._out = answers_out
        self._buffer = b""
        self._clock = Clock()
        self._crews: Dict[str, Crew] = {}
        self._dying: List[int] = []

    def serve(self) -> None:
        """Run until stdin ends."""
        os.set_blocking(self._in, False)
        try:
            while self._hear_orders():
                for order_id, crew in list(self._crews.items()):
                    answer = self._tend(crew)
                    self._pass_on(crew)
                    if answer is not None:
                        del self._crews[order_id]
                        self._send_line(answer)
                self._dying = [pid for pid in self._dying if not _reap(pid)]
                self._wait()
        finally:
            for crew in self._crews.values():
                _kill(crew.group)
                if crew.watcher is not None:
                    _kill(crew.watcher.group)
                shutil.rmtree(crew.folder or os.devnull, ignore_errors=True)

    def _wait(self) -> None:
        descriptors = [self._in]
        for crew in self._all_crews():
            for member in crew.members:
                if member.status is None and member.descriptors:
                    descriptors += [member.hear, member.listen]
        # The end of a process closes no pipe while a descendant still holds it.
        select.select(descriptors, [], [], _POLL_SECONDS if self._crews or self._dying else None)

    def _all_crews(self) -> List[Crew]:
        crews = list(self._crews.values())
        return crews + [crew.watcher for crew in crews if crew.watcher is not None]

    def _send_line(self, message: Dict[str, Any]) -> None:
        data = (json.dumps(message, separators=(",", ":")) + "\n").encode()
        while data:
            data = data[os.write(self._out, data) :]

    # --- orders

    def _hear_orders(self) -> bool:
        data = _read(self._in)
        if data == b"":
            return False
        *lines, self._buffer = (self._buffer + (data or b"")).split(b"\n")
        for line in lines:
            self._note_line(line)
        if len(self._buffer) > orders.MAX_LINE_BYTES:
            self._buffer = b""
            self._refuse(None, "an order of more than %d bytes" % orders.MAX_LINE_BYTES)
        return True

    def _note_line(self, line: bytes) -> None:
        try:
            order = orders.parse(line, PROBES)
        except orders.OrderError as error:
            self._refuse(error.order_id, str(error))
            return
        if isinstance(order, orders.Meet):
            crew = self._crews.get(order.order_id)
            if crew is not None and crew.parts is None and crew.folder:
                crew.others = order.puts
                meeting.write(crew.meeting, [*crew.puts.values(), *crew.others])
        elif isinstance(order, orders.Cancel):
            for crew in self._crews.values():
                if order.order_id in (None, crew.order.order_id):
                    self._end(crew, outcome.CANCELLED)
        elif order.order_id in self._crews:
            self._refuse(order.order_id, "this order is being run already")
        elif any(set(order.devices) & set(crew.order.devices) for crew in self._crews.values()):
            self._refuse(order.order_id, "another probe has these GPUs")
        elif len(self._crews) >= MAX_CREWS:
            self._refuse(order.order_id, "%d probes are running" % MAX_CREWS)
        else:
            self._begin(order, PROBES[order.probe])

    def _refuse(self, order_id: Optional[str], why: str, name: str = outcome.REFUSED) -> None:
        self._send_line({"id": order_id, "outcome": name, "message": why[:400], "parts": [], "seconds": 0})

    # --- crews

    def _begin(self, order: orders.Order, probe: Probe) -> None:
        now = self._clock.now()
        crew = Crew(order, probe, now, now + order.deadline_seconds)
        parameters = dict(order.parameters, devices=list(order.devices))

        def work(worker: Worker) -> None:
            os.environ.update(order.environment)
            worker.torch.set_grad_enabled(False)
            run(worker, probe.run, check_device=probe.on_devices)

        try:
            if probe.members:
                crew.folder = tempfile.mkdtemp(prefix="muster-probe-")
                parameters["rendezvous"] = os.path.join(crew.folder, "rendezvous")
                parameters["meeting"] = crew.meeting
            for index in order.devices or range(order.processes):
                self._fork(crew, index, parameters, work)
        except OSError as error:  # no room for a file, or no more processes
            self._abandon(crew)
            self._refuse(order.order_id, "it cannot be started here: %s" % error, outcome.UNFIT)
            return
        self._crews[order.order_id] = crew

    def _pass_on(self, crew: Crew) -> None:
        """Pass on what processes have put: to each other on this node, and to the sender of the order for those on
        other nodes."""
        new = [put for member in crew.members for put in member.puts]
        if not new or crew.parts is not None:
            return
        for member in crew.members:
            member.puts = []
        for put in new:
            crew.puts[put["rank"], put["key"]] = put
            self._send_line({"id": crew.order.order_id, "put": put})
        meeting.write(crew.meeting, [*crew.puts.values(), *crew.others])

    def _abandon(self, crew: Crew) -> None:
        """Kill the processes that were forked before a fork failed; none of them has done anything yet."""
        _kill(crew.group)
        for member in crew.members:
            self._dying.append(member.pid)
            member.close()
        if crew.folder:
            shutil.rmtree(crew.folder, ignore_errors=True)

    def _watch(self, crew: Crew, devices: List[int]) -> Crew:
        """Start a child that waits until these GPUs are free: NVML may hang there, too."""
        now = self._clock.now()
        watcher = Crew(crew.order, crew.probe, now, now + _FREE_DEADLINE_SECONDS)

        def probe(worker: Worker) -> Dict[str, Any]:
            library = nvml.load()
            free, seconds = (True, 0.0) if library is None else nvml.wait_until_free(library, devices, _FREE_SECONDS)
            return {"free": free, "seconds": round(seconds, 3)}

        self._fork(watcher, 0, dict(crew.order.parameters), lambda worker: run(worker, probe, check_device=False))
        return watcher

    def _fork(self, crew: Crew, index: int, parameters: Dict[str, Any], work: Callable[[Worker], None]) -> None:
        hear, child_tell = os.pipe()
        child_hear, tell = os.pipe()
        listen, child_out = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                descriptors = {self._in, self._out, hear, tell, listen, child_tell, child_hear}
                for other in [*self._all_crews(), crew]:
                    for member in other.members:
                        descriptors.update(member.descriptors)
                settle_in(parent, crew.group, {child_tell, child_hear}, descriptors, child_out)
                work(Worker(self._torch, parameters, index, max(1, crew.order.processes), child_tell, child_hear))
                os._exit(0)
            finally:  # no exception may get into the zygote's loop
                os._exit(70)
        crew.group = crew.group or pid
        with contextlib.suppress(OSError):  # the child has already done it, and has ended
            os.setpgid(pid, crew.group)
        for descriptor in (child_tell, child_hear, child_out):
            os.close(descriptor)
        for descriptor in (hear, listen, tell):
            os.set_blocking(descriptor, False)
        crew.members.append(Forked(index, pid, hear, tell, listen))

    def _end(self, crew: Crew, why: str) -> None:
        """Kill the remaining processes; the first reason counts."""
        if crew.why is None and crew.parts is None:
            crew.why = why
            crew.killed_at = self._clock.now()
            _kill(crew.group)

    def _tend(self, crew: Crew) -> Optional[Dict[str, Any]]:
        """Check a crew; return the answer once there is one."""
        if crew.parts is None:
            if not self._has_ended(crew):
                return None
            crew.parts = [self._part(crew, member) for member in crew.members]
            crew.ended_at = self._clock.now()
            if crew.folder:
                shutil.rmtree(crew.folder, ignore_errors=True)
            # GPUs in use by other processes were not used, and are not waited for.
            touched = [part["device"] for part in crew.parts if part["outcome"] not in (outcome.IN_USE, outcome.MIG)]
            if crew.order.cuda and crew.probe.on_devices and touched:
                try:
                    crew.watcher = self._watch(crew, touched)
                except OSError as error:
                    crew.unwatched = str(error)
        if crew.watcher is not None and not self._has_ended(crew.watcher):
            return None
        return self._answer(crew, crew.parts)

    def _has_ended(self, crew: Crew) -> bool:
        """Whether all of the crew has ended, is reaped and closed."""
        now = self._clock.now()
        for member in crew.members:
            if member.status is None:
                member.read(now)
                member.status = _ended(member.pid)
                if member.status is not None:
                    while member.read(now):  # its last output
                        if member.output.flooded:
                            break
        living = [member for member in crew.members if member.status is None]
        if crew.probe.members and any(_has_failed(member) for member in crew.members):
            # The others would wait for it until the deadline; results of their own come soon.
            crew.forsaken_at = crew.forsaken_at or now
        if any(member.output.flooded for member in living):
            self._end(crew, outcome.FLOODED)
        elif living and now > crew.deadline:
            self._end(crew, outcome.HUNG)
        elif crew.forsaken_at and now > crew.forsaken_at + _FORSAKEN_SECONDS:
            self._end(crew, outcome.CANCELLED)
        if crew.why is None:  # killed processes end one after the other: none is released meanwhile
            self._let_meet(living)
        if living and not (crew.why is not None and now > crew.killed_at + _DEATH_SECONDS):
            return False
        _kill(crew.group)  # descendants: the group lives as long as its first process has not been reaped
        for member in crew.members:
            if member.status is None or not _reap(member.pid):
                self._dying.append(member.pid)
            member.close()
        return True

    @staticmethod
    def _let_meet(living: List[Forked]) -> None:
        """Release a meeting once all have come that still can."""
        waiting = [member for member in living if member.meeting is not None and member.answer is None]
        busy = [member for member in living if member.meeting is None and member.answer is None]
        if not waiting or busy:
            return
        for member in waiting:
            member.release()

    # --- answers

    def _part(self, crew: Crew, member: Forked) -> Dict[str, Any]:
        """Return the result of one process."""
        part: Dict[str, Any] = {"device": member.index, "mark": member.mark}
        where = " on %s" % ("GPU %d" % member.index if crew.order.cuda else "CPU") if crew.probe.on_devices else ""
        if member.answer is not None and member.status is not None:
            part.update(member.answer)
            part["seconds"] = round((member.answered_at or crew.began) - crew.began, 3)
            if part["outcome"] != outcome.DONE:
                part["phase"] = member.phase
        else:
            killed = crew.why is not None and member.status in (None, -signal.SIGKILL)
            name, message = self._killed(crew, member, where) if killed else self._crashed(crew, member, where)
            seconds = (crew.killed_at if killed else self._clock.now()) - crew.began
            part.update(outcome=name, message=message, figures={}, phase=member.phase, seconds=round(seconds, 3))
        if part["outcome"] != outcome.DONE and member.output.tail:
            part["output"] = member.output.tail
        return part

    def _killed(self, crew: Crew, member: Forked, where: str) -> Tuple[str, str]:
        after = "%.1f s" % ((crew.deadline if crew.why == outcome.HUNG else crew.killed_at) - crew.began)
        stuck = "; it cannot be killed: it hangs in the kernel" if member.status is None else ""
        if crew.why == outcome.HUNG:
            if member.meeting is not None:
                return outcome.CANCELLED, "waited%s for the others" % where
            name = outcome.HUNG
            if crew.probe.members and crew.order.parameters["nodes"] > 1 and not stuck:
                if member.phase == reduce.CONNECT:
                    name = outcome.COULD_NOT_CONNECT
                elif member.phase in reduce.CONNECTED:
                    name = outcome.NO_RESULT
            return name, "hung after %s in %s%s%s" % (after, member.phase, where, stuck)
        if crew.why == outcome.FLOODED:
            return outcome.FLOODED, "printed more than %d MiB%s" % (member.output.read_bytes >> 20, where)
        return outcome.CANCELLED, "cancelled after %s in %s%s%s" % (after, member.phase, where, stuck)

    def _crashed(self, crew: Crew, member: Forked, where: str) -> Tuple[str, str]:
        status = member.status or 0
        if status == -signal.SIGKILL:
            # The zygote did not kill it: the kernel reclaims memory so, and no fault of a device ends a process that
            # way.
            return outcome.UNFIT, "killed from outside in %s%s, most often the kernel for want of memory" % (
                member.phase,
                where,
            )
        how = "exit code %d" % status if status >= 0 else _signal_name(-status)
        name = outcome.CRASHED
        if crew.probe.members and crew.order.parameters["nodes"] > 1:
            # NCCL's watchdog ends the process by SIGABRT when another member has gone.
            words = outcome.of_network(member.output.tail, member.phase in reduce.CONNECTED)
            name = words if words == outcome.OTHER_ENDED else name
        return name, "ended with %s in %s%s" % (how, member.phase, where)

    def _answer(self, crew: Crew, parts: List[Dict[str, Any]]) -> Dict[str, Any]:
        if crew.probe.conclude is not None:
            crew.probe.conclude(parts)
        name = outcome.worst([part["outcome"] for part in parts])
        answer = {
            "id": crew.order.order_id,
            "probe": crew.order.probe,
            "device": crew.order.device if crew.probe.on_devices else "node",
            "outcome": name,
            "message": next((part["message"] for part in parts if part["outcome"] == name and "message" in part), ""),
            "seconds": round(crew.ended_at - crew.began, 3),
            "parts": parts,
        }
        if crew.probe.members:
            answer["transports"] = _transports(crew)
        if crew.watcher is not None:
            answer["given_back"] = self._given_back(crew.watcher)
        elif crew.unwatched:
            answer["given_back"] = {"free": None, "seconds": 0, "message": crew.unwatched}
        return answer

    def _given_back(self, watcher: Crew) -> Dict[str, Any]:
        part = self._part(watcher, watcher.members[0])
        if part["outcome"] == outcome.DONE:
            return dict(part["figures"])
        return {"free": None, "seconds": part["seconds"], "message": part["message"]}


def _transports(crew: Crew) -> List[str]:
    """Return the transports of the sums, by NCCL's names ("NET/IB/GDRDMA", "P2P/CUMEM"); gloo has only TCP."""
    if not crew.order.cuda:
        return ["TCP"]
    transports: Set[str] = set()
    networks: Set[str] = set()
    for member in crew.members:
        transports |= member.output.transports
        networks |= member.output.networks
    # Printed even where no channel needs it.
    across = {"NET/%s" % name for name in networks} if crew.order.parameters["nodes"] > 1 else set()
    return sorted(transports or across)


def _read(descriptor: int) -> Optional[bytes]:
    """Return the available data, b"" at the end of the stream, None: nothing yet."""
    try:
        return os.read(descriptor, _READ_BYTES)
    except BlockingIOError:
        return None


def _kill(group: int) -> None:
    if group:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def _ended(pid: int) -> Optional[int]:
    """Return minus the signal, or the exit code, of a child that has ended; it stays unreaped, and its group with
    it."""
    result = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if result is None:
        return None
    return result.si_status if result.si_code == os.CLD_EXITED else -result.si_status


def _reap(pid: int) -> bool:
    return os.waitpid(pid, os.WNOHANG)[0] == pid


def _has_failed(member: Forked) -> bool:
    return member.status is not None and (member.answer is None or member.answer["outcome"] != outcome.DONE)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "signal %d" % number


def main() -> None:
    """Import torch, report that it is ready, serve."""
    began = time.monotonic()
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    # The output of a library must not get between the answers.
    answer_fd = os.dup(1)
    os.dup2(2, 1)
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # it would make CUDA count differently from NVML
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)

    def say(message: Dict[str, Any]) -> None:
        os.write(answer_fd, (json.dumps(message, separators=(",", ":")) + "\n").encode())

    try:
        torch = importlib.import_module("torch")
        importlib.import_module("torch.distributed")
        key = machine.library(torch)
    except Exception as error:  # noqa: BLE001 # a wrong image, a wrong architecture: whatever it is, say it
        say({"ready": False, "message": ("%s: %s" % (type(error).__name__, error))[:400]})
        sys.exit(3)
    say({"ready": True, "pid": os.getpid(), "import_seconds": round(time.monotonic() - began, 3), "key": key})
    Zygote(torch, 0, answer_fd).serve()


if __name__ == "__main__":
    main()

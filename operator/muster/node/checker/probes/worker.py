"""Runs one process of a probe: forked from the zygote, bound to one device, connected to the zygote by two pipes.

It writes lines of JSON: {"phase": ...}, {"meet": ...} (then waits for a byte until all of its crew are there), {"mark":
{...}} (the device's description, for the key) and, last, {"outcome", "figures", "message"}.

Tests: tests/unit/preflight_probes/test_zygote.py.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
import time
import traceback
from typing import Any, Callable, Dict, Optional

from muster.node.checker.probes import machine, nvml
from muster.node.checker.probes.outcome import DONE, FAILED, IN_USE, MIG, UNFIT, ProblemError

MAX_LINE_BYTES = 48 * 1024
_MAX_MESSAGE_CHARACTERS = 400
_PR_SET_PDEATHSIG = 1
# torch on CUDA, torch on a CPU.
_NO_MEMORY = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)


class Worker:
    """What a probe gets: torch, its order and its device.

    Attributes:
        torch: the module; a probe never imports it.
        order: the order's parameters.
        index: index of the device, as NVML and CUDA count by bus; on a CPU that of the process.
        crew_size: number of processes that run this probe on this node.
    """

    def __init__(self, torch: Any, order: Dict[str, Any], index: int, crew_size: int, tell: int, hear: int) -> None:
        self.torch = torch
        self.order = order
        self.index = index
        self.crew_size = crew_size
        self.cuda = order["device"] == "cuda"
        self._tell = tell
        self._hear = hear

    @property
    def device(self) -> str:
        """Return torch's name of the device."""
        return "cuda:%d" % self.index if self.cuda else "cpu"

    def send_line(self, message: Dict[str, Any]) -> None:
        """Send one line to the zygote."""
        data = (json.dumps(message, separators=(",", ":")) + "\n").encode()
        while data:
            data = data[os.write(self._tell, data) :]

    def phase(self, name: str) -> None:
        """Report the phase that begins now: a hang is then known by its phase."""
        self.send_line({"phase": name})

    def meet(self, name: str) -> None:
        """Wait until the whole crew is here: loads begin at the same moment."""
        self.send_line({"meet": name})
        if not os.read(self._hear, 1):
            raise ProblemError(FAILED, "the zygote has gone")

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        if self.cuda:
            self.torch.cuda.synchronize()

    def open_device(self) -> float:
        """Make the device ready; return the seconds that its context took."""
        self.phase("context")
        began = time.monotonic()
        if self.cuda:
            self.torch.cuda.set_device(self.index)
            self.torch.zeros(1, device=self.device)
            self.wait()
            self.send_line({"mark": machine.mark(self.torch, self.index)})
        return time.monotonic() - began


def run(worker: Worker, probe: Callable[[Worker], Dict[str, Any]], check_device: bool) -> None:
    """Run a probe to its last line."""
    answer: Dict[str, Any]
    try:
        if not worker.cuda:
            worker.send_line({"mark": machine.mark(worker.torch, None)})
        elif check_device:
            worker.phase("look")
            _refuse_what_is_not_ours_alone(worker)
        answer = {"outcome": DONE, "figures": probe(worker)}
    except ProblemError as problem:
        answer = {"outcome": problem.outcome, "figures": problem.figures, "message": str(problem)}
    except Exception as error:  # noqa: BLE001 # whatever the library answers is the finding
        traceback.print_exc()
        # The order needs more memory than there is, or another process took it meanwhile.
        name = UNFIT if _NO_MEMORY.search(str(error)) else FAILED
        answer = {"outcome": name, "figures": {}, "message": "%s: %s" % (type(error).__name__, error)}
    if "message" in answer:
        answer["message"] = answer["message"][:_MAX_MESSAGE_CHARACTERS]
    for stream in (sys.stdout, sys.stderr):
        stream.flush()  # the process ends without the cleanup of Python or the C library
    ctypes.CDLL(None).fflush(None)
    worker.send_line(answer)


def _refuse_what_is_not_ours_alone(worker: Worker) -> None:
    """End the probe before CUDA is used where another process has the GPU: it must not be disturbed, and would make the
    GPU look slow."""
    library = nvml.load()
    if library is None:
        return
    gpu = nvml.inspect_gpu(library, worker.index)
    worker.send_line({"mark": {"model": gpu.model, "uuid": gpu.uuid, "driver": nvml.driver(library)}})
    if gpu.mig:
        raise ProblemError(MIG, "GPU %d is cut into MIG slices" % gpu.index)
    if gpu.used_by_others:
        raise ProblemError(IN_USE, "GPU %d is in use: %s" % (gpu.index, gpu.use))


def settle_in(parent: int, group: Optional[int], keep: "set[int]", descriptors: "set[int]", out: int) -> None:
    """Prepare the forked child: a process group of its own, no descriptor of the zygote's, and an end together with the
    zygote."""
    os.setpgid(0, group or 0)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    for descriptor in (descriptors | {null, out}) - keep - {0, 1, 2}:
        os.close(descriptor)

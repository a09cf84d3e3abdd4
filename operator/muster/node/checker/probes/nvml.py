"""Makes a probe's few queries to the NVIDIA driver, by ctypes: torch's image need not hold pynvml.

A call may hang, so these run in a forked child with a deadline. Layouts are those of nvml.h (CUDA 12 and 13).

Tests: tests/unit/preflight_probes/test_rules.py.
"""

from __future__ import annotations

import ctypes
import dataclasses
import time
from typing import Any, List, Optional, Tuple

_LIBRARY = "libnvidia-ml.so.1"
_INSUFFICIENT_SIZE = 7
_NOT_SUPPORTED = 3
_TEXT_BYTES = 96
_MAX_PROCESSES = 64
_IDLE_BYTES = 1024**3
"""Used memory that a GPU may show without any process: the driver counts its own memory separately."""
_POLL_SECONDS = 0.02


class DriverError(Exception):
    """NVML answered with an error."""


class _Memory(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@dataclasses.dataclass(frozen=True)
class Gpu:
    """A GPU as the driver shows it.

    Attributes:
        pids: processes that compute or draw on the GPU, by the host's numbers; a container may see none of them.
        used_bytes: used memory without the driver's own.
    """

    index: int
    uuid: str
    model: str
    total_bytes: int
    used_bytes: int
    mig: bool
    pids: Tuple[int, ...]

    @property
    def used_by_others(self) -> bool:
        """Whether a process uses the GPU while none of ours does."""
        return bool(self.pids) or self.used_bytes > _IDLE_BYTES

    @property
    def use(self) -> str:
        """Return which processes use the GPU, and its used memory, as text."""
        who = "processes %s" % ", ".join(map(str, self.pids)) if self.pids else "a process that is not shown here"
        return "%s, %.1f GiB" % (who, self.used_bytes / 1024**3)


def load() -> Optional[Any]:
    """Return the initialised library; None where there is no NVIDIA driver.

    Raises:
        DriverError: the driver does not answer as it should.
    """
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError:
        return None
    _call(library, "nvmlInit_v2")
    return library


def driver(library: Any) -> str:
    """Return the driver's version."""
    return _text(library, "nvmlSystemGetDriverVersion")


def inspect_gpus(library: Any) -> List[Gpu]:
    """Return every GPU that the driver counts."""
    count = ctypes.c_uint()
    _call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    return [inspect_gpu(library, index) for index in range(count.value)]


def inspect_gpu(library: Any, index: int) -> Gpu:
    """Return one GPU.

    Raises:
        DriverError: the driver answers with an error, e.g. because the GPU is lost.
    """
    handle = ctypes.c_void_p()
    _call(library, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
    memory = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
    _call(library, "nvmlDeviceGetMemoryInfo_v2", handle, ctypes.byref(memory))
    return Gpu(
        index,
        _text(library, "nvmlDeviceGetUUID", handle),
        _text(library, "nvmlDeviceGetName", handle),
        memory.total,
        memory.used,
        _is_cut(library, handle),
        _pids(library, handle),
    )


def wait_until_free(library: Any, indexes: List[int], seconds: float) -> Tuple[bool, float]:
    """Wait until no process has these GPUs, at most for this long; return whether they are free, and the seconds it
    took.

    After SIGKILL the driver takes its time: 0.1 to 0.2 s, and with pinned memory about 0.16 s per GiB (H200, 580).
    """
    began = time.monotonic()
    while True:
        free = not any(inspect_gpu(library, index).used_by_others for index in indexes)
        took = time.monotonic() - began
        if free or took > seconds:
            return free, took
        time.sleep(_POLL_SECONDS)


def _is_cut(library: Any, handle: ctypes.c_void_p) -> bool:
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    code = library.nvmlDeviceGetMigMode(handle, ctypes.byref(current), ctypes.byref(pending))
    if code == _NOT_SUPPORTED:
        return False
    _raise_on_error("nvmlDeviceGetMigMode", code)
    return current.value == 1


def _pids(library: Any, handle: ctypes.c_void_p) -> Tuple[int, ...]:
    pids = set()
    for name in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"):
        count, processes = ctypes.c_uint(_MAX_PROCESSES), (_Process * _MAX_PROCESSES)()
        code = getattr(library, name)(handle, ctypes.byref(count), processes)
        if code == _NOT_SUPPORTED:
            continue
        if code != _INSUFFICIENT_SIZE:
            _raise_on_error(name, code)
        pids |= {process.pid for process in processes[: min(count.value, _MAX_PROCESSES)]}
    return tuple(sorted(pids))


def _text(library: Any, name: str, *arguments: Any) -> str:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    _call(library, name, *arguments, text, ctypes.c_uint(_TEXT_BYTES))
    return text.value.decode("ascii", "replace")


def _call(library: Any, name: str, *arguments: Any) -> None:
    _raise_on_error(name, getattr(library, name)(*arguments))


def _raise_on_error(name: str, code: int) -> None:
    if code:
        raise DriverError("%s answers %d" % (name, code))

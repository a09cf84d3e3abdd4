"""Describes what the figures of this machine may be compared with: its model, instruction set and libraries.

Tests: tests/integration/nightly/preflight_probes/test_real_torch.py.
"""

from __future__ import annotations

import os
import platform
from typing import Any, Dict, Optional

from muster.node.checker.probes import version

_INSTRUCTIONS = ("amx_bf16", "amx_int8", "avx512_bf16", "avx512f", "avx2", "sve", "asimd")
"""CPU features by which a library chooses another order of additions: each gives another, correct, last bit."""
_LIMITS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS", "NVIDIA_TF32_OVERRIDE")


def library(torch: Any) -> Dict[str, Any]:
    """Return the versions that torch was built with; no device is used."""
    cuda = torch.version.cuda
    # nccl.version() needs only the library.
    nccl = ".".join(map(str, torch.cuda.nccl.version())) if cuda and torch.distributed.is_nccl_available() else None
    return {"torch": str(torch.__version__), "cuda": cuda, "nccl": nccl, "version": version()}


def mark(torch: Any, cuda_index: Optional[int]) -> Dict[str, Any]:
    """Return model and instruction set of a GPU that has a context, or of the CPU."""
    if cuda_index is not None:
        properties = torch.cuda.get_device_properties(cuda_index)
        return {
            "model": properties.name,
            "instructions": "sm_%d%d" % (properties.major, properties.minor),
            "multiprocessors": properties.multi_processor_count,
        }
    text = _read("/proc/cpuinfo")
    flags = set(_field(text, ("flags", "Features")).split())
    limits = ["%s=%s" % (name, os.environ[name]) for name in _LIMITS if name in os.environ]
    return {
        "model": _field(text, ("model name", "Model")) or platform.machine(),
        "instructions": " ".join([name for name in _INSTRUCTIONS if name in flags] + limits),
        "threads": torch.get_num_threads(),  # a library may split a sum by this number
    }


def available_memory_bytes() -> int:
    """Return the memory of the machine that is available without evicting anything."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _field(text: str, names: "tuple[str, ...]") -> str:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in names:
            return value.strip()
    return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""

"""Asks the NVIDIA driver how much energy the accelerators of this container have used: by a child, since a driver may
hang.

It reads nothing else, and opens no context on any GPU: what is asked are counters that go on by themselves.

Tests: tests/unit/launcher/test_energy.py.
"""

from __future__ import annotations

import ctypes
import json
from typing import Any, BinaryIO, Callable

_LIBRARY = "libnvidia-ml.so.1"


class NoReadingError(Exception):
    """The NVIDIA driver does not say how much energy was used; the message says why."""


def answer_on_request(requests: BinaryIO, say: Callable[[str], None]) -> None:
    """Answer each line of the requests with the sum of all accelerators' energy counters, or with why there is none."""
    try:
        nvml = ctypes.CDLL(_LIBRARY)
        _checked(nvml, "nvmlInit_v2")
    except (OSError, AttributeError, NoReadingError) as error:
        nvml, why = None, str(error)
    for _ in requests:
        try:
            say(json.dumps(_reading(nvml) if nvml is not None else {"error": why}) + "\n")
        except (AttributeError, NoReadingError) as error:
            say(json.dumps({"error": str(error)}) + "\n")


def _reading(nvml: Any) -> "dict[str, int]":
    count = ctypes.c_uint()
    _checked(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    total = 0
    for index in range(count.value):
        handle, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
        _checked(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        _checked(nvml, "nvmlDeviceGetTotalEnergyConsumption", handle, ctypes.byref(millijoules))
        total += millijoules.value
    return {"millijoules": total, "gpus": count.value}


def _checked(nvml: Any, name: str, *arguments: Any) -> None:
    code = getattr(nvml, name)(*arguments)
    if code:
        raise NoReadingError("%s answers %d" % (name, code))

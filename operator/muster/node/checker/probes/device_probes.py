"""Probes which devices there are and whether they can be opened.

Tests: tests/integration/nightly/preflight_probes/test_real_torch.py.
"""

from __future__ import annotations

import dataclasses
import glob
import os
from typing import Any, Dict

from muster.node.checker.probes import nvml
from muster.node.checker.probes.bursts import significant
from muster.node.checker.probes.outcome import IN_USE, MIG, MISSING, UNFIT, ProblemError
from muster.node.checker.probes.worker import Worker


def count_devices(worker: Worker) -> Dict[str, Any]:
    """Compare the devices that the driver sees with the order's `expected` (None: any number). CUDA is not used."""
    worker.phase("driver")
    library = nvml.load()
    files = len(glob.glob("/dev/nvidia[0-9]*"))
    if library is None and files:
        raise ProblemError(UNFIT, "there are %d GPUs under /dev, but no libnvidia-ml.so.1 for this container" % files)
    if library is None and worker.order.get("expected"):
        text = (
            "this container sees no driver, where %d GPUs are expected: is NVIDIA's container runtime the node's "
            "default?"
        )
        raise ProblemError(UNFIT, text % worker.order["expected"])
    gpus = nvml.inspect_gpus(library) if library is not None else []
    expected = worker.order.get("expected")
    figures = {
        "expected": expected,
        "found": len(gpus),
        "driver": nvml.driver(library) if library is not None else None,
        "cores": len(os.sched_getaffinity(0)),
        "gpus": [dataclasses.asdict(gpu) for gpu in gpus],
    }
    if expected is not None and len(gpus) < expected:
        raise ProblemError(MISSING, "%d GPUs, expected %d" % (len(gpus), expected), figures)
    cut = [gpu.index for gpu in gpus if gpu.mig]
    if cut:
        raise ProblemError(MIG, "GPUs cut into MIG slices: %s" % ", ".join(map(str, cut)), figures)
    used = ["GPU %d by %s" % (gpu.index, gpu.use) for gpu in gpus if gpu.used_by_others]
    if used:
        raise ProblemError(IN_USE, "in use: %s" % "; ".join(used), figures)
    return figures


def open_context(worker: Worker) -> Dict[str, Any]:
    """Measure the seconds until the device accepts work, all devices at once."""
    return {"context_seconds": significant(worker.open_device())}

"""Probes how fast a device computes and moves data, with all devices of the node loaded at once.

Tests: tests/integration/nightly/preflight_probes/test_real_torch.py.
"""

from __future__ import annotations

from typing import Any, Dict

from muster.node.checker.probes import bursts
from muster.node.checker.probes.outcome import WRONG, ProblemError
from muster.node.checker.probes.worker import Worker

_TERA = 1e12
_GIGA = 1e9
_SEED = 7


def gemm(worker: Worker) -> Dict[str, Any]:
    """Measure bf16 products of `size` x `size`: 2 size^3 operations each.

    From 8192 on the rate of an H200 varies by 3 %, at 4096 by 20 %.
    """
    worker.open_device()
    worker.phase("gemm")
    torch, size = worker.torch, worker.order["size"]
    generator = torch.Generator(device=worker.device).manual_seed(_SEED)
    left, right = (
        torch.randn(size, size, generator=generator, device=worker.device).to(torch.bfloat16) for _ in range(2)
    )
    result = torch.empty_like(left)
    worker.meet("load")
    rates = bursts.rates(worker, lambda: torch.mm(left, right, out=result), 2.0 * size**3)
    return {"type": "bfloat16", "size": size, **bursts.summary(rates, "tflops", _TERA)}


def bandwidth(worker: Worker) -> Dict[str, Any]:
    """Measure copies of `bytes` inside the device's memory; each byte is read once and written once, and counts
    twice."""
    worker.open_device()
    worker.phase("copy")
    torch, size_bytes = worker.torch, worker.order["bytes"]
    source = torch.ones(size_bytes // 4, dtype=torch.int32, device=worker.device)
    target = torch.empty_like(source)
    worker.meet("load")
    rates = bursts.rates(worker, lambda: target.copy_(source), 2.0 * size_bytes)
    return {"bytes": size_bytes, **bursts.summary(rates, "gb_per_s", _GIGA)}


def host_copies(worker: Worker) -> Dict[str, Any]:
    """Measure copies of `bytes` from the host's memory (pinned on a GPU) to the device and back, and compare the data.

    Little memory is pinned: after SIGKILL the driver needs 0.16 s per GiB to free it.
    """
    worker.open_device()
    torch, size_bytes = worker.torch, worker.order["bytes"]
    worker.phase("pin")
    host = torch.arange(size_bytes // 4, dtype=torch.int32)
    back = torch.empty_like(host)
    if worker.cuda:
        host, back = host.pin_memory(), back.pin_memory()
    device_copy = torch.empty_like(host, device=worker.device)
    worker.meet("load")
    worker.phase("to device")
    to_device = bursts.rates(worker, lambda: device_copy.copy_(host, non_blocking=True), float(size_bytes))
    worker.phase("from device")
    from_device = bursts.rates(worker, lambda: back.copy_(device_copy, non_blocking=True), float(size_bytes))
    worker.phase("compare")
    wrong = int(torch.ne(host, back).sum())
    figures = {
        "bytes": size_bytes,
        "to_device": bursts.summary(to_device, "gb_per_s", _GIGA),
        "from_device": bursts.summary(from_device, "gb_per_s", _GIGA),
        "wrong_words": wrong,
    }
    if wrong:
        raise ProblemError(WRONG, "%d of %d words came back otherwise" % (wrong, size_bytes // 4), figures)
    return figures

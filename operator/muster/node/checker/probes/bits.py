"""Finds silent corruption: the same sums must always give the same bits, here and on every device of the same kind.

Results stay on the device; a fingerprint of 16 bytes leaves it. Faults depend on the data (the same product 200 times
is one test), hence several types, sizes and seeds. The test does not find every bad device: real faults differ by
device and by operation (arXiv 2502.12340).

Tests: tests/integration/nightly/preflight_probes/test_real_torch.py, tests/unit/preflight_probes/test_rules.py.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from typing import Any, Dict, List, Tuple

from muster.node.checker.probes.bursts import significant
from muster.node.checker.probes.outcome import DONE, WRONG, ProblemError
from muster.node.checker.probes.worker import Worker

ALIKE = ("model", "instructions", "multiprocessors", "driver", "threads")
"""Devices with these values in common owe the same bits; their libraries are the same, because they are in one
image."""
_ERRORS_AT_95_PERCENT = 3.0
"""The rule of three: no error in T seconds means, with 95 % confidence, fewer than 3 / T errors a second."""


def bits(worker: Worker) -> Dict[str, Any]:
    """Compute fingerprints for each type and size of `shapes` over `seeds` seeds, repeated for `seconds`, at least
    twice.

    `shapes`: [type, rows, inner, columns]. Fingerprints must be equal only for the same model, library, instruction set
        and version of the probes.
    """
    worker.open_device()
    worker.phase("bits")
    torch = worker.torch
    # Like torch.use_deterministic_algorithms, without its imports from PyTorch 2.9 on: 4.4 s on a real H200.
    torch.set_deterministic_debug_mode("error")
    shapes, seeds = worker.order["shapes"], range(worker.order["seeds"])
    first: Dict[str, List[Tuple[int, ...]]] = {}
    differing: Dict[str, int] = {}
    worker.meet("load")
    began, passes, tried = time.monotonic(), 0, 0
    while passes < 2 or time.monotonic() - began < worker.order["seconds"]:
        for shape in shapes:
            name = "%s %dx%dx%d" % tuple(shape)
            fingerprints = [_fingerprint(worker, shape, seed) for seed in seeds]
            tried += len(fingerprints)
            wanted = first.setdefault(name, fingerprints)
            differ = sum(computed != other for computed, other in zip(fingerprints, wanted))
            if differ:
                differing[name] = differing.get(name, 0) + differ
        passes += 1
    seconds = time.monotonic() - began
    figures: Dict[str, Any] = {
        "fingerprints": {name: _digest(prints) for name, prints in first.items()},
        "passes": passes,
        "results": tried,
        "differing": sum(differing.values()),
        "errors_per_second_below": significant(_ERRORS_AT_95_PERCENT / seconds),
    }
    if differing:
        differing_text = ", ".join("%d of %s" % (count, name) for name, count in sorted(differing.items()))
        raise ProblemError(
            WRONG, "the same sums gave other bits: %s (of %d results)" % (differing_text, tried), figures
        )
    return figures


def conclude(parts: List[Dict[str, Any]]) -> None:
    """Compare the devices of the node: a device that differs from the majority is wrong; without a majority the wrong
    one is unknown.

    The results are written into the parts. Devices are compared only with devices of the same model.
    """
    for name in sorted({name for part in parts for name in part["figures"].get("fingerprints", {})}):
        by_model: Dict[str, List[Dict[str, Any]]] = {}
        for part in parts:
            if name in part["figures"].get("fingerprints", {}):
                by_model.setdefault(str([part["mark"].get(name) for name in ALIKE]), []).append(part)
        for alike in by_model.values():
            _vote(name, alike)


def _vote(name: str, alike: List[Dict[str, Any]]) -> None:
    votes = Counter(part["figures"]["fingerprints"][name] for part in alike).most_common()
    if len(votes) == 1:
        return
    majority = votes[0][0] if votes[0][1] * 2 > len(alike) else None
    for part in alike:
        if part["figures"]["fingerprints"][name] == majority:
            continue
        if part["outcome"] == DONE:
            part["outcome"] = WRONG
            part["message"] = (
                "%s: other bits than %d of %d devices" % (name, votes[0][1], len(alike))
                if majority is not None
                else "%s: the devices differ, and no majority shows which is wrong" % name
            )


def _fingerprint(worker: Worker, shape: "list[Any]", seed: int) -> Tuple[int, ...]:
    """Return the fingerprint of a product and of what training does with one: exponentials, sums and norms along
    rows."""
    torch, (kind, rows, inner, columns) = worker.torch, shape
    dtype = getattr(torch, kind)
    generator = torch.Generator(device=worker.device).manual_seed(seed)
    left = torch.randn(rows, inner, generator=generator, device=worker.device).to(dtype)
    right = torch.randn(inner, columns, generator=generator, device=worker.device).to(dtype)
    product = torch.mm(left, right)
    wide = product.to(torch.float32) / inner**0.5
    after = torch.nn.functional.layer_norm(torch.softmax(wide, dim=-1), (columns,))
    return (*_sums(torch, product), *_sums(torch, after))


def _sums(torch: Any, tensor: Any) -> Tuple[int, int]:
    """Return the sum of the bits as whole numbers, plain and weighted by position: it wraps around, and is the same in
    any order."""
    kind = torch.int16 if tensor.element_size() == 2 else torch.int32
    words = tensor.contiguous().view(kind).flatten().to(torch.int64)
    weights = torch.arange(1, 2 * words.numel(), 2, dtype=torch.int64, device=words.device)
    return int(words.sum()), int((words * weights).sum())


def _digest(fingerprints: List[Tuple[int, ...]]) -> str:
    return hashlib.blake2b(repr(fingerprints).encode(), digest_size=8).hexdigest()

"""Define what each profile runs, as data: sizes, seconds, and the deadlines that are enforced from outside.

A deadline is about four times the expected time of a probe, and 5 s at least; on GPUs it allows for a context on each
of eight devices. GPU sizes follow measurements on an H200: bf16 products vary by 3 % from 8192 on; all free memory
takes two patterns in 0.16 s; 200 repeats of a 4096 product take 0.14 s. CPU sizes follow two busy cores with oneDNN.

Tests: tests/unit/checker/test_translate.py.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

KIB, MIB, GIB = 1024, 1024**2, 1024**3
STORAGE = "Storage"
# As NVML names the boards: "NVIDIA H100 PCIe", "NVIDIA A100-PCIE-40GB", "NVIDIA H100 NVL" (a pair of them is bridged).
_FOR_SLOTS = re.compile(r"\bPCIe\b|\bNVL\b", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Step:
    """One probe with its parameters."""

    probe: str
    deadline_seconds: float
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ProfileProbes:
    """The probes of one profile on one device.

    Attributes:
        limit_seconds: of all node steps together.
        node: the steps on one node; storage only where a directory is named.
        pair: [bytes, repeats] of the all-reduces between two nodes.
        gang: the same over the whole gang.
        deadline_seconds: of one all-reduce probe of a pair or gang.
    """

    limit_seconds: float
    node: Mapping[str, Tuple[Step, ...]]
    pair: Mapping[str, Sequence[Tuple[int, int]]]
    gang: Mapping[str, Sequence[Tuple[int, int]]]
    deadline_seconds: Mapping[str, float]


def _gemm(size: int, seconds: float, burst_seconds: float, deadline_seconds: float) -> Step:
    return Step("Gemm", deadline_seconds, {"size": size, "seconds": seconds, "burst_seconds": burst_seconds})


def _copies(probe: str, size_bytes: int, seconds: float, deadline_seconds: float) -> Step:
    return Step(probe, deadline_seconds, {"bytes": size_bytes, "seconds": seconds, "burst_seconds": 0.01})


def _pattern(size_bytes: "int | None", chunk_bytes: int, patterns: int, rounds: int, deadline_seconds: float) -> Step:
    # While a chunk is compared, memory also holds its addresses (as much again) and a byte for each word; where words
    # are wrong, eight bytes for each word to count them.
    reserve = 4 * chunk_bytes
    return Step(
        "Pattern",
        deadline_seconds,
        {
            "bytes": size_bytes,
            "reserve_bytes": reserve,
            "chunk_bytes": chunk_bytes,
            "patterns": patterns,
            "rounds": rounds,
        },
    )


def _bits(shapes: "List[List[Any]]", seeds: int, seconds: float, deadline_seconds: float) -> Step:
    return Step("Bits", deadline_seconds, {"shapes": shapes, "seeds": seeds, "seconds": seconds})


def _all_reduce(processes: int, sizes: Sequence[Tuple[int, int]], deadline_seconds: float) -> Step:
    parameters = {"nodes": 1, "node_rank": 0, "wait_seconds": 5, "sizes": sizes}
    if processes:
        parameters["processes"] = processes
    return Step("AllReduce", deadline_seconds, parameters)


def _storage(size_bytes: int, deadline_seconds: float) -> Step:
    return Step(STORAGE, deadline_seconds, {"bytes": size_bytes})


# One odd size each: other kernels, other tiles at the edge.
_GPU_SHAPES: "List[List[Any]]" = [
    ["bfloat16", 4096, 4096, 4096],
    ["float16", 4096, 4096, 4096],
    ["bfloat16", 2047, 4097, 1031],
]
_GPU_MORE_SHAPES: "List[List[Any]]" = [
    *_GPU_SHAPES,
    ["bfloat16", 8192, 8192, 8192],
    ["float32", 4096, 4096, 4096],
]
_CPU_SHAPES: "List[List[Any]]" = [["bfloat16", 256, 256, 256], ["float32", 96, 96, 96], ["bfloat16", 127, 257, 65]]

JUDGED_BYTES = {"cpu": MIB, "cuda": 256 * MIB}
"""By device, the message of an all-reduce whose figure is judged. It is in every profile, because a larger one reaches
more: two nodes of eight H100 with 400 Gb/s each reach 270 GB/s at 64 MiB, 392 at 256 MiB and 449 at 1 GiB
(NVIDIA/nccl-tests#309)."""
# Measured between two nodes: best of 30 at 1 MiB finds a link at a ninth of its rate always, and segments sent again
# during the small messages find 0.5 % loss always; longer messages are noisier on a CPU.
_CPU_PAIR = ((4 * KIB, 300), (64 * KIB, 100), (MIB, 30))
# Inside a node no figure depends on their number, and two processes that share a busy core take long for each.
_CPU_NODE = ((4 * KIB, 50), (64 * KIB, 20), (MIB, 10))
_GPU_PAIR = ((4 * KIB, 300), (MIB, 100), (256 * MIB, 10))
_GPU_WIDE = (*_GPU_PAIR, (GIB, 10))
_CPU_GANG = ((4 * KIB, 50), (MIB, 10))
GANG_NODES = {"cpu": 64, "cuda": 256}
"""By device, the largest gang that is measured as a whole: beyond that to meet takes longer than the deadline allows.

gloo connects each process with each other one: 64 processes met within 1.1 s on two cores, 32 within 0.8; and each sum
crosses the network 2 (n - 1) times in turn. For NCCL it is 2,048 ranks that meet through one store; that was not
measured."""
_PAIR = {"cpu": _CPU_PAIR, "cuda": _GPU_PAIR}
_WIDE = {"cpu": _CPU_PAIR, "cuda": _GPU_WIDE}
_DEADLINES = {"cpu": 20.0, "cuda": 30.0}

PROFILES: Dict[str, ProfileProbes] = {
    "Quick": ProfileProbes(
        30,
        {
            "cuda": (
                Step("Context", 20),
                _gemm(8192, 2, 0.05, 20),
                _copies("Bandwidth", GIB, 0.3, 15),
                _pattern(None, 256 * MIB, 2, 1, 15),
                _bits(_GPU_SHAPES, 8, 2, 20),
                _copies("HostCopies", 256 * MIB, 0.3, 15),
                _all_reduce(0, ((MIB, 50), (256 * MIB, 10)), 20),
                _storage(64 * MIB, 15),
            ),
            "cpu": (
                Step("Context", 5),
                _gemm(512, 1, 0.01, 12),
                _copies("Bandwidth", 64 * MIB, 0.5, 8),
                _pattern(32 * MIB, 16 * MIB, 2, 1, 12),
                _bits(_CPU_SHAPES, 4, 1, 12),
                _copies("HostCopies", 32 * MIB, 0.3, 8),
                _all_reduce(2, _CPU_NODE, 10),
                _storage(16 * MIB, 15),
            ),
        },
        _PAIR,
        {"cpu": _CPU_GANG, "cuda": _GPU_PAIR},
        _DEADLINES,
    ),
    "Standard": ProfileProbes(
        180,
        {
            "cuda": (
                Step("Context", 20),
                _gemm(8192, 15, 0.05, 60),
                _gemm(16384, 15, 0.1, 60),
                _copies("Bandwidth", GIB, 5, 30),
                _pattern(None, 256 * MIB, 3, 10, 60),
                _bits(_GPU_MORE_SHAPES, 32, 30, 120),
                _copies("HostCopies", 256 * MIB, 3, 30),
                _all_reduce(0, ((4 * KIB, 200), (MIB, 100), (256 * MIB, 20), (GIB, 50)), 60),
                _storage(GIB, 60),
            ),
            "cpu": (
                Step("Context", 5),
                _gemm(512, 5, 0.01, 60),
                _copies("Bandwidth", 64 * MIB, 2, 30),
                _pattern(128 * MIB, 16 * MIB, 3, 2, 90),
                _bits(_CPU_SHAPES, 32, 10, 80),
                _copies("HostCopies", 32 * MIB, 3, 30),
                _all_reduce(2, (*_CPU_PAIR, (16 * MIB, 5)), 30),
                _storage(64 * MIB, 30),
            ),
        },
        _WIDE,
        _WIDE,
        {"cpu": 20.0, "cuda": 60.0},
    ),
    "Deep": ProfileProbes(
        900,
        {
            "cuda": (
                Step("Context", 20),
                _gemm(8192, 60, 0.05, 150),
                _gemm(16384, 120, 0.1, 300),
                _copies("Bandwidth", 4 * GIB, 20, 60),
                _pattern(None, 256 * MIB, 3, 100, 200),
                _bits(_GPU_MORE_SHAPES, 64, 300, 450),
                _copies("HostCopies", 256 * MIB, 10, 60),
                _all_reduce(0, ((4 * KIB, 500), (MIB, 500), (256 * MIB, 50), (GIB, 200), (4 * GIB, 50)), 120),
                _storage(4 * GIB, 120),
            ),
            "cpu": (
                Step("Context", 5),
                _gemm(512, 120, 0.01, 300),
                _copies("Bandwidth", 64 * MIB, 30, 120),
                _pattern(4 * GIB, 16 * MIB, 3, 3, 300),
                _bits(_CPU_SHAPES, 64, 300, 450),
                _copies("HostCopies", 32 * MIB, 10, 60),
                _all_reduce(2, (*_CPU_PAIR, (16 * MIB, 20), (64 * MIB, 5)), 60),
                _storage(256 * MIB, 60),
            ),
        },
        _WIDE,
        _WIDE,
        {"cpu": 20.0, "cuda": 60.0},
    ),
}


def is_for_slot(model: str) -> bool:
    """Whether a GPU of this product name is a board for a PCIe slot: NVLink does not carry its traffic to others."""
    return _FOR_SLOTS.search(model) is not None

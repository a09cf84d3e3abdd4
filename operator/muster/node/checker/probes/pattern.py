"""Tests memory with patterns: all free memory is filled, and only then compared, so that cells that share an address
show.

Tests: tests/integration/nightly/preflight_probes/test_real_torch.py.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List

from muster.node.checker.probes import machine
from muster.node.checker.probes.bursts import significant
from muster.node.checker.probes.outcome import UNFIT, WRONG, ProblemError
from muster.node.checker.probes.worker import Worker

_WORD_BYTES = 4
_ALTERNATING = (0x55555555, -0x55555556)
"""Each bit is set once and clear once, unlike its neighbours; the second is 0xAAAAAAAA as int32."""
ADDRESSES = "addresses"
"""Each word holds its own number: a word that was written to the wrong place shows."""
_MAX_SHOWN = 8


def pattern(worker: Worker) -> Dict[str, Any]:
    """Fill and compare memory with `patterns` (2: alternating bits; 3: addresses as well), `rounds` times.

    At most `bytes` are used (None: no limit), and `reserve_bytes` stay free. Memory is used in chunks of `chunk_bytes`;
    the comparison needs more memory beside them. The figure is the best of all rounds with alternating bits, so that
    profiles with more rounds and patterns can be compared.
    """
    worker.open_device()
    worker.phase("allocate")
    chunks = _allocate(worker)
    total_bytes = sum(chunk.numel() for chunk in chunks) * _WORD_BYTES
    wanted: List[Any] = [*_ALTERNATING, ADDRESSES][: worker.order["patterns"]]
    worker.meet("load")
    wrong, fastest = 0, float("inf")
    where: List[Dict[str, Any]] = []
    for pattern_word in wanted * worker.order["rounds"]:
        began = time.monotonic()
        worker.phase("write %s" % _name(pattern_word))
        for number, chunk in enumerate(chunks):
            _write(worker, chunk, number, pattern_word)
        worker.wait()
        worker.phase("compare %s" % _name(pattern_word))
        for number, chunk in enumerate(chunks):
            count, first = _compare(worker, chunk, number, pattern_word)
            wrong += count
            if count and len(where) < _MAX_SHOWN:
                where.append(
                    {
                        "pattern": _name(pattern_word),
                        "byte": number * worker.order["chunk_bytes"] + first,
                        "words": count,
                    }
                )
        if pattern_word != ADDRESSES:  # which are made again each time
            fastest = min(fastest, time.monotonic() - began)
    figures = {
        "bytes": total_bytes,
        "patterns": [_name(pattern_word) for pattern_word in wanted],
        "wrong_words": wrong,
        "best_gb_per_s": significant(2 * total_bytes / max(fastest, 1e-9) / 1e9),
    }
    if wrong:
        message = "%d words of %.1f GiB were not as written" % (wrong, total_bytes / 1024**3)
        raise ProblemError(WRONG, message, {**figures, "where": where})
    return figures


def _allocate(worker: Worker) -> List[Any]:
    torch, order = worker.torch, worker.order
    free = torch.cuda.mem_get_info(worker.index)[0] if worker.cuda else machine.available_memory_bytes()
    limit = free - order["reserve_bytes"]
    if order["bytes"] is not None:
        limit = min(limit, order["bytes"])
    words = order["chunk_bytes"] // _WORD_BYTES
    chunks = []
    for _ in range(limit // order["chunk_bytes"]):
        try:
            chunks.append(torch.empty(words, dtype=torch.int32, device=worker.device))
        except torch.cuda.OutOfMemoryError:  # the free memory is in pieces
            break
    if not chunks:
        raise ProblemError(UNFIT, "only %.2f GiB of memory are free" % (free / 1024**3))
    return chunks


def _name(pattern_word: Any) -> str:
    return pattern_word if pattern_word == ADDRESSES else "0x%08x" % (pattern_word & 0xFFFFFFFF)


def _addresses(worker: Worker, chunk: Any, number: int) -> Any:
    """Return the words of a chunk, numbered through all chunks; from 16 GiB on the numbers wrap around."""
    torch = worker.torch
    first = (number * chunk.numel()) & 0xFFFFFFFF
    first -= (first & 0x80000000) << 1
    return torch.arange(chunk.numel(), dtype=torch.int32, device=worker.device).add_(first)


def _write(worker: Worker, chunk: Any, number: int, pattern_word: Any) -> None:
    if pattern_word == ADDRESSES:
        chunk.copy_(_addresses(worker, chunk, number))
    else:
        chunk.fill_(pattern_word)


def _compare(worker: Worker, chunk: Any, number: int, pattern_word: Any) -> "tuple[int, int]":
    """Return how many words differ, and at which byte of the chunk the first of them is."""
    differs = worker.torch.ne(chunk, _addresses(worker, chunk, number) if pattern_word == ADDRESSES else pattern_word)
    if not bool(differs.any()):  # the count takes eight bytes a word
        return 0, 0
    return int(differs.sum()), int(differs.to(worker.torch.uint8).argmax()) * _WORD_BYTES

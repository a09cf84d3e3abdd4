"""Probes storage: a file is written, synced, read back from the disk, compared and removed.

The file is named after the node, and an old one is removed first: a killed probe leaves one file at most.

Tests: tests/unit/preflight_probes/test_rules.py.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any, Dict

from muster.node.checker.probes.bursts import significant
from muster.node.checker.probes.outcome import FAILED, UNFIT, WRONG, ProblemError
from muster.node.checker.probes.worker import Worker

_BLOCK_BYTES = 4 * 1024 * 1024
_NUMBER_BYTES = 8
_GIGA = 1e9


def storage(worker: Worker) -> Dict[str, Any]:
    """Measure rates of a file of `bytes` in `directory`.

    Blocks differ, so that no file system stores them once. The page cache is asked to drop them before they are read;
    a network file system may still answer from a cache.
    """
    directory = worker.order["directory"]
    if not os.path.isdir(directory):
        raise ProblemError(UNFIT, "%s is no directory here" % directory)
    path = os.path.join(directory, ".muster-probe-%s" % socket.gethostname())
    blocks = max(1, worker.order["bytes"] // _BLOCK_BYTES)
    try:
        worker.phase("open")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ProblemError(FAILED, "no file can be made in %s: %s" % (directory, error.strerror)) from error
    try:
        return _measure(worker, descriptor, blocks)
    except OSError as error:
        raise ProblemError(FAILED, "%s: %s" % (directory, error.strerror)) from error
    finally:
        worker.phase("remove")
        os.unlink(path)
        os.close(descriptor)


def _measure(worker: Worker, descriptor: int, blocks: int) -> Dict[str, Any]:
    noise = os.urandom(_BLOCK_BYTES)
    block, back = bytearray(noise), bytearray(_BLOCK_BYTES)
    worker.phase("write")
    began = time.monotonic()
    for number in range(blocks):
        block[:_NUMBER_BYTES] = number.to_bytes(_NUMBER_BYTES, "big")
        _write_all(descriptor, block)
    written = time.monotonic()
    worker.phase("sync")
    os.fsync(descriptor)
    synced = time.monotonic()
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.lseek(descriptor, 0, os.SEEK_SET)
    worker.phase("read")
    reading, wrong = 0.0, 0
    for number in range(blocks):
        block[:_NUMBER_BYTES] = number.to_bytes(_NUMBER_BYTES, "big")
        began_reading = time.monotonic()
        _read_all(descriptor, back)
        reading += time.monotonic() - began_reading
        wrong += back != block
    size = blocks * _BLOCK_BYTES
    figures = {
        "bytes": size,
        "write_gb_per_s": significant(size / max(synced - began, 1e-9) / _GIGA),
        "sync_seconds": significant(synced - written),
        "read_gb_per_s": significant(size / max(reading, 1e-9) / _GIGA),
        "wrong_blocks": wrong,
    }
    if wrong:
        raise ProblemError(WRONG, "%d of %d blocks read back otherwise than written" % (wrong, blocks), figures)
    return figures


def _write_all(descriptor: int, data: bytearray) -> None:
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.write(descriptor, view[done:])


def _read_all(descriptor: int, into: bytearray) -> None:
    """Fill the buffer; where the file is too short, its end stays unchanged, and so is unequal to every block."""
    with memoryview(into) as view:
        done = 0
        while done < len(view):
            count = os.readv(descriptor, [view[done:]])
            if not count:
                return
            done += count

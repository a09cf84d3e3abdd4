"""Memory that lies between what is in use is given back."""

import ctypes
from pathlib import Path

from muster.coordinator.memory import give_back

PIECE_BYTES = 16 * 1024
PIECES = 4096


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_holes_in_the_heap_are_given_back() -> None:
    pieces = [ctypes.create_string_buffer(PIECE_BYTES) for _ in range(PIECES)]
    full = resident_bytes()
    last = pieces[-1]  # the heap cannot shrink beyond it by itself
    del pieces
    assert give_back()
    assert full - resident_bytes() > PIECE_BYTES * PIECES / 2
    assert len(last) == PIECE_BYTES

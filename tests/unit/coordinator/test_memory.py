"""Memory that lies between what is in use is given back."""

import ctypes
import gc
import weakref
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
    assert give_back(garbage=False)
    assert full - resident_bytes() > PIECE_BYTES * PIECES / 2
    assert len(last) == PIECE_BYTES


class Circle:
    def __init__(self) -> None:
        self.itself = self


def test_circles_of_dead_objects_are_found_where_they_are_looked_for() -> None:
    gc.disable()
    try:
        dead = weakref.ref(Circle())
        give_back(garbage=False)
        assert dead() is not None
        give_back(garbage=True)
        assert dead() is None
    finally:
        gc.enable()

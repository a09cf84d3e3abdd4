"""Memory that lies between what is in use is given back."""

import ctypes
import gc
import time
import weakref
from pathlib import Path

import pytest

from muster.coordinator import memory
from muster.coordinator.memory import (
    AFTERMATH_SECONDS,
    BURST_CONNECTIONS,
    BurstDetector,
    release_memory,
    working_seconds,
)

PIECE_BYTES = 16 * 1024
PIECES = 4096


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_holes_in_the_heap_are_given_back() -> None:
    pieces = [ctypes.create_string_buffer(PIECE_BYTES) for _ in range(PIECES)]
    full = resident_bytes()
    last = pieces[-1]  # the heap cannot shrink beyond it by itself
    del pieces
    assert release_memory(garbage=False)
    assert full - resident_bytes() > PIECE_BYTES * PIECES / 2
    assert len(last) == PIECE_BYTES


class Circle:
    def __init__(self) -> None:
        self.itself = self


def test_the_collectors_time_is_nobodys_work(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0

    def collect_for_5_s(phase: str, _: object) -> None:
        nonlocal seconds
        seconds += 5.0 if phase == "stop" else 0.0

    monkeypatch.setattr(time, "thread_time", lambda: seconds)
    gc.callbacks.insert(0, collect_for_5_s)
    try:
        begin_seconds = working_seconds()
        gc.collect()
        seconds += 1.0
        assert working_seconds() - begin_seconds == pytest.approx(1.0)
    finally:
        gc.callbacks.remove(collect_for_5_s)


def test_circles_of_dead_objects_are_found_where_they_are_looked_for() -> None:
    gc.disable()
    try:
        dead = weakref.ref(Circle())
        release_memory(garbage=False)
        assert dead() is not None
        release_memory(garbage=True)
        assert dead() is None
    finally:
        gc.enable()


class Watched:
    """Crowds whose deeds are noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        monkeypatch.setattr(
            memory, "release_memory", lambda *, garbage: self.done.append("garbage" if garbage else "trim") is None
        )
        self.crowds = BurstDetector(0.0, forget=lambda: self.done.append("forget"))

    def look(self, opened: int, lost: int, now: float) -> list[str]:
        """Two looks, because a crowd is looked for when nobody comes or goes any more; what was done."""
        self.done.clear()
        self.crowds.check_burst(opened, lost, now)
        self.crowds.check_burst(opened, lost, now)
        return list(self.done)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_what_the_start_left_behind_is_given_back_once(watched: Watched) -> None:
    assert watched.look(0, 0, AFTERMATH_SECONDS - 1) == []
    assert watched.look(0, 0, AFTERMATH_SECONDS) == ["garbage"]
    assert watched.look(0, 0, 10 * AFTERMATH_SECONDS) == []


def test_a_crowd_that_has_gone_is_forgotten_at_once_and_what_followed_it_later(watched: Watched) -> None:
    watched.look(0, 0, AFTERMATH_SECONDS)
    assert watched.look(BURST_CONNECTIONS, 0, 100.0) == ["trim"]
    assert watched.look(BURST_CONNECTIONS, 0, 200.0) == []
    assert watched.look(BURST_CONNECTIONS, BURST_CONNECTIONS - 1, 300.0) == []
    assert watched.look(BURST_CONNECTIONS, BURST_CONNECTIONS, 400.0) == ["forget", "garbage"]
    assert watched.look(BURST_CONNECTIONS, BURST_CONNECTIONS, 399.0 + AFTERMATH_SECONDS) == []
    assert watched.look(BURST_CONNECTIONS, BURST_CONNECTIONS, 400.0 + AFTERMATH_SECONDS) == ["garbage"]


def test_nothing_is_given_back_while_a_crowd_is_still_coming(watched: Watched) -> None:
    for opened in range(BURST_CONNECTIONS, 2 * BURST_CONNECTIONS):
        watched.crowds.check_burst(opened, 0, 1.0)
    assert watched.done == []

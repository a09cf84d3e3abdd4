"""Devices that are read apart: one that never answers holds up nobody else, and is heard when it does."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.clock import Clock

from localcluster.patience import PATIENCE_SECONDS
from muster.node.agent.apart import Apart

PATIENCE = 0.0625


class Devices:
    """Each answers its name, once it is let go on. Time passes only at one that is held."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.asked: list[str] = []
        self._held: dict[str, threading.Event] = {}

    def hold(self, name: str) -> None:
        self._held[name] = threading.Event()

    def let_go(self, name: str) -> None:
        self._held.pop(name).set()

    def read(self, name: str) -> str:
        self.asked.append(name)
        held = self._held.get(name)
        if held is not None:
            self._clock.advance(PATIENCE)
            held.wait(PATIENCE_SECONDS)
        return f"word of {name}"


@pytest.fixture
def devices(clock: Clock) -> Iterator[Devices]:
    made = Devices(clock)
    yield made
    for name in list(made._held):
        made.let_go(name)


def wait(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_each_is_read(devices: Devices, clock: Clock) -> None:
    apart = Apart(devices.read, PATIENCE, clock)
    assert apart.each(["a", "b"]) == {"a": "word of a", "b": "word of b"}
    assert apart.each([]) == {}
    assert apart.overdue_devices == {}


def test_some_that_never_answer_hold_up_nobody_and_are_not_asked_again(devices: Devices, clock: Clock) -> None:
    devices.hold("b")
    devices.hold("c")
    apart = Apart(devices.read, PATIENCE, clock)
    assert apart.each(["a", "b", "c", "d"]).keys() == {"a", "d"}
    assert apart.overdue_devices == {"b": 1000.0, "c": 1000.0 + PATIENCE}
    assert apart.each(["a", "b", "c", "d"]).keys() == {"a", "d"}
    assert sorted(devices.asked) == ["a", "a", "b", "c", "d", "d"]


def test_what_comes_late_is_heard_once_and_then_asked_again(devices: Devices, clock: Clock) -> None:
    devices.hold("b")
    apart = Apart(devices.read, PATIENCE, clock)
    apart.each(["a", "b"])
    devices.let_go("b")
    wait(lambda: not apart.overdue_devices)
    assert apart.each([]) == {"b": "word of b"}
    assert apart.each(["a", "b"]).keys() == {"a", "b"}
    assert devices.asked.count("b") == 2


def test_a_device_that_never_answers_keeps_one_thread(devices: Devices, clock: Clock) -> None:
    """The other devices are read often meanwhile."""
    devices.hold("b")
    apart = Apart(devices.read, PATIENCE, clock)
    before = threading.active_count()
    for _ in range(500):
        assert apart.each(["a", "b", "c"]).keys() == {"a", "c"}
    assert devices.asked.count("b") == 1
    wait(lambda: threading.active_count() <= before + 1)

"""Devices that are read apart: one that never answers holds up nobody else, and is heard when it does."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from muster.agent.apart import Apart


class Devices:
    """Each answers its name, once it is let go on."""

    def __init__(self) -> None:
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
            held.wait(60)
        return f"word of {name}"


@pytest.fixture
def devices() -> Iterator[Devices]:
    made = Devices()
    yield made
    for name in list(made._held):
        made.let_go(name)


def wait(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_each_is_read(devices: Devices) -> None:
    apart = Apart(devices.read, 60.0)
    assert apart.each(["a", "b"]) == {"a": "word of a", "b": "word of b"}
    assert apart.each([]) == {}
    assert apart.held == {}


def test_some_that_never_answer_hold_up_nobody_and_are_not_asked_again(devices: Devices) -> None:
    devices.hold("b")
    devices.hold("c")
    apart = Apart(devices.read, 0.05)
    began = time.monotonic()
    assert apart.each(["a", "b", "c", "d"]).keys() == {"a", "d"}
    assert apart.held.keys() == {"b", "c"}
    assert all(began <= since <= time.monotonic() for since in apart.held.values())
    assert apart.each(["a", "b", "c", "d"]).keys() == {"a", "d"}
    assert sorted(devices.asked) == ["a", "a", "b", "c", "d", "d"]


def test_what_comes_late_is_heard_once_and_then_asked_again(devices: Devices) -> None:
    devices.hold("b")
    apart = Apart(devices.read, 0.05)
    apart.each(["a", "b"])
    devices.let_go("b")
    wait(lambda: not apart.held)
    assert apart.each([]) == {"b": "word of b"}
    assert apart.each(["a", "b"]).keys() == {"a", "b"}
    assert devices.asked.count("b") == 2

"""A test that fails while its machine stands still says nothing about Muster: it is run again, and the summary says so.

Processes here promise things in real seconds (a fence, a lease, a probe's deadline). A host that gives this machine no
processor for a while breaks such a promise whatever the code does. What passes on a machine that runs is never run
twice, and what fails there fails at once.
"""

import threading
import time
from pathlib import Path

import pytest

LATE_SECONDS = 0.5  # a sleep of PAUSE_SECONDS may end this much too late
STOLEN_SHARE = 0.2  # of the processors' time, taken by the host within WINDOW_SECONDS
PAUSE_SECONDS = 0.05
WINDOW_SECONDS = 2.0
RERUNS = 3
REST_SECONDS = 10.0  # before a test is run again


class Standstill:
    """Whether this machine stood still since `begin`, by sleeps that ended late and by what Linux counts as stolen."""

    def __init__(self) -> None:
        self._stood_still = False
        threading.Thread(target=self._watch, name="standstill", daemon=True).start()

    def begin(self) -> None:
        self._stood_still = False

    def seen(self) -> bool:
        return self._stood_still

    def _watch(self) -> None:
        window, before = time.monotonic(), _ticks()
        while True:
            asleep = time.monotonic()
            time.sleep(PAUSE_SECONDS)
            now = time.monotonic()
            if now - asleep > PAUSE_SECONDS + LATE_SECONDS:
                self._stood_still = True
            if now - window > WINDOW_SECONDS:
                ticks = _ticks()
                if ticks[0] - before[0] > STOLEN_SHARE * (ticks[1] - before[1]):
                    self._stood_still = True
                window, before = now, ticks


def _ticks() -> tuple[int, int]:
    """Of all processors: stolen, and in all. proc(5): user nice system idle iowait irq softirq steal ..."""
    try:
        first = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    except OSError:
        return 0, 0
    return int(first[7]), sum(map(int, first))


STANDSTILL = Standstill()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    again = pytest.mark.flaky(reruns=RERUNS, reruns_delay=REST_SECONDS, condition=STANDSTILL.seen)
    for item in items:
        item.add_marker(again)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    STANDSTILL.begin()

"""A matcher with a real child, turned by the test instead of the supervisor."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator

import pytest

from localcluster.patience import PATIENCE_SECONDS
from muster.node.launcher.matcher import Matcher, Printed
from muster.node.launcher.reclaim import reap

LONG_LINE = "a" * 60 + "!"


class Turns:
    """Turns as the supervisor does."""

    def __init__(self, pattern: str, ranks: int = 1, preset: str = "") -> None:
        self.log: list[str] = []
        self.matcher = Matcher(pattern, self.log.append, preset)
        self.printed = [Printed() for _ in range(ranks)]
        self.pids: set[int] = set()

    def poll(self) -> None:
        ended = reap()
        self.matcher.poll(time.monotonic(), ended, self.printed)
        self.pids |= self.matcher.pids
        descriptor = self.matcher.descriptor
        if descriptor is None:
            time.sleep(0.01)
        else:
            select.select([descriptor], [], [], 0.2)

    def until(self, predicate: Callable[[], object], what: str) -> None:
        limit = time.monotonic() + PATIENCE_SECONDS
        while not predicate():
            assert time.monotonic() < limit, what
            self.poll()


@pytest.fixture
def turns() -> Iterator[Callable[..., Turns]]:
    made: list[Turns] = []

    def make(pattern: str, ranks: int = 1, preset: str = "") -> Turns:
        made.append(Turns(pattern, ranks, preset))
        return made[-1]

    yield make
    for one in made:
        one.matcher.stop()
        limit = time.monotonic() + PATIENCE_SECONDS
        while one.matcher.pids and time.monotonic() < limit:
            one.matcher.poll(time.monotonic(), reap(), ())

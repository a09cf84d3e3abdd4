"""Keeps the last decisions by key with their inputs, to explain later why they were made; few of each, bounded in all.

They are kept as references, which costs next to nothing: an input does not change, and what several have in common is
there once. Of several decisions in a row that say the same, only the last is kept: a wait does not drive out what led
to it.

Tests: tests/unit/controller/test_keptnodes.py, tests/unit/controller/test_keptjobs.py.
"""

import itertools
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

PER_KEY = 3

Key = TypeVar("Key", bound=Hashable)
Decision = TypeVar("Decision")


class KeptDecisions(ABC, Generic[Key, Decision]):
    """The last decisions, by key; the oldest of all are dropped first.

    Args:
        most: the size of all kept decisions; the newest one is kept whatever its size.

    Attributes:
        size: of all kept decisions.
    """

    def __init__(self, most: float) -> None:
        self.size = 0.0
        self._most = most
        self._numbers = itertools.count()
        self._kept: OrderedDict[int, tuple[Key, Decision]] = OrderedDict()  # the oldest first
        self._of: dict[Key, list[int]] = {}

    @abstractmethod
    def _size_change(self, decision: Decision, sign: int) -> float:
        """Return by how much the size changes when a decision is added (sign 1) or dropped (-1)."""

    @abstractmethod
    def _merged(self, old: Decision, new: Decision) -> Decision | None:
        """Return what is kept in place of both where they say the same, None where they do not."""

    def decisions_of(self, key: Key) -> list[Decision]:
        """Return the kept decisions of a key, the newest last."""
        return [self._kept[number][1] for number in self._of.get(key, ())]

    def _add(self, key: Key, decision: Decision) -> None:
        numbers = self._of.get(key, [])
        merged = self._merged(self._kept[numbers[-1]][1], decision) if numbers else None
        if merged is not None:
            self._drop(numbers[-1])
        elif len(numbers) >= PER_KEY:
            self._drop(numbers[0])
        number = next(self._numbers)
        kept = decision if merged is None else merged
        self._kept[number] = (key, kept)
        self._of.setdefault(key, []).append(number)
        self.size += self._size_change(kept, 1)
        while self.size > self._most and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, number: int) -> None:
        key, decision = self._kept.pop(number)
        self._of[key].remove(number)
        if not self._of[key]:
            del self._of[key]
        self.size += self._size_change(decision, -1)

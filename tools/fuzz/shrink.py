"""From the round that failed to the least that still fails in the same way: few inputs, and little in each."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from fuzz.inputs import Input, Round
from fuzz.play import Outcome, play
from simulate.shrink import fewest

MOST_PLAYS = 300


def rule_in(failure: str) -> str:
    """What did not hold, without the details."""
    return failure.partition(": ")[0]


class _Shrinking:
    def __init__(self, outcome: Outcome, most_plays: int, played: Callable[[Round], Outcome]) -> None:
        self.best = outcome
        self._rule = rule_in(outcome.failure)
        self._left = most_plays
        self._played = played

    @property
    def inputs(self) -> list[Input]:
        return self.best.told.inputs

    def fails_with(self, inputs: list[Input]) -> bool:
        """Whether these fail in the same way; if so they are the best so far."""
        if self._left <= 0:
            return False
        self._left -= 1
        found = self._played(Round(self.best.told.seed, inputs))
        if rule_in(found.failure) != self._rule:
            return False
        self.best = found
        return True

    def smaller(self) -> None:
        """Leave out what is in an input, large parts first."""
        for number in range(len(self.inputs)):
            tried: set[str] = set()
            while self._left > 0 and self._one_smaller(number, tried):
                pass

    def _one_smaller(self, number: int, tried: set[str]) -> bool:
        one = self.inputs[number]
        for candidate in _simpler(one):
            key = repr((candidate.document, candidate.data))
            if key in tried:
                continue
            tried.add(key)
            if self.fails_with([*self.inputs[:number], candidate, *self.inputs[number + 1 :]]):
                return True
        return False


def shrunk(outcome: Outcome, most_plays: int = MOST_PLAYS, played: Callable[[Round], Outcome] = play) -> Outcome:
    """The least that was found in so many plays and fails in the same way."""
    work = _Shrinking(outcome, most_plays, played)
    fewest(work.inputs, work.fails_with)
    work.smaller()
    return work.best


def _simpler(one: Input) -> Iterator[Input]:
    if one.data is not None:
        size = max(1, len(one.data) // 2)
        while size:
            for start in range(0, len(one.data), size):
                yield replace(one, data=one.data[:start] + one.data[start + size :])
            size //= 2
        return
    places = sorted(_places(one.document), key=len)
    for place in places:
        if place not in _KEPT:
            yield replace(one, document=_without(one.document, place))


# What every object has, and what a pod and a node have.
_KEPT = {("metadata",), *(("metadata", name) for name in ("name", "namespace", "uid")), ("spec",), ("status",)}


def _places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield (*at, key)
        yield from _places(value, (*at, key))


def _without(document: Any, place: tuple[Any, ...]) -> Any:
    found = copy.deepcopy(document)
    parent = found
    for key in place[:-1]:
        parent = parent[key]
    del parent[place[-1]]
    return found

"""Draws when the gang's nodes fail, which one, and from which cause, before anything is decided.

Each place of the gang has failures of its own. A failure strikes nothing while its place has no node. The same failures
strike every compared plan, so that plans differ by their choices and not by luck.

Tests: tests/unit/whatif/test_life.py.
"""

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Chance = Callable[[], float]
"""Returns random numbers, evenly between 0 and 1, 1 excluded."""

Dice = Callable[[int], Chance]
"""Returns the random numbers of the life with this index."""


@dataclass(frozen=True, slots=True)
class Blow:
    """One failure of whichever node is in one place of the gang.

    Attributes:
        at: seconds from the beginning.
        place: index of the place in the gang, from 0.
        cause: index in the list of causes.
        repair: how long the repair of the node takes if its worker leaves it, in units of the mean.
    """

    at: float
    place: int
    cause: int
    repair: float


def blows(chance: Chance, places: int, mean_seconds: float, seconds: float, shares: Sequence[float]) -> list[Blow]:
    """Draw the failures of a gang, each independent of the others.

    Args:
        chance: source of random numbers.
        places: number of places in the gang.
        mean_seconds: mean time between two failures of the gang while each place has a node.
        seconds: duration to draw for.
        shares: relative frequency of each cause, in any unit.
    """
    limits = list(accumulate(shares))
    failures: list[Blow] = []
    at = 0.0
    while True:
        at += mean_seconds * _exponential(chance)
        if at >= seconds:
            return failures
        cause = min(bisect(limits, chance() * limits[-1]), len(limits) - 1)
        repair = _exponential(chance)
        failures.append(Blow(at, int(places * chance()), cause, repair))


def _exponential(chance: Chance) -> float:
    return -math.log(1.0 - chance())

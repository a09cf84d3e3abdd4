"""When the gang's nodes fail, which, and of what, drawn before anything is decided.

Each place of the gang has failures of its own. One that finds no node there strikes nothing: who is away cannot fail.
The same failures strike every plan that is compared, so that plans differ by what they do and not by luck.
"""

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

Chance = Callable[[], float]
"""Numbers at random, evenly between 0 and 1, 1 excluded."""

Dice = Callable[[int], Chance]
"""The chance of each life."""


@dataclass(frozen=True, slots=True)
class Blow:
    """One failure of whatever node stands in one place of the gang.

    Attributes:
        at: seconds from the beginning.
        place: of the gang, from 0 on.
        cause: place in the list of causes.
        repair: how long the node is away if it is left, in units of the mean.
    """

    at: float
    place: int
    cause: int
    repair: float


def blows(chance: Chance, places: int, mean_seconds: float, seconds: float, shares: Sequence[float]) -> list[Blow]:
    """Failures of a gang, one independent of the other.

    Args:
        chance: where they come from.
        places: of the gang.
        mean_seconds: between two of the gang while a node stands in each place.
        seconds: for how long.
        shares: how often each cause is the one, in any unit.
    """
    limits = list(accumulate(shares))
    found: list[Blow] = []
    at = 0.0
    while True:
        at += mean_seconds * _exponential(chance)
        if at >= seconds:
            return found
        cause = min(bisect(limits, chance() * limits[-1]), len(limits) - 1)
        repair = _exponential(chance)
        found.append(Blow(at, int(places * chance()), cause, repair))


def _exponential(chance: Chance) -> float:
    return -math.log(1.0 - chance())

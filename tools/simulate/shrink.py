"""From the life that failed to the shortest list of faults that still makes it fail in the same way."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from simulate.fault import Fault
from simulate.play import Outcome, Story, play

T = TypeVar("T")


def fewest(things: list[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """The fewest of these with which it still fails; chunks are left out, large ones first.

    Args:
        fails: whether it does with these; False, too, once it has been asked often enough.
    """
    size = max(1, len(things) // 2)
    while True:
        position, smaller = 0, False
        while position < len(things):
            fewer = things[:position] + things[position + size :]
            if fails(fewer):
                things, smaller = fewer, True
            else:
                position += size
        if size == 1 and not smaller:
            return things
        size = max(1, size // 2)


def rule_of(outcome: Outcome) -> str:
    """What was violated, without the details of this one life."""
    return outcome.violation.partition(":")[0]


def shrunk(
    outcome: Outcome, most_lives: int = 200, most_seconds: float = 300.0, played: Callable[[Story], Outcome] = play
) -> Outcome:
    """The shortest story found in so many lives, and in about so much time, that violates the same rule.

    Chunks of faults are left out, large ones first; then what is left is made as simple as it can be.
    """
    best, rule, lives, until = outcome, rule_of(outcome), 0, time.monotonic() + most_seconds

    def fails(faults: list[Fault]) -> bool:
        nonlocal best, lives
        if lives >= most_lives or time.monotonic() >= until:
            return False
        lives += 1
        found = played(replace(best.story, faults=faults))
        if rule_of(found) != rule:
            return False
        best = found
        return True

    fewest(best.story.faults, fails)
    for position, fault in enumerate(best.story.faults):
        for simpler in (replace(fault, count=1), replace(fault, number=0)):
            if simpler != best.story.faults[position]:
                fails([*best.story.faults[:position], simpler, *best.story.faults[position + 1 :]])
    return best

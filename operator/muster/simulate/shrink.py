"""From the life that failed to the shortest list of faults that still makes it fail in the same way."""

from collections.abc import Callable
from dataclasses import replace

from muster.simulate.faults import Fault
from muster.simulate.play import Outcome, Story, play


def rule_of(outcome: Outcome) -> str:
    """What was violated, without the details of this one life."""
    return outcome.violation.partition(":")[0]


def shrunk(outcome: Outcome, most_lives: int = 200, played: Callable[[Story], Outcome] = play) -> Outcome:
    """The shortest story found in so many lives that violates the same rule.

    Chunks of faults are left out, large ones first; then what is left is made as simple as it can be.
    """
    best, rule, lives = outcome, rule_of(outcome), 0

    def fails(faults: list[Fault]) -> bool:
        nonlocal best, lives
        lives += 1
        found = played(replace(best.story, faults=faults))
        if rule_of(found) != rule:
            return False
        best = found
        return True

    size = max(1, len(best.story.faults) // 2)
    while lives < most_lives:
        position, smaller = 0, False
        while position < len(best.story.faults) and lives < most_lives:
            faults = best.story.faults
            if fails(faults[:position] + faults[position + size :]):
                smaller = True
            else:
                position += size
        if size == 1 and not smaller:
            break
        size = max(1, size // 2)
    for position, fault in enumerate(best.story.faults):
        for simpler in (replace(fault, count=1), replace(fault, number=0)):
            if simpler != best.story.faults[position] and lives < most_lives:
                fails([*best.story.faults[:position], simpler, *best.story.faults[position + 1 :]])
    return best

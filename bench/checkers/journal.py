"""What was tested when, and how long it would have taken if nobody had ever waited for a word: the probes' own time.
Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from muster.protocol.checks import NODE, PAIR

# After all rounds, whatever their numbers.
LAST_ROUND = 10_000


@dataclass(frozen=True, slots=True)
class Trial:
    """One order as one node has run it.

    Attributes:
        round: of a pair; 0 for the node's own probes.
        nodes: the node itself, and its partner in a pair.
        began: seconds of any one clock.
    """

    order: str
    round: int
    nodes: tuple[str, ...]
    began: float
    ended: float


def trial_of(order: str, kind: str, node: str, peer: str, began: float, ended: float) -> Trial:
    """An order with the round that stands in its name: KEY/node or KEY/ROUND/A+B. A whole gang meets after all
    rounds."""
    if kind != PAIR:
        return Trial(order, 0 if kind == NODE else LAST_ROUND, (node,), began, ended)
    return Trial(order, int(order.rsplit("/", 2)[1]), tuple(sorted((node, peer))), began, ended)


def own_seconds(tests: Iterable[Trial], node_seconds: float, pair_seconds: float) -> float:
    """The shortest time in which these tests can be made, each round after the one before, in the order in which they
    were.

    A node makes one test at a time, and what follows a round hangs on all of it. Nothing else takes any time here.
    """
    rounds: dict[int, dict[tuple[str, ...], Trial]] = defaultdict(dict)
    for test in sorted(tests, key=lambda each: each.began):
        rounds[test.round].setdefault((test.order, *test.nodes), test)  # of a pair both ends tell
    total = 0.0
    for number in sorted(rounds):
        busy: dict[str, float] = defaultdict(float)
        for test in rounds[number].values():
            until = max(busy[node] for node in test.nodes) + (pair_seconds if number else node_seconds)
            busy.update(dict.fromkeys(test.nodes, until))
        total += max(busy.values())
    return total


def rounds_of(tests: Sequence[Trial]) -> list[dict[str, float | int]]:
    """Of each round: how many answers there were, when the first and the last test began, and when the last ended."""
    found: list[dict[str, float | int]] = []
    for number in sorted({test.round for test in tests}):
        here = [test for test in tests if test.round == number]
        begun = [test.began for test in here]
        row = {"round": number, "answers": len(here), "first_began": min(begun), "last_began": max(begun)}
        found.append({**row, "last_ended": max(test.ended for test in here)})
    return found

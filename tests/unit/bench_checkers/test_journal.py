"""The probes' own time: what the tests would have taken if nobody had ever waited for a word."""

from __future__ import annotations

import pytest
from bench.checkers.journal import LAST_ROUND, Trial, own_seconds, rounds_of, trial_of

from muster.protocol.checks import GANG, NODE, PAIR


def both(order: str, number: int, nodes: str, began: float) -> list[Trial]:
    """As either end has told it, the second one later."""
    return [Trial(order, number, tuple(nodes), began + late, began + late + 9.0) for late in (0.0, 0.5)]


def alone(*nodes: str) -> list[Trial]:
    return [Trial("g/node", 0, (node,), 0.0, 30.0) for node in nodes]


@pytest.mark.parametrize(
    ("tests", "want"),
    [
        pytest.param(alone("a", "b"), 20.0, id="nodes beside each other"),
        pytest.param([*alone("a", "b"), *both("g/1/0+1", 1, "ab", 40.0)], 23.0, id="a pair is one test"),
        pytest.param(
            [*both("1", 1, "ab", 40.0), *both("2", 1, "cd", 90.0)], 3.0, id="disjoint pairs, whenever they began"
        ),
        pytest.param([*both("1", 1, "ab", 40.0), *both("2", 1, "ac", 90.0)], 6.0, id="one after the other on a node"),
        pytest.param(
            [*both("1", 1, "ab", 40.0), *both("2", 2, "cd", 90.0)], 6.0, id="a round follows all of the one before"
        ),
        pytest.param([], 0.0, id="nothing"),
    ],
)
def test_own_time(tests: list[Trial], want: float) -> None:
    assert own_seconds(tests, node_seconds=20.0, pair_seconds=3.0) == want


def test_the_round_stands_in_the_name_of_an_order() -> None:
    assert trial_of("uid.q/1/node", NODE, "n0", "", 1.0, 2.0).round == 0
    pair = trial_of("uid.q/1/4/7+12", PAIR, "n7", "n12", 1.0, 2.0)
    assert (pair.round, pair.nodes) == (4, ("n12", "n7"))
    assert trial_of("uid.q/1/gang", GANG, "n0", "", 1.0, 2.0).round == LAST_ROUND


def test_rounds_are_told_with_their_first_and_last() -> None:
    (nodes, pairs) = rounds_of([*alone("a", "b"), *both("1", 1, "ab", 40.0)])
    assert nodes == {"round": 0, "answers": 2, "first_began": 0.0, "last_began": 0.0, "last_ended": 30.0}
    assert (pairs["first_began"], pairs["last_began"], pairs["last_ended"]) == (40.0, 40.5, 49.5)

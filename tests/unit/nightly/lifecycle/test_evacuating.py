"""Which of several nodes are left, in many more gangs than in the gate."""

from random import Random

from tests.unit.lifecycle.leaving import a_gang, those_move_that_can


def test_those_move_that_can() -> None:
    for seed in range(1000):
        those_move_that_can(a_gang(Random(seed)))

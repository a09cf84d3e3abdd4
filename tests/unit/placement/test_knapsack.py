"""What is chosen costs what the tables say, however few choices are followed. Nightly there are ten times as many
fleets (tests/unit/nightly/placement/test_knapsack.py)."""

from random import Random

from tests.unit.placement.tables import costs_what_the_tables_say

from muster.placement.natural import natural


def test_the_choice_costs_what_the_tables_say() -> None:
    for seed in range(30):
        costs_what_the_tables_say(Random(seed))


def test_numbers_in_names() -> None:
    names = ["gpu-10", "gpu-2", "gpu", "10", "2", "a2b10", "a2b9"]
    assert sorted(names, key=natural) == ["2", "10", "a2b9", "a2b10", "gpu", "gpu-2", "gpu-10"]

"""What is chosen costs what the tables say, on ten times as many fleets as in the gate."""

from random import Random

import pytest
from tests.unit.placement.tables import costs_what_the_tables_say


@pytest.mark.parametrize("seeds", [range(first, first + 30) for first in range(0, 300, 30)], ids=str)
def test_the_choice_costs_what_the_tables_say(seeds: range) -> None:
    for seed in seeds:
        costs_what_the_tables_say(Random(seed))

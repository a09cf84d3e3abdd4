"""Two thousand nodes in numbers."""

from collections.abc import Callable

from tests.unit.cli.large_fleets import assert_that_a_large_fleet_is_summed_up, assert_that_the_sick_are_listed


def test_the_sick_of_two_thousand_nodes_are_listed(printed: Callable[..., str]) -> None:
    assert_that_the_sick_are_listed(printed, size=16)


def test_two_thousand_nodes_are_summed_up(printed: Callable[..., str]) -> None:
    first = [
        "DOMAIN   NODES  FREE  USED  EXCLUDED          GPU  USED BY  EXCLUDED FOR",
        "(fleet)   2048  2048     0         0  16384/16384",
        "  b0       128   128     0         0    1024/1024",
    ]
    assert_that_a_large_fleet_is_summed_up(printed, size=16, first=first)

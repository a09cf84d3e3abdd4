"""Names in the order in which people write them."""

from itertools import permutations

import pytest

from muster.placement.natural import natural


@pytest.mark.parametrize(
    "names",
    [["gpu-2", "gpu-10"], ["gpu-9-b2", "gpu-10-b1"], ["7", "12", "a"], ["", "a", "a0", "b"], ["gpu", "gpu-1"]],
)
def test_numbers_in_names_are_ordered_as_numbers(names: list[str]) -> None:
    assert all(sorted(order, key=natural) == names for order in permutations(names))


def test_leading_zeros_make_no_difference() -> None:
    assert natural("gpu-007") == natural("gpu-7")

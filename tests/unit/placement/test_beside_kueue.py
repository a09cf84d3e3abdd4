"""Beside Kueue's documented rules; 60 streams are in tests/unit/nightly/placement/test_many_cases.py.

The figures of 1,000 streams are in docs/placement.md (`bench/placement.py`).
"""

from tests.unit.placement import oracles
from tests.unit.placement.rules import fewer_domains_and_more_whole_ones_left, never_more_domains

FREE = {("a",): ["a0", "a1", "a2"], ("b",): ["b0", "b1", "b2"], ("c",): ["c0", "c1"], ("d",): ["d0"]}


def test_the_rules_do_what_their_documentation_shows() -> None:
    """Free 3, 3, 2, 1 and seven pods: BestFit takes 3, 3, 1; LeastFreeCapacity takes 1, 2, 3 and 1."""
    assert oracles.best_fit(FREE, 7, 1) == ["a0", "a1", "a2", "b0", "b1", "b2", "d0"]
    assert oracles.least_free_capacity(FREE, 7, 1) == ["d0", "c0", "c1", "a0", "a1", "a2", "b0"]
    assert oracles.best_fit(FREE, 2, 1) == ["c0", "c1"]
    assert oracles.best_fit(FREE, 4, 1, required=1) is None
    assert oracles.least_free_capacity(FREE, 4, 1, required=1) is None


def test_from_the_same_state_never_more_domains() -> None:
    never_more_domains(3)


def test_over_whole_streams_fewer_domains_and_more_whole_ones_left() -> None:
    fewer_domains_and_more_whole_ones_left(8)

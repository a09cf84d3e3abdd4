"""Beside Kueue's documented rules. The figures of 1,000 streams are in docs/placement.md (`bench/placement.py`)."""

from tests.unit.placement import oracles
from tests.unit.placement.streams import MUSTER, RULES, compared, tallied

FREE = {("a",): ["a0", "a1", "a2"], ("b",): ["b0", "b1", "b2"], ("c",): ["c0", "c1"], ("d",): ["d0"]}


def test_the_rules_do_what_their_documentation_shows() -> None:
    """Free 3, 3, 2, 1 and seven pods: BestFit takes 3, 3, 1; LeastFreeCapacity takes 1, 2, 3 and 1."""
    assert oracles.best_fit(FREE, 7, 1) == ["a0", "a1", "a2", "b0", "b1", "b2", "d0"]
    assert oracles.least_free_capacity(FREE, 7, 1) == ["d0", "c0", "c1", "a0", "a1", "a2", "b0"]
    assert oracles.best_fit(FREE, 2, 1) == ["c0", "c1"]
    assert oracles.best_fit(FREE, 4, 1, required=1) is None
    assert oracles.least_free_capacity(FREE, 4, 1, required=1) is None


def test_from_the_same_state_never_more_domains() -> None:
    """The counts by level, from the outside in, are never larger than the rule's; it never finds a place alone."""
    never_more_domains(12)


def never_more_domains(streams: int) -> None:
    """In so many streams of forty jobs; nightly there are 60 (tests/unit/nightly/placement/test_many_cases.py)."""
    found = compared(range(streams), 40)
    assert list(found) == list(RULES)
    for comparison in found.values():
        assert comparison.decisions > 1000 * streams / 60
        assert (comparison.more, comparison.only_rule) == (0, 0)
        assert comparison.fewer > 0


def test_over_whole_streams_fewer_domains_and_more_whole_ones_left() -> None:
    """Each on its own state. LeastFreeCapacity keeps more together for others by taking its own gangs apart."""
    fewer_domains_and_more_whole_ones_left(12)


def fewer_domains_and_more_whole_ones_left(streams: int) -> None:
    """In so many streams of forty jobs."""
    sums = tallied(range(streams), 40)
    for rule in RULES:
        assert sums[MUSTER].jobs == sums[rule].jobs > 1000 * streams / 60
        assert sum(sums[MUSTER].domains.values()) < sum(sums[rule].domains.values())
    assert sums[MUSTER].whole > sums["BestFit"].whole
    assert sums[MUSTER].largest >= sums["BestFit"].largest

"""What holds beside Kueue's documented rules over streams of jobs."""

from tests.unit.placement.streams import MUSTER, RULES, compared, tallied


def never_more_domains(streams: int) -> None:
    """In so many streams the counts by level, from the outside in, are never larger than the rule's; it
    never finds a place alone."""
    found = compared(range(streams), 40)
    assert list(found) == list(RULES)
    for comparison in found.values():
        assert comparison.decisions > 1000 * streams / 60
        assert (comparison.more, comparison.only_rule) == (0, 0)
        assert comparison.fewer > 0


def fewer_domains_and_more_whole_ones_left(streams: int) -> None:
    """In so many streams of forty jobs, each on its own state. LeastFreeCapacity keeps more together for others by
    taking its own gangs apart."""
    sums = tallied(range(streams), 40)
    for rule in RULES:
        assert sums[MUSTER].jobs == sums[rule].jobs > 1000 * streams / 60
        assert sum(sums[MUSTER].domains.values()) < sum(sums[rule].domains.values())
    assert sums[MUSTER].whole > sums["BestFit"].whole
    assert sums[MUSTER].largest >= sums["BestFit"].largest

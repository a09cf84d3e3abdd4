"""A few random gangs of `make bench-burnin-rules`: of so few, all have to come out right. Five times as many are in
tests/unit/nightly/preflight/test_rules.py, where a share may fail."""

import pytest
from tests.unit.preflight.campaigns import (
    BAD,
    SLOW,
    assert_that_a_healthy_gang_is_soon_done,
    assert_that_a_slow_part_is_named,
    assert_that_culprits_are_found,
    assert_that_the_local_clusters_noise_blames_nobody,
    assert_that_too_many_bad_are_inconclusive,
)


@pytest.mark.parametrize("name", BAD)
def test_culprits_are_found_and_nobody_else(name: str) -> None:
    assert_that_culprits_are_found(name, 8, noise=0, least=1.0)


def test_the_local_clusters_noise_blames_nobody() -> None:
    """One of its thirteen culprits may stay unfound."""
    assert_that_the_local_clusters_noise_blames_nobody(8, least=12 / 13)


def test_a_healthy_gang_is_soon_done() -> None:
    assert_that_a_healthy_gang_is_soon_done(8)


@pytest.mark.parametrize(("name", "key"), SLOW)
def test_a_slow_part_of_the_fabric_is_named(name: str, key: str) -> None:
    assert_that_a_slow_part_is_named(name, key, 4, least=1.0)


def test_more_than_a_quarter_bad_alike_is_inconclusive() -> None:
    assert_that_too_many_bad_are_inconclusive(4)

"""A small part of `make bench-burnin-rules`: twenty or forty random gangs of each kind, with fixed seeds."""

import pytest
from bench.burnin_rules import NOISES
from tests.unit.preflight.campaigns import (
    BAD,
    SLOW,
    assert_that_a_healthy_gang_is_soon_done,
    assert_that_a_slow_part_is_named,
    assert_that_culprits_are_found,
    assert_that_the_local_clusters_noise_blames_nobody,
    assert_that_too_many_bad_are_inconclusive,
)


@pytest.mark.parametrize("noise", [0, 1, 2], ids=[each.name for each in NOISES[:3]])
@pytest.mark.parametrize("name", BAD)
def test_culprits_are_found_and_nobody_else(name: str, noise: int) -> None:
    assert_that_culprits_are_found(name, 40, noise, least=0.95)


def test_the_local_clusters_noise_blames_nobody() -> None:
    assert_that_the_local_clusters_noise_blames_nobody(40, least=0.85)


def test_a_healthy_gang_is_soon_done() -> None:
    assert_that_a_healthy_gang_is_soon_done(40)


@pytest.mark.parametrize(("name", "key"), SLOW)
def test_a_slow_part_of_the_fabric_is_named(name: str, key: str) -> None:
    assert_that_a_slow_part_is_named(name, key, 20, least=0.95)


def test_more_than_a_quarter_bad_alike_is_inconclusive() -> None:
    assert_that_too_many_bad_are_inconclusive(20)

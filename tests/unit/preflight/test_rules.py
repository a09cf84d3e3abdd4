"""A small part of `make bench-burnin-rules`: some hundred random gangs with fixed seeds, with bounds that a broken rule
misses."""

import pytest
from bench.burnin_rules import CASES, GOALS, NOISES, Case, campaign

SMALL = 96  # members at most: the bench has the large gangs
BY_NAME = {case.name: case for case in CASES}


def small(name: str, gangs: int, noise: int = 0) -> dict[str, float]:
    case = BY_NAME[name]
    low, high = case.sizes
    return campaign(
        NOISES[noise], Case(case.name, 1.0, case.faults, (low, min(high, SMALL)), case.leaders, case.lost), gangs, 3
    )


@pytest.mark.parametrize("noise", [0, 1, 2], ids=[each.name for each in NOISES[:3]])
@pytest.mark.parametrize(
    "name", ["bad nodes", "bad nodes and links, deaths, leaders", "bad nodes, links and uplinks, leaders"]
)
def test_culprits_are_found_and_nobody_else(name: str, noise: int) -> None:
    row = small(name, 40, noise)
    assert row["right"] >= 0.95
    assert row["blamed"] == 0.0
    assert row["most_rounds"] <= GOALS["rounds"]
    assert row["mean_rounds"] <= 3.6


def test_the_local_clusters_noise_blames_nobody() -> None:
    row = small("bad nodes", 40, 3)
    assert row["right"] >= 0.85
    assert row["blamed"] == 0.0


def test_a_healthy_gang_is_soon_done() -> None:
    row = small("nothing bad", 40)
    assert row["blamed"] == 0.0
    assert row["inconclusive"] == 0.0
    assert row["mean_rounds"] <= 2.8


@pytest.mark.parametrize(("name", "key"), [("slow leaf", "leaf_named"), ("slow spine", "spine_named")])
def test_a_slow_part_of_the_fabric_is_named(name: str, key: str) -> None:
    row = small(name, 20)
    assert row[key] >= 0.95
    assert row["blamed"] == 0.0


def test_more_than_a_quarter_bad_alike_is_inconclusive() -> None:
    row = small("30 to 60 % bad alike", 20)
    assert row["inconclusive"] == 1.0
    assert row["counts"]["wrong"] == 0  # type: ignore[index]

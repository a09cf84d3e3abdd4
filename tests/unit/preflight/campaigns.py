"""Small campaigns of `make bench-burnin-rules`: random gangs with fixed seeds; a broken rule misses the bounds."""

from bench.burnin_rules import CASES, GOALS, NOISES, Case, campaign

SMALL = 96  # members at most: the bench has the large gangs
BY_NAME = {case.name: case for case in CASES}
BAD = ("bad nodes", "bad nodes and links, deaths, leaders", "bad nodes, links and uplinks, leaders")
SLOW = (("slow leaf", "leaf_named"), ("slow spine", "spine_named"))


def small(name: str, gangs: int, noise: int = 0) -> dict[str, float]:
    case = BY_NAME[name]
    low, high = case.sizes
    return campaign(
        NOISES[noise], Case(case.name, 1.0, case.faults, (low, min(high, SMALL)), case.leaders, case.lost), gangs, 3
    )


def assert_that_culprits_are_found(name: str, gangs: int, noise: int, least: float) -> None:
    """So large a share of them; nobody else is blamed."""
    row = small(name, gangs, noise)
    assert row["right"] >= least
    assert row["blamed"] == 0.0
    assert row["most_rounds"] <= GOALS["rounds"]
    assert row["mean_rounds"] <= 3.6


def assert_that_the_local_clusters_noise_blames_nobody(gangs: int, least: float) -> None:
    """But so large a share of the culprits."""
    row = small("bad nodes", gangs, 3)
    assert row["right"] >= least
    assert row["blamed"] == 0.0


def assert_that_a_healthy_gang_is_soon_done(gangs: int) -> None:
    row = small("nothing bad", gangs)
    assert row["blamed"] == 0.0
    assert row["inconclusive"] == 0.0
    assert row["mean_rounds"] <= 2.8


def assert_that_a_slow_part_is_named(name: str, key: str, gangs: int, least: float) -> None:
    """In so large a share of the gangs."""
    row = small(name, gangs)
    assert row[key] >= least
    assert row["blamed"] == 0.0


def assert_that_too_many_bad_are_inconclusive(gangs: int) -> None:
    row = small("30 to 60 % bad alike", gangs)
    assert row["inconclusive"] == 1.0
    assert row["counts"]["wrong"] == 0  # type: ignore[index]

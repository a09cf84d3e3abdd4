"""What is run how often, by default and when only a part is asked for."""

import pytest
from bench.plan import CASES, SIZES, Variant, Wish, runs_of, variants

MANAGED = Variant("muster", "Direct", "Managed")
PLAIN = Variant("muster", "Direct", "Plain")


def test_by_default_every_system_runs_and_muster_comes_last_in_four_ways():
    assert [str(each) for each in variants(Wish())] == [
        "bare",
        "job",
        "jobset",
        "jobset+kueue",
        "muster Scheduler Plain",
        "muster Direct Plain",
        "muster Scheduler Managed",
        "muster Direct Managed",
    ]


def test_only_what_is_asked_for_runs():
    wish = Wish(systems=("muster", "bare"), bindings=("Direct",), modes=("Managed",), cases=("Start",), runs=1)
    assert variants(wish) == [Variant("bare"), MANAGED]
    assert [runs_of(MANAGED, 64, case, wish) for case in CASES] == [1, 0, 0, 0]


@pytest.mark.parametrize("variant", [MANAGED, PLAIN, Variant("bare"), Variant("jobset")])
@pytest.mark.parametrize("size", [64, 512, 1024])
@pytest.mark.parametrize("case", ["Start", "FailOnePod", "FailEightPods"])
def test_every_system_has_three_runs_of_starts_and_failed_pods(variant: Variant, size: int, case: str):
    assert runs_of(variant, size, case, Wish()) == 3


def test_only_muster_and_bare_go_to_the_largest_size():
    largest = max(SIZES)
    running = [each for each in variants(Wish()) if runs_of(each, largest, "Start", Wish())]
    assert {each.system for each in running} == {"bare", "muster"}


def test_a_dead_node_is_waited_for_once_with_peers_and_never_with_the_bare_client():
    cases = {
        name: [runs_of(Variant(name), size, "FailOneNode", Wish()) for size in SIZES] for name in ("jobset", "bare")
    }
    assert cases == {"jobset": [1, 0, 0, 0], "bare": [0, 0, 0, 0]}
    assert runs_of(MANAGED, 1024, "FailOneNode", Wish()) == 3
    assert runs_of(PLAIN, 1024, "FailOneNode", Wish()) == 0

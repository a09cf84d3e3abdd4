"""What is run how often, by default and when only a part is asked for."""

import pytest
from bench.plan import CASES, SIZES, Selection, Variant, runs_of, variants

MANAGED = Variant("muster", "Direct", "Managed")
PLAIN = Variant("muster", "Direct", "Plain")


def test_by_default_every_system_runs_and_muster_comes_last_in_four_ways():
    assert [str(each) for each in variants(Selection())] == [
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
    wish = Selection(systems=("muster", "bare"), bindings=("Direct",), modes=("Managed",), cases=("Start",), runs=1)
    assert variants(wish) == [Variant("bare"), MANAGED]
    assert [runs_of(MANAGED, 64, case, wish) for case in CASES] == [1, 0, 0, 0]


@pytest.mark.parametrize("variant", variants(Selection()), ids=str)
@pytest.mark.parametrize("size", [64, 512, 1024])
@pytest.mark.parametrize("case", ["Start", "FailOnePod"])
def test_every_system_has_three_runs_of_starts_and_of_one_failed_pod(variant: Variant, size: int, case: str):
    assert runs_of(variant, size, case, Selection()) == 3


@pytest.mark.parametrize(
    ("variant", "runs"),
    [
        (Variant("bare"), [3, 3, 3, 3]),
        (Variant("job"), [1, 0, 0, 0]),
        (Variant("jobset"), [3, 3, 0, 0]),
        (PLAIN, [3, 3, 0, 0]),
        (MANAGED, [3, 3, 3, 3]),
    ],
    ids=str,
)
def test_eight_failed_pods_are_run_where_they_show_something(variant: Variant, runs: list[int]):
    assert [runs_of(variant, size, "FailEightPods", Selection()) for size in SIZES] == runs


def test_the_largest_size_is_for_the_bare_client_and_one_way_of_musters():
    running = [each for each in variants(Selection()) if runs_of(each, max(SIZES), "Start", Selection())]
    assert running == [Variant("bare"), MANAGED]


@pytest.mark.parametrize(
    ("variant", "runs"),
    [
        (MANAGED, [3, 0, 3, 0]),
        (PLAIN, [0, 0, 0, 0]),
        (Variant("jobset"), [1, 0, 0, 0]),
        (Variant("bare"), [0, 0, 0, 0]),
    ],
    ids=str,
)
def test_a_dead_node_is_waited_for_where_somebody_may_notice(variant: Variant, runs: list[int]):
    assert [runs_of(variant, size, "FailOneNode", Selection()) for size in SIZES] == runs

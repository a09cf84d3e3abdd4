"""What is run how often, by default and when only a part is asked for."""

from bench.plan import CASES, Selection, Variant, runs_of, variants

MANAGED = Variant("muster", "Direct", "Managed")


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

"""The goals are worked out from the right rows, and both tables say what is missing."""

import pytest
from bench.figures import Measurement, Row, Subject, row
from bench.goals import Goal, goals
from bench.report import figure_text, goals_table, rows_table
from rich.console import Console


def named(rows: list[Row], text: str) -> Goal:
    return next(goal for goal in goals(rows) if goal.text == text)


def start(system: str, size: int = 1024, binding: str | None = None, mode: str | None = None, **figures: float) -> Row:
    return row(Subject(system, size, "Start", binding, mode), [Measurement(**figures)])


def test_direct_is_compared_with_the_bare_client_of_the_same_size():
    rows = [
        start("muster", 1024, "Direct", "Plain", bound_s=3.0),
        start("bare", bound_s=2.0),
        start("bare", 64, bound_s=9),
    ]
    goal = named(rows, "Direct Plain: all bound at 1024 / bare")
    assert goal.measured == pytest.approx(1.5)
    assert goal.met is False


def test_direct_is_compared_with_the_bare_client_that_makes_its_pods():
    rows = [
        start("muster", 1024, "Direct", "Managed", bound_s=4.5),
        start("bare", bound_s=2.0),
        start("bare", mode="Managed", bound_s=3.6),
    ]
    goal = named(rows, "Direct Managed: all bound at 1024 / bare with the same pods")
    assert (goal.measured, goal.met) == (pytest.approx(1.25), True)


def test_kueue_has_to_be_slower_by_at_least_the_factor():
    rows = [start("muster", 1024, "Direct", "Managed", bound_s=4.0), start("jobset+kueue", bound_s=10.0)]
    goal = named(rows, "JobSet + Kueue / Direct Managed: all bound at 1024")
    assert (goal.measured, goal.met) == (2.5, True)


def test_the_schedulers_median_is_compared_with_jobsets_maximum():
    jobset = row(Subject("jobset", 1024, "Start"), [Measurement(running_s=8.0), Measurement(running_s=10.0)])
    mine = row(
        Subject("muster", 1024, "Start", "Scheduler", "Plain"), [Measurement(running_s=s) for s in (9.0, 10.0, 30.0)]
    )
    goal = named([jobset, mine], "Scheduler Plain: median Running at 1024 / JobSet's maximum")
    assert (goal.measured, goal.met) == (1.0, True)


@pytest.mark.parametrize(("seconds", "met"), [(1.0, True), (1.1, False)])
def test_a_managed_recovery_is_compared_with_jobsets(seconds: float, met: bool):
    rows = [
        row(Subject("jobset", 1024, "FailOnePod"), [Measurement(recovery_s=20.0)]),
        row(Subject("muster", 1024, "FailOnePod", "Direct", "Managed"), [Measurement(recovery_s=seconds)]),
    ]
    assert named(rows, "JobSet / Direct Managed: recovery of one pod of 1024").met is met


@pytest.mark.parametrize(("mebibytes", "met"), [(238.0, True), (239.0, False)])
def test_memory_is_judged_in_megabytes_of_the_largest_run(mebibytes: float, met: bool):
    rows = [start("muster", 2048, "Direct", "Managed", rss_mb=mebibytes)]
    assert named(rows, "Managed: operator's MiB at 2048").met is met


def test_a_goal_without_its_rows_is_not_judged():
    assert all(goal.met is None for goal in goals([]))
    assert len(goals([])) == 16


def test_a_figure_is_shown_as_min_median_and_max():
    assert figure_text({"min": 0.5, "median": 1.25, "max": 130.4, "runs": 3}) == "0.50 / 1.25 / 130"
    assert figure_text(None) == "-"


def test_the_tables_name_every_row_and_every_verdict():
    rows = [start("bare", bound_s=2.0), start("muster", 1024, "Direct", "Plain", bound_s=3.0)]
    console = Console(width=220, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as captured:
        console.print(rows_table(rows), goals_table(goals(rows)))
    lines = captured.get().splitlines()
    assert any("muster" in line and "3.00 / 3.00 / 3.00" in line for line in lines)
    assert any("Direct Plain: all bound at 1024 / bare" in line and "NO" in line for line in lines)
    assert any("not measured" in line for line in lines)

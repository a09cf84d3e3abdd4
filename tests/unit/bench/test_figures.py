"""From runs to figures and rows, and how the rows of several parts become one file."""

from bench.figures import Measurement, Subject, figure, find, merged, row, value

START = Subject("muster", 64, "Start", "Direct", "Managed")


def test_a_figure_is_the_extremes_and_the_median_of_the_runs():
    assert figure([3.0, 1.0, 2.0]) == {"min": 1.0, "median": 2.0, "max": 3.0, "runs": 3}


def test_a_run_that_did_not_get_there_counts_neither_as_a_time_nor_as_a_run():
    assert figure([3.0, None]) == {"min": 3.0, "median": 3.0, "max": 3.0, "runs": 1}


def test_no_run_that_got_there_is_no_figure():
    assert figure([None, None]) is None
    assert figure([]) is None


def test_a_row_names_its_subject_and_has_every_figure():
    made = row(START, [Measurement(created_s=1.0, bound_s=2.0), Measurement(created_s=3.0)])
    assert {key: made[key] for key in ("system", "size", "binding", "mode", "case")} == {
        "system": "muster",
        "size": 64,
        "binding": "Direct",
        "mode": "Managed",
        "case": "Start",
    }
    assert made["created_s"]["median"] == 2.0
    assert made["bound_s"]["runs"] == 1
    assert made["recovery_s"] is None
    assert made["attempted_runs"] == 2


def test_what_only_some_rows_have_is_left_out_elsewhere():
    assert "writes_per_pod" not in row(START, [Measurement()])
    assert row(START, [Measurement(writes_per_pod=3.0)])["writes_per_pod"]["median"] == 3.0


def test_a_new_row_takes_the_place_of_the_old_one_of_the_same_subject():
    old = [row(START, [Measurement(bound_s=1.0)]), row(Subject("bare", 64, "Start"), [Measurement(bound_s=5.0)])]
    new = [row(START, [Measurement(bound_s=2.0)]), row(Subject("job", 64, "Start"), [Measurement()])]
    rows = merged(old, new)
    assert [each["system"] for each in rows] == ["muster", "bare", "job"]
    assert value(rows, START, "bound_s") == 2.0


def test_rows_that_differ_in_one_part_of_their_subject_stay_apart():
    others = [
        Subject("muster", 64, "Start", "Scheduler", "Managed"),
        Subject("muster", 64, "Start", "Direct", "Plain"),
        Subject("muster", 512, "Start", "Direct", "Managed"),
        Subject("muster", 64, "FailOnePod", "Direct", "Managed"),
    ]
    rows = merged([row(START, [])], [row(other, []) for other in others])
    assert len(rows) == 5
    assert all(find(rows, subject) is not None for subject in (START, *others))


def test_a_value_that_is_not_there_is_none():
    rows = [row(START, [Measurement(bound_s=1.0)])]
    assert value(rows, START, "recovery_s") is None
    assert value(rows, Subject("bare", 64, "Start"), "bound_s") is None
    assert value(rows, START, "writes_per_pod") is None

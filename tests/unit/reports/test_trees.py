"""tests/data/reports/trees: checkpoint directories as frameworks write them, through the finder that launchers run.

`right` is one of

- `{complete: path, step: N, format: name}`: the newest complete one
- `{incomplete: text}`: none is complete, and the text is part of why the newest is not
- `{unrecognized: path}`: it is of no format, or does not count for its name, and one listing says so with its path
- `nothing`: none of it is a checkpoint, and nothing is said

Besides an input, `dispensable` is a pattern of files that the framework does without when it loads: without any other
one, or with its last byte missing, a complete checkpoint is incomplete. `pattern` is the job's
`spec.checkpoint.pattern`. `named` is the path of what the warning names beside a complete one. `passed_over` has the
paths of all newer ones that are said not to be complete, each with a text that is part of why.
"""

from __future__ import annotations

import pytest
from tests.unit.checkpoint.recordings import Written, finder_of
from tests.unit.reports.corpus import Case, cases
from tests.unit.reports.trees import Deep, begun, broken, place, written

from muster.node.checkpoint.find import Finder, Found, ScanOptions
from muster.node.checkpoint.formats.table import formats_by

CASES = cases("trees")
COMPLETE = [case for case in CASES if isinstance(case.right, dict) and "complete" in case.right]


def looked(files: Written, pattern: str = "") -> tuple[Finder, Found]:
    """The last answer of one listing that a start waits for."""
    finder = finder_of(Deep(files), formats_by(pattern))
    return finder, list(finder.scan(ScanOptions()))[-1]


def why(finder: Finder) -> str:
    """Why what is not complete is not."""
    return "; ".join(verdict.problem for verdict in finder._verdicts.values() if verdict.problem)


def assert_passed_over(found: Found, right: dict[str, str]) -> None:
    """Check what is said of newer checkpoints that are not complete: with a step one by one, else in the note."""
    newer = {one.path: one.problem for one in found.incomplete if one.step > found.checkpoints[0].step}
    noted = {place(path): found.note for path in right if place(path) in found.note}
    assert sorted({**newer, **noted}) == sorted(map(place, right)), (newer, found.note)
    assert bool(noted) == bool(found.note), found.note
    for path, text in right.items():
        assert text in {**newer, **noted}[place(path)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_tree_is_read_right(case: Case) -> None:
    finder, found = looked(written(case.given), case.besides.get("pattern", ""))
    newest = next(iter(found.checkpoints), None)
    said = (why(finder), found.warning, found.note)
    if case.right == "nothing":
        assert (newest, found.incomplete, said) == (None, (), ("", "", ""))
    elif "complete" in case.right:
        right = (case.right["step"], place(case.right["complete"]), case.right["format"])
        assert newest is not None, said
        assert (newest.step, newest.path, newest.format) == right, said
        assert place(case.besides.get("named", "")) in found.warning or "named" not in case.besides, said
        if "passed_over" in case.besides:
            assert_passed_over(found, case.besides["passed_over"])
    elif "incomplete" in case.right:
        assert newest is None
        assert case.right["incomplete"] in why(finder)
    else:
        assert newest is None
        assert found.incomplete == ()
        assert place(case.right["unrecognized"]) in found.warning


@pytest.mark.parametrize("case", COMPLETE, ids=str)
def test_no_tree_is_complete_with_a_file_less_or_shorter(case: Case) -> None:
    complete = case.right["complete"]
    for what, files in broken(written(case.given), complete, case.besides.get("dispensable", "")):
        _, found = looked(files, case.besides.get("pattern", ""))
        assert place(complete) not in [one.path for one in found.checkpoints], what


@pytest.mark.parametrize("case", COMPLETE, ids=str)
def test_no_save_is_complete_before_all_that_it_needs_is_there(case: Case) -> None:
    complete = case.right["complete"]
    for what, files in begun(written(case.given), complete, case.besides.get("dispensable", "")):
        _, found = looked(files, case.besides.get("pattern", ""))
        assert place(complete) not in [one.path for one in found.checkpoints], what


def test_every_format_has_a_tree() -> None:
    """What is not in the corpus is recorded in tests/unit/checkpoint/data."""
    from muster.node.checkpoint.formats.table import FORMATS

    there = {case.right["format"] for case in COMPLETE}
    assert {kind.name for kind in FORMATS} - there == set(), "each needs a file in tests/data/reports/trees"

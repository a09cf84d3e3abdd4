"""tests/data/reports/first_failures: which process failed first, as the program that started it says at its end.

An input is what was printed to standard error, `stdout` what was printed beside. `right` has the `rank`, `localRank`,
`exitCode` or `signal` of that process, and how the `last` of its lines begins.
"""

from typing import Any

import pytest
from tests.unit.reports.corpus import Case, by_report, cases

from muster.node.launcher.first_failure import FirstFailure, find
from muster.recovery.last_lines import Cause, cause_of

CASES = cases("first_failures")
REPORTS = by_report(CASES)


def found_in(case: Case) -> FirstFailure | None:
    return find([case.given.encode(), case.besides.get("stdout", "").encode()])


@pytest.mark.parametrize("report", REPORTS)
def test_the_end_of_the_output_names_the_process_that_failed_first(report: str) -> None:
    wrong = {}
    for case in REPORTS[report]:
        first = found_in(case)
        right: Any = case.right if isinstance(case.right, dict) else None
        if first is None or right is None:
            if first is not None or right is not None:
                wrong[str(case)] = first
            continue
        names = ("rank", "localRank", "exitCode", "signal")
        named = (first.rank, first.local_rank, first.exit_code, first.signal)
        if named != tuple(right.get(name) for name in names) or not first.lines[-1].startswith(right["last"]):
            wrong[str(case)] = first
    assert wrong == {}


def test_no_process_of_these_reports_is_taken_for_the_victim_of_another() -> None:
    """The block's process is the cause in each of them, though the exceptions of its victims stand behind its own."""
    causes = {}
    for case in CASES:
        first = found_in(case)
        if first is not None:
            causes[str(case)] = (first.signal, cause_of("\n".join(first.lines), first.exit_code, first.signal))
    killed = {name for name, (signal, cause) in causes.items() if cause is Cause.KILLED}
    assert killed == {name for name, (signal, _) in causes.items() if signal == 9} != set()
    assert Cause.LOST_PEER not in {cause for _, cause in causes.values()}


@pytest.mark.parametrize("report", REPORTS)
def test_an_operator_that_reads_the_lines_alone_sees_who_was_killed(report: str) -> None:
    """An older one knows no other field."""
    for case in REPORTS[report]:
        first = found_in(case)
        if first is not None and first.signal == 9:
            assert cause_of("\n".join(first.lines), 1, None) is Cause.KILLED

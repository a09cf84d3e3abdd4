"""tests/data/reports/last_lines: why a rank ended, by its last lines.

`right` is `LostPeer`, `Killed`, `Own`, or `Unknown` where nothing in it says: that counts as the program's own. Besides
an input, `exitCode` (1 where neither is given) or `signal` says how the rank ended; `from` names the thread that a case
is from.
"""

import pytest
from tests.unit.reports.corpus import by_report, cases

from muster.recovery import last_lines
from muster.recovery.last_lines import Cause, cause_of

CASES = cases("last_lines")
REPORTS = by_report(CASES)
RIGHT = {"LostPeer": Cause.LOST_PEER, "Killed": Cause.KILLED, "Own": Cause.OWN, "Unknown": Cause.OWN}


@pytest.mark.parametrize("report", REPORTS)
def test_last_lines_say_why_a_rank_ended(report: str) -> None:
    wrong = {}
    for case in REPORTS[report]:
        exit_code = case.besides.get("exitCode", None if "signal" in case.besides else 1)
        found = cause_of(case.given, exit_code, case.besides.get("signal"))
        if found is not RIGHT[case.right]:
            wrong[str(case)] = found
    assert wrong == {}


@pytest.mark.parametrize("prefix", ["[rank1]: ", "[default0]:", "[1]: ", "3: "])
def test_the_rank_before_each_line_changes_nothing(prefix: str) -> None:
    wrong = {}
    for case in [case for case in CASES if case.right == "LostPeer"]:
        tail = "\n".join(prefix + line for line in case.given.splitlines())
        found = cause_of(tail, None if "signal" in case.besides else 1, case.besides.get("signal"))
        if found is not Cause.LOST_PEER:
            wrong[str(case)] = found
    assert wrong == {}


@pytest.mark.parametrize("part", ["Connection ", "ncclRemote", "gloo/", "a.", "E", "UCX  ERROR ", "DistStoreError: "])
def test_a_line_as_long_as_a_report_takes_is_read_in_one_pass(part: str) -> None:
    assert cause_of((part * 2048)[:2048], 1, None) is Cause.OWN


def test_no_pattern_takes_the_square_of_a_line_that_repeats_its_beginning() -> None:
    """Such a pattern is tried from each repetition to the end: 120 ranks with such lines took seconds."""
    searched = [last_lines._LOST_PEER, last_lines._SOCKET, last_lines._SERVICE, last_lines._UCX_REASON]
    searched += [part for way in (*last_lines._LOST_PEER_BEHIND, *last_lines._OWN_COMPLETION) for part in way]
    assert [pattern.pattern for pattern in searched if ".*" in pattern.pattern or "\\S+" in pattern.pattern] == []

"""tests/data/reports/last_lines: why a rank ended, by its last lines.

`right` is `LostPeer`, `Killed`, `Own`, or `Unknown` where nothing in it says: that counts as the program's own. Besides
an input, `exitCode` (1 where neither is given) or `signal` says how the rank ended; `from` names the thread that a case
is from.
"""

import pytest
from tests.unit.reports.corpus import Case, cases

from muster.recovery.last_lines import Cause, cause_of

CASES = cases("last_lines")
RIGHT = {"LostPeer": Cause.LOST_PEER, "Killed": Cause.KILLED, "Own": Cause.OWN, "Unknown": Cause.OWN}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_last_lines_say_why_a_rank_ended(case: Case) -> None:
    exit_code = case.besides.get("exitCode", None if "signal" in case.besides else 1)
    assert cause_of(case.given, exit_code, case.besides.get("signal")) is RIGHT[case.right]


@pytest.mark.parametrize("case", [case for case in CASES if case.right == "LostPeer"], ids=str)
@pytest.mark.parametrize("prefix", ["[rank1]: ", "[default0]:", "[1]: ", "3: "])
def test_the_rank_before_each_line_changes_nothing(case: Case, prefix: str) -> None:
    tail = "\n".join(prefix + line for line in case.given.splitlines())
    assert cause_of(tail, None if "signal" in case.besides else 1, case.besides.get("signal")) is Cause.LOST_PEER


@pytest.mark.parametrize("part", ["Connection ", "ncclRemote", "gloo/", "a.", "E", "UCX  ERROR ", "DistStoreError: "])
def test_a_line_as_long_as_a_report_takes_is_read_in_one_pass(part: str) -> None:
    assert cause_of((part * 2048)[:2048], 1, None) is Cause.OWN

"""Why a rank ended, by the last lines of a corpus: each file has a source, and what is right for each case."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.recovery.last_lines import Cause, cause_of

REPORTS = Path(__file__).parents[2] / "data" / "reports" / "last_lines"
RIGHT = {"LostPeer": Cause.LOST_PEER, "Killed": Cause.KILLED, "Own": Cause.OWN}


def cases() -> list[Any]:
    found = []
    for path in sorted(REPORTS.glob("*.yaml")):
        report = yaml.safe_load(path.read_text())
        assert report["source"]
        assert report["meaning"]
        found += [pytest.param(case, id=f"{path.stem}-{index}") for index, case in enumerate(report["cases"])]
    return found


@pytest.mark.parametrize("case", cases())
def test_last_lines_say_why_a_rank_ended(case: dict[str, Any]) -> None:
    exit_code = case.get("exitCode", None if "signal" in case else 1)
    assert cause_of(case["input"], exit_code, case.get("signal")) is RIGHT[case["right"]]


@pytest.mark.parametrize("case", [case for case in cases() if case.values[0]["right"] == "LostPeer"])
@pytest.mark.parametrize("prefix", ["[rank1]: ", "[default0]:", "[1]: ", "3: "])
def test_the_rank_before_each_line_changes_nothing(case: Any, prefix: str) -> None:
    tail = "\n".join(prefix + line for line in case["input"].splitlines())
    assert cause_of(tail, None if "signal" in case else 1, case.get("signal")) is Cause.LOST_PEER


@pytest.mark.parametrize("part", ["Connection ", "ncclRemote", "gloo/", "a.", "E", "UCX  ERROR ", "DistStoreError: "])
def test_a_line_as_long_as_a_report_takes_is_read_in_one_pass(part: str) -> None:
    assert cause_of((part * 2048)[:2048], 1, None) is Cause.OWN

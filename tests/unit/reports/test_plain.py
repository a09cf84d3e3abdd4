"""tests/data/reports/plain: what training scripts without a framework print, and what is read from it unasked.

`input` is what one rank prints in one attempt. `right` is `nothing`, or the `steps` that count and the newest `loss`.
Or it is the `numbers` that the proposed pattern finds in the input, of which nothing counts (`counts: epochs` where
these are what the numbers are of); or the `preset` that reads it and its `steps`.
"""

import re

import pytest
from tests.unit.reports.corpus import Case, cases

from muster.node.launcher.plainloop import Proposal
from muster.node.launcher.printed import PrintedProgress, Reader
from muster.protocol.messages import MAX_LIKELY_CHARS
from muster.protocol.presets import AUTO, PLAIN_LOOP

CASES = cases("plain")


def lines_of(case: Case) -> list[str]:
    return [line for line in case.given.replace("\r", "\n").split("\n") if line]


def read(case: Case, copies: int = 1) -> tuple[list[PrintedProgress], Proposal | None]:
    """What is found, and what is proposed at the end, where each line comes from so many ranks at once."""
    reader = Reader(AUTO)
    lines = [line for line in lines_of(case) for _ in range(copies)]
    found = [one for line in lines if (one := reader.read(0, line.encode()))]
    return [one for one in found if one.step is not None], reader.proposal()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_a_loop_prints_counts_is_proposed_or_is_left_alone(case: Case) -> None:
    found, proposal = read(case)
    right = {} if case.right == "nothing" else case.right
    told = dict.fromkeys((one.preset, one.step) for one in found)
    assert list(told) == [(right.get("preset", PLAIN_LOOP), step) for step in right.get("steps", [])]
    if "loss" in right:
        assert found[-1].loss == right["loss"]
    if "numbers" not in right:
        assert proposal is None
        return
    assert proposal is not None
    assert proposal.line in [line.strip().replace("\t", " ")[:MAX_LIKELY_CHARS] for line in lines_of(case)]
    matched = [int(one.group(1)) for line in lines_of(case) if (one := re.search(proposal.pattern, line))]
    assert list(dict.fromkeys(matched)) == right["numbers"]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ranks_that_print_the_same_into_one_stream_change_nothing(case: Case) -> None:
    once, twice = read(case), read(case, copies=8)
    assert dict.fromkeys(one.step for one in twice[0]).keys() == dict.fromkeys(one.step for one in once[0]).keys()
    assert twice[1] == once[1]

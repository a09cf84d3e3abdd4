"""tests/data/reports/printed: lines of trainers, and the steps in them.

`input` is what one rank prints. `right` is `nothing`, or the `preset` that reads it, the new `steps`, and the newest
`loss`, `tokens` (of an accelerator in a second), `stepSeconds`, `tflops` and `mfu` where they are printed;
`inputWaitSeconds` and `communicationSeconds` are what its steps have spent on these in all. Besides an input, `resumed`
is the step of the checkpoint that it went on from.
"""

import pytest
from tests.unit.reports.corpus import Case, cases

from muster.node.launcher.printed import PrintedProgress, Reader
from muster.protocol.presets import AUTO, BY_NAME

CASES = cases("printed")


def found(preset: str, case: Case) -> list[PrintedProgress]:
    reader, resumed = Reader(preset), case.besides.get("resumed", 0)
    lines = case.given.replace("\r", "\n").split("\n")
    return [one for line in lines if (one := reader.read(0, line.encode(), resumed))]


def newest(values: list[object]) -> object:
    return ([value for value in values if value not in ("", None)] or [None])[-1]


@pytest.mark.parametrize("case", [case for case in CASES if case.right != "nothing"], ids=str)
def test_the_steps_in_printed_lines_are_read(case: Case) -> None:
    preset = case.right["preset"]
    for asked in [preset, *([AUTO] if BY_NAME[preset].is_distinct else [])]:
        read = found(asked, case)
        told = dict.fromkeys((one.preset, one.step) for one in read if one.step is not None)
        assert list(told) == [(preset, step) for step in case.right["steps"]]
        assert newest([one.loss for one in read]) == case.right.get("loss")
        for figure in ("tokens", "stepSeconds", "tflops", "mfu"):
            assert newest([one.figures.get(figure) for one in read]) == pytest.approx(case.right.get(figure))
        for spent in ("inputWaitSeconds", "communicationSeconds"):
            seconds = [one.seconds[spent] for one in read if spent in one.seconds]
            assert (sum(seconds) if seconds else None) == pytest.approx(case.right.get(spent))


@pytest.mark.parametrize("preset", [AUTO, *BY_NAME])
def test_what_looks_like_a_step_is_none(preset: str) -> None:
    near_misses = [case for case in CASES if case.right == "nothing"]
    assert {str(case): read for case in near_misses if (read := found(preset, case))} == {}

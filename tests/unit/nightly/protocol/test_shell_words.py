"""What it costs to read a long line, by a clock too, which alone sees the regular expression engine; and more quotation
than in the gate."""

from __future__ import annotations

import time

import pytest
from tests.unit.protocol.shell_lines import (
    UNITS,
    a_line_takes_as_much_work_as_it_is_long,
    quotation_is_read_as_bash_reads_it,
)

from muster.protocol.shell_words import commands


@pytest.mark.parametrize("unit", UNITS)
def test_a_line_takes_as_long_as_it_is(unit: str) -> None:
    def seconds(count: int) -> float:
        def once() -> float:
            began = time.process_time()
            list(commands('"' + unit * count))
            return time.process_time() - began

        return min(once() for _ in range(3))

    short = max(seconds(2_000 // len(unit)), 0.0005)
    assert seconds(32_000 // len(unit)) < 64 * short  # 16 times as long; by squares it would be 256 times


@pytest.mark.parametrize("unit", UNITS)
def test_a_line_takes_as_much_work_as_it_is_long(unit: str) -> None:
    a_line_takes_as_much_work_as_it_is_long(unit, 2_000)


def test_quotation_is_read_as_bash_reads_it() -> None:
    quotation_is_read_as_bash_reads_it(400)

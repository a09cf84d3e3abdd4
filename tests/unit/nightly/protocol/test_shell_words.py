"""What it costs to read a long line: much of it is work of the regular expression engine, which only a clock sees."""

from __future__ import annotations

import time

import pytest
from tests.unit.protocol.test_shell_words import UNITS

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

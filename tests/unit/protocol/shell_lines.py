"""Lines of a shell, drawn or long: what holds for however many of them."""

from __future__ import annotations

import random
import subprocess

from tests.unit.counting import CountedWork

from muster.protocol.shell_words import commands

# Of which a line is made that is read again and again where a reader goes back.
UNITS = ["a;", "$(", '"$(', "<<a\n", "'\\", '\\"\'"$((', '"$((x)', "#", "`", "`;"]


def quotation_is_read_as_bash_reads_it(count: int) -> None:
    """So many lines are drawn, and bash prints the words of each that it can read."""
    chosen = random.Random(12)
    pieces = ["a", "b c", "'", '"', "\\", " ", "''", '""', "#", "x=1"]
    compared = 0
    for _ in range(count):
        line = "printf '%s\\0' " + "".join(chosen.choice(pieces) for _ in range(8))
        told = subprocess.run(["bash", "-c", line], capture_output=True, check=False)
        if told.returncode or told.stderr:
            continue  # bash cannot read it
        compared += 1
        words = next(iter(commands(line)))[2:] or ("",)
        assert "\0".join(words) + "\0" == told.stdout.decode(), line
    assert compared > count * 3 / 8


def a_line_takes_as_much_work_as_it_is_long(unit: str, chars: int) -> None:
    """One of so many characters beside one that is sixteen times as long."""

    def steps(count: int) -> int:
        with CountedWork() as counted:
            list(commands('"' + unit * count))
        return counted.steps

    assert steps(16 * chars // len(unit)) < 17 * steps(chars // len(unit))

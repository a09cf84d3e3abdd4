"""Options of sbatch and srun, as getopt_long reads them."""

import pytest

from muster.convert.fields import RefusedError
from muster.convert.slurm_options import SBATCH, SRUN, read_options


def read(table: object, *words: str) -> list[tuple[str, str]]:
    listed, count = read_options(words, SBATCH if table == "sbatch" else SRUN, "line 3")
    return [*((given.option.name, given.value) for given in listed), *(("", word) for word in words[count:])]


@pytest.mark.parametrize(
    ("command", "words", "found"),
    [
        ("sbatch", ["-N", "2", "-N3", "-N=4", "--nodes", "5", "--nodes=6"], [("--nodes", n) for n in "23456"]),
        (
            "sbatch",
            ["--exclusive", "--exclusive=user", "-H"],
            [("--exclusive", ""), ("--exclusive", "user"), ("--hold", "")],
        ),
        ("sbatch", ["--tasks-per-node=2", "--ntasks-per-n=3"], [("--ntasks-per-node", n) for n in "23"]),
        ("sbatch", ["-W", "--nodes=1"], [("--wait", ""), ("--nodes", "1")]),
        (
            "srun",
            ["-W", "60", "-lK1", "-u", "python", "-u"],
            [
                ("--wait", "60"),
                ("--label", ""),
                ("--kill-on-bad-exit", "1"),
                ("--unbuffered", ""),
                ("", "python"),
                ("", "-u"),
            ],
        ),
        ("srun", ["-l", "--", "--x"], [("--label", ""), ("", "--x")]),
        ("sbatch", ["--partition="], [("--partition", "")]),
    ],
)
def test_options_are_read_as_slurm_reads_them(command: str, words: list[str], found: list[tuple[str, str]]) -> None:
    assert read(command, *words) == found


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--nod"], "line 3: --nod: it is not known what it means here: take it out"),
        (["--no-such=1"], "line 3: --no-such: it is not known what it means here: take it out"),
        (["-y"], "line 3: -y: Slurm has no such option here: take it out"),
        (["--nodes"], "line 3: --nodes: it needs a value: write one"),
    ],
)
def test_an_option_that_nobody_knows_is_named(words: list[str], why: str) -> None:
    with pytest.raises(RefusedError) as raised:
        read("sbatch", *words)
    assert str(raised.value) == why

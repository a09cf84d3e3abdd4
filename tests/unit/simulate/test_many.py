"""`make simulate`: new lives each time, side by side, and the sum that is kept of them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from muster.simulate.__main__ import main
from muster.simulate.many import lives
from muster.simulate.record import Record, RecordError

SECONDS = float(os.environ.get("SIMULATE_SECONDS", "180"))
SHOWN = {"seeds": 2, "faults": 30, "simulated_hours": 1.5, "cpu_s": 9.9, "violations": 1, "cells": 140}


def simulate(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, so that a seed that fails is the same life when it is played again."""
    path = os.pathsep.join(map(os.path.abspath, sys.path))
    return subprocess.run(
        [sys.executable, "-m", "muster.simulate", *options],
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path},
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.minutes
def test_new_lives(tmp_path: Path) -> None:
    played = simulate(tmp_path, "--seed", str(time.time_ns() // 1000), "--minutes", str(SECONDS / 60))
    assert played.returncode == 0, played.stdout + played.stderr
    assert json.loads((tmp_path / "build/bench/simulate.json").read_text())["faults"] > 0


@pytest.mark.minutes
def test_lives_side_by_side_are_those_of_their_seeds() -> None:
    alone, beside = (
        {outcome.story.seed: (outcome.seconds, outcome.events) for outcome, _ in lives(7, 2, 600.0, jobs)}
        for jobs in (1, 2)
    )
    assert sorted(beside) == [7, 8]
    assert alone == beside


def test_the_sum_goes_on_behind_the_last_seed_and_is_told_by_revision(tmp_path: Path) -> None:
    path, kept = tmp_path / "sum.json", Record([])
    assert kept.next_seed == 1
    for revision, next_seed in (("aaa", 3), ("aaa", 5), ("bbb", 7)):
        kept.add(revision, next_seed, SHOWN)
    kept.write(path)
    kept = Record.read(path)
    assert (kept.next_seed, kept.faults, kept.violations) == (7, 90, 3)
    assert [(run["revision"], run["seeds"], run["cpu_s"]) for run in kept.runs] == [("aaa", 4, 19.8), ("bbb", 2, 9.9)]
    assert json.loads(path.read_text())["total"] == {
        "seeds": 6, "faults": 90, "simulated_hours": 4.5, "cpu_s": 29.7, "violations": 3
    }  # fmt: skip


def test_a_sum_that_cannot_be_read_is_said_before_hours_are_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sum.json"
    path.write_text('{"revisions": [{"revision": "aaa"}]}')
    with pytest.raises(RecordError, match="is no sum of lives: KeyError"):
        Record.read(path)
    assert main(["--record", str(path)]) == 2
    assert "sum.json is no sum of lives" in capsys.readouterr().err


def test_where_git_does_not_tell_the_revision_nothing_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert main(["--record", "sum.json"]) == 2
    assert "git does not tell which this is" in capsys.readouterr().err

"""The command line of `make simulate`, and the record of its runs that is kept in a file."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulate.__main__ import main
from simulate.play import Outcome, Story
from simulate.record import Record, RecordError
from simulate.stories import StoryError, read

SHOWN = {"seeds": 2, "faults": 30, "simulated_hours": 1.5, "cpu_s": 9.9, "violations": 1, "cells": 140}


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


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--minutes", "-1"], "argument --minutes: -1 is not possible"),
        (["--minutes", "nan"], "argument --minutes: nan is not possible"),
        (["--jobs", "0"], "argument --jobs: 0 is not possible: give 1 or more"),
        (["--seeds", "many"], "argument --seeds: 'many' is no whole number"),
        (["--seed", "7", "--record", "sum.json"], "not allowed with argument --seed"),
    ],
)
def test_what_would_play_nothing_is_refused(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(options)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_sum_that_cannot_be_kept_is_said_before_hours_are_spent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("simulate.record.revision", lambda: "aaa")
    assert main(["--record", "/nonexistent/sum.json"]) == 2
    assert "/nonexistent/sum.json cannot be written: No such file or directory" in capsys.readouterr().err


def test_what_was_played_is_kept_before_the_run_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "sum.json", []
    monkeypatch.setattr("simulate.record.revision", lambda: "aaa")
    monkeypatch.setattr("simulate.__main__.KEEP_SECONDS", 0.0)
    monkeypatch.setattr("simulate.__main__.OUTPUT", tmp_path / "simulate.json")

    def two_lives(first: int, *_: Any) -> Iterator[tuple[Outcome, float]]:
        for seed in range(first, first + 2):
            yield Outcome(Story(seed, []), cells=Counter({("Running", "WatchesEnd"): 3})), 1.0
            seen.append((Record.read(path).faults, Record.read(path).next_seed))

    monkeypatch.setattr("simulate.__main__.lives", two_lives)
    assert main(["--record", str(path)]) == 0
    assert seen == [(3, 2), (6, 3)]
    assert (Record.read(path).faults, Record.read(path).next_seed) == (6, 3)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"at": "x", "kind": "ApiAway"}, "faults[0].at, 'x': input should be a valid number"),
        ({"at": -5, "kind": "ApiAway"}, "faults[0].at, '-5': input should be greater than or equal to 0"),
        (
            {"at": 1, "kind": "ApiAway", "count": -1},
            "faults[0].count, '-1': input should be greater than or equal to 1",
        ),
        ({"at": 1, "kind": "ApiAway", "foo": 1}, "faults[0].foo, '1': extra inputs are not permitted"),
        ({"at": 1, "kind": "Meteor"}, "faults[0].kind, 'Meteor': input should be 'RankExits'"),
        ({"at": 1, "kind": "PodDeleted"}, "faults[0].job is ''; the jobs of day Three are a, b, plain"),
        ({"at": 1, "kind": "ApiAway", "job": "zzz"}, "faults[0].job is 'zzz'; the jobs of day Three are a, b, plain"),
    ],
)
def test_a_story_that_cannot_be_is_refused_with_the_field(tmp_path: Path, fault: dict[str, Any], words: str) -> None:
    path = tmp_path / "story.json"
    path.write_text(json.dumps({"seed": 1, "faults": [fault]}))
    with pytest.raises(StoryError) as refused:
        read(path)
    assert words in str(refused.value)

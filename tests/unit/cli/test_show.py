"""How findings are put into words and columns."""

import sys
import unicodedata
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from muster.answers.text_parts import UNSEEN
from muster.cli import show
from muster.cli.convert import as_document

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (61, "1m1s"), (3600, "1h"), (7260, "2h1m"), (266400, "3d2h")],
)
def test_an_age_is_told_in_its_two_largest_units(seconds: int, words: str) -> None:
    assert show.age(NOW - timedelta(seconds=seconds), NOW) == words


@pytest.mark.parametrize(("per_second", "says"), [(2.04, "2.0/s"), (0.5, "30.0/min"), (0.001, "3.6/h"), (500, "500/s")])
def test_a_rate_is_told_in_a_time_in_which_there_are_steps(per_second: float, says: str) -> None:
    assert show.rate(per_second) == says


def test_no_moment_has_no_age() -> None:
    assert show.age(None, NOW) == ""


@pytest.mark.parametrize(
    ("names", "short"),
    [
        ([], ""),
        (["login"], "login"),
        (["gpu-7"], "gpu-7"),
        (["gpu-001", "gpu-002", "gpu-003", "gpu-005"], "gpu-[001-003,005]"),
        (["gpu-9", "gpu-10", "gpu-11"], "gpu-9, gpu-[10-11]"),
        (["ip-10-0-0-3.ec2", "ip-10-0-0-4.ec2"], "ip-10-0-0-[3-4].ec2"),
        (["b-1", "a-1", "b-2"], "b-[1-2], a-1"),
    ],
)
def test_names_in_a_row_are_folded(names: list[str], short: str) -> None:
    assert show.folded(names) == short


@given(st.sets(st.integers(0, 999), min_size=1))
def test_no_name_is_lost_by_folding(numbers: set[int]) -> None:
    short = show.folded(f"n{number:03}" for number in sorted(numbers))
    found: set[int] = set()
    for part in short.removeprefix("n").strip("[]").split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == numbers


def test_the_largest_amounts_come_first_and_the_rest_is_summed_up() -> None:
    amounts = {"a": 1, "b": 20, "c": 4, "d": 2}
    assert show.largest(amounts, 2) == "20 b, 4 c, 3 others"
    assert show.largest(amounts, 3) == "20 b, 4 c, 2 d, 1 other"
    assert show.largest(amounts, 4) == "20 b, 4 c, 2 d, 1 a"
    assert show.largest({}, 2) == ""


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[31mloss is nan\x1b[0m", "loss is nan"),
        ("\x1b]0;your prompt\x07done", "done"),
        ("\x1b]8;;https://evil.example\x1b\\click", "click"),
        ("a\rb\x08\x9bc", "abc"),
        ("right\u202eto left", "rightto left"),
        ("two\nlines\tand a tab", "two\nlines and a tab"),
        ("[W 12:00] plain [bold]markup[/bold]", "[W 12:00] plain [bold]markup[/bold]"),
    ],
)
def test_what_others_wrote_cannot_move_the_cursor(text: str, plain: str) -> None:
    assert show.printable(text) == plain


def _wide(console: Any) -> None:
    made = show.table("NAME", "WORDS")
    show.add(made, "n", "word " * 100, style="red")
    console.print(made)


def test_nothing_is_folded_or_coloured_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert show.as_text(_wide).splitlines() == ["NAME  WORDS", f"n     {'word ' * 100}".rstrip()]
    monkeypatch.setenv("COLUMNS", "40")
    lines = show.as_text(_wide).splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= 40
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("text", ["1e-4", "y", "N", "0o17", "1.5e3", "8", "+1e4", ".5e1", "10.0.0.1"])
def test_what_other_readers_take_for_a_number_or_a_truth_is_quoted(text: str) -> None:
    assert yaml.dump([text], Dumper=show.Dumper) == f"- '{text}'\n"


@pytest.mark.parametrize("text", ["yes-man", "train.py", "--lr", "n1", "a\nb"])
def test_other_texts_are_written_as_ever(text: str) -> None:
    assert yaml.dump([text], Dumper=show.Dumper) == yaml.safe_dump([text])


def test_a_document_is_the_same_object_and_cannot_move_the_cursor() -> None:
    for text in ("a\u202eb", "plain\nlines\x9b", "\ufeffx", "\x1b[2J", "für 漢", "two\nlines"):
        written = as_document({"command": [text]})
        assert not UNSEEN & {unicodedata.category(each) for each in written if each != "\n"}
        assert yaml.safe_load(written) == {"command": [text]}

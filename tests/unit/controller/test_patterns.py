"""Step patterns of users: tried once each, in a child that may be killed at any time."""

import asyncio
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.controller import pattern_child
from muster.controller.patterns import PatternUntriedError, StepPatterns

# 253 characters that pass for harmless: a backslash before the end of a range. Each takes a third of a second.
SLOW = "(?i)(" + r"[\0-\U0010ffff]" * 16 + ")"
CHILD = Path(pattern_child.__file__)


@pytest.fixture
def starting(tmp_path: Path) -> Callable[[str], StepPatterns]:
    """Patterns whose child runs some lines of Python first; each start is one line in the file `starts`."""

    def make(lines: str = "", deadline_seconds: float = 60.0) -> StepPatterns:
        script = tmp_path / "child.py"
        path = tmp_path / "starts"
        note = f"import os, runpy, signal, time\nopen({str(path)!r}, 'a').write('x')\n"
        count = f"count = len(open({str(path)!r}).read())\n"
        script.write_text(f"{note}{count}{lines}\nrunpy.run_path({str(CHILD)!r}, run_name='__main__')\n")
        return StepPatterns((sys.executable, "-I", "-S", str(script)), deadline_seconds)

    return make


def starts(tmp_path: Path) -> int:
    return len((tmp_path / "starts").read_text())


def forbid(monkeypatch: pytest.MonkeyPatch, pattern: str) -> None:
    """Nothing compiles this pattern in this process."""
    compile_pattern = re.compile

    def guarded(text: Any, *flags: Any) -> Any:
        assert text != pattern
        return compile_pattern(text, *flags)

    monkeypatch.setattr(re, "compile", guarded)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("step=([0-9]+)", ""),
        (r"\[étape-№ (\d+)\]", ""),
        ("Schritt-№ ([0-9]+)", ""),
        (r"(?i)([\]a-\uffff])", ""),
        ("step=([0-9]+", "not a regular expression"),
        ("(a){99999999999999999999}", "not a regular expression"),
        ("(" * 120 + ")" * 120, "exactly one group"),
        ("step=", "needs exactly one group that holds the step number, it has 0"),
        ("(a)(b)", "it has 2"),
        ("line\n(break)", ""),
        ("\ud800(a)", ""),
        ("", "exactly one group"),
    ],
)
async def test_the_answer_says_what_is_wrong(pattern: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, pattern)
    found = await StepPatterns().problem(pattern)
    assert problem in found
    assert bool(found) == bool(problem)


async def test_a_pattern_that_takes_long_takes_the_childs_time_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid(monkeypatch, SLOW)
    patterns = StepPatterns()
    slow, quick = await asyncio.gather(patterns.problem(SLOW), patterns.problem("step=([0-9]+)"))
    assert slow == "" or "s of processor time to compile" in slow  # as fast as the machine is
    assert quick == ""


async def test_a_child_that_the_timer_has_ended_is_an_answer_and_is_kept(
    starting: Callable[..., StepPatterns], tmp_path: Path
) -> None:
    patterns = starting("os.kill(os.getpid(), signal.SIGPROF)")
    for _ in range(3):
        assert "processor time" in await patterns.problem("step=([0-9]+)")
    assert starts(tmp_path) == 1


async def test_a_child_that_was_killed_once_says_nothing_of_the_pattern(starting: Callable[..., StepPatterns]) -> None:
    patterns = starting("if count == 1: os.kill(os.getpid(), signal.SIGKILL)")
    assert await patterns.problem("step=([0-9]+)") == ""


@pytest.mark.parametrize("lines", ["os.kill(os.getpid(), signal.SIGKILL)", "raise SystemExit(0)", "os.abort()"])
async def test_a_pattern_that_could_not_be_tried_is_asked_for_again_later(
    lines: str, starting: Callable[..., StepPatterns], tmp_path: Path
) -> None:
    patterns = starting(f"if count <= 2: {lines}")
    with pytest.raises(PatternUntriedError, match=r"spec\.progress\.stepPattern was killed 2 times"):
        await patterns.problem("step=([0-9]+)")
    assert await patterns.problem("step=([0-9]+)") == ""
    assert starts(tmp_path) == 3


async def test_a_child_that_does_not_answer_is_ended(starting: Callable[..., StepPatterns]) -> None:
    with pytest.raises(PatternUntriedError):
        await starting("time.sleep(600)", deadline_seconds=0.01).problem("step=([0-9]+)")


async def test_a_child_that_cannot_be_started() -> None:
    with pytest.raises(PatternUntriedError):
        await StepPatterns(("/nowhere/python",)).problem("step=([0-9]+)")


async def test_hundreds_at_once_share_one_child_and_none_is_tried_twice(
    starting: Callable[..., StepPatterns], tmp_path: Path
) -> None:
    patterns, asked = (
        starting(),
        [f"step {number % 250}=({'(' * (number % 2)}[0-9]+{')' * (number % 2)})" for number in range(500)],
    )
    answers = await asyncio.gather(*map(patterns.problem, asked))
    assert [bool(answer) for answer in answers] == [bool(number % 2) for number in range(500)]
    assert starts(tmp_path) == 1
    assert [await patterns.problem(pattern) for pattern in asked] == answers
    assert starts(tmp_path) == 1, "the answers are kept"


async def test_a_child_that_is_killed_among_hundreds_costs_nobody_an_answer(
    starting: Callable[..., StepPatterns], tmp_path: Path
) -> None:
    patterns = starting("if count == 1: signal.setitimer(signal.ITIMER_REAL, 0.05)")  # SIGALRM, somewhere on the way
    answers = await asyncio.gather(*(patterns.problem(f"step {number}=([0-9]+)") for number in range(500)))
    assert set(answers) == {""}


async def test_who_gives_up_leaves_no_answer_to_the_next(starting: Callable[..., StepPatterns]) -> None:
    patterns = starting("time.sleep(0.2)")
    first = asyncio.create_task(patterns.problem("(a)(b)"))
    second = asyncio.create_task(patterns.problem("step=([0-9]+)"))
    while patterns._child is None:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(0)
    child = patterns._child
    first.cancel()
    assert await second == ""
    assert await child.wait() == -signal.SIGKILL
    assert patterns._child is None
    with pytest.raises(asyncio.CancelledError):
        await first

"""The reference of the end-to-end test of accounts: figures of logs that can be reckoned in the head."""

from typing import Any

import pytest
from tests.e2e.trainer_log import reckon

RANKS = 3


def attempt(
    number: int, begin: float, steps: range, saves: tuple[int, ...] = (), step: float = 1.0
) -> list[dict[str, Any]]:
    """Lines of an attempt: each rank is 0.25 s later than the one before it; a save takes 4 s."""
    lines: list[dict[str, Any]] = []
    now = begin
    for each in steps:
        lines += [
            {
                "attempt": number,
                "event": "step",
                "step": each,
                "rank": rank,
                "began": now - 0.25 * (RANKS - 1 - rank),
                "wall": now + step - 0.25 * (RANKS - 1 - rank),
            }
            for rank in range(RANKS)
        ]
        now += step
        if each in saves:
            now += 4
            lines.append({"attempt": number, "event": "checkpoint", "step": each, "rank": 0, "wall": now})
    return lines


def test_an_undisturbed_job_is_productive_but_for_its_start_and_its_saves() -> None:
    found = reckon(attempt(1, 130.0, range(1, 11), saves=(5,)), created=100.0)
    assert (found.productive, found.stalled, found.steps) == (10.0, 4.0, 10)
    assert (found.lost, found.lost_steps, found.attempts) == (0.0, 0, 1)
    assert (found.wall, found.median, found.uncertain) == (44.0, 1.0, 0.0)
    assert found.ettr() == pytest.approx(10 / 44)
    assert found.ettr(finishing=6.0) == pytest.approx(10 / 50)


def test_a_save_after_the_last_step_belongs_to_the_end_of_the_job() -> None:
    found = reckon(attempt(1, 130.0, range(1, 11), saves=(10,)), created=100.0)
    assert (found.productive, found.stalled, found.wall) == (10.0, 0.0, 40.0)


def test_what_a_later_attempt_makes_again_is_lost_with_the_saves_among_it() -> None:
    """Attempt 1 makes 18 steps, saves 10 and 15, and the next one goes on from 10."""
    lines = [*attempt(1, 0.0, range(1, 19), saves=(10, 15)), *attempt(2, 60.0, range(11, 31))]
    found = reckon(lines, created=-10.0)
    assert (found.steps, found.lost_steps) == (30, 8)
    assert (found.productive, found.stalled) == (30.0, 0.0), "the save after step 10 delayed a step that was lost"
    assert found.lost == 8 + 2 * 4
    assert (found.wall, found.attempts) == (90.0, 2)


def test_a_step_back_beyond_an_earlier_attempt_takes_steps_of_both() -> None:
    lines = [
        *attempt(1, 0.0, range(1, 11)),
        *attempt(2, 20.0, range(11, 21)),
        *attempt(3, 40.0, range(6, 26)),
    ]
    found = reckon(lines, created=0.0)
    assert (found.steps, found.lost_steps, found.productive, found.lost) == (25, 15, 25.0, 15.0)


def test_up_to_a_moment_only_what_had_ended_counts() -> None:
    lines = [*attempt(1, 0.0, range(1, 11)), *attempt(2, 20.0, range(6, 21))]
    assert reckon(lines, created=0.0, until=15.0).lost_steps == 0
    found = reckon(lines, created=0.0, until=24.0)
    assert (found.steps, found.lost_steps, found.productive, found.wall) == (9, 5, 9.0, 24.0)


def test_what_saves_took_is_as_uncertain_as_steps_vary() -> None:
    slow = attempt(1, 0.0, range(1, 9), saves=(2, 4)) + attempt(1, 20.0, range(9, 11), step=3.0)
    found = reckon(slow, created=0.0)
    assert (found.median, found.uncertain) == (1.0, 2 * 2.0)

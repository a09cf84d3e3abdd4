"""Which of the numbers that a rank tells are steps, what it has taken back by itself, and how long a step takes."""

from hypothesis import given
from tests.unit.launcher.histories import (
    HISTORIES,
    LINES,
    MOST,
    nothing_is_negative_and_no_more_is_lost_than_has_passed,
    what_is_left_was_not_taken_back,
)

from muster.node.launcher.stepclock import StepClock, lowest


def told(*lines: tuple[int, float]) -> StepClock:
    clock = StepClock()
    for step, now in lines:
        clock.add_step(step, now)
    return clock


def a_second_each(*steps: int, begin: float = 0.0) -> list[tuple[int, float]]:
    return [(step, begin + second) for second, step in enumerate(steps)]


def of(clock: StepClock) -> tuple[int | None, int, float, int | None]:
    return clock.step, clock.lost_steps, round(clock.lost_seconds, 6), clock.back_to


def test_a_step_takes_the_median_and_only_a_higher_step_is_progress():
    clock, told = StepClock(), []
    for step, now in ((1, 10.0), (2, 11.0), (2, 50.0), (1, 60.0), (4, 61.0), (5, 61.5)):
        clock.add_step(step, now)
        told.append(clock.step_seconds())
    assert (clock.step, clock.finished_at) == (5, 61.5)
    assert told == [None, 1.0, 1.0, 1.0, 13.0, 1.0]  # of 1, 25 and 0.5


def test_one_step_in_ten_takes_longer_than_the_percentile():
    clock, now = StepClock(), 0.0
    for step in range(1, 12):
        assert clock.step_p90_seconds() is None, "too few to say"
        now += 5.0 if step in (4, 8) else 1.0
        clock.add_step(step, now)
    assert (clock.step_seconds(), clock.step_p90_seconds()) == (1.0, 5.0)  # 2 of 10
    for step in range(12, 22):
        now += 1.0
        clock.add_step(step, now)
    assert clock.step_p90_seconds() == 1.0  # 2 of 20: not more than one in ten


def test_the_lowest_step_among_the_ranks_that_report():
    clocks = [StepClock(), StepClock(), StepClock()]
    clocks[1].add_step(7, 1.0)
    clocks[2].add_step(6, 2.0)
    assert lowest(clocks) is clocks[2]
    assert lowest(clocks[:1]) is None


def test_a_program_that_goes_back_by_itself_loses_what_it_makes_again() -> None:
    """Steps 1 to 50, back to 30 in 7 seconds, and on."""
    clock = told(*a_second_each(*range(1, 51)), *a_second_each(*range(31, 61), begin=57.0))
    # Twenty steps, and from the last of them until the first that is made again, that step left out.
    assert of(clock) == (60, 20, 27.0, 30)
    assert (clock.first_step, clock.finished_at, clock.step_seconds()) == (1, 86.0, 1.0)


def test_what_is_taken_back_twice_is_lost_twice_and_no_second_of_it_twice() -> None:
    clock = told(
        *a_second_each(*range(1, 51)),
        *a_second_each(*range(31, 41), begin=50.0),
        *a_second_each(*range(21, 31), begin=60.0),
    )
    assert of(clock) == (30, 20 + 20, 40.0, 20)


def test_a_fall_of_steps_is_believed_with_the_third_line() -> None:
    """The program is alive all the while."""
    clock = told(*a_second_each(*range(1, 51)))
    for step, steps, at in ((31, 50, 50.0), (32, 50, 51.0), (33, 33, 52.0)):
        clock.add_step(step, at)
        assert (clock.step, clock.finished_at) == (steps, at)


def test_a_program_that_says_the_same_for_ever_makes_no_progress() -> None:
    clock = told(*a_second_each(*range(1, 51)), *[(7, 60.0 + second) for second in range(1000)])
    assert (clock.step, clock.finished_at, clock.lost_steps) == (50, 60.0, 0)


def test_stray_numbers_change_nothing() -> None:
    lines = a_second_each(*range(100, 200))
    for stray in (0, 1, 99, 150, 5000, 10**12, MOST):
        clock = told(*lines[:60], (stray, 59.5), *lines[60:])
        assert of(clock) == (199, 0, 0.0, None)
        assert (clock.first_step, clock.first_step_at, clock.step_seconds()) == (100, 0.0, 1.0)


def test_a_stray_number_at_the_beginning_is_forgotten_with_the_third_line_after_it() -> None:
    assert of(told((10**5, 0.0), *a_second_each(*range(41, 45), begin=1.0))) == (44, 0, 0.0, None)
    clock = told((10**5, 0.0), *a_second_each(41, 42, 43, begin=1.0))
    assert (clock.first_step, clock.first_step_at) == (41, 1.0)
    assert of(told((41, 0.0), (10**5, 1.0), *a_second_each(42, 43, 44, begin=2.0))) == (44, 0, 0.0, None)


def test_the_longest_wait_for_a_step_is_known_after_twenty_steps() -> None:
    """It has what was between the steps."""
    clock = told(*a_second_each(*range(1, 11)), (11, 40.0), *a_second_each(*range(12, 21), begin=41.0))
    assert clock.longest_wait_seconds() is None
    clock.add_step(21, 50.0)
    clock.add_step(22, 50.0)
    assert clock.longest_wait_seconds() == 31.0
    assert StepClock().longest_wait_seconds() is None


def test_a_leap_is_believed_once_the_next_lines_bear_it_out() -> None:
    clock = told(*a_second_each(*range(1, 21)), (10_000, 20.0))
    assert clock.step == 20
    clock.add_step(10_001, 21.0)
    clock.add_step(10_002, 22.0)
    assert (clock.step, clock.lost_steps) == (10_002, 0)


def test_lines_that_lie_far_apart_are_believed_at_once() -> None:
    """Hugging Face's Trainer with `logging_first_step`: 1, then every 500th."""
    clock = told((1, 0.0), (500, 600.0), (1000, 1200.0))
    assert (clock.step, clock.stride()) == (1000, 499)


def test_an_evaluation_that_counts_anew_is_no_training() -> None:
    train, lines = list(range(1, 301)), []
    for epoch in range(3):
        lines += train[epoch * 100 : epoch * 100 + 100]
        lines += list(range(1, 21))
    clock = told(*a_second_each(*lines), (301, 400.0))
    assert of(clock) == (301, 0, 0.0, None)


def test_another_count_is_dropped_once_training_goes_on_from_where_it_was() -> None:
    """The other count may begin anywhere."""
    clock = told(*a_second_each(*range(1, 301)), *a_second_each(*range(50, 70), begin=300.0))
    assert clock.lost_steps > 0
    clock.add_step(301, 321.0)
    assert of(clock) == (301, 0, 0.0, None)


def test_lines_that_were_held_back_are_no_fall() -> None:
    """What one stream printed with each step another one prints of every tenth, and later."""
    clock = told(*a_second_each(*range(1, 401)), *[(step, 399.5) for step in range(210, 400, 10)], (401, 400.0))
    assert of(clock) == (401, 0, 0.0, None)


def test_lines_that_are_read_together_count_as_alike() -> None:
    clock = told((1, 10.0), (2, 20.0), (3, 20.0), (4, 20.0), (5, 20.0), (6, 30.0))
    assert clock.step_seconds() == (2.5 + 10.0) / 2


# Nightly tests have more of these.


@given(HISTORIES)
def test_what_is_left_are_the_steps_that_were_not_taken_back(history: list[tuple[int, int | None]]) -> None:
    what_is_left_was_not_taken_back(history)


@given(LINES)
def test_whatever_is_told_nothing_is_negative_and_no_more_is_lost_than_has_passed(
    lines: list[tuple[int, float]],
) -> None:
    nothing_is_negative_and_no_more_is_lost_than_has_passed(lines)


def test_a_long_time_between_two_lines_leaves_the_steps_in_order() -> None:
    nothing_is_negative_and_no_more_is_lost_than_has_passed([(502, 0.1), (500, 1e7), (501, 0.0), (502, 0.1)])

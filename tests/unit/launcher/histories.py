"""What a program may tell of its steps, drawn, and what then holds."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from muster.node.launcher.stepclock import StepClock

MOST = 2**53 - 1
# Steps that are made, and how many of them are taken back then.
HISTORIES = st.lists(st.tuples(st.integers(1, 40), st.one_of(st.none(), st.integers(3, 60))), min_size=1, max_size=12)
# Numbers, and seconds before each.
LINES = st.lists(
    st.tuples(st.sampled_from([0, 1, 7, 8, 9, 10, 500, 501, 502, 10**6, MOST]), st.sampled_from([0.0, 0.1, 3.0, 1e7]))
)


def what_is_left_was_not_taken_back(history: list[tuple[int, int | None]]) -> None:
    """A program that makes some steps, goes back (or does not), and so on; after each fall it makes enough to be
    believed."""
    clock, step, now, lost, seconds = StepClock(), 100, 0.0, 0, 0.0
    kept = [(100, 0.0)]
    clock.add_step(100, 0.0)
    for steps, back in history:
        for _ in range(steps + 3):
            step, now = step + 1, now + 1.0
            clock.add_step(step, now)
            kept.append((step, now - seconds))
        if back is not None and back < len(kept) - 1:
            lost += back
            at = kept[-1 - back][1]
            seconds = now + 5.0 - at
            del kept[-back:]
            step, now = step - back, now + 5.0
    for _ in range(70):
        step, now = step + 1, now + 1.0
        clock.add_step(step, now)
    assert (clock.step, clock.lost_steps) == (step, lost)
    assert abs(clock.lost_seconds - seconds) < 1e-6


def nothing_is_negative_and_no_more_is_lost_than_has_passed(
    lines: list[tuple[int, float]],
) -> None:
    clock, now = StepClock(), 0.0
    for step, seconds in lines:
        now += seconds
        clock.add_step(step, now)
        assert clock.lost_steps >= 0
        assert 0.0 <= clock.lost_seconds <= now
        assert clock.finished_at is None or clock.finished_at <= now
        assert (clock.step_seconds() or 0.0) >= 0.0
        assert (clock.stride() or 1) > 0
        assert all(one.step < other.step and one.at <= other.at for one, other in pairwise(clock._trail))

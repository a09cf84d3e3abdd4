"""Follows how far one rank has come, by the steps that it reports: some may be wrong, and a program may go back.

A number that does not go on from those before is believed once those that follow confirm it. Then it was a leap, or the
program has gone back by itself, as trainers do after a spike of the loss. What it had made beyond is lost. A single
stray number changes nothing. What begins with 1 again is another count (of an epoch, of an evaluation) and no step of
the training.
"""

from __future__ import annotations

import bisect
import collections
import math
from typing import Collection, Deque, List, NamedTuple, Optional

_WINDOW = 64
_LEAST_FOR_P90 = 10  # intervals
_LEAST_FOR_LONGEST = 20  # lines, so that the longest wait between two of them says what is usual
_BORNE_OUT = 3  # lines: a program that goes back by fewer is not noticed
_FEW_STEPS = 64
_SHORTER = 20.0  # a step may take so much less time than usual
_MOST_STEPS = 10**6  # between two lines of a rank whose pace is unknown
_MOST_STRAY = 2  # lines that were believed, and are contradicted by those that follow
_LATE_SHARE = 0.25  # of the usual time: lines that come faster are old ones that were held back, of a second count
_LONG_SECONDS = 60.0  # what goes on for so long is none of these
_MOST_POINTS = 512  # remembered; beyond that every second one is forgotten


def median(values: Collection[float]) -> float:
    """The median of values, of which there is at least one.

    The module `statistics` is not imported for it: it takes a twentieth of the launcher's start.
    """
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class _StepTime(NamedTuple):
    """A step and the time when it was finished, by a clock that stands still in time that is lost."""

    step: int
    at: float


class _EarlierCount(NamedTuple):
    """The state before the program was taken to have gone back."""

    trail: List[_StepTime]
    lost_steps: int
    lost_seconds: float
    back_to: Optional[int]


class StepClock:
    """The newest step of one rank, the usual time of a step, and the work that the program has undone by itself.

    Attributes:
        step: the newest step that is believed; None = none yet.
        finished_at: when the newest line came that may report progress.
        first_step: the first step that the rank reported, 0 not counted.
        first_step_at: when that was.
        lost_steps: steps that the program has made and undone without being started anew.
        lost_seconds: the time of those steps and of going back.
        back_to: the lowest step from which the program went on after going back; None = it never went back.
    """

    def __init__(self) -> None:
        self.step: Optional[int] = None
        self.finished_at: Optional[float] = None
        self.first_step: Optional[int] = None
        self.first_step_at: Optional[float] = None
        self.lost_steps = 0
        self.lost_seconds = 0.0
        self.back_to: Optional[int] = None
        self._trail: List[_StepTime] = []  # ascending, what was taken back left out
        self._told_at: Optional[float] = None  # when the newest step was told that is believed
        self._unconfirmed: List[_StepTime] = []  # lines that do not go on from it, but from each other
        self._most_unconfirmed = 0
        self._before: Optional[_EarlierCount] = None
        self._longest_wait = 0.0  # between two lines that were believed one after the other
        self._waits = 0
        self._since: Optional[_StepTime] = None  # the newest step that was told before `_told_at`
        self._intervals: Deque[float] = collections.deque(maxlen=_WINDOW)
        self._strides: Deque[int] = collections.deque(maxlen=_WINDOW)
        # Of the intervals; they are asked for more often than a step ends.
        self._median: Optional[float] = None
        self._p90: Optional[float] = None

    def add_step(self, step: int, now: float) -> None:
        """Take in a line that reports a step as finished. Lines that were read together have one time."""
        if step == self.step and not self._unconfirmed:
            return
        if self._before is not None and self._was_another_count(step):
            self._restore(self._before)
        if self.step is None or self._goes_on(step, now):
            self._believe(step, now)
            return
        if self._unconfirmed and not 0 < step - self._unconfirmed[-1].step <= self._max_steps_within(
            now - self._unconfirmed[-1].at
        ):
            self._unconfirmed = []
        self._unconfirmed.append(_StepTime(step, now))
        if len(self._unconfirmed) > self._most_unconfirmed and self._most_unconfirmed < _BORNE_OUT:
            self._most_unconfirmed, self.finished_at = self._most_unconfirmed + 1, now
        if len(self._unconfirmed) >= _BORNE_OUT:
            self._decide()
        if len(self._unconfirmed) > _WINDOW:
            del self._unconfirmed[2]

    def step_seconds(self) -> Optional[float]:
        """The median of the seconds per step over the last steps; None while no step's time is known."""
        if self._median is None and self._intervals:
            self._median = median(self._intervals)
        return self._median

    def step_p90_seconds(self) -> Optional[float]:
        """The 90th percentile of the seconds per step over the last steps; None while there are too few."""
        if self._p90 is None and len(self._intervals) >= _LEAST_FOR_P90:
            self._p90 = sorted(self._intervals)[math.ceil(0.9 * len(self._intervals)) - 1]
        return self._p90

    def longest_wait_seconds(self) -> Optional[float]:
        """The longest time between two reports of a step, evaluations and saves included; None while there are too
        few."""
        return self._longest_wait if self._waits >= _LEAST_FOR_LONGEST else None

    def stride(self) -> Optional[int]:
        """The usual number of steps from one line to the next, by the last lines; None where there was only one."""
        return sorted(self._strides)[(len(self._strides) - 1) // 2] if self._strides else None

    def _max_steps_within(self, seconds: float) -> float:
        """The largest number of steps that may lie between two lines that came `seconds` apart."""
        pace = self.step_seconds()
        return _FEW_STEPS + _SHORTER * seconds / pace if pace else _MOST_STEPS

    def _goes_on(self, step: int, now: float) -> bool:
        begin = self._since.at if now == self._told_at and self._since is not None else self._told_at
        return 0 < step - (self.step or 0) <= self._max_steps_within(now - (begin or 0.0))

    def _believe(self, step: int, now: float) -> None:
        if self.step is not None and self._told_at is not None:
            self._strides.append(step - self.step)
            if now > self._told_at:  # those that were read together are one report
                self._longest_wait = max(self._longest_wait, now - self._told_at)
                self._waits += 1
            self._note_interval(_StepTime(self.step, self._told_at), step, now)
        if self.first_step is None and step:
            self.first_step, self.first_step_at = step, now
        self.step, self.finished_at, self._told_at = step, now, now
        self._unconfirmed, self._most_unconfirmed = [], 0
        if self._before is not None and step > self._before.trail[-1].step:
            self._before = None  # it has come there again, step by step
        if len(self._trail) >= _MOST_POINTS:
            del self._trail[1:-1:2]
        at = now - self.lost_seconds
        # Of large numbers the difference may be a rounding error too small.
        self._trail.append(_StepTime(step, max(at, self._trail[-1].at) if self._trail else at))

    def _note_interval(self, newest: _StepTime, step: int, now: float) -> None:
        if now != newest.at:
            self._since = newest
        elif self._since is None:
            return
        elif self._intervals:  # those that were read together count as alike
            self._intervals.pop()
        self._intervals.append((now - self._since.at) / (step - self._since.step))
        self._median = self._p90 = None

    def _decide(self) -> None:
        """Decide what the suspect lines mean, since they confirm each other, and believe them.

        What was believed before was a leap too short, stray, or is undone now.
        """
        first = self._unconfirmed[0]
        if first.step < (self.step or 0):
            stray = self._stray(first.step)
            if stray:
                self._forget(stray)
            elif not self._goes_back():
                return
        lines, self._unconfirmed = self._unconfirmed, []
        for line in lines:
            self._believe(*line)

    def _stray(self, step: int) -> int:
        """The number of lines, believed last, that are far from `step` while `step` goes on from those before them; 0 =
        none."""
        for count in range(1, 1 + min(_MOST_STRAY, len(self._trail))):
            place = len(self._trail) - count
            previous_step = self._trail[place - 1].step if place else None
            leap = self._trail[place].step - (step if previous_step is None else previous_step)
            if leap > _FEW_STEPS and (previous_step is None or 0 < step - previous_step <= _FEW_STEPS):
                return count
        return 0

    def _forget(self, count: int) -> None:
        del self._trail[-count:]
        self._intervals.clear()
        self._strides.clear()
        self._median = self._p90 = self._since = None
        self.step = self._told_at = None
        if self._trail:
            self.step, self._told_at = self._trail[-1].step, self._trail[-1].at + self.lost_seconds
        else:
            self.first_step = self.first_step_at = None

    def _goes_back(self) -> bool:
        """Count the work beyond the suspect lines as lost, if they are steps of the training that are made again.

        Returns whether they are.
        """
        first, newest = self._unconfirmed[0], self._unconfirmed[-1]
        base = first.step - (self._unconfirmed[1].step - first.step)
        seconds, pace = newest.at - first.at, self.step_seconds()
        timely = pace is None or seconds >= _LATE_SHARE * pace * (newest.step - first.step)
        if base <= 0 or not seconds or not (timely or seconds >= _LONG_SECONDS):
            return False
        self._before = _EarlierCount(list(self._trail), self.lost_steps, self.lost_seconds, self.back_to)
        base_at = self._at(base)
        lost = first.at - self.lost_seconds - base_at - (pace or 0.0) * (first.step - base)
        self.lost_steps += (self.step or 0) - base
        self.lost_seconds += max(lost, 0.0)
        self.back_to = base if self.back_to is None else min(base, self.back_to)
        self._trail = [point for point in self._trail if point.step < base] + [_StepTime(base, base_at)]
        self.step, self._told_at, self._since = base, first.at - (pace or 0.0) * (first.step - base), None
        return True

    def _at(self, step: int) -> float:
        """The time at which a step was finished, interpolated between reported steps. Before the first of them, the
        first's time."""
        place = bisect.bisect_left(self._trail, _StepTime(step, -math.inf))
        if place in (0, len(self._trail)):
            return self._trail[min(place, len(self._trail) - 1)].at
        begin, end = self._trail[place - 1], self._trail[place]
        return begin.at + (end.at - begin.at) * (step - begin.step) / (end.step - begin.step)

    def _was_another_count(self, step: int) -> bool:
        """Whether `step` goes on from where the program was before it was taken to have gone back, and not from where
        it is."""
        top = self._before.trail[-1].step if self._before is not None else 0
        return 0 < step - top <= _FEW_STEPS < step - (self.step or 0)

    def _restore(self, earlier_count: _EarlierCount) -> None:
        self._trail, self.lost_steps, self.lost_seconds, self.back_to = earlier_count
        self.step, self._before, self._since = self._trail[-1].step, None, None


def lowest(clocks: List[StepClock]) -> Optional[StepClock]:
    """The clock of the rank that is furthest behind, among those that report; of equals the one that came last.

    Returns None where no rank has reported a step.
    """
    reporting = [clock for clock in clocks if clock.step is not None]
    return min(reporting, key=lambda clock: (clock.step or 0, -(clock.finished_at or 0.0))) if reporting else None

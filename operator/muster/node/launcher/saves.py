"""Measures what saving costs the training: how long a checkpoint holds up the steps, and when it is durable.

Trainers number checkpoints by their steps, mostly. Where they count saves or epochs instead, nothing is known: the
steps have gone on by more than one interval between checkpoints then.
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import Dict, List, Optional, Sequence, Tuple

from muster.node.launcher.stepclock import median
from muster.protocol.messages import CheckpointReport

_MAX_STEPS = 2048  # remembered; beyond that every second one is forgotten
_MAX_SAVES = 64
_NEAR = 5  # lines that tell a step

_Cost = Tuple[Optional[float], Optional[float]]  # stall and durable, in seconds


class Saves:
    """Relates the steps and the checkpoints of one attempt. Times are readings of one monotonic clock."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget all steps and checkpoints, because another attempt begins."""
        self._steps: List[int] = []
        self._times: List[float] = []
        self._left: List[int] = []  # the furthest step each time when the program went back
        self._costs: Dict[Tuple[int, int], _Cost] = {}
        self.stall_seconds = 0.0  # of all saves of the attempt whose stall is known
        self.count = 0  # of these

    def stepped(self, step: int, at: float) -> None:
        """Take in the newest finished step. A lower step than before means that the program has gone back by itself."""
        if self._steps and step <= self._steps[-1]:
            if step < self._steps[-1] and self._steps[-1] not in self._left[-1:]:
                self._left = [*self._left[1 - _MAX_SAVES :], self._steps[-1]]
            return
        if len(self._steps) >= _MAX_STEPS:
            del self._steps[:-1:2]
            del self._times[:-1:2]
        self._steps.append(step)
        self._times.append(at)

    def with_costs(
        self, checkpoints: Sequence[CheckpointReport], now: float, step_seconds: Optional[float]
    ) -> Tuple[CheckpointReport, ...]:
        """The checkpoints, those that this attempt has saved with their stall and the time until they were durable.

        Args:
            checkpoints: all that a scan has found; only verified ones get figures.
            now: when the scan has found them.
            step_seconds: the usual seconds of a step; None = not known.
        """
        return tuple(
            self._with_cost(checkpoint, checkpoints, now, step_seconds) if checkpoint.verified else checkpoint
            for checkpoint in checkpoints
        )

    def _with_cost(
        self,
        checkpoint: CheckpointReport,
        others: Sequence[CheckpointReport],
        now: float,
        step_seconds: Optional[float],
    ) -> CheckpointReport:
        key = checkpoint.step, checkpoint.written_ns
        if key not in self._costs:
            if len(self._costs) >= _MAX_SAVES:
                del self._costs[next(iter(self._costs))]
            self._costs[key] = None, self._durable_seconds(checkpoint, others, now)
        stall, durable = self._costs[key]
        if stall is None and durable is not None and step_seconds is not None:
            stall = self._stall_seconds(checkpoint.step, step_seconds)
            self._costs[key] = stall, durable
            if stall is not None:
                self.stall_seconds, self.count = self.stall_seconds + stall, self.count + 1
        return dataclasses.replace(checkpoint, stall_seconds=stall, durable_seconds=durable)

    def _durable_seconds(
        self, checkpoint: CheckpointReport, others: Sequence[CheckpointReport], now: float
    ) -> Optional[float]:
        """The seconds from the end of a checkpoint's step until now, when a scan sees it first; None where that says
        nothing."""
        previous_step = max(
            (other.step for other in others if other.verified and other.step < checkpoint.step), default=None
        )
        finished_at = self._finished_at(checkpoint.step)
        if (
            previous_step is None
            or finished_at is None
            or self._steps[-1] > checkpoint.step + (checkpoint.step - previous_step)
        ):
            return None
        return round(now - finished_at, 3)

    def _finished_at(self, step: int) -> Optional[float]:
        """The time at which a step was finished, interpolated between the steps that were seen; None for other
        attempts' steps."""
        place = bisect.bisect_left(self._steps, step)
        if place == len(self._steps):
            return None
        if self._steps[place] == step:
            return self._times[place]
        if place == 0:
            return None
        begin, end = self._steps[place - 1], self._steps[place]
        share = (step - begin) / (end - begin)
        return self._times[place - 1] + share * (self._times[place] - self._times[place - 1])

    def _stall_seconds(self, step: int, step_seconds: float) -> Optional[float]:
        """The seconds by which the steps before and after a save took longer than usual.

        None until the step after the save is finished, and where steps were made again in between.
        """
        begin, end = bisect.bisect_left(self._steps, step) - 1, bisect.bisect_right(self._steps, step)
        if begin < 0 or end == len(self._steps) or self._is_retraced(begin, end):
            return None
        took = self._times[end] - self._times[begin]
        usual = self._usual_before(begin, step_seconds)
        return round(max(0.0, took - (self._steps[end] - self._steps[begin]) * usual), 3)

    def _usual_before(self, place: int, otherwise: float) -> float:
        """The usual seconds of a step just before a place in the list; `otherwise` where too few steps are known.

        Training gets slower and faster with time, and that is no stall.
        """
        ends = [i for i in range(max(1, place - _NEAR + 1), place + 1) if not self._is_retraced(i - 1, i)]
        took = [(self._times[i] - self._times[i - 1]) / (self._steps[i] - self._steps[i - 1]) for i in ends]
        return median(took) if len(took) == _NEAR else otherwise

    def _is_retraced(self, begin: int, end: int) -> bool:
        """Whether the program went back between these two places in the list of steps, so that other steps lie between
        them."""
        return any(self._steps[begin] <= furthest < self._steps[end] for furthest in self._left)

"""Keeps how much energy the accelerators of this worker have used while its ranks ran, by the driver's own counters.

A child, which may hang, is asked now and then. Without its answer the energy is not known, and nothing waits for it. A
worker without an NVIDIA driver has no such child.
"""

from __future__ import annotations

import json
import os
from typing import Callable, Dict, FrozenSet, Optional, Tuple

from muster.node.launcher.children import Child, converse

ASK_SECONDS = 20.0
DEADLINE_SECONDS = 60.0
_MAX_FAILURES = 3
_DRIVER = "/dev/nvidiactl"
_MAX_ANSWER_BYTES = 4096

_Reading = Tuple[float, int, int]  # when it came, millijoules, GPUs


def has_driver() -> bool:
    """Whether this container has been given an accelerator of NVIDIA's."""
    return os.path.exists(_DRIVER)


class EnergyMeter:
    """Keeps the energy that the current attempt has used; never waits. Used from the supervisor's thread only.

    Attributes:
        joules: the energy that all accelerators together have used in the attempt; None = not known.
        gpu_milliseconds: the time in which they used it, times the number of accelerators.
    """

    def __init__(self, converse: Callable[..., Child] = converse, is_there: Callable[[], bool] = has_driver) -> None:
        self.joules: Optional[int] = None
        self.gpu_milliseconds: Optional[int] = None
        self._converse = converse
        self._is_on = is_there()
        self._child: Optional[Child] = None
        self._attempt: Optional[int] = None
        self._first: Optional[_Reading] = None
        self._asked_at: Optional[float] = None
        self._next_at = 0.0
        self._said = b""
        self._failures = 0

    @property
    def pids(self) -> FrozenSet[int]:
        """The pid of the child process, which belongs to no rank; empty while there is none."""
        return frozenset([self._child.pid]) if self._child is not None else frozenset()

    @property
    def descriptor(self) -> Optional[int]:
        """The file descriptor to wait on for the child's answer; None while there is none to wait for."""
        return self._child.descriptor if self._child is not None and self._asked_at is not None else None

    def poll(self, now: float, ended: Dict[int, int], attempt: Optional[int]) -> None:
        """Read the child's answer, and ask it again when it is time.

        Args:
            now: seconds of the monotonic clock.
            ended: exit statuses of reaped child processes, by pid.
            attempt: the attempt whose ranks run now; None = no ranks run.
        """
        if self._child is not None:
            self._hear(self._child, now)
            if self._child.pid in ended:
                self._child.hang_up()
                self._child, self._asked_at = None, None
                self._failures += 1
                self._is_on = self._is_on and self._failures < _MAX_FAILURES
            elif self._asked_at is not None and now >= self._asked_at + DEADLINE_SECONDS:
                self._child.kill()
        if attempt is None:
            return
        if attempt != self._attempt:
            self._attempt, self._first, self._next_at = attempt, None, now
            self.joules = self.gpu_milliseconds = None
        if self._is_on and self._asked_at is None and now >= self._next_at:
            self._ask(now)

    def stop(self) -> None:
        """End the child without waiting for it, because the launcher exits."""
        if self._child is not None:
            self._child.kill()

    def _ask(self, now: float) -> None:
        self._next_at = now + ASK_SECONDS
        try:
            if self._child is None:
                self._child = self._converse("--energy", "")
            self._child.write(b"\n")
        except OSError:  # it cannot be started, or has ended and is about to be reaped
            self._is_on = self._child is not None
            return
        self._said, self._asked_at = b"", now

    def _hear(self, child: Child, now: float) -> None:
        if self._asked_at is None:
            return
        try:
            self._said += child.read(_MAX_ANSWER_BYTES)
        except BlockingIOError:
            return
        line, end, _ = self._said.partition(b"\n")
        if not end:
            return
        self._asked_at = None
        try:
            reading = json.loads(line)
            self._note_reading((now, int(reading["millijoules"]), int(reading["gpus"])))
        except (ValueError, KeyError, TypeError):  # it says why there are no counters
            self._is_on = False
            child.kill()

    def _note_reading(self, reading: _Reading) -> None:
        if self._first is None or reading[2] != self._first[2] or reading[1] < self._first[1]:
            self._first = reading  # another GPU, or one whose counter began anew
            return
        self.joules = (reading[1] - self._first[1]) // 1000
        self.gpu_milliseconds = int((reading[0] - self._first[0]) * 1000) * reading[2]

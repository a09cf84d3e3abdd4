"""Finds which library of collectives the ranks of this worker have loaded (NCCL, RCCL), and in which version.

The image's digest alone does not say so. A child, which may hang, looks once in each attempt, when its first step is
finished. Without its answer the version is not known, and nothing waits for it. A worker without an accelerator has no
such child.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Dict, FrozenSet, Optional

from muster.node.launcher.children import Child, converse

DEADLINE_SECONDS = 60.0
_DEVICES = ("/dev/nvidiactl", "/dev/kfd")
_MAX_ANSWER_BYTES = 4096
_SOUND = re.compile(rb"[NR]CCL [0-9][-+._0-9A-Za-z]{0,47}")


def has_accelerators() -> bool:
    """Whether this container has been given an accelerator of NVIDIA's or AMD's."""
    return any(os.path.exists(path) for path in _DEVICES)


class Collectives:
    """Keeps the version that the child has found in the current attempt; never waits. Used from the supervisor's thread
    only.

    Attributes:
        version: name and version of the library, such as `NCCL 2.21.5+cuda12.4`; "" while it is not known.
        attempt: the attempt for which the child was started last; None = none yet.
    """

    def __init__(
        self, converse: Callable[..., Child] = converse, is_there: Callable[[], bool] = has_accelerators
    ) -> None:
        self.version = ""
        self._converse = converse
        self._is_on = is_there()
        self._child: Optional[Child] = None
        self.attempt: Optional[int] = None
        self._until = 0.0
        self._said = b""

    @property
    def pids(self) -> FrozenSet[int]:
        """The pid of the child process, which belongs to no rank; empty while there is none."""
        return frozenset([self._child.pid]) if self._child is not None else frozenset()

    def poll(self, now: float, ended: Dict[int, int], attempt: Optional[int]) -> None:
        """Read the child's answer, or start the child for an attempt that has none yet.

        Args:
            now: seconds of the monotonic clock.
            ended: exit statuses of reaped child processes, by pid.
            attempt: the attempt whose ranks have finished a step; None = no ranks have.
        """
        if self._child is not None:
            self._hear(self._child)
            if self._child.pid in ended:
                self._child.hang_up()
                self._child = None
            elif now >= self._until:
                self._child.kill()
            return
        if attempt is None or attempt == self.attempt or not self._is_on:
            return
        self.attempt, self.version, self._said = attempt, "", b""
        try:
            self._child = self._converse("--collectives", str(os.getpid()))
        except OSError:  # no process can be started: in the next attempt
            return
        self._until = now + DEADLINE_SECONDS

    def stop(self) -> None:
        """End the child without waiting for it, because the launcher exits."""
        if self._child is not None:
            self._child.kill()

    def _hear(self, child: Child) -> None:
        try:
            self._said = (self._said + child.read(_MAX_ANSWER_BYTES))[:_MAX_ANSWER_BYTES]
        except BlockingIOError:
            return
        line, end, _ = self._said.partition(b"\n")
        if end and _SOUND.fullmatch(line):
            self.version = line.decode()

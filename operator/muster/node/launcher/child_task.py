"""Puts one question to a child that ends with its answer, by the coordinator's order: for storage, which may hang for
ever.

The order has the question and a number. The order counts as done only once no child is left that could still do
anything.

Tests: tests/unit/launcher/test_incomplete_mover.py.
"""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, FrozenSet, NamedTuple, Optional, Tuple

from muster.node.launcher.children import Child

AGAIN_SECONDS = 10.0  # after a child that could not be started, or ended without a word
_MAX_TRIES = 3
_MAX_ANSWER_BYTES = 64 * 1024


class ChildOrder(NamedTuple):
    """A question for the child; a later order has a greater number."""

    number: Tuple[int, ...]
    request: Dict[str, Any]


class ChildTask:
    """Carries out the newest order in a child, without ever waiting for it. Used from the supervisor's thread only.

    Args:
        mode: the option that selects the child's work (muster.node.launcher.__main__).
        directory: the directory that the work is about.
        converse: starts the child.
        deadline_seconds: the child is killed after this long without a sign of life.

    Attributes:
        done: the number of the newest order that was carried out or given up; () = none yet.
        answer: the answer of the newest child; None = it gave none.
        error: why no child could be started; "" = one could.
        is_overdue: whether the child has given no sign of life for too long, and is not gone yet.
    """

    def __init__(self, mode: str, directory: str, converse: Callable[..., Child], deadline_seconds: float) -> None:
        self.done: Tuple[int, ...] = ()
        self.answer: Optional[Dict[str, Any]] = None
        self.error = ""
        self.is_overdue = False
        self._is_dying = False
        self._arguments = mode, directory
        self._converse = converse
        self._deadline_seconds = deadline_seconds
        self._number: Tuple[int, ...] = ()
        self._child: Optional[Child] = None
        self._said = b""
        self._heard_at = 0.0
        self._tries = 0
        self._next_at = 0.0

    @property
    def pids(self) -> FrozenSet[int]:
        """The pid of the child process, which belongs to no rank; empty while there is none."""
        return frozenset([self._child.pid]) if self._child is not None else frozenset()

    @property
    def descriptor(self) -> Optional[int]:
        """The file descriptor to wait on for the child's answer; None while there is none to wait for."""
        return self._child.descriptor if self._child is not None and self.answer is None else None

    def poll(self, now: float, ended: Dict[int, int], order: Optional[ChildOrder]) -> bool:
        """Start a child for a newer order, read its answer, and kill it when it gives no sign of life.

        Args:
            now: seconds of the monotonic clock.
            ended: exit statuses of reaped child processes, by pid.
            order: the order that counts now; None = there is none.

        Returns:
            Whether a child has answered or failed to, or could not be started. A child that was killed because the
            order has
            changed has not failed.
        """
        has_ended = False
        if self._child is not None:
            self._hear(self._child, now)
            is_asked = order is not None and order.number == self._number
            self.is_overdue = now >= self._heard_at + self._deadline_seconds
            if not is_asked or self.is_overdue:
                self.stop()
            if self._child.pid in ended:
                has_ended = self._end(now, is_asked)
        if self._child is None and order is not None and order.number > self.done and now >= self._next_at:
            return self._begin(order, now) or has_ended
        return has_ended

    def stop(self) -> None:
        """End the child."""
        if self._child is not None and not self._is_dying:
            self._child.kill()
            self._is_dying = True

    def _begin(self, order: ChildOrder, now: float) -> bool:
        """Start a child for this order. Returns whether no child could be started."""
        if order.number != self._number:
            self._number, self._tries = order.number, 0
        self._tries, self.answer, self.error, self._said, self._is_dying = self._tries + 1, None, "", b"", False
        try:
            self._child = self._converse(*self._arguments)
            self._heard_at = now
            self._child.write(json.dumps(order.request).encode() + b"\n")
        except OSError as error:
            if self._child is None:
                self.error = str(error)
                self._note(now)
                return True
            self.stop()
        return False

    def _hear(self, child: Child, now: float) -> None:
        try:
            data = child.read(_MAX_ANSWER_BYTES)
        except BlockingIOError:
            return
        self._heard_at = now if data else self._heard_at
        *lines, self._said = (self._said + data).split(b"\n")
        try:
            for line in lines:
                message = json.loads(line)
                if "error" in message:
                    self.answer = message
        except (ValueError, TypeError):
            self.stop()
        if len(self._said) > _MAX_ANSWER_BYTES:
            self.stop()

    def _end(self, now: float, is_asked: bool) -> bool:
        """Note that the child was reaped. Returns whether it has answered the order that counts, or failed to."""
        assert self._child is not None
        if self.answer is None:
            self._hear(self._child, now)
        self._child.hang_up()
        self._child, self._is_dying, self.is_overdue = None, False, False
        if self.answer is None and not is_asked:
            return False
        self._note(now)
        return True

    def _note(self, now: float) -> None:
        self._next_at = now + AGAIN_SECONDS
        if self.answer is not None or self._tries >= _MAX_TRIES:
            self.done, self._next_at = self._number, 0.0

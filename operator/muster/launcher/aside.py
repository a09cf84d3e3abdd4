"""Has directories moved aside that could be taken for newer checkpoints: by a child, since storage may hang for ever.

Only while no rank of the gang can be alive, and by one worker, as the coordinator's order says; the start of the ranks waits
for the answer. So it is told as done only once no child is left that could still move anything.
"""

from __future__ import annotations

import json
from typing import Callable, Dict, FrozenSet, Optional, Tuple

from muster.launcher.children import Child, converse
from muster.protocol.messages import WAIT, Directive

DEADLINE_SECONDS = 60.0  # without a sign of life
AGAIN_SECONDS = 10.0  # after a child that could not be started, or ended without a word
_MAX_TRIES = 3
_MAX_ANSWER_BYTES = 64 * 1024

_Order = Tuple[int, str]  # attempt, and the checkpoint that it goes on from


class Aside:
    """Follows the order, and never waits. Used from the supervisor's thread only.

    Attributes:
        attempt: the newest for which all was done, or given up; 0 = none yet.
        words: what was moved for it, "" = nothing.
        error: why not all could be, "" = it was.
    """

    def __init__(self, directory: str, converse: Callable[..., Child] = converse) -> None:
        self.attempt = 0
        self.words = ""
        self.error = ""
        self._directory = directory
        self._converse = converse
        self._order: _Order = (0, "")
        self._child: Optional[Child] = None
        self._said = b""
        self._answer: Optional[Tuple[str, str]] = None
        self._heard_at = 0.0
        self._is_dying = False
        self._tries = 0
        self._next_at = 0.0

    @property
    def pids(self) -> FrozenSet[int]:
        """The child, which is no rank's."""
        return frozenset([self._child.pid]) if self._child is not None else frozenset()

    @property
    def descriptor(self) -> Optional[int]:
        """What to wait on."""
        return self._child.descriptor if self._child is not None and self._answer is None else None

    def turn(self, now: float, ended: Dict[int, int], directive: Optional[Directive]) -> None:
        """Begin what is ordered, take in what is said, and give up a child that gives no sign of life.

        Args:
            ended: children that were reaped.
            directive: that counts now; None: none.
        """
        wanted = _ordered(directive)
        if self._child is not None:
            self._hear(self._child, now)
            if wanted[0] != self._order[0] or now >= self._heard_at + DEADLINE_SECONDS:
                self._kill()
            if self._child.pid in ended:
                self._end(now)
        if self._child is None and wanted[0] > self.attempt and now >= self._next_at:
            self._begin(wanted, directive, now)

    def stop(self) -> None:
        """The launcher leaves."""
        self._kill()

    def _begin(self, order: _Order, directive: Optional[Directive], now: float) -> None:
        assert directive is not None
        if order != self._order:
            self._order, self._tries = order, 0
        self._tries, self._answer, self._said, self._is_dying = self._tries + 1, None, b"", False
        lineage = None
        if directive.lineage_step is not None:
            since_ns = 0 if directive.disowned else directive.lineage_since_ns
            lineage = (directive.lineage_step, since_ns, directive.disowned or "", bool(directive.lineage_shut))
        try:
            self._child = self._converse("--set-aside", self._directory)
            self._heard_at = now
            self._child.write(json.dumps({"path": order[1], "lineage": lineage}).encode() + b"\n")
        except OSError as error:
            if self._child is None:
                self._note(now, "", "nothing was moved aside: %s" % error)
            else:
                self._kill()

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
                if "moved" in message:
                    self._answer = str(message["moved"]), str(message["error"])
        except (ValueError, TypeError):
            self._kill()
        if len(self._said) > _MAX_ANSWER_BYTES:
            self._kill()

    def _end(self, now: float) -> None:
        """The child is gone: nothing moves any more."""
        assert self._child is not None
        if self._answer is None:
            self._hear(self._child, now)
        self._child.hang_up()
        self._child = None
        if self._answer is not None:
            self._note(now, *self._answer)
            return
        self._note(now, "", "moving directories aside was given up: does the file system answer?")

    def _note(self, now: float, words: str, error: str) -> None:
        self.words, self.error = words, error
        self._next_at = now + AGAIN_SECONDS
        if self._answer is not None or self._tries >= _MAX_TRIES:
            self.attempt, self._next_at = self._order[0], 0.0

    def _kill(self) -> None:
        if self._child is not None and not self._is_dying:
            self._child.kill()
            self._is_dying = True


def _ordered(directive: Optional[Directive]) -> _Order:
    if directive is None or directive.kind != WAIT or not directive.aside:
        return 0, ""
    return directive.attempt, directive.aside

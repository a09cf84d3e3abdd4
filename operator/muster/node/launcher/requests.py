"""Asks the ranks of an attempt to save, or to save and leave: by a file that is there as long as that is asked.

The tenant's own processes can write that file, too. They then ask themselves alone for something.

Tests: tests/unit/launcher/test_requests.py.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Callable, FrozenSet, NamedTuple, Optional

from muster.protocol.messages import LEAVE, RUN, Directive

_SIGNAL_SECONDS = 1.0  # until it is tried again: the program may not handle the signal yet


class RankRequest(NamedTuple):
    """What ranks are asked for.

    Attributes:
        number: of the request; a later one of the same attempt has a higher number.
        kind: SAVE or LEAVE of muster.protocol.messages, or one that this launcher does not know and passes on.
        seconds: for which the answer is waited for, counted from the first time that it was asked.
        reason: in CamelCase.
    """

    number: int
    kind: str
    seconds: float
    reason: str

    def text(self) -> str:
        """The content of the file: one JSON object."""
        return json.dumps(self._asdict()) + "\n"


def requested(directive: Directive) -> Optional[RankRequest]:
    """What a directive has the ranks asked for; None: nothing."""
    if directive.kind != RUN or not directive.request:
        return None
    kind, reason = directive.request_kind or "", directive.request_reason or ""
    return RankRequest(directive.request, kind, directive.request_seconds or 0.0, reason)


class Requests:
    """What the ranks of the current attempt are asked for."""

    def __init__(self, put: Callable[[int, str], None], log: Callable[[str], None]) -> None:
        """`put` writes the text for the ranks of an attempt, or removes it where it is empty; it raises OSError."""
        self._put = put
        self._log = log
        self._error = ""
        self._signal_at = 0.0  # when it is worth trying to send one
        self.signalled = 0  # the number of the request that was sent as a signal to ranks that follow one; 0 = none
        self.standing: Optional[RankRequest] = None  # that the ranks can read
        self.numbers: FrozenSet[int] = frozenset()  # of all requests that they could ever read
        self.leave_numbers: FrozenSet[int] = frozenset()  # of those of them to leave

    def begin(self) -> None:
        """Nothing is asked of the ranks of another attempt."""
        self.standing = None
        self.numbers = self.leave_numbers = frozenset()
        self._signal_at, self.signalled = 0.0, 0

    def signal_once(self, now: float, send: Callable[[], bool]) -> None:
        """Ask ranks to leave by a signal, too, where they take one; until one has got it, once a second.

        Args:
            now: seconds of the monotonic clock.
            send: asks them, and returns whether one could be asked.
        """
        if not self.asks_to_end or self.signalled or now < self._signal_at:
            return
        self._signal_at = now + _SIGNAL_SECONDS
        if send():
            self.signalled = self.number
            self._log("its ranks save and end upon a signal, and have got it")

    @property
    def number(self) -> int:
        """The number of the request that ranks can read; 0 = none."""
        return self.standing.number if self.standing is not None else 0

    @property
    def asks_to_end(self) -> bool:
        """Whether the ranks are asked to leave: they get a signal and some time before they are killed."""
        return self.standing is not None and self.standing.kind == LEAVE

    def follow(self, directive: Directive) -> None:
        """Ask the ranks for what the directive says. Where the file cannot be written, the next call tries again."""
        request = requested(directive)
        if request == self.standing:
            return
        try:
            self._put(directive.attempt, request.text() if request is not None else "")
        except OSError as error:
            problem = "the ranks cannot be asked for anything: %s" % error
            if problem != self._error:
                self._log("attempt %d: %s" % (directive.attempt, problem))
            self._error = problem
            return
        self._error, self.standing = "", request
        if request is not None:
            self.numbers |= {request.number}
        if self.asks_to_end:
            self.leave_numbers |= {self.number}
        text = "nothing more" if request is None else "%s (%s)" % (request.kind, request.reason)
        self._log("attempt %d: asks its ranks for %s" % (directive.attempt, text))


def write_request(path: str, text: str) -> None:
    """Write the file at once, in place of whatever is there, and never through a link; remove it where the text is
    empty.

    Raises:
        OSError: it cannot be written or removed.
    """
    own = path + ".new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(own if text else path)
    if text:
        with open(own, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(own, path)

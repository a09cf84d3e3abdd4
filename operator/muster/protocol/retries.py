"""Decides how a launcher or checker goes on after trouble on a line to the coordinator: back-off, redirections. Pure.

A node's program has two lines to the coordinator. Any trouble with one (refused, timeout, 401, 503, an unreadable
answer) delays its next try. A replica that does not lead names the one that does, and both lines follow it.

Tests: tests/unit/launcher/test_leaders.py, tests/unit/launcher/test_reporting.py, tests/unit/checker/test_lines.py.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Dict, Optional, Set, Tuple

from muster.protocol.channel import Target

POLL, TELL = "poll", "tell"

_FIRST_BACKOFF_SECONDS = 0.1
_MAX_REDIRECTIONS = 2  # in a row without a pause
_MAX_REASONS = 4  # that are logged until the next answer


@dataclasses.dataclass(frozen=True)
class Pause:
    """The action to send nothing for the given seconds, or until something changes; None = until something changes."""

    seconds: Optional[float]


@dataclasses.dataclass
class _Line:
    failures: int = 0
    redirections: int = 0
    not_before: float = 0.0


class Retries:
    """The trouble of both lines. Times are readings of one monotonic clock, passed in.

    Args:
        log: called with a text when the coordinator answers again.
        log_problem: called with the reason why there was no answer, once for each reason.
        chance: a random number between 0 and 1.
        max_backoff_seconds: the longest pause after an error.

    Attributes:
        max_backoff_seconds: as given; it may change.
        leader: host and port of the replica that leads, as another one has named it; None: the Service is asked.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        log_problem: Callable[[str], None],
        chance: Callable[[], float],
        max_backoff_seconds: float,
    ) -> None:
        self.leader: Target = None
        self._log = log
        self._log_problem = log_problem
        self._chance = chance
        self.max_backoff_seconds = max_backoff_seconds
        self._lines: Dict[str, _Line] = {POLL: _Line(), TELL: _Line()}
        self._reasons: Set[str] = set()  # why there has been no answer since the last one

    def pause_seconds(self, name: str, now: float) -> float:
        """Return for how long the line of this name sends nothing; 0 or less: it may send."""
        return self._lines[name].not_before - now

    def pause_until(self, name: str, until: float) -> None:
        """Have a line send nothing until then."""
        self._lines[name].not_before = until

    def note_answer(self, name: str) -> None:
        """Note that a line got an answer."""
        line = self._lines[name]
        line.failures = line.redirections = 0
        if self._reasons:
            self._reasons.clear()
            self._log("the coordinator answers again")

    def note_error(self, name: str, target: Target, why: str, now: float) -> bool:
        """Note that a line got no usable answer. Returns whether the leader was asked, which is not followed any more.

        Args:
            name: of the line.
            target: what was asked; None: the Service.
            why: what went wrong.
            now: the time.
        """
        line = self._lines[name]
        line.failures += 1
        line.redirections = 0
        longest = min(self.max_backoff_seconds, _FIRST_BACKOFF_SECONDS * 2.0 ** min(line.failures - 1, 20))
        line.not_before = now + longest * (0.5 + 0.5 * self._chance())
        if why not in self._reasons and len(self._reasons) < _MAX_REASONS:
            self._reasons.add(why)
            self._log_problem(why)
        if target is None or target != self.leader:
            return False
        self.leader = None
        return True

    def follows(self, name: str, target: Target, leader: Tuple[str, int]) -> bool:
        """Follow the leader that a replica has named. Returns False where that leads nowhere: it is an error.

        Args:
            name: of the line.
            target: the replica that was asked; None: the Service.
            leader: host and port of the leader.
        """
        line = self._lines[name]
        line.redirections += 1
        if leader == target or line.redirections > _MAX_REDIRECTIONS:
            return False
        self.leader = leader
        return True


def problem_of(leader: Tuple[str, int]) -> str:
    """Return the problem with a leader that was named and is not followed."""
    return "%s:%d is said to lead and does not answer" % leader

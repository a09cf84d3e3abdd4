"""Decides when to talk to the coordinator, and how each of two lines handles errors. Pure: times are passed in.

One line polls: the coordinator holds its answer until the directive changes. Only its directives count, so that no
older one overtakes a newer one. The other line reports news while the first one is held. It also reports the beginning
of a test after a long silence: its connection is then open for the answer, for which a whole gang may wait.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Dict, Tuple, Union

from muster.protocol.channel import Target
from muster.protocol.checks import CheckDirective
from muster.protocol.retries import POLL, TELL, Pause, Retries, problem_of

_ANSWER_SECONDS = 5.0  # added to the time for which the coordinator may hold the answer
_LONGEST_HOLD_SECONDS = 20.0  # a checker cancels its order after a minute without contact
_SHORTEST_PACE_SECONDS = 0.05
_LONGEST_PACE_SECONDS = 20.0
# The pause before the next poll, in which the new directive begins. It is random: a whole gang gets its directive at
# the same moment, and the polls of some members must not delay the answers to the others.
_SETTLE_SECONDS = 0.05, 0.5
_COLD_SECONDS = 60.0  # without a request: the coordinator closes connections that are idle for 75 s
_MAX_BACKOFF_SECONDS = 2.0

_NO_ANSWER = "no answer from the coordinator; trying again"


@dataclasses.dataclass(frozen=True)
class Send:
    """The instruction to send a report with these values, and to wait this long for the answer."""

    target: Target
    timeout_seconds: float
    hold_seconds: float
    directive_seen: str
    sequence: int
    news: int
    sent_at: float


class Lines:
    """The state of both lines to the coordinator."""

    def __init__(self, log: Callable[..., None], chance: Callable[[], float]) -> None:
        self._chance = chance
        self._retries = Retries(log, lambda why: log(_NO_ANSWER, problem=why), chance, _MAX_BACKOFF_SECONDS)
        self._carrying: Dict[str, int] = {POLL: 0, TELL: 0}  # the value of `news` in the report that is being sent
        self._seen = ""
        self._pace = CheckDirective()
        self._paced_until = 0.0
        self._held = False
        self._told = 0
        self._tell_sent_at = float("-inf")
        self._sequence = 0

    def next(self, name: str, news: int, now: float) -> Union[Send, Pause]:
        """Return what this line does now; `news` counts what the coordinator should learn at once."""
        pause_seconds = self._retries.pause_seconds(name, now)
        if pause_seconds > 0.0:
            return Pause(pause_seconds)
        untold = news > max([self._told, *self._carrying.values()])
        if name == TELL:
            is_due = untold and (self._held or (bool(self._pace.orders) and now - self._tell_sent_at >= _COLD_SECONDS))
            if not is_due:
                return Pause(None)
            self._tell_sent_at = now
            return self._send(name, 0.0, news, now)
        if now < self._paced_until and not untold:
            return Pause(self._paced_until - now)
        hold = min(max(0.0, self._pace.hold_seconds), _LONGEST_HOLD_SECONDS) if self._seen else 0.0
        self._held = hold > 0
        return self._send(name, hold, news, now)

    def _send(self, name: str, hold: float, news: int, now: float) -> Send:
        self._sequence += 1
        self._carrying[name] = news
        return Send(self._retries.leader, hold + _ANSWER_SECONDS, hold, self._seen, self._sequence, news, now)

    def answered(self, name: str, sent: Send, directive: CheckDirective, seen: str, now: float) -> bool:
        """Note an answer; return whether its directive counts."""
        self._retries.note_answer(name)
        self._carrying[name] = 0
        self._told = max(self._told, sent.news)
        if name == TELL:
            return False
        changed, self._seen, self._pace, self._held = seen != self._seen, seen, directive, False
        least, most = _SETTLE_SECONDS
        pause = least + (most - least) * self._chance()
        if not changed and sent.hold_seconds == 0.0:
            pause = min(max(_SHORTEST_PACE_SECONDS, directive.poll_seconds), _LONGEST_PACE_SECONDS)
        self._paced_until = now + pause
        return True

    def failed(self, name: str, sent: Send, why: str, now: float) -> None:
        """Note that there was no usable answer."""
        self._retries.note_error(name, sent.target, why, now)
        self._not_sent(name)

    def redirected(self, name: str, sent: Send, leader: Tuple[str, int], now: float) -> None:
        """Note that the requested replica does not lead, and has named the leader."""
        if self._retries.follows(name, sent.target, leader):
            self._not_sent(name)
        else:
            self.failed(name, sent, problem_of(leader), now)

    def _not_sent(self, name: str) -> None:
        self._carrying[name] = 0
        if name == POLL:
            self._held = False

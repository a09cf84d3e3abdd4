"""What to say to the coordinator, and when: the state machine of the reporter. It knows no thread, socket or clock.

Two lines lead to the coordinator. One polls: its answer is held by the coordinator until the directive changes, for as
long as the coordinator asks, so each poll carries progress at its pace; and what the launcher does upon a new directive
the next poll tells, which waits a moment for it. The other line speaks only when that one cannot: of news while an
answer is held, and when the poll is overdue. Thousands of launchers talk to one coordinator: each report that says
nothing new costs it as much as one that does. Trouble of any kind (refused, timeout, 401, 503, an unreadable answer)
changes nothing but the time of the next try.

Its driver asks `next_action` for each line, does it, and says how it went. A replica that does not lead names
the one that does, and the launcher follows, by its address; when nothing answers there it asks the Service again. While
the one that is named stays silent the lines look in different places: the first tries that address and the one that the
Service gives, the other stays with a replica that is there and may lead next.

Tests: tests/unit/launcher/test_leaders.py.
"""

from __future__ import annotations

import dataclasses
from typing import Callable, Optional, Tuple, Union

from muster.node.launcher.snapshot import Snapshot
from muster.protocol.channel import Target
from muster.protocol.messages import (
    EXIT,
    EXITED,
    IDLE,
    LONGEST_SECONDS,
    RECLAIMING,
    RUN,
    RUNNING,
    WAIT,
    Directive,
    Report,
)
from muster.protocol.retries import POLL, TELL, Pause, Retries, problem_of

OVERDUE_SECONDS = 1.0  # silence of a coordinator beyond its pace, of which notice is taken
_ANSWER_SECONDS = 3.0  # beyond the time that the answer may be held
_MAX_BACKOFF_SECONDS = 1.0
_EJECTED_BACKOFF_SECONDS = 600.0  # a launcher whose job may be gone asks seldom: each refusal costs a handshake
_BETWEEN_POLLS_SECONDS = 0.05
DONE_SECONDS = 1.0  # to do what the directive says, before the next poll tells how far that has come
_LATE_SECONDS = 0.5  # after the moment at which the poll was to speak again
_SHORTEST_PACE_SECONDS = 0.05
_AVOIDED_SECONDS = 30.0  # by one line: an address that did not answer, whatever replica names it as leader
_ORDER = {WAIT: 0, RUN: 1, EXIT: 2}
_NO_ANSWER = "no answer from the coordinator (%s); carrying on and trying again"


def supersedes(new: Directive, old: Optional[Directive]) -> bool:
    """Whether a directive that arrives now may replace the one in force, since it is not older.

    Two connections may deliver answers out of order. Attempts only grow, and within one it goes Wait, Run, Exit.

    Args:
        new: the directive that arrives.
        old: the directive in force; None = none.
    """
    if new.kind not in _ORDER:
        return False
    if old is None or new.kind == EXIT:
        return True
    if old.kind == EXIT:
        return False
    return (new.attempt, _ORDER[new.kind]) >= (old.attempt, _ORDER[old.kind])


def is_done(directive: Optional[Directive], snapshot: Snapshot, scans: bool) -> bool:
    """Whether this launcher has nothing to report soon that the coordinator waits for.

    Args:
        directive: the directive in force; None = none.
        snapshot: the state of the launcher.
        scans: whether this launcher scans for checkpoints. Then it is ready for an attempt only with their list.
    """
    if directive is None:
        return True
    is_in_attempt = snapshot.attempt == directive.attempt
    if directive.kind == WAIT:
        counts = snapshot.checkpoints_scanned_for_attempt == directive.attempt and snapshot.listing_round >= (
            directive.listing_round or 0
        )
        listed = not scans or counts
        claimed = (
            not directive.writes_fence_file or snapshot.fence_file_at is not None or snapshot.fence_file_error != ""
        )
        locally = (snapshot.local_attempt, snapshot.local_listing_round) >= (
            directive.attempt,
            directive.listing_round or 0,
        )
        looked = not directive.local_share or locally or snapshot.local_error != ""
        return (
            is_in_attempt
            and snapshot.state == IDLE
            and (listed or snapshot.checkpoint_error != "")
            and claimed
            and looked
        )
    if directive.kind == RUN:
        acknowledges = snapshot.ejected or not directive.ejected
        return is_in_attempt and snapshot.state in (RUNNING, EXITED) and not snapshot.is_starting and acknowledges
    return directive.kind != EXIT


@dataclasses.dataclass(frozen=True)
class Contact:
    """The last report that was answered. Times are of the monotonic clock.

    Attributes:
        sent_at: when the report was sent: the coordinator has not heard this launcher earlier than then.
        fence_seconds: the length of the fence in that report.
        next_due_at: by when, at the coordinator's pace, the next answer has to come; the coordinator's silence begins
            then.
    """

    sent_at: float
    fence_seconds: float
    next_due_at: float


@dataclasses.dataclass(frozen=True)
class Send:
    """The action to send a report, and to wait for the answer for the given seconds."""

    report: Report
    target: Target
    timeout_seconds: float
    sent_at: float


class ReporterCore:
    """The state of the reporter. Times are readings of one monotonic clock, handed in."""

    def __init__(
        self, identity: Report, scans: bool, now: float, log: Callable[[str], None], chance: Callable[[], float]
    ) -> None:
        self.directive: Optional[Directive] = None
        self.contact: Optional[Contact] = None
        self._identity = identity
        self._scans = scans
        self._snapshot = Snapshot()
        self._retries = Retries(log, lambda why: log(_NO_ANSWER % why), chance, _MAX_BACKOFF_SECONDS)
        self._urgent = True  # there is news that no report has carried
        self._poll_speaks_next = True  # the next report is the poll's, and it carries the news
        self._poll_speaks_at = 0.0  # when it does so at the latest; in the past while it has trouble
        self._settling: Optional[Tuple[Send, bool, float]] = None  # an answered poll, whether it was new, until when
        self._sequence = 0
        self._seen = ""
        self._pace = Directive(kind="")  # poll_seconds and hold_seconds of the last answer
        self._sent_at = now
        self._silent_leader: Target = None
        self._avoided_until = now

    @property
    def leader(self) -> Target:
        """The replica that leads, as another one has named it, while it answers."""
        return self._retries.leader

    def publish(self, snapshot: Snapshot) -> bool:
        """Take over a new state of the launcher. Returns whether it is news, which is sent at once."""
        is_news = snapshot.is_news(self._snapshot)
        self._urgent = self._urgent or is_news
        self._snapshot = snapshot
        if snapshot.ejected:
            self._retries.max_backoff_seconds = _EJECTED_BACKOFF_SECONDS
        return is_news

    def next_action(self, name: str, now: float) -> Union[Send, Pause]:
        """What the line of this name has to do now: send a report, or pause."""
        if name == POLL:
            self._settle(now)
        pause_seconds = self._retries.pause_seconds(name, now)
        if pause_seconds > 0.0:
            return Pause(pause_seconds)
        if name == TELL:
            seconds = self._until_due(now)
            if not (self._urgent and not self._poll_speaks_next) and seconds != 0.0:
                return Pause(seconds)
            sent = self.send(now, 0.0, _ANSWER_SECONDS)
            return dataclasses.replace(sent, target=None) if self._is_avoided(name, sent.target, now) else sent
        if self._settling is not None:
            return Pause(self._settling[2] - now)
        hold_seconds = max(0.0, self._pace.hold_seconds) if self._seen else 0.0
        self._poll_speaks_next, self._poll_speaks_at = False, now + hold_seconds
        return self.send(now, hold_seconds, hold_seconds + _ANSWER_SECONDS)

    def send(self, now: float, hold_seconds: float, timeout_seconds: float) -> Send:
        """The action to send the next report, with all the news."""
        self._sequence += 1
        self._sent_at = now
        self._urgent = False
        report = self._snapshot.report(
            now,
            self._sequence,
            directive_seen=self._seen,
            hold_seconds=hold_seconds,
            peer_port=self._identity.peer_port,
            address=self._identity.address,
            launcher_version=self._identity.launcher_version,
        )
        return Send(report, self.leader, timeout_seconds, now)

    def on_answer(self, name: str, sent: Send, directive: Directive, seen: str, now: float) -> bool:
        """Take in the directive that answered a report. Returns whether any line has something to do now.

        Most answers repeat the directive in time, and then no line has.

        Args:
            name: of the line.
            sent: the report that was answered.
            directive: the answer.
            seen: digest of the directive.
            now: seconds of the monotonic clock.
        """
        self._retries.note_answer(name)
        self._seen, self._pace = seen, directive
        if sent.target == self._silent_leader:
            self._silent_leader = None
        contact, previous_directive = self.contact, self.directive
        is_awaited = contact is None or now - contact.next_due_at >= OVERDUE_SECONDS
        if contact is None or sent.sent_at > contact.sent_at:
            contact = Contact(sent.sent_at, sent.report.fence_seconds, 0.0)
        self.contact = dataclasses.replace(contact, next_due_at=now + directive.poll_seconds)
        if name == POLL:
            self._poll_speaks_next, self._poll_speaks_at = True, now + DONE_SECONDS
            self._settling = (sent, seen != sent.report.directive_seen, now + DONE_SECONDS)
        if supersedes(directive, self.directive):
            self.directive = directive
        if self._snapshot.ejected and directive.kind == EXIT:  # the job is gone: there is nothing to report any more
            for line in (POLL, TELL):
                self._retries.pause_until(line, now + LONGEST_SECONDS)
        return is_awaited or self.directive != previous_directive

    def on_error(self, name: str, sent: Send, why: str, now: float) -> None:
        """Note that a line got no usable answer; `why` says what went wrong."""
        if self._retries.note_error(name, sent.target, why, now):
            self._silent_leader, self._avoided_until = sent.target, now + _AVOIDED_SECONDS
        self._keep_news(name)

    def on_redirection(self, name: str, sent: Send, leader: Tuple[str, int], now: float) -> None:
        """Note that the replica that was asked does not lead, and follow the host and port of the leader that it
        named."""
        if self._is_avoided(name, leader, now) or not self._retries.follows(name, sent.target, leader):
            self.on_error(name, sent, problem_of(leader), now)
            return
        self._keep_news(name)

    def _is_avoided(self, name: str, leader: Target, now: float) -> bool:
        return name == TELL and leader == self._silent_leader and now < self._avoided_until

    def _keep_news(self, name: str) -> None:
        self._urgent = True  # both lines look for the coordinator then
        if name == POLL:
            self._poll_speaks_next, self._poll_speaks_at = False, 0.0

    def _settle(self, now: float) -> None:
        """Delay the next poll for a moment, until the supervisor has done what the directive says: the poll then
        reports that."""
        if self._settling is None:
            return
        sent, is_new, until = self._settling
        if now < until and not is_done(self.directive, self._snapshot, self._scans):
            return
        self._settling = None
        if is_new:
            return
        hold_seconds, elapsed = sent.report.hold_seconds, now - sent.sent_at
        if hold_seconds == 0:
            self._pause_polls(now + max(_SHORTEST_PACE_SECONDS, self._pace.poll_seconds - elapsed))
        elif elapsed < hold_seconds:  # let go early: be there again for the next directive, but do not hurry
            self._pause_polls(now + _BETWEEN_POLLS_SECONDS)

    def _pause_polls(self, until: float) -> None:
        """Delay the next poll; news until then goes out on the other line."""
        self._poll_speaks_next = False
        self._retries.pause_until(POLL, until)

    def _until_due(self, now: float) -> Optional[float]:
        """The seconds until a report is due even without news and if no poll gets through; None = never."""
        if self._snapshot.state not in (RUNNING, RECLAIMING):
            return None
        due_at = self._sent_at + max(_SHORTEST_PACE_SECONDS, self._pace.poll_seconds)
        late_at = self._poll_speaks_at + _LATE_SECONDS
        if due_at < late_at < due_at + 2 * _LATE_SECONDS:  # the poll is about to speak
            due_at = late_at
        return max(0.0, due_at - now)

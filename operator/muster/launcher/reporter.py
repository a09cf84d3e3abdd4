"""Talks to the coordinator from threads of its own, so that DNS, TLS or a dropped packet never hold up supervision.

One connection polls: its answer is held by the coordinator until the directive changes, for as long as the coordinator
asks, so each poll carries progress at its pace; and what the launcher does upon a new directive the next poll tells,
which waits a moment for it. The other connection speaks only when that one cannot: of news while an answer is held, and
when the poll is overdue. Thousands of launchers talk to one coordinator: each report that says nothing new costs it as
much as one that does. Trouble of any kind (refused, timeout, 401, 503, an unreadable answer) changes nothing but the
time of the next try.
"""

from __future__ import annotations

import dataclasses
import http.client
import os
import random
import socket
import ssl
import threading
import time
from typing import Callable, Optional, Set, Tuple

from muster.launcher.environment import Settings
from muster.launcher.snapshot import Snapshot
from muster.protocol.messages import (
    EXIT,
    EXITED,
    IDLE,
    RECLAIMING,
    REPORT_PATH,
    RUN,
    RUNNING,
    WAIT,
    Directive,
    ProtocolError,
    Report,
    decode_directive,
    digest_of,
    encode,
)

_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 3.0  # beyond the time that the answer may be held
_MAX_BACKOFF_SECONDS = 2.0
_FIRST_BACKOFF_SECONDS = 0.1
_BETWEEN_POLLS_SECONDS = 0.05
_DONE_SECONDS = 0.25  # to do what the directive says, before the next poll tells how far that has come
_LATE_SECONDS = 0.5  # after the moment at which the poll was to speak again
_SHORTEST_PACE_SECONDS = 0.05
_MAX_REASONS = 4  # that are logged until the next answer
_MAX_ANSWER_BYTES = 1024 * 1024
_ORDER = {WAIT: 0, RUN: 1, EXIT: 2}


class UnreachableError(Exception):
    """No usable answer; says why."""


def supersedes(new: Directive, old: Optional[Directive]) -> bool:
    """Whether a directive that arrives now is not older than the one in force.

    Two connections may deliver answers out of order. Attempts only grow, and within one it goes Wait, Run, Exit.
    """
    if new.kind not in _ORDER:
        return False
    if old is None or new.kind == EXIT:
        return True
    if old.kind == EXIT:
        return False
    return (new.attempt, _ORDER[new.kind]) >= (old.attempt, _ORDER[old.kind])


def is_done(directive: Optional[Directive], snapshot: Snapshot, scans: bool) -> bool:
    """Whether there is nothing to report soon that the coordinator waits for.

    Args:
        scans: whether this launcher looks for checkpoints, whose list belongs to being ready for an attempt.
    """
    if directive is None:
        return True
    here = snapshot.attempt == directive.attempt
    if directive.kind == WAIT:
        listed = not scans or snapshot.checkpoints_scanned_for_attempt == directive.attempt
        claimed = not directive.claim or snapshot.marker_at is not None or snapshot.marker_error != ""
        return here and snapshot.state == IDLE and (listed or snapshot.checkpoint_error != "") and claimed
    if directive.kind == RUN:
        return here and snapshot.state in (RUNNING, EXITED)
    return directive.kind != EXIT


class Channel:
    """One keep-alive HTTPS connection."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._connection: Optional[http.client.HTTPSConnection] = None
        self._context: Optional[ssl.SSLContext] = None
        self._ca_version: Tuple[int, int, int] = (0, 0, 0)

    def exchange(self, report: Report, timeout_seconds: float) -> Tuple[Directive, str]:
        """Send a report; returns the answer and its digest. One retry when a kept connection turns out to be closed.

        Raises:
            UnreachableError: no answer, or none that can be used.
        """
        body = encode(report)
        kept = self._connection is not None
        try:
            return self._exchange(body, timeout_seconds)
        except (OSError, http.client.HTTPException, ProtocolError, ValueError) as error:
            self.close()
            if not kept or not isinstance(error, ConnectionError):
                raise UnreachableError(_describe(error)) from error
        return self.exchange(report, timeout_seconds)  # by a new connection now

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(self, body: bytes, timeout_seconds: float) -> Tuple[Directive, str]:
        with open(self._settings.token_file, encoding="ascii") as stream:
            token = stream.read().strip()
        connection = self._connect(min(_CONNECT_SECONDS, timeout_seconds))
        connection.sock.settimeout(timeout_seconds)
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        connection.request("POST", REPORT_PATH, body=body, headers=headers)
        response = connection.getresponse()
        data = response.read(_MAX_ANSWER_BYTES + 1)
        if response.status != http.client.OK:
            self.close()
            detail = data[:200].decode("utf-8", "replace").strip()
            raise UnreachableError("it answered %d %s %s" % (response.status, response.reason, detail))
        return decode_directive(data), digest_of(data)

    def _connect(self, timeout_seconds: float) -> http.client.HTTPSConnection:
        if self._connection is None:
            connection = _NamedConnection(self._settings, self._tls(), timeout_seconds)
            connection.connect()
            self._connection = connection
        return self._connection

    def _tls(self) -> ssl.SSLContext:
        status = os.stat(self._settings.ca_file)
        version = (status.st_mtime_ns, status.st_ino, status.st_size)
        if self._context is None or version != self._ca_version:
            self._context = ssl.create_default_context(cafile=self._settings.ca_file)
            self._ca_version = version
        return self._context


class _NamedConnection(http.client.HTTPSConnection):
    """Connects to an address but verifies the coordinator's own name, which the certificate carries."""

    def __init__(self, settings: Settings, context: ssl.SSLContext, timeout_seconds: float) -> None:
        super().__init__(settings.host, settings.port, timeout=timeout_seconds, context=context)
        self._tls_context = context
        self._tls_name = settings.server_name

    def connect(self) -> None:
        """Open the connection."""
        plain = socket.create_connection((self.host, self.port), self.timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sock = self._tls_context.wrap_socket(plain, server_hostname=self._tls_name)
        except BaseException:
            plain.close()
            raise


def _describe(error: BaseException) -> str:
    return str(error) or type(error).__name__


@dataclasses.dataclass(frozen=True)
class Contact:
    """The last report that was answered.

    Attributes:
        sent_at: when it was sent: the coordinator has not heard this launcher earlier than then.
        fence_seconds: the length of the fence that it told.
        next_due_at: when, by the coordinator's pace, the next answer is there at the latest; silence begins then.
    """

    sent_at: float
    fence_seconds: float
    next_due_at: float


class Reporter:
    """Keeps the coordinator informed and hands its directives to the supervisor."""

    def __init__(
        self,
        settings: Settings,
        identity: Report,  # the fields that never change
        wake: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._wake = wake
        self._log = log
        self._changed = threading.Condition()
        self._snapshot = Snapshot()
        self._urgent = True  # there is news that no report has carried
        self._poll_speaks_next = True  # the next report is the poll's, and it carries the news
        self._poll_speaks_at = 0.0  # when it does so at the latest; in the past while it has trouble
        self._sequence = 0
        self._seen = ""
        self._directive: Optional[Directive] = None
        self._pace = Directive(kind="")  # poll_seconds and hold_seconds of the last answer
        self._sent_at = time.monotonic()
        self._contact: Optional[Contact] = None
        self._reasons: Set[str] = set()  # why there has been no answer since the last one

    def start(self) -> None:
        """Start both threads."""
        threading.Thread(target=self._poll_forever, name="poll", daemon=True).start()
        threading.Thread(target=self._tell_forever, name="tell", daemon=True).start()

    def publish(self, snapshot: Snapshot) -> None:
        """Take over a new state; news is sent at once. Never blocks on the network."""
        with self._changed:
            if snapshot.is_news(self._snapshot):
                self._urgent = True
                self._changed.notify_all()
            self._snapshot = snapshot

    def directive(self) -> Optional[Directive]:
        """The newest directive."""
        with self._changed:
            return self._directive

    def contact(self) -> Optional[Contact]:
        """The last answered report."""
        with self._changed:
            return self._contact

    def send_last(self, snapshot: Snapshot, deadline_seconds: float) -> None:
        """One final report on a connection of its own, waited for at most so long."""
        with self._changed:
            self._snapshot = snapshot
        done = threading.Thread(target=self._send_last, args=(deadline_seconds,), name="last", daemon=True)
        done.start()
        done.join(deadline_seconds)

    def _send_last(self, deadline_seconds: float) -> None:
        until = time.monotonic() + deadline_seconds
        pause = _FIRST_BACKOFF_SECONDS
        while time.monotonic() < until:
            report, _, _ = self._report(hold_seconds=0.0)
            try:
                Channel(self._settings).exchange(report, until - time.monotonic())
                return
            except UnreachableError:
                time.sleep(pause)

    def _report(self, hold_seconds: float, polls: bool = False) -> Tuple[Report, float, bool]:
        """The next report, the time, and whether it carries news."""
        with self._changed:
            self._sequence += 1
            now = time.monotonic()
            self._sent_at = now
            news, self._urgent = self._urgent, False
            if polls:
                self._poll_speaks_next, self._poll_speaks_at = False, now + hold_seconds
            report = dataclasses.replace(
                self._snapshot.report(now, self._sequence),
                directive_seen=self._seen,
                hold_seconds=hold_seconds,
                peer_port=self._identity.peer_port,
                address=self._identity.address,
                launcher_version=self._identity.launcher_version,
            )
            return report, now, news

    def _accept(self, answer: Tuple[Directive, str], report: Report, sent_at: float, polls: bool = False) -> None:
        directive, seen = answer
        with self._changed:
            now = time.monotonic()
            self._seen = seen
            self._pace = directive
            contact = self._contact
            if contact is None or sent_at > contact.sent_at:
                contact = Contact(sent_at, report.fence_seconds, 0.0)
            self._contact = dataclasses.replace(contact, next_due_at=now + directive.poll_seconds)
            if polls:
                self._poll_speaks_next, self._poll_speaks_at = True, now + _DONE_SECONDS
            if supersedes(directive, self._directive):
                self._directive = directive
            found = bool(self._reasons)
            self._reasons.clear()
        if found:
            self._log("the coordinator answers again")
        self._wake()

    def _failed(self, error: UnreachableError, news: bool, polls: bool = False) -> None:
        with self._changed:
            self._urgent = self._urgent or news
            if polls:
                self._poll_speaks_next, self._poll_speaks_at = False, 0.0
                self._changed.notify_all()
            news = str(error) not in self._reasons and len(self._reasons) < _MAX_REASONS
            if news:
                self._reasons.add(str(error))
        if news:
            self._log("no answer from the coordinator (%s); carrying on and trying again" % error)

    def _poll_forever(self) -> None:
        channel = Channel(self._settings)
        failures = 0
        while True:
            hold_seconds = max(0.0, self._pace.hold_seconds) if self._seen else 0.0
            report, sent_at, news = self._report(hold_seconds, polls=True)
            try:
                answer = channel.exchange(report, hold_seconds + _ANSWER_SECONDS)
            except UnreachableError as error:
                failures += 1
                self._failed(error, news, polls=True)
                time.sleep(_backoff(failures))
                continue
            failures = 0
            self._accept(answer, report, sent_at, polls=True)
            self._wait_until_done()
            directive, seen = answer
            if seen != report.directive_seen:
                continue
            elapsed = time.monotonic() - sent_at
            if hold_seconds == 0:
                self._pause(max(_SHORTEST_PACE_SECONDS, directive.poll_seconds - elapsed))
            elif elapsed < hold_seconds:  # let go early: be there again for the next directive, but do not hurry
                self._pause(_BETWEEN_POLLS_SECONDS)

    def _wait_until_done(self) -> None:
        """Let the supervisor do what the directive says, for a moment: the next poll then tells the outcome."""
        until = time.monotonic() + _DONE_SECONDS
        with self._changed:
            while not is_done(self._directive, self._snapshot, bool(self._settings.checkpoint_directory)):
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def _pause(self, seconds: float) -> None:
        """Poll later; what happens until then the other connection tells."""
        with self._changed:
            self._poll_speaks_next = False
            self._changed.notify_all()
        time.sleep(seconds)

    def _tell_forever(self) -> None:
        channel = Channel(self._settings)
        failures = 0
        while True:
            with self._changed:
                while not self._has_to_tell():
                    self._changed.wait(self._until_due())
            report, sent_at, _ = self._report(hold_seconds=0.0)
            try:
                answer = channel.exchange(report, _ANSWER_SECONDS)
            except UnreachableError as error:
                failures += 1
                self._failed(error, news=True)
                time.sleep(_backoff(failures))
                continue
            failures = 0
            self._accept(answer, report, sent_at)

    def _has_to_tell(self) -> bool:
        return (self._urgent and not self._poll_speaks_next) or self._until_due() == 0.0

    def _until_due(self) -> Optional[float]:
        """Seconds until there is to be a report even without news and even if no poll gets through; None: never."""
        if self._snapshot.state not in (RUNNING, RECLAIMING):
            return None
        due_at = self._sent_at + max(_SHORTEST_PACE_SECONDS, self._pace.poll_seconds)
        late_at = self._poll_speaks_at + _LATE_SECONDS
        if due_at < late_at < due_at + 2 * _LATE_SECONDS:  # the poll is about to speak
            due_at = late_at
        return max(0.0, due_at - time.monotonic())


def _backoff(failures: int) -> float:
    longest = min(_MAX_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 10))
    return longest * random.uniform(0.5, 1.0)

"""Talks to the coordinator: the core says what and when, two threads with a connection each do it.

Tests: tests/unit/launcher/test_reporting.py.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Callable, Optional

from muster.node.launcher.environment import Settings
from muster.node.launcher.reporter_core import Contact, ReporterCore, Send
from muster.node.launcher.snapshot import Snapshot
from muster.protocol.channel import Channel, RedirectedError, UnreachableError
from muster.protocol.messages import REPORT_PATH, Directive, Report, decode_directive
from muster.protocol.retries import POLL, TELL, Pause

_LAST_PAUSE_SECONDS = 0.1


class Reporter:
    """Talks to the coordinator by two threads, so that DNS, TLS or a dropped packet never hold up supervision."""

    def __init__(
        self,
        settings: Settings,
        identity: Report,  # the fields that never change
        wake: Callable[[], None],
        log: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._wake = wake
        self._changed = threading.Condition()
        scans = bool(settings.checkpoint_directory)
        self._core = ReporterCore(identity, scans, time.monotonic(), log, random.random)

    def start(self) -> None:
        """Start both threads."""
        for name in (POLL, TELL):
            threading.Thread(target=self._drive, args=(name,), name=name, daemon=True).start()

    def publish(self, snapshot: Snapshot) -> None:
        """Take over a new state of the launcher. News is sent at once. Never blocks on the network."""
        with self._changed:
            if self._core.publish(snapshot):
                self._changed.notify_all()

    def directive(self) -> Optional[Directive]:
        """The newest directive of the coordinator; None before the first answer."""
        with self._changed:
            return self._core.directive

    def contact(self) -> Optional[Contact]:
        """The last report that the coordinator has answered; None before the first answer."""
        with self._changed:
            return self._core.contact

    def send_last(self, snapshot: Snapshot, deadline_seconds: float) -> None:
        """Send one final report on a connection of its own, and wait for the answer no longer than
        `deadline_seconds`."""
        with self._changed:
            self._core.publish(snapshot)
        done = threading.Thread(target=self._send_last, args=(deadline_seconds,), name="last", daemon=True)
        done.start()
        done.join(deadline_seconds)

    def _send_last(self, deadline_seconds: float) -> None:
        until = time.monotonic() + deadline_seconds
        with self._changed:
            target = self._core.leader
        while time.monotonic() < until:
            with self._changed:
                report = self._core.send(time.monotonic(), 0.0, 0.0).report
            try:
                self._channel().exchange(report, until - time.monotonic(), target)
                return
            except RedirectedError as error:
                target = error.leader if target is None else None
            except UnreachableError:
                target = None
            time.sleep(_LAST_PAUSE_SECONDS)

    def _channel(self, stays: bool = False) -> Channel[Directive]:
        return Channel(self._settings.endpoint, REPORT_PATH, decode_directive, stays)

    def _drive(self, name: str) -> None:
        channel = self._channel(stays=name == TELL)
        while True:
            with self._changed:
                action = self._core.next_action(name, time.monotonic())
                while isinstance(action, Pause):
                    if name == POLL:  # what it does not say the other line may have to
                        self._changed.notify_all()
                    self._changed.wait(action.seconds)
                    action = self._core.next_action(name, time.monotonic())
            self._exchange(name, channel, action)

    def _exchange(self, name: str, channel: Channel[Directive], action: Send) -> None:
        try:
            directive, seen = channel.exchange(action.report, action.timeout_seconds, action.target)
        except UnreachableError as error:
            with self._changed:
                self._core.on_error(name, action, str(error), time.monotonic())
                self._changed.notify_all()
        except RedirectedError as error:
            with self._changed:
                self._core.on_redirection(name, action, error.leader, time.monotonic())
                self._changed.notify_all()
        else:
            with self._changed:
                is_news = self._core.on_answer(name, action, directive, seen, time.monotonic())
            if is_news:
                self._wake()

"""Runs the two threads that talk to the coordinator: the core knows what to report, the lines know when.

Tests: tests/unit/checker/test_keeping.py, tests/unit/checker/test_process.py.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from typing import Callable

from muster.node.checker.core import Core
from muster.node.checker.lines import Lines, Send
from muster.protocol.channel import Channel, Endpoint, RedirectedError, UnreachableError
from muster.protocol.checks import CHECK_PATH, CheckDirective, CheckReport, decode_check_directive
from muster.protocol.messages import MAX_REPORT_BYTES, encode
from muster.protocol.retries import POLL, TELL, Pause


class Talk:
    """Talks to the coordinator for the core, by the core's clock. The condition `changed` guards the core and is
    notified when there is news; `wake` is called after the core has received something.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        core: Core,
        changed: threading.Condition,
        clock: Callable[[], float],
        wake: Callable[[], None],
        log: Callable[..., None],
    ) -> None:
        self._endpoint = endpoint
        self._core = core
        self._changed = changed
        self._clock = clock
        self._wake = wake
        self._lines = Lines(log, random.random)
        self._threads = [
            threading.Thread(target=self._drive, args=(name,), name=name, daemon=True) for name in (POLL, TELL)
        ]

    def start(self) -> None:
        """Start both threads."""
        for thread in self._threads:
            thread.start()

    def is_alive(self) -> bool:
        """Whether a thread still talks to the coordinator."""
        return all(thread.is_alive() for thread in self._threads)

    def _drive(self, name: str) -> None:
        channel = Channel(self._endpoint, CHECK_PATH, decode_check_directive, stays=name == TELL)
        while True:
            with self._changed:
                action = self._lines.next(name, self._core.news, time.monotonic())
                while isinstance(action, Pause):
                    self._changed.wait(action.seconds)
                    action = self._lines.next(name, self._core.news, time.monotonic())
                report = report_for(self._core, action, self._clock())
                if action.hold_seconds:
                    self._changed.notify_all()  # later news belongs to the other line
            self._exchange(name, channel, action, report)

    def _exchange(self, name: str, channel: Channel[CheckDirective], sent: Send, report: CheckReport) -> None:
        try:
            directive, seen = channel.exchange(report, sent.timeout_seconds, sent.target)
        except UnreachableError as error:
            with self._changed:
                self._lines.failed(name, sent, str(error), time.monotonic())
                self._changed.notify_all()
        except RedirectedError as error:
            with self._changed:
                self._lines.redirected(name, sent, error.leader, time.monotonic())
                self._changed.notify_all()
        else:
            with self._changed:
                if self._lines.answered(name, sent, directive, seen, time.monotonic()):
                    self._core.hear(directive, self._clock())
                else:
                    self._core.hear_anything(self._clock())
                self._changed.notify_all()
            self._wake()


def report_for(core: Core, sent: Send, now: float) -> CheckReport:
    """Return the core's report in the form that the line sends; `now` is by the core's clock."""
    return fitting(
        dataclasses.replace(
            core.report(now),
            sequence=sent.sequence,
            directive_seen=sent.directive_seen,
            hold_seconds=sent.hold_seconds,
        )
    )


def fitting(report: CheckReport) -> CheckReport:
    """Return a report of a size that the coordinator accepts: one that is too long loses its messages, then its
    figures."""
    if len(encode(report)) <= MAX_REPORT_BYTES:
        return report
    answers = tuple(
        dataclasses.replace(answer, probes=tuple(dataclasses.replace(probe, message="") for probe in answer.probes))
        for answer in report.answers
    )
    report = dataclasses.replace(report, answers=answers)
    return report if len(encode(report)) <= MAX_REPORT_BYTES else dataclasses.replace(report, figures=())

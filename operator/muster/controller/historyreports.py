"""Reports what keeps the accounts of ended jobs or the hours of the fleet from being kept, for as long as it does.

Tests: tests/unit/controller/test_history.py, tests/unit/controller/test_fleethours.py.
"""

from collections.abc import Callable

import structlog
from prometheus_client import Gauge

REPORT_SECONDS = 600.0
"""So long the same reason is not reported again: the other accounts, and the next tries, meet the same problem."""

log = structlog.get_logger()
_unreadable = Gauge(
    "muster_history_unreadable", "1 while a ConfigMap of the history cannot be read, and is not written.", ["configmap"]
)


class HistoryReports:
    """Reports problems to the operators of the cluster, each reason once in a while."""

    def __init__(self, namespace: str, report: Callable[[str, str], object], clock: Callable[[], float]) -> None:
        """Remember how to report.

        Args:
            namespace: Muster's own.
            report: gets a reason and a message.
            clock: the time in monotonic seconds.
        """
        self._namespace = namespace
        self._report = report
        self._clock = clock
        self._reported: dict[str, float] = {}  # reason -> when it was last reported

    def problem(self, reason: str, message: str) -> None:
        """Report a problem, unless its reason was reported shortly before."""
        now = self._clock()
        if now - self._reported.get(reason, float("-inf")) >= REPORT_SECONDS:
            self._reported[reason] = now
            log.warning("the history is not complete", reason=reason, message=message)
            self._report(reason, message)

    def unreadable(self, configmap: str, why: str, consequence: str) -> None:
        """Report that a ConfigMap cannot be read.

        Args:
            configmap: its name.
            why: what is wrong with it.
            consequence: sentences: what follows, and what to do.
        """
        _unreadable.labels(configmap).set(1)
        self.problem(
            "HistoryUnreadable", f"ConfigMap {self._namespace}/{configmap} cannot be read ({why}). {consequence}"
        )

    def readable(self, configmap: str) -> None:
        """Note that a ConfigMap can be read, or is not there."""
        _unreadable.labels(configmap).set(0)

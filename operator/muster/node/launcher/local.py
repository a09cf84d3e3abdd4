"""Has a child look for checkpoints on this node's own disk before each start, since a disk may hang for ever.

While no rank is alive here, and anew where the coordinator asks for another listing. A disk that does not answer holds
no start: the job goes on from its shared checkpoints then, and says so.
"""

from __future__ import annotations

from typing import Callable, Dict, FrozenSet, Optional, Tuple

from muster.node.launcher.child_task import ChildOrder, ChildTask
from muster.node.launcher.children import Child, converse
from muster.protocol.messages import MAX_NUMBER, MAX_PATH_CHARS, WAIT, Directive, LocalReport


class LocalLister:
    """Has a child list the checkpoints on this node's own disk, without ever waiting. Used from the supervisor's thread
    only.

    Attributes:
        scanned_for: the attempt and the number of the listing that the last answer was for; (0, 0) = none yet.
        found: the checkpoints of which this node holds its whole share.
    """

    def __init__(
        self, directory: str, gang: str, deadline_seconds: float, converse: Callable[..., Child] = converse
    ) -> None:
        self.scanned_for = (0, 0)
        self.found: Tuple[LocalReport, ...] = ()
        self._directory = directory
        self._gang = gang
        self._error = ""
        self._ordered: Tuple[int, ...] = ()
        self._errand = ChildTask("--look-locally", directory, converse, deadline_seconds)

    @property
    def pids(self) -> FrozenSet[int]:
        """The pid of the child process, which belongs to no rank; empty while there is none."""
        return self._errand.pids

    @property
    def descriptor(self) -> Optional[int]:
        """The file descriptor to wait on for the child's answer; None while there is none to wait for."""
        return self._errand.descriptor

    @property
    def error(self) -> str:
        """Why no local checkpoint counts; "" if they may count. It is set also while a child that hangs cannot be
        ended."""
        return "no answer from %s" % self._directory if self._errand.is_overdue else self._error

    def poll(self, now: float, ended: Dict[int, int], directive: Optional[Directive]) -> None:
        """Start the child that lists local checkpoints when a directive asks for it, and read its answer.

        A child that gives no sign of life is given up.

        Args:
            now: seconds of the monotonic clock.
            ended: exit statuses of reaped child processes, by pid.
            directive: the directive that counts now; None: there is none, or old ranks are alive.
        """
        order = self._order(directive)
        if order is not None and order.number != self._ordered:
            self._ordered, self._error = order.number, ""
        if not self._directory or not self._errand.poll(now, ended, order):
            return
        answer = self._errand.answer
        if answer is None:
            self.found, self._error = (), self._errand.error or "no answer from %s" % self._directory
        else:
            self.found, self._error = _reports(answer), str(answer["error"])
            attempt, listing = self._errand.done
            self.scanned_for = attempt, listing

    def stop(self) -> None:
        """Kill the child that looks at the node's own disk, because the launcher exits."""
        self._errand.stop()

    def _order(self, directive: Optional[Directive]) -> Optional[ChildOrder]:
        if directive is None or directive.kind != WAIT or not directive.local_share:
            return None
        request = {"gang": self._gang, "attempt": directive.attempt, "share": directive.local_share}
        return ChildOrder((directive.attempt, directive.listing_round or 0), request)


def _reports(answer: Dict[str, object]) -> Tuple[LocalReport, ...]:
    items = answer.get("held")
    reports = [
        LocalReport(int(step), str(path), int(attempt), str(kind))
        for step, path, attempt, kind in (items if isinstance(items, list) else [])
    ]
    return tuple(
        report
        for report in reports
        if len(report.path) <= MAX_PATH_CHARS and max(report.step, report.attempt) <= MAX_NUMBER
    )

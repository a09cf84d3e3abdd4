"""Reports the PriorityClasses that the FleetPolicy lists for preemption, and by which no job preempts.

They are compared now and then, and not at each change: a class is deleted and created again to change its value.
"""

import asyncio
from collections.abc import Callable

import structlog

from muster.controller.cluster import Cluster
from muster.queueing.priority_classes import classes_without_effect

PERIOD_SECONDS = 30.0

log = structlog.get_logger()


class PreemptionReports:
    """Compares the list with the cluster's classes; a finding is reported again only after it had gone. `report` is
    called with a reason and a message.
    """

    def __init__(self, cluster: Cluster, report: Callable[[str, str], object]) -> None:
        self._cluster = cluster
        self._report = report
        self._reported: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Compare again and again until cancelled; to be run by the leader."""
        while True:
            try:
                self.report_changes()
            except Exception:
                log.exception("classes that preempt not compared")
            await asyncio.sleep(PERIOD_SECONDS)

    def report_changes(self) -> None:
        """Report the findings that are not those of the last time."""
        may_preempt = {priority.name: priority.preempts for priority in self._cluster.priorities.store.values()}
        problems = classes_without_effect(self._cluster.policy().queueing.preemption, may_preempt)
        messages = [f"{problem.finding}. To change that, {problem.remedy}." for problem in problems]
        for message in messages:
            if message not in self._reported:
                log.warning("a class preempts no job", message=message)
                self._report("PreemptionWithoutEffect", message)
        self._reported = frozenset(messages)

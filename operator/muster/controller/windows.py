"""Reports which of the FleetPolicy's maintenance windows may be mistaken, and which jobs they will affect; counts their
nodes.

That windows are obeyed is the business of the verdicts (`muster.health.maintenance`). Nothing that this meets stops
anything.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import structlog
from prometheus_client import Gauge

from muster.api.maintenance import MaintenanceStage
from muster.controller.cluster import Cluster
from muster.controller.policyevents import record_policy_event
from muster.controller.slices import Slices
from muster.health.maintenance import Problem, problems
from muster.health.verdict import Verdict
from muster.kube.decode import Undecodable
from muster.kube.events import WARNING, EventRecorder

PERIOD_SECONDS = 30.0
REST = 50.0
"""So many times as long as a look took nothing is done after it: large fleets with many windows cost no more than
others."""
TOLD_AT_ONCE = 16

log = structlog.get_logger()
_nodes = Gauge("muster_maintenance_nodes", "Nodes by how near their maintenance window is.", ["stage"])
_problems = Gauge(
    "muster_maintenance_problems",
    "Maintenance windows of the FleetPolicy that look wrong or affect many nodes; its Events name them.",
)


class WindowKeeper:
    """Looks at the windows now and then; a problem is reported again only after it had gone."""

    def __init__(
        self,
        cluster: Cluster,
        events: EventRecorder,
        verdicts: Callable[[], Iterable[Verdict]],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._events = events
        self._verdicts = verdicts
        self._clock = clock
        self._wall_clock = wall_clock
        self._told: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Look at the windows again and again until cancelled; to be run by the leader."""
        while True:
            began_at = self._clock()
            try:
                await self.check_windows()
            except Exception:
                log.exception("maintenance windows not looked at")
            await asyncio.sleep(max(PERIOD_SECONDS, REST * (self._clock() - began_at)))

    async def check_windows(self) -> None:
        """Count the windows' nodes, and report new problems."""
        counts = dict.fromkeys(MaintenanceStage, 0)
        slices = Slices(self._clock)
        for verdict in list(self._verdicts()):
            if verdict.grounds.maintenance is not None:
                counts[verdict.grounds.maintenance.stage] += 1
        for stage, count in counts.items():
            _nodes.labels(stage.value).set(count)
        fleet = self._cluster.fleet
        current_problems: list[Problem] = []
        if fleet.policy.maintenance.windows:
            for problem in problems(fleet.policy, fleet.in_scope(), self._wall_clock()):
                if problem is None:
                    await slices.pause()
                else:
                    current_problems.append(problem)
        _problems.set(len(current_problems))
        self._report_problems(current_problems)

    def _report_problems(self, current_problems: list[Problem]) -> None:
        policy = self._cluster.policies.store.get(("", "default"))
        if policy is None or isinstance(policy, Undecodable):
            return
        news = [problem for problem in current_problems if problem.about not in self._told]
        for problem in news[:TOLD_AT_ONCE]:
            record_policy_event(self._cluster, self._events, WARNING, "MaintenanceWindow", problem.message)
            log.warning("maintenance window may not be meant", problem=problem.message)
        self._told = frozenset(problem.about for problem in current_problems if problem not in news[TOLD_AT_ONCE:])

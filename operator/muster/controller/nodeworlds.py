"""Gathers all that the decision about one node reads: stored objects, and what this leader has heard.

Tests: tests/unit/controller/test_nodereconciler.py.
"""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import NodeHealth, NodeHealthStatus
from muster.controller.agents import AgentSilences
from muster.controller.cluster import Cluster
from muster.controller.equipment import Equipment
from muster.controller.failurereports import FailureReports
from muster.health.engine import Engine
from muster.health.facts import NodeFacts
from muster.health.node_world import NodeWorld
from muster.health.repairs import NOT_READ, RepairStatus, Stage
from muster.health.signs import JOBS, REPAIR
from muster.health.sources import Rules
from muster.health.verdict import Verdict

# A clock that has jumped ahead has everything faded: a quarantine ends only when that was so for so long by another
# clock.
SURE_SECONDS = 3600.0


class NodeWorlds:
    """The inputs of decisions about nodes. `mark_node` has a node judged again, because something about it has changed.
    `pass_age_seconds` returns the seconds since a node last passed its burn-in; None where no pass of it holds.

    Attributes:
        policy: the FleetPolicy.
        rules: of the policy.
    """

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        reports: FailureReports,
        agents: AgentSilences,
        equipment: Equipment,
        mark_node: Callable[[str], None],
        pass_age_seconds: Callable[[str], float | None] = lambda _node: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._engine = engine
        self._reports = reports
        self._agents = agents
        self._equipment = equipment
        self._mark_node = mark_node
        self._pass_age_seconds = pass_age_seconds
        self._clock = clock
        self._repairs: Mapping[str, RepairStatus] | None = None  # None: requests have not been read yet
        self._faded: dict[str, float] = {}  # nodes whose quarantine would be over -> since when that is seen
        self.policy = FleetPolicySpec()
        self.rules = Rules.from_policy(self.policy, cluster.profile)

    def world_of(self, name: str, now: datetime) -> NodeWorld | None:
        """All that is known of a node; None for one that is gone, or whose record cannot be read.

        Where failures of jobs do not count yet, the node is judged again when they do.
        """
        node, health = self._cluster.fleet.nodes.get(name), self._cluster.node_record(name)
        if node is None or health is None:
            return None
        pass_age_seconds = self._pass_age_seconds(name) if self.rules.validates else None
        failures = self._reports.job_failures(name, now)
        if failures and (unheard_seconds := self._unheard_seconds(health)) > 0:
            self._engine.wake_at(name, now + timedelta(seconds=unheard_seconds))
            failures = []
        return NodeWorld(
            NodeFacts.from_node(node),
            self._with_new_result(health),
            self.rules_of(name),
            now,
            memory=self._engine.memory,
            reports=failures,
            burn_ins=self._reports.burn_ins(name),
            passed=None if pass_age_seconds is None else now - timedelta(seconds=pass_age_seconds),
            answered=self._reports.outdated_until(name, now) if failures else None,
            silence=self._agents.contacts.silence_of(name),
            lack=self._equipment.lack_of(name),
            repair=NOT_READ if self._repairs is None else self._repairs.get(name),
            time_is_sure=self._unsure_seconds(name) <= 0,
        )

    def rules_of(self, name: str) -> Rules:
        """The rules for a node: those of its pool."""
        return self.rules.of_pool(self._engine.node_index.pools.get(name, ""))

    def _unheard_seconds(self, health: NodeHealth) -> float:
        """For how long jobs' failures do not count yet: a new leader may not have heard which tests the node has
        passed since."""
        is_on_record = any(finding.source == JOBS for finding in health.status.findings)
        return 0.0 if is_on_record or not self.rules.validates else self._reports.unheard_seconds()

    def _with_new_result(self, health: NodeHealth) -> NodeHealth:
        result = self._reports.new_result(health)
        if result is None:
            return health
        return health.model_copy(update={"status": health.status.model_copy(update={"check": result})})

    def note_verdict(self, name: str, verdict: Verdict | None, now: datetime) -> None:
        """Take in a node's verdict: a quarantine that would be over by now ends once the clock is sure; None: the node
        is gone."""
        if verdict is None or not verdict.follow_up.faded:
            self._faded.pop(name, None)
            return
        self._faded.setdefault(name, self._clock())
        if (seconds := self._unsure_seconds(name)) > 0:
            self._engine.wake_at(name, now + timedelta(seconds=seconds))

    def _unsure_seconds(self, name: str) -> float:
        """The seconds for which the wall clock is not yet trusted that the node's quarantine has faded."""
        since = self._faded.get(name)
        return SURE_SECONDS if since is None else SURE_SECONDS - (self._clock() - since)

    def apply_policy(self) -> bool:
        """Take in the FleetPolicy; returns whether it has changed."""
        policy = self._cluster.fleet.policy
        if policy == self.policy:
            return False
        self.policy, self.rules = policy, Rules.from_policy(policy, self._cluster.profile)
        self._engine.node_index.rebuild(self._cluster.fleet)
        for name in self._cluster.fleet.nodes:  # which resource the accelerators are may have changed
            self._agents.note(name)
        self._equipment.apply_policy(self.rules.ignored_ports)
        return True

    def lead(self) -> None:
        """Take in that this process leads from now on."""
        self._reports.lead()

    def changed(self) -> set[str]:
        """Compare all agents and machines anew; returns the names of the nodes whose silence or lack differs from the
        last call's."""
        silences = self._agents.changed(self.rules.window_limit)
        return silences | (self._equipment.changed() & self._cluster.fleet.nodes.keys())

    def pauses(self) -> list[float]:
        """The seconds after which time alone may change a silence or a lack."""
        pauses = (self._agents.next_seconds(), self._equipment.next_seconds())
        return [seconds for seconds in pauses if seconds is not None]

    @property
    def silent_pools(self) -> Mapping[str, int]:
        """The number of silent agents in each pool where so many are silent that no node is blamed."""
        return self._agents.contacts.silent_pools

    def note_repairs(self, repairs: Mapping[str, RepairStatus]) -> None:
        """Take in all requests for repairs as they are now, by node, those included that are about to be made."""
        old_repairs, self._repairs = self._repairs, dict(repairs)
        if old_repairs is None:
            changed = self._with_repairs_on_record() | repairs.keys()
        else:
            changed = {
                name for name in old_repairs.keys() | repairs.keys() if old_repairs.get(name) != repairs.get(name)
            }
        for name in changed:
            self._mark_node(name)

    def knows_of_repairs(self) -> bool:
        """Whether there are requests for repairs, or any node's record has one."""
        return bool(self._with_repairs_on_record() if self._repairs is None else self._repairs)

    def is_repair_in_progress(self, name: str) -> bool:
        """Whether a repair of the node is under way by its request, as far as is known."""
        repair = self._repairs.get(name) if self._repairs is not None else None
        return repair is not None and repair.stage is Stage.IN_PROGRESS

    def _with_repairs_on_record(self) -> set[str]:
        return {
            record.metadata.name
            for record in self._cluster.healths.store.values()
            if isinstance(record, NodeHealth) and _has_repair(record.status)
        }


def _has_repair(status: NodeHealthStatus) -> bool:
    """Whether a node's record has a repair that may not be over."""
    last = status.incidents[-1] if status.incidents else None
    was_repaired = last is not None and last.cleared_time is None and last.repair_ended_time is not None
    return was_repaired or any(finding.source == REPAIR for finding in status.findings)

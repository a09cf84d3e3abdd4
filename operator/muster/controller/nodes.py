"""The parts of the operator that are about nodes, wired.

Tests: tests/unit/controller/test_nodereconciler.py.
"""

import asyncio
import functools
import time
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from muster.api.preflight import Profile
from muster.controller.agents import AgentSilences
from muster.controller.cluster import AGENT_NAMESPACE, Cluster
from muster.controller.dirty import DirtyKeys
from muster.controller.equipment import Equipment
from muster.controller.failurereports import FailureReports
from muster.controller.forgetting import PERIOD_SECONDS, Forgetting
from muster.controller.nodefitness import NodeFitness
from muster.controller.nodemarks import NodeMarks
from muster.controller.nodeperform import NodePerformer
from muster.controller.nodereconciler import NodeReconciler
from muster.controller.nodereports import NodeReports
from muster.controller.nodeworlds import NodeWorlds
from muster.controller.offenders import Offenders
from muster.controller.passes import pass_age_seconds
from muster.health.engine import Engine
from muster.health.silence import AVOID_SECONDS
from muster.kube.client import Client
from muster.kube.errors import LeadershipLost
from muster.kube.events import EventRecorder

log = structlog.get_logger()


class Nodes:
    """What is known of nodes, what is decided about them, and what carries it out. An agent that is silent for longer
    than `agent_silence_seconds` keeps new jobs from its node.

    Attributes:
        queue: the nodes to judge, as keys without a namespace.
        engine: what is known of all nodes from one decision to the next.
        failures: what jobs and tests report about nodes.
        worlds: the inputs of decisions.
        performer: puts decisions into force.
        marks: writes the condition of Nodes.
        reconciler: decides.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        events: EventRecorder,
        fitness: NodeFitness,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        agent_namespace: str = AGENT_NAMESPACE,
        agent_silence_seconds: float = AVOID_SECONDS,
    ) -> None:
        self._wall_clock = wall_clock
        self.queue = DirtyKeys(clock)
        self.engine = Engine()
        attended = client.answers.attended_seconds
        unheard = cluster.agents.last_contact_age_seconds
        index = self.engine.node_index
        agents = AgentSilences(
            cluster, agent_namespace, attended, unheard, index, self._mark_node, agent_silence_seconds
        )
        equipment = Equipment(cluster, attended, self._mark_node)
        pass_age = functools.partial(pass_age_seconds, cluster)
        deep_pass_age = functools.partial(pass_age_seconds, cluster, least=Profile.DEEP)
        self.failures = FailureReports(cluster, self._mark_node, deep_pass_age, clock, wall_clock)
        self.worlds = NodeWorlds(
            cluster=cluster,
            engine=self.engine,
            reports=self.failures,
            agents=agents,
            equipment=equipment,
            mark_node=self._mark_node,
            pass_age_seconds=pass_age,
            clock=clock,
        )
        reports = NodeReports(cluster, events)
        self.performer = NodePerformer(client, cluster, events, self._mark_node, reports, clock)
        self.marks = NodeMarks(client, cluster, events, clock, wall_clock)
        self.reconciler = NodeReconciler(
            cluster=cluster,
            queue=self.queue,
            engine=self.engine,
            worlds=self.worlds,
            performer=self.performer,
            fitness=fitness,
            marks=self.marks,
            reports=reports,
            clock=clock,
            wall_clock=wall_clock,
        )
        self._forgetting = Forgetting(client, cluster, clock)
        cluster.nodes.store.subscribe(self._forgetting.node_changed)
        cluster.healths.store.subscribe(self._forgetting.record_changed)
        offenders = Offenders(lambda: cluster.policy().health.quarantine.half_life_seconds, wall_clock)
        cluster.healths.store.subscribe(offenders.record_changed)

    def _mark_node(self, name: str) -> None:
        self.reconciler.mark_nodes([name])

    async def forget(self) -> None:
        """Forget machines that are gone, and reports that are too old to count, until cancelled.

        Raises:
            LeadershipLost: this process may not write any more.
        """
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            self.failures.forget(self._wall_clock())
            try:
                await self._forgetting.forget_some(self.worlds.rules, self._wall_clock())
            except LeadershipLost:
                raise
            except Exception:
                log.exception("records of machines that are gone not looked at")

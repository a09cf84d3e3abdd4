"""Finds the nodes whose agents are silent, from the Ready condition of the agents' Pods: agents write no heartbeat.

An agent counts once it was heard in this boot of its node. One heard before counts if it has a Pod there now or was
missed already. Where nothing was ever heard, the state stays unknown. While a node is not Ready itself, its agent is
not blamed.
"""

from collections.abc import Callable
from typing import Any

from prometheus_client import Gauge

from muster.api.nodehealth import NodeHealth, Severity
from muster.controller.cluster import Cluster
from muster.health.pools import Pools
from muster.health.signs import AGENT
from muster.health.silence import AGENT_SILENT, AVOID_SECONDS, AgentContacts
from muster.health.verdict_index import NodeIndex
from muster.kube.decode import AgentPod, Undecodable, object_key
from muster.world.views import NodeView

_agents = Gauge("muster_node_agents", "Nodes whose agent has reported, by whether its Pod is Ready.", ["state"])
_silent_agents = Gauge(
    "muster_agents_silent",
    "Silent agents in a pool of like nodes where so many are silent that Muster does not blame their nodes.",
    ["pool"],
)
_unheard = Gauge("muster_nodes_without_agent", "Nodes with accelerators whose agent has never reported.")


class AgentSilences:
    """The silence of the nodes' agents, by their Pods.

    Args:
        cluster: has the agents' Pods.
        namespace: where the agents run. Empty: there are none, and none is missed.
        clock: seconds that stand still while the API server is away.
        blind_seconds: returns for how long nothing has been heard of these Pods.
        node_index: the pools of the nodes.
        mark_node: called with a node because of which the result of `changed` may differ.
        avoid_seconds: how long an agent may be silent before its node takes no new jobs.

    Attributes:
        contacts: which agents are silent, and what follows.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        clock: Callable[[], float],
        blind_seconds: Callable[[], float],
        node_index: NodeIndex,
        mark_node: Callable[[str], None],
        avoid_seconds: float = AVOID_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._clock = clock
        self._blind_seconds = blind_seconds
        self._node_index = node_index
        self._mark_node = mark_node
        self.contacts = AgentContacts(avoid_seconds)
        self._told: set[str] = set()
        self._unheard: set[str] = set()  # nodes with accelerators whose agent has never reported
        self._met = False  # whether there has ever been such a Pod: agents may run in another way
        cluster.agents.store.subscribe(self._pod_changed)
        cluster.nodes.store.subscribe(self._node_changed)
        cluster.healths.store.subscribe(self._record_changed)

    def _pod_changed(self, old: AgentPod | None, new: AgentPod | None) -> None:
        self._met = True
        for node in {pod.node for pod in (old, new) if pod is not None and pod.node}:
            self.note(node)

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        if old is None or new is None or _facts(old) != _facts(new):
            self.note((new or old).name)  # type: ignore[union-attr] # one of them is there

    def _record_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        self.note(object_key(value)[1])

    def note(self, name: str) -> None:
        """Take in a change of a node, its record or its agent's Pod."""
        if not self._namespace:
            return
        node, health = self._cluster.fleet.node_in_scope(name), self._cluster.healths.store.get(("", name))
        pods = self._cluster.agents.store.by_index(name)
        (self._unheard.add if self._is_unheard(node, health) else self._unheard.discard)(name)
        if node is None or not isinstance(health, NodeHealth) or not _is_missed(node, health, pods):
            if (
                node is None or health is None or isinstance(health, NodeHealth)
            ):  # one that cannot be read says nothing new
                self._mark_if(name, self.contacts.forget(name))
            return
        if any(pod.ready for pod in pods):
            self._mark_if(name, self.contacts.note_ready(name))
            return
        # Where one was missed before, there were Pods of agents, though there may be none at all now.
        self._met = self._met or _was_missed(health)
        newest = max(pods, key=lambda pod: pod.resource_version, default=None)
        pod = None if newest is None else (newest.uid, newest.starting)
        self._mark_if(name, self.contacts.note_silent(name, self._clock(), paused=not node.ready, pod=pod))

    def _is_unheard(self, node: NodeView | None, health: NodeHealth | Undecodable | None) -> bool:
        if node is None or not node.capacity.get(self._cluster.fleet.policy.accelerator_resource):
            return False
        return health is None or (isinstance(health, NodeHealth) and health.status.agent is None)

    def _mark_if(self, name: str, is_news: bool) -> None:
        if is_news:
            self._mark_node(name)

    def changed(self, limit: Callable[[str, int], int]) -> set[str]:
        """Work out all silences anew, and return the names of the nodes whose silence differs from the last call's.

        Args:
            limit: returns how many agents of a pool may be silent by themselves, by the pool and its number of nodes.
        """
        if self._met:
            pools = Pools(self._node_index.pools, self._node_index.pool_sizes)
            changed = self.contacts.changed(self._known_until(), pools, limit, self._message)
        else:
            changed = set()
        self._measure()
        return changed

    def next_seconds(self) -> float | None:
        """The seconds until time alone may change a silence; None = never."""
        return self.contacts.next_seconds(self._known_until()) if self._met else None

    def _known_until(self) -> float:
        return self._clock() - self._blind_seconds()

    def _message(self, name: str) -> str:
        return (
            "the node's agent has reported before and is not Ready, so Muster would not see a fault of the node: find "
            f"its Pod with kubectl -n {self._namespace} get pods --field-selector spec.nodeName={name}, and read its "
            "log"
        )

    def _measure(self) -> None:
        _agents.labels("Ready").set(len(self.contacts.ready))
        _agents.labels("Silent").set(len(self.contacts.silent))
        _unheard.set(len(self._unheard))
        self._told.update(self.contacts.silent_pools)
        for pool in self._told:
            _silent_agents.labels(pool).set(self.contacts.silent_pools.get(pool, 0))


def _is_missed(node: NodeView, health: NodeHealth, pods: list[AgentPod]) -> bool:
    agent = health.status.agent
    if agent is None:
        return False
    return bool(pods) or bool(agent.boot_id and agent.boot_id == node.boot_id) or _was_missed(health)


def _was_missed(health: NodeHealth) -> bool:
    """Whether the node's record says that its agent is silent.

    That ends when the agent is Ready, and not when its Pod is gone.
    """
    effective_findings = (finding for finding in health.status.findings if finding.severity is not Severity.INFO)
    return any((finding.source, finding.reason) == (AGENT, AGENT_SILENT) for finding in effective_findings)


def _facts(node: NodeView) -> tuple[Any, ...]:
    """The facts about a node that matter to whether its agent is missed."""
    return node.ready, node.boot_id, node.capacity, node.labels

"""Finds the nodes whose agents are silent, from the Ready condition of the agents' Pods: agents write no heartbeat.

An agent counts once it was heard in this boot of its node. One heard before counts if it has a Pod there now or was
missed already. Where nothing was ever heard, the state stays unknown. While a node is not Ready itself, its agent is
not blamed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from prometheus_client import Gauge

from muster.api.nodehealth import NodeHealth, Severity
from muster.controller.cluster import Cluster
from muster.health.signs import AGENT
from muster.health.silence import AGENT_SILENT, AVOID_SECONDS, AgentSilence, Silence, pools_silent_at_once
from muster.health.verdict_index import NodeIndex
from muster.kube.decode import AgentPod
from muster.world.views import NodeView

_SHORTEST_SECONDS = 1.0

_agents = Gauge("muster_node_agents", "Nodes whose agent has spoken, by whether its Pod is Ready now.", ["state"])
_silent_agents = Gauge(
    "muster_agents_silent",
    "Agents of a pool of like nodes that are silent where they are too many for it to be their nodes' fault.",
    ["pool"],
)


@dataclass(slots=True)
class _Since:
    """The times by the clock since when an agent's state has lasted."""

    silent: float
    pod: float
    pod_uid: str
    starting: bool
    paused: bool


class AgentSilences:
    """The silence of the nodes' agents, by their Pods.

    Args:
        namespace: where the agents run. Empty: there are none, and none is missed.
        clock: seconds that stand still while the API server is away.
        blind_seconds: returns for how long nothing has been heard of these Pods.
        ground: the pools of the nodes.
        stirred: called when the result of `changed` may differ.
        avoid_seconds: how long an agent may be silent before its node takes no new jobs.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        clock: Callable[[], float],
        blind_seconds: Callable[[], float],
        ground: NodeIndex,
        stirred: Callable[[], None],
        avoid_seconds: float = AVOID_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._clock = clock
        self._blind_seconds = blind_seconds
        self._ground = ground
        self._stirred = stirred
        self._avoid_seconds = avoid_seconds
        self._silent: dict[str, _Since] = {}
        self._heard: set[str] = set()
        self._silences: dict[str, Silence] = {}
        self._told: set[str] = set()
        self._met = False  # whether there has ever been such a Pod: agents may run in another way
        self.silent_pools: Mapping[str, int] = {}
        """Pools in which too many are silent at once, and how many."""
        cluster.agents.store.subscribe(self._pod_changed)

    def silence_of(self, node: str) -> Silence | None:
        """The silence of a node's agent, as of the last call of `changed`; None: the agent is Ready, or there is none
        to miss."""
        return self._silences.get(node)

    def _pod_changed(self, old: AgentPod | None, new: AgentPod | None) -> None:
        self._met = True
        for node in {pod.node for pod in (old, new) if pod is not None and pod.node}:
            self.note(node)

    def note(self, name: str) -> None:
        """Take in a change of a node, its record or its agent's Pod."""
        if not self._namespace:
            return
        node, health = self._cluster.fleet.nodes.get(name), self._cluster.healths.store.get(("", name))
        pods = self._cluster.agents.store.by_index(name)
        if node is None or not isinstance(health, NodeHealth) or not _is_missed(node, health, pods):
            if (
                node is None or health is None or isinstance(health, NodeHealth)
            ):  # one that cannot be read says nothing new
                self._forget(name)
            return
        if any(pod.ready for pod in pods):
            self._forget(name)
            self._heard.add(name)
            return
        # Where one was missed before, there were Pods of agents, though there may be none at all now.
        self._met = self._met or _was_missed(health)
        now, newest = self._clock(), max(pods, key=lambda pod: pod.resource_version, default=None)
        since = self._silent.get(name)
        if since is None or since.paused != (not node.ready):
            self._heard.discard(name)
            since = self._silent[name] = _Since(now, now, newest.uid if newest else "", False, not node.ready)
            self._stirred()
        if newest is not None and (newest.uid, newest.starting) != (since.pod_uid, since.starting):
            since.pod, since.pod_uid, since.starting = now, newest.uid, newest.starting
            self._stirred()  # it has another time to be looked at

    def _forget(self, name: str) -> None:
        self._heard.discard(name)
        if self._silent.pop(name, None) is not None:
            self._stirred()

    def changed(self, limit: Callable[[int], int]) -> set[str]:
        """Work out all silences anew, and return the names of the nodes whose silence differs from the last call's.

        Args:
            limit: returns how many agents of a pool may be silent by themselves, by the pool's number of nodes.
        """
        before, self._silences = self._silences, {}
        if not self._silent or not self._met:
            self.silent_pools = {}
        else:
            quiet = self._measure_silences()
            ground = self._ground
            self.silent_pools = pools_silent_at_once(quiet, ground.pools, ground.pool_sizes, self._heard, limit)
            for name in self._silent:
                each = quiet.get(name)
                free = each is not None and ground.pools.get(name, "") not in self.silent_pools
                self._silences[name] = Silence(each.weighs if each and free else None, self._message(name))
        self._measure()
        return {name for name in before.keys() | self._silences.keys() if before.get(name) != self._silences.get(name)}

    def next_seconds(self) -> float | None:
        """The seconds until time alone may change a silence; None = never."""
        if not self._silent or not self._met:
            return None
        moments = (each.next_seconds() for each in self._measure_silences().values())
        soonest = min((moment for moment in moments if moment is not None), default=None)
        # While nothing is heard of Pods, silences do not grow: look again soon, not at once.
        return None if soonest is None else max(soonest, _SHORTEST_SECONDS)

    def _measure_silences(self) -> dict[str, AgentSilence]:
        now = self._clock() - self._blind_seconds()
        return {
            name: AgentSilence(now - since.silent, now - since.pod, since.starting, self._avoid_seconds)
            for name, since in self._silent.items()
            if not since.paused
        }

    def _message(self, name: str) -> str:
        return (
            "its agent has spoken and is not Ready any more, so that no fault of the node would be seen: kubectl -n "
            f"{self._namespace} get pods --field-selector spec.nodeName={name} names its Pod, and kubectl logs of "
            "that says what it does not see"
        )

    def _measure(self) -> None:
        _agents.labels("Ready").set(len(self._heard))
        _agents.labels("Silent").set(len(self._silent))
        self._told.update(self.silent_pools)
        for pool in self._told:
            _silent_agents.labels(pool).set(self.silent_pools.get(pool, 0))


def _is_missed(node: NodeView, health: NodeHealth, pods: list[AgentPod]) -> bool:
    agent = health.status.agent
    if agent is None:
        return False
    return bool(pods) or bool(agent.boot_id and agent.boot_id == node.boot_id) or _was_missed(health)


def _was_missed(health: NodeHealth) -> bool:
    """Whether the node's record says that its agent is silent.

    That ends when the agent is Ready, and not when its Pod is gone.
    """
    said = (finding for finding in health.status.findings if finding.severity is not Severity.INFO)
    return any((finding.source, finding.reason) == (AGENT, AGENT_SILENT) for finding in said)

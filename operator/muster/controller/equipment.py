"""Compares the machines of each kind, as their Nodes and agents report them, and finds those with fewer GPUs or
ports."""

from collections.abc import Callable

from muster.api.nodehealth import NodeHealth
from muster.controller.cluster import Cluster
from muster.health.equals import Lack, MachineEquipment, MachineKinds, kind_of
from muster.health.ignored_ports import IgnoredPortFilter
from muster.kube.decode import Undecodable
from muster.world.views import NodeView


class Equipment:
    """The equipment of all machines.

    Args:
        cluster: has their Nodes and NodeHealths.
        clock: seconds that stand still while the API server is away.
        mark_node: called with a node because of which the result of `changed` may differ.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], float], mark_node: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._mark_node = mark_node
        self._equals = MachineKinds()
        self._ignored = IgnoredPortFilter()
        cluster.nodes.store.subscribe(self._node_changed)
        cluster.healths.store.subscribe(self._health_changed)

    def apply_policy(self, ignored: IgnoredPortFilter) -> None:
        """Take in a FleetPolicy that has changed: its scope, and the ports that do not count from now on."""
        self._ignored = ignored
        for name in self._cluster.fleet.nodes:
            self._note(name)

    def lack_of(self, node: str) -> Lack | None:
        """What a node lacks, as of the last call of `changed`; None: nothing, as far as is known."""
        return self._equals.lack_of_node(node)

    def changed(self) -> set[str]:
        """Compare all machines anew, and return the names of the nodes whose lack differs from the last call's."""
        return self._equals.changed(self._clock())

    def next_seconds(self) -> float | None:
        """The seconds until time alone may change the result; None = never."""
        return self._equals.next_seconds(self._clock())

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        if old is None or new is None or old.labels != new.labels:
            self._note((new or old).name)  # type: ignore[union-attr]

    def _health_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        value = new or old
        if isinstance(value, NodeHealth):
            self._note(value.metadata.name)

    def _note(self, name: str) -> None:
        node, health = self._cluster.fleet.node_in_scope(name), self._cluster.healths.store.get(("", name))
        agent = health.status.agent if isinstance(health, NodeHealth) else None
        if node is None or agent is None:
            self._equals.set_machine(name, "", None)
        else:
            kind = kind_of(node, agent, self._cluster.fleet.policy.accelerator_resource)
            self._equals.set_machine(
                name, kind, MachineEquipment(agent.gpus_expected, self._ignored.ports_that_count(node.labels, agent))
            )
        if self._equals.has_changes:
            self._mark_node(name)

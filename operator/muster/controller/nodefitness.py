"""Shows jobs each node as its NodeHealth has it, corrected by what the leader has decided since.

It is the only way by which a node's health comes to jobs: placement, evacuation, blame. A decision that is not on
record yet keeps new workers away and says what is wrong with the node. So no worker is placed on a node whose fault
could not be recorded, and none leaves a node for a reason that the next leader would not know.

Tests: tests/unit/controller/test_nodefitness.py.
"""

from muster.api.nodehealth import NodeHealth
from muster.controller.bus import Bus
from muster.controller.cluster import Cluster
from muster.health.fitness import UNREADABLE, DecidedFitness, Fitness, corrected, fitness_of
from muster.kube.decode import Undecodable, object_key
from muster.world.views import NodeView

_NOTHING = Fitness()


class NodeFitness:
    """Keeps what jobs see of nodes in line with the records, and publishes on the bus that nodes may be used again."""

    def __init__(self, cluster: Cluster, bus: Bus) -> None:
        self._cluster = cluster
        self._bus = bus
        self._decided: dict[str, DecidedFitness] = {}  # by node that this leader has decided about
        cluster.healths.store.subscribe(self._record_changed)
        cluster.nodes.store.subscribe(self._node_changed)
        cluster.policies.store.subscribe(lambda _old, _new: self._show_all())

    def note_decision(self, name: str, decided: DecidedFitness) -> None:
        """Take in the leader's newest decision about a node.

        It holds whatever becomes of the record: one that cannot be written, or that a user deletes.
        """
        if self._decided.get(name) != decided:
            self._decided[name] = decided
            self._show(name)

    def _record_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        self._show(object_key(value)[1])

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        if old is None or new is None or old.labels != new.labels:
            self._show((new or old).name)  # type: ignore[union-attr] # one of them is there

    def _show_all(self) -> None:
        for name in self._cluster.fleet.nodes:
            self._show(name)

    def _show(self, name: str) -> None:
        fleet, fitness = self._cluster.fleet, self._fitness_of(name)
        is_changed = fleet.set_node_fault(name, fitness.fault)
        is_changed = fleet.set_suspicion(name, fitness.suspicion) or is_changed
        if fleet.exclude(name, fitness.exclusion):
            is_changed = True
            if fitness.exclusion is None or fitness.exclusion.last_choice:
                self._bus.nodes_freed.publish()
        if is_changed:
            for uid in self._cluster.jobs_on(name):
                self._cluster.mark_job(uid)

    def _fitness_of(self, name: str) -> Fitness:
        fleet, record = self._cluster.fleet, self._cluster.healths.store.get(("", name))
        if fleet.node_in_scope(name) is None:
            if record is None or name in fleet.outside:
                self._decided.pop(name, None)
            return _NOTHING
        recorded = UNREADABLE if isinstance(record, Undecodable) else _NOTHING
        if isinstance(record, NodeHealth):
            recorded = fitness_of(record.status)
        decided = self._decided.get(name)
        return recorded if decided is None else corrected(recorded, decided)

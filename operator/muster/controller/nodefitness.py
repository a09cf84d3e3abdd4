"""Shows jobs each node as its NodeHealth has it, corrected by what the leader has decided since.

It is the only way by which a node's health comes to jobs: placement, evacuation, blame. A decision that is not on
record yet keeps new workers away, and nothing else follows from it. So no worker is placed on a node whose fault could
not be recorded, and none leaves a node for a reason that the next leader would not know.

Tests: tests/unit/controller/test_nodefitness.py.
"""

from collections.abc import Callable
from dataclasses import replace

from muster.api.nodehealth import NodeExclusion, NodeHealth
from muster.controller.cluster import Cluster
from muster.health.fitness import UNREADABLE, Fitness, fitness_of, until_recorded
from muster.kube.decode import Undecodable
from muster.world.fleet import Exclusion
from muster.world.views import NodeView

_NOTHING = Fitness()


class NodeFitness:
    """Keeps what jobs see of nodes in line with the records.

    Args:
        rings: called with the uid of each job on a node of which something has changed for jobs.
        freed: called when a node may be used again.
    """

    def __init__(self, cluster: Cluster, rings: Callable[[str], None], freed: Callable[[], None]) -> None:
        self._cluster = cluster
        self._rings = rings
        self._freed = freed
        self._decided: dict[str, Exclusion] = {}  # by node that this leader excludes, as it is before it is on record
        cluster.healths.store.subscribe(self._record_changed)
        cluster.nodes.store.subscribe(self._node_changed)

    def decide(self, name: str, exclusion: NodeExclusion | None) -> None:
        """Take in the leader's newest decision about a node; None: the node may be used.

        It holds whatever becomes of the record: one that cannot be written, or that a user deletes.
        """
        before = self._decided.pop(name, None)
        if exclusion is not None:
            self._decided[name] = until_recorded(exclusion)
        if self._decided.get(name) != before:
            self._show(name)

    def _record_changed(self, old: NodeHealth | Undecodable | None, new: NodeHealth | Undecodable | None) -> None:
        value = new or old
        assert value is not None
        self._show(value.name if isinstance(value, Undecodable) else value.metadata.name)

    def _node_changed(self, old: NodeView | None, new: NodeView | None) -> None:
        if old is None or new is None:
            self._show((new or old).name)  # type: ignore[union-attr] # one of them is there

    def _show(self, name: str) -> None:
        fleet, fitness = self._cluster.fleet, self._fitness_of(name)
        is_changed = fleet.set_node_fault(name, fitness.fault)
        is_changed = fleet.set_suspicion(name, fitness.suspicion) or is_changed
        if fleet.exclude(name, fitness.exclusion):
            is_changed = True
            if fitness.exclusion is None or fitness.exclusion.last_choice:
                self._freed()
        if is_changed:
            for uid in self._cluster.jobs_on(name):
                self._rings(uid)

    def _fitness_of(self, name: str) -> Fitness:
        if name not in self._cluster.fleet.nodes:
            return _NOTHING
        record = self._cluster.healths.store.get(("", name))
        if isinstance(record, Undecodable):
            return UNREADABLE
        recorded = fitness_of(record.status) if record is not None else _NOTHING
        if recorded.exclusion is None and name in self._decided:
            return replace(recorded, exclusion=self._decided[name])
        return recorded

"""The fleet as one job's decision sees it: nodes, who holds them, and how fresh their heartbeats are."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.api.fleetpolicy import FleetPolicySpec
from muster.world.views import NodeView


@dataclass(frozen=True, slots=True)
class FleetView:
    """All nodes, with their holders.

    Attributes:
        nodes: by name.
        holders: node name -> uids of the jobs whose Gang has a member there or that have a pod there which is not
            terminal, Terminating included; a foreign pod that holds accelerators counts as `pod/<namespace>/<name>`.
        lease_age_seconds: node name -> seconds since its kubelet's heartbeat was last seen to change.
        policy: the FleetPolicy in force.
    """

    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    holders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    lease_age_seconds: Mapping[str, float] = field(default_factory=dict)
    policy: FleetPolicySpec = FleetPolicySpec()

    def held_by_others(self, node: str, job_uid: str) -> frozenset[str]:
        """Who else than this job holds the node."""
        return self.holders.get(node, frozenset()) - {job_uid}


@dataclass(frozen=True, slots=True)
class Silence:
    """How many of all launchers that this leader has heard are silent now: many at once is not their fault."""

    silent: int = 0
    total: int = 0

    @property
    def widespread(self) -> bool:
        """Whether so many are silent that the network or the coordinator is the likelier cause."""
        return self.silent >= 3 and self.silent * 2 > self.total

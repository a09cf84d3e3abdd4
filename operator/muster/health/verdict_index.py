"""Verdicts and facts about all nodes, for rulings and metrics; they are updated with each change of a node.

Tests: tests/unit/controller/test_nodereconciler.py, tests/unit/health/test_orders.py.
"""

from collections import Counter
from collections.abc import Sequence

from muster.api.fleetpolicy import FleetPolicySpec
from muster.api.nodehealth import HealthIncident, Severity
from muster.health.pools import budget_pool_of
from muster.health.situation import concerned
from muster.health.sources import UNHEALTHY_TAINT
from muster.health.verdict import Verdict
from muster.placement.where import DomainPath, domain_path
from muster.world.fleet import Fleet
from muster.world.views import NodeView


def is_tainted(node: NodeView) -> bool:
    """Whether the node bears Muster's taint `muster.dev/unhealthy`."""
    return any(taint.key == UNHEALTHY_TAINT for taint in node.taints)


class NodeIndex:
    """Facts about all nodes that the breaker's rulings need: domains, pools, taints and incidents.

    They are updated with each change of a node and not counted anew at each decision.

    Attributes:
        policy: by which nodes are assigned to pools and domains, as `rebuild` has read it last.
        domains: by node, the path of its innermost topology domain.
        pools: by node, the pool in which budgets count it.
        pool_sizes: by pool, its number of nodes.
        sizes: by pool and domain path, the number of nodes.
        tainted: names of the nodes that bear Muster's taint.
        incidents: by the name of a NodeHealth, its incidents, whether its node exists or not.
    """

    def __init__(self) -> None:
        self.policy = FleetPolicySpec()
        self.domains: dict[str, DomainPath] = {}
        self.pools: dict[str, str] = {}
        self.pool_sizes: Counter[str] = Counter()
        self.sizes: Counter[tuple[str, DomainPath]] = Counter()
        self.tainted: set[str] = set()
        self.incidents: dict[str, Sequence[HealthIncident]] = {}

    def set_node(self, name: str, node: NodeView | None, fleet: Fleet) -> None:
        """Replace what is known of a node.

        Args:
            name: of the node.
            node: as last read; None: the node does not exist any more.
            fleet: a node outside its scope counts as none.
        """
        if name in fleet.outside:
            node = None
        previous_path, pool = self.domains.pop(name, None), self.pools.pop(name, "")
        if previous_path is not None:
            self.sizes[pool, previous_path] -= 1
            self.pool_sizes[pool] -= 1
        if node is not None:
            path = self.domains[name] = domain_path(node, self.policy.topology.labels)
            pool = self.pools[name] = budget_pool_of(node, self.policy)
            self.sizes[pool, path] += 1
            self.pool_sizes[pool] += 1
        (self.tainted.add if node is not None and is_tainted(node) else self.tainted.discard)(name)

    def put_incidents(self, name: str, incidents: Sequence[HealthIncident]) -> None:
        """Replace the incidents of the NodeHealth with this name; an empty sequence removes them."""
        if incidents:
            self.incidents[name] = incidents
        else:
            self.incidents.pop(name, None)

    def rebuild(self, fleet: Fleet) -> None:
        """Take in the fleet's policy, and compute the domains, pools and sizes of all nodes anew.

        Rules and pools change together: a node of a pool that the rules do not know would be treated by those of the
        fleet.
        """
        self.policy = fleet.policy
        self.sizes.clear()
        self.domains.clear()
        self.pools.clear()
        self.pool_sizes.clear()
        for name, node in fleet.nodes.items():
            self.set_node(name, node, fleet)


class VerdictIndex:
    """The verdicts on all nodes, with counts of them that are updated with each verdict.

    Attributes:
        verdicts: by node.
        concerned: names of the nodes that the breaker has to rule about or to count.
        states: the number of nodes by state; "Unknown" for nodes without a state.
        reasons: the number of nodes out of use, by the reason of the strongest finding.
        observed: the number of nodes by the reason of a finding that is above Info and that the policy only observes.
    """

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.concerned: set[str] = set()
        self.states: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.observed: Counter[str] = Counter()

    def set_verdict(self, name: str, verdict: Verdict | None) -> None:
        """Replace the verdict on a node, and update the counts; None: the node does not exist any more."""
        previous = self.verdicts.pop(name, None)
        if previous is not None:
            self._count(previous, -1)
        self.concerned.discard(name)
        if verdict is None:
            return
        self.verdicts[name] = verdict
        self._count(verdict, 1)
        if concerned(verdict):
            self.concerned.add(name)

    def _count(self, verdict: Verdict, by: int) -> None:
        conclusion = verdict.conclusion
        self.states[conclusion.state.value if conclusion.state else "Unknown"] += by
        if verdict.out and conclusion.findings and not conclusion.findings[0].observed:
            self.reasons[conclusion.findings[0].reason] += by
        for reason in {f.reason for f in conclusion.findings if f.observed and f.severity is not Severity.INFO}:
            self.observed[reason] += by
            if not self.observed[reason]:
                del self.observed[reason]

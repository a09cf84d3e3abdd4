"""What rulings and figures need to know of all nodes, kept up to date with each change instead of counted at each
look."""

from collections import Counter
from collections.abc import Sequence

from muster.api.nodehealth import HealthIncident, Severity
from muster.health.assess import Verdict
from muster.health.breaker import concerned
from muster.health.pools import pool_of
from muster.health.sources import UNHEALTHY_TAINT
from muster.placement.where import DomainPath, domain_path
from muster.world.fleet import Fleet
from muster.world.views import NodeView


def is_tainted(node: NodeView) -> bool:
    """Whether the node bears Muster's taint."""
    return any(taint.key == UNHEALTHY_TAINT for taint in node.taints)


class Ground:
    """What rulings need to know of all nodes, kept up to date with each change instead of counted at each look.

    Attributes:
        domains: path of each node's innermost domain.
        pools: each node's pool of like nodes.
        pool_sizes: how many nodes each of these has.
        sizes: how many nodes each pool has in each domain.
        tainted: nodes that bear our taint.
        incidents: those of each NodeHealth, whether its node exists or not.
    """

    def __init__(self) -> None:
        self.domains: dict[str, DomainPath] = {}
        self.pools: dict[str, str] = {}
        self.pool_sizes: Counter[str] = Counter()
        self.sizes: Counter[tuple[str, DomainPath]] = Counter()
        self.tainted: set[str] = set()
        self.incidents: dict[str, Sequence[HealthIncident]] = {}

    def put(self, name: str, node: NodeView | None, fleet: Fleet) -> None:
        """A node as it now is; None: it is gone."""
        before, pool = self.domains.pop(name, None), self.pools.pop(name, "")
        if before is not None:
            self.sizes[pool, before] -= 1
            self.pool_sizes[pool] -= 1
        if node is not None:
            path = self.domains[name] = domain_path(node, fleet.policy.topology.labels)
            pool = self.pools[name] = pool_of(node, fleet.policy.accelerator_resource)
            self.sizes[pool, path] += 1
            self.pool_sizes[pool] += 1
        (self.tainted.add if node is not None and is_tainted(node) else self.tainted.discard)(name)

    def put_incidents(self, name: str, incidents: Sequence[HealthIncident]) -> None:
        """The incidents of a record."""
        if incidents:
            self.incidents[name] = incidents
        else:
            self.incidents.pop(name, None)

    def lay_out(self, fleet: Fleet) -> None:
        """The topology is another one."""
        self.sizes.clear()
        self.domains.clear()
        self.pools.clear()
        self.pool_sizes.clear()
        for name, node in fleet.nodes.items():
            self.put(name, node, fleet)


class Books:
    """All verdicts, and what is counted of them.

    Attributes:
        verdicts: by node.
        concerned: nodes that the breaker has to know of.
        states: nodes by verdict.
        reasons: nodes that are out, by their strongest finding.
        observed: nodes with a finding that weighs and is only observed, by its reason.
    """

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.concerned: set[str] = set()
        self.states: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.observed: Counter[str] = Counter()

    def put(self, name: str, verdict: Verdict | None) -> None:
        """The verdict on a node; None: it is gone."""
        before = self.verdicts.pop(name, None)
        if before is not None:
            self._count(before, -1)
        self.concerned.discard(name)
        if verdict is None:
            return
        self.verdicts[name] = verdict
        self._count(verdict, 1)
        if concerned(verdict):
            self.concerned.add(name)

    def _count(self, verdict: Verdict, by: int) -> None:
        self.states[verdict.state.value if verdict.state else "Unknown"] += by
        if verdict.out and verdict.findings and not verdict.findings[0].observed:
            self.reasons[verdict.findings[0].reason] += by
        for reason in {f.reason for f in verdict.findings if f.observed and f.severity is not Severity.INFO}:
            self.observed[reason] += by
            if not self.observed[reason]:
                del self.observed[reason]

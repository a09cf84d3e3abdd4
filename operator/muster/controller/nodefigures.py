"""Prometheus figures of nodes' health: verdicts, findings, and what the budgets hold back.

Tests: tests/unit/controller/test_nodereconciler.py.
"""

from collections.abc import Mapping

from prometheus_client import Gauge

from muster.api.nodehealth import VerdictState
from muster.health.figures import Breaker
from muster.health.verdict_index import VerdictIndex

_nodes = Gauge("muster_nodes", "Nodes by verdict; `Unknown` are those without any report.", ["state"])
_findings = Gauge("muster_node_findings", "Nodes with a finding that counts against them, by its reason.", ["reason"])
_observed = Gauge(
    "muster_node_observed_findings",
    "Nodes with a finding that would count against them if the FleetPolicy did not only observe it, by its reason.",
    ["reason"],
)
_breaker = Gauge(
    "muster_breaker_open", "1 while the budget keeps Muster from taking at least one unhealthy node out of use."
)
_held = Gauge("muster_breaker_held_nodes", "Unhealthy nodes that the budget does not let Muster take out of use yet.")
_held_yields = Gauge(
    "muster_breaker_held_repairs",
    "Nodes that other systems claim to repair, where the budget ignores the claim: too many of a pool at once.",
)
_held_of_pool = Gauge(
    "muster_breaker_pool_held_nodes",
    "Unhealthy nodes in a pool of like nodes that the budget does not let Muster take out of use yet.",
    ["pool"],
)
# Reasons come from tables, but rules of a policy can name their own: no more series than that.
MAX_REASONS = 100


class NodeFigures:
    """What is published, with the series that there are by now."""

    def __init__(self) -> None:
        self._reasons: set[str] = set()
        self._observed: set[str] = set()
        self._pools: set[str] = set()

    def publish(self, verdicts: VerdictIndex, breaker: Breaker) -> None:
        """Publish the figures as of the last decision."""
        for state in (*VerdictState, "Unknown"):
            _nodes.labels(str(state)).set(verdicts.states.get(str(state), 0))
        publish_by_reason(_findings, self._reasons, verdicts.reasons)
        publish_by_reason(_observed, self._observed, verdicts.observed)
        _breaker.set(breaker.held > 0)
        _held.set(breaker.held)
        _held_yields.set(sum(pool.held_yields for pool in breaker.pools))
        held = {pool.pool: pool.held + pool.held_yields for pool in breaker.pools}
        self._pools.update(pool for pool in held if held[pool])
        for pool in self._pools:
            _held_of_pool.labels(pool).set(held.get(pool, 0))


def publish_by_reason(gauge: Gauge, shown: set[str], counts: Mapping[str, int]) -> None:
    """Publish a number of nodes for each reason.

    Where there are too many reasons, one that no node has any more makes room for one that a node has: one agent whose
    reports name one reason after the other must not hide those of other nodes.

    Args:
        gauge: with the label `reason`.
        shown: the reasons that have a series; changed in place.
        counts: the number of nodes by reason.
    """
    for reason in sorted(reason for reason, count in counts.items() if count and reason not in shown):
        if len(shown) >= MAX_REASONS:
            idle = min((candidate for candidate in shown if not counts.get(candidate)), default=None)
            if idle is None:
                break
            shown.discard(idle)
            gauge.remove(idle)
        shown.add(reason)
    for reason in shown:
        gauge.labels(reason).set(counts.get(reason, 0))

"""Pools of like nodes, within which the breaker counts how many are unhealthy.

Like nodes to which different policies apply are in different pools: those of an entry of `spec.pools` of the
FleetPolicy that has `health` are counted apart, by the name `ENTRY: LIKE NODES`.

A share of all nodes means little where most have no accelerator: a tenth of a fleet can have all of its GPUs. So nodes
are counted by accelerator and model. The pool of a node must not change when the node becomes unhealthy. A device
plugin that finds nothing leaves the resource in `capacity` with 0, and the labels of feature discovery stay.

Tests: tests/unit/health/test_budgets.py.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from muster.api.fleetpolicy import FleetPolicySpec
from muster.world.views import NodeView

MODEL_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "node.kubernetes.io/instance-type",
)
"""The labels that name the model of an accelerator, in this order; the last only on nodes that have one."""

WITHOUT = "no accelerator"
OTHERS = "other accelerators"
_OF_ENTRY = ": "
"""Between the name of an entry of `spec.pools` and that of the like nodes: neither a short name, nor the name of a
resource, nor the value of a label has it."""
MAX_POOLS = 16
"""More pools under one policy share one budget: each pool may lose at least one node, so labels that differ on every
node must not make many pools."""


@dataclass(frozen=True, slots=True)
class Pools:
    """The pools of a fleet's nodes.

    Attributes:
        by_node: by node, the name of its pool.
        sizes: by pool, its number of nodes.
    """

    by_node: Mapping[str, str]
    sizes: Mapping[str, int]

    def name_of(self, node: str) -> str:
        """Return the pool of a node; "" for a node without one."""
        return self.by_node.get(node, "")


def pool_of(node: NodeView, accelerator: str) -> str:
    """Return the name of a node's pool of like nodes, e.g. `nvidia.com/gpu NVIDIA-H200`, at most 128 characters.

    Args:
        node: the Node.
        accelerator: the resource by which the fleet's GPUs are counted.
    """
    *models, machine = MODEL_LABELS
    model = next((node.labels[label] for label in models if node.labels.get(label)), "")
    if not model and accelerator not in node.capacity and accelerator not in node.allocatable:
        return WITHOUT
    return f"{accelerator} {model or node.labels.get(machine, '')}".strip()[:128]


def budget_pool_of(node: NodeView, policy: FleetPolicySpec) -> str:
    """Return the name of the pool in which the breaker counts a node: like nodes under one policy, at most 128
    characters.

    Args:
        node: the Node.
        policy: of the fleet.
    """
    like, entry = pool_of(node, policy.accelerator_resource), policy.pool_of(node.labels)
    return like if entry is None or entry.health is None else f"{entry.name}{_OF_ENTRY}{like}"[:128]


def entry_of(pool: str) -> str:
    """Return the name of the entry of `spec.pools` whose `health` applies to a pool of like nodes; "": none does."""
    entry, separator, _ = pool.partition(_OF_ENTRY)
    return entry if separator else ""


def others_of(pool: str) -> str:
    """Return the name for the pools under the policy of this one that have no budget of their own."""
    entry = entry_of(pool)
    return f"{entry}{_OF_ENTRY}{OTHERS}" if entry else OTHERS


def pools_with_own_budget(sizes: Mapping[str, int]) -> frozenset[str]:
    """Return the pools that have a budget of their own: under each policy the 16 largest. All others under the policy
    share one budget, as `others_of` names them.

    Args:
        sizes: by pool, its number of nodes.
    """
    filled_pools: defaultdict[str, list[str]] = defaultdict(list)
    for pool, size in sizes.items():
        if size > 0:
            filled_pools[entry_of(pool)].append(pool)
    return frozenset(
        pool
        for pools in filled_pools.values()
        for pool in sorted(pools, key=lambda pool: (-sizes[pool], pool))[:MAX_POOLS]
    )

"""Pools of like nodes, within which the breaker counts how many are unhealthy.

A share of all nodes means little where most have no accelerator: a tenth of a fleet can have all of its GPUs. So nodes
are counted by accelerator and model. The pool of a node must not change when the node becomes unhealthy. A device
plugin that finds nothing leaves the resource in `capacity` with 0, and the labels of feature discovery stay.

Tests: tests/unit/health/test_budgets.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
MAX_POOLS = 16
"""More pools share one budget: each pool may lose at least one node, so labels that differ on every node must not make
many pools."""


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


def pools_with_own_budget(sizes: Mapping[str, int]) -> frozenset[str]:
    """Return the pools that have a budget of their own: the 16 largest. All others share one budget, as `OTHERS`.

    Args:
        sizes: by pool, its number of nodes.
    """
    filled_pools = [pool for pool, size in sizes.items() if size > 0]
    if len(filled_pools) > MAX_POOLS:
        filled_pools = sorted(filled_pools, key=lambda pool: (-sizes[pool], pool))[:MAX_POOLS]
    return frozenset(filled_pools)

"""What the operator's container asks for, by the number of nodes in the cluster.

docs/sizes.md has the same table, with what was measured. The manifests have the row of `DEFAULT_NODES`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """One row of the table.

    Attributes:
        nodes: for clusters with so many nodes at most.
        memory_request: of the operator's container, a Kubernetes quantity.
        memory_limit: of the same.
        cpu_request: of the same; there is no limit.
    """

    nodes: int
    memory_request: str
    memory_limit: str
    cpu_request: str


SIZES = (
    ClusterSize(512, "192Mi", "1Gi", "100m"),
    ClusterSize(2048, "384Mi", "2Gi", "100m"),
    ClusterSize(16_384, "1Gi", "4Gi", "250m"),
)
"""The smallest first. Muster was measured with no more nodes than the last has."""
DEFAULT_NODES = 2048


def size_of(nodes: int) -> ClusterSize | None:
    """Return the row for a cluster with so many nodes; None: it has more than Muster was measured with."""
    return next((size for size in SIZES if nodes <= size.nodes), None)

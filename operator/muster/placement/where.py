"""In which domains nodes are: the one reading of their labels, and the counts for records and comparisons."""

from collections.abc import Iterable, Sequence

from muster.world.fleet import Fleet
from muster.world.views import NodeView

DomainPath = tuple[str, ...]


def domain_path(node: NodeView, labels: Sequence[str]) -> DomainPath:
    """The names of the node's domains, outermost first; "" for a level whose label the node lacks.

    Args:
        node: the node.
        labels: of all levels (`Topology.labels`).
    """
    names = node.labels
    path: list[str] = []
    for label in labels:
        path.append(names.get(label, ""))  # noqa: PERF401 - asked for every node of a fleet; a comprehension is slower
    return tuple(path)


def domain_counts(fleet: Fleet, names: Iterable[str]) -> dict[str, int]:
    """The number of domains that these nodes are in, by level name, outermost first.

    A node without the label of a level, or of one further out, counts as a domain by itself. Names of nodes that do not
    exist are skipped; the result is empty where none exists.
    """
    levels, labels = fleet.policy.topology.levels, fleet.policy.topology.labels
    paths = {name: domain_path(fleet.nodes[name], labels) for name in names if name in fleet.nodes}
    if not paths:
        return {}
    return {
        level.name: len({path[:depth] if all(path[:depth]) else name for name, path in paths.items()})
        for depth, level in enumerate(levels, start=1)
    }

"""How broken up the free part of the fleet is, for metrics."""

from collections import Counter
from collections.abc import Generator

from muster.placement.where import domain_path
from muster.world.fleet import Fleet

PART = 1024  # nodes that are counted in one go


def fragmentation(fleet: Fleet) -> Generator[None, None, dict[str, float]]:
    """Return the share of free nodes in partly used domains, by level name; 0 when none are free.

    It yields between its parts. A free node is ready, not cordoned and held by no job. Nodes that are neither free nor
    held do not count. A node without the label of a level, or of one further out, belongs to no domain there.
    """
    free: list[Counter[tuple[str, ...]]] = [Counter() for _ in fleet.policy.topology.levels]
    held: list[set[tuple[str, ...]]] = [set() for _ in fleet.policy.topology.levels]
    labels, total = fleet.policy.topology.labels, 0
    for number, node in enumerate(list(fleet.nodes.values()), start=1):
        if number % PART == 0:
            yield
        path, is_taken = domain_path(node, labels), bool(fleet.holders(node.name))
        usable = node.ready and not node.unschedulable and not is_taken
        total += usable
        for depth in range(len(free)):
            if not path[depth]:
                break
            if usable:
                free[depth][path[: depth + 1]] += 1
            elif is_taken:
                held[depth].add(path[: depth + 1])
    return {
        level.name: sum(count for path, count in free[depth].items() if path in held[depth]) / total if total else 0.0
        for depth, level in enumerate(fleet.policy.topology.levels)
    }

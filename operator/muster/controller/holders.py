"""Who holds which node, kept up to date one change at a time: the cost of a change does not grow with the fleet."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping


class Holders(Mapping[str, frozenset[str]]):
    """Node name -> holders. Each source (a Gang, a pod) contributes one holder on some nodes, and may change its mind."""

    def __init__(self) -> None:
        self._by_source: dict[Hashable, tuple[str, frozenset[str]]] = {}
        self._by_node: dict[str, Counter[str]] = defaultdict(Counter)

    def set(self, source: Hashable, holder: str, nodes: frozenset[str]) -> bool:
        """Replace what a source contributes; True if a node thereby became free."""
        old_holder, old_nodes = self._by_source.pop(source, ("", frozenset()))
        for node in old_nodes:
            counts = self._by_node[node]
            counts[old_holder] -= 1
            if not counts[old_holder]:
                del counts[old_holder]
        for node in nodes:
            self._by_node[node][holder] += 1
        if nodes:
            self._by_source[source] = (holder, nodes)
        freed = [node for node in old_nodes if not self._by_node[node]]
        for node in freed:
            del self._by_node[node]
        return bool(freed)

    def __getitem__(self, node: str) -> frozenset[str]:
        if node not in self._by_node:
            raise KeyError(node)
        return frozenset(self._by_node[node])

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_node)

    def __len__(self) -> int:
        return len(self._by_node)

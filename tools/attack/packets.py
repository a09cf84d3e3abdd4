"""Packets that are lost: each node loses what any of the cuts that last says, and all of them may overlap."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from localcluster.cluster import Cluster
from localcluster.errors import LocalClusterError


@dataclass(frozen=True, eq=False)
class Cut:
    """What is lost at each of some nodes: nftables expressions for what arrives there, and for what leaves it."""

    nodes: tuple[str, ...]
    arriving: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()


def between(nodes: tuple[str, ...], others: list[str], *, but: list[str], one_way: bool = False) -> Cut:
    """Nothing between these nodes and these addresses or networks; `but`: of these addresses nothing is lost.

    Args:
        nodes: where it is lost.
        others: with which nodes; none: with all.
        but: exceptions.
        one_way: what comes from the others arrives.
    """

    def match(here: str, there: str) -> str:
        expressions = [f"ip {there} {{ {', '.join(others)} }}"] if others else []
        if but:
            expressions += [f"ip {way} != {{ {', '.join(but)} }}" for way in (here, there)]
        return " ".join(expressions)

    arriving = () if one_way else (match("daddr", "saddr"),)
    return Cut(nodes, arriving, (match("saddr", "daddr"),))


@dataclass
class Packets:
    """All cuts that last now."""

    cluster: Cluster
    _cuts: list[Cut] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lose(self, cut: Cut) -> None:
        """From now on."""
        with self._lock:
            self._cuts.append(cut)
            self._write(cut.nodes)

    def heal(self, cut: Cut) -> None:
        with self._lock:
            self._cuts.remove(cut)
            self._write(cut.nodes)

    def renew(self, node: str) -> None:
        """A node that has booted knows nothing of what its cable loses."""
        with self._lock:
            self._write((node,))

    def _write(self, nodes: tuple[str, ...]) -> None:
        for node in nodes:
            cuts = [cut for cut in self._cuts if node in cut.nodes]
            arriving = [match for cut in cuts for match in cut.arriving]
            leaving = [match for cut in cuts for match in cut.leaving]
            try:
                self.cluster.lose(node, arriving, leaving)
            except LocalClusterError:  # it is off; `renew` when it is on again
                continue

"""Who can send to whom. Places are nodes, the API server, the operator's replicas and the storage, by name."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product

API = "api"
STORAGE = "storage"
LATENCY_SECONDS = 0.002
CONNECT_SECONDS = 2.0  # until whoever connects to where nobody answers gives up


@dataclass
class Network:
    """All places. Nothing is lost but where it is cut.

    Attributes:
        cuts: (from, to): what is sent that way never comes.
    """

    cuts: set[tuple[str, str]] = field(default_factory=set)

    def passes(self, sender: str, receiver: str) -> bool:
        """Whether what one sends reaches the other."""
        return sender == receiver or (sender, receiver) not in self.cuts

    def connects(self, one: str, other: str) -> bool:
        """Whether they can talk."""
        return self.passes(one, other) and self.passes(other, one)

    def cut(self, ours: Iterable[str], theirs: Iterable[str], *, one_way: bool = False) -> None:
        """From now on nothing gets from the first to the second, and unless it is one way, back."""
        self.cuts.update(_pairs(ours, theirs, one_way))

    def heal(self, ours: Iterable[str], theirs: Iterable[str]) -> None:
        """It does again, both ways."""
        self.cuts.difference_update(_pairs(ours, theirs, one_way=False))


def _pairs(ours: Iterable[str], theirs: Iterable[str], one_way: bool) -> Iterator[tuple[str, str]]:
    for one, other in product(list(ours), list(theirs)):
        if one != other:
            yield one, other
            if not one_way:
                yield other, one

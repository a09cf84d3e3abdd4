"""Which place can send to which. Places are nodes, the API server, the operator's replicas and the storage, by name."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import product
from random import Random

API = "api"
STORAGE = "storage"
LATENCY_SECONDS = 0.002
ROUGH_SECONDS = 1.0
CONNECT_SECONDS = 1.0  # until a launcher gives up where nobody answers, as `muster.protocol.channel` does


@dataclass
class Network:
    """All places. Nothing is lost but where it is cut; of single packets, some while it is rough.

    Attributes:
        cuts: (from, to): what is sent that way never comes.
        lost: share of the single packets that are lost; as many come twice, and all of them in any order. 0: it is
            smooth.
    """

    cuts: set[tuple[str, str]] = field(default_factory=set)
    lost: float = 0.0

    def delays(self, random: Random) -> Iterator[float]:
        """How much later than usual a single packet comes; nothing for one that never does."""
        if not self.lost:
            yield 0.0
            return
        luck = random.random()
        for _ in range(0 if luck < self.lost else 2 if luck > 1 - self.lost else 1):
            yield random.uniform(0.0, ROUGH_SECONDS)

    def passes(self, sender: str, receiver: str) -> bool:
        return sender == receiver or (sender, receiver) not in self.cuts

    def connects(self, one: str, other: str) -> bool:
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

"""What a fleet must never show, told from the truth: the budget as the documentation promises it, counted anew with
whole numbers.

The promise for a pool of n nodes (docs/node-health.md, "The breaker"): so many percent, rounded up; four fifths of
these percent, and at least one node less, for what is not certain; where that leaves none, the certain has one node
more; three fifths for one cause.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

WINDOW_SECONDS, WINDOW_PERCENT, OUT_PERCENT, DOMAIN_PERCENT = 600.0, 10, 30, 25

_ROUNDED_SECONDS = 1e-5


@dataclass(frozen=True, slots=True)
class Taken:
    """A node that was taken out, with what the rules charged."""

    time: float
    node: str
    cause: str
    certain: bool


def most(percent: int, size: int, certain: bool) -> int:
    """So many nodes of a pool."""
    allowed = -(-size * percent // 100)
    uncertain = max(1, min(-(-size * percent * 4 // 500), allowed - 1))
    return max(allowed, uncertain + 1) if certain else uncertain


class BudgetOracle:
    """Counts what is taken out of each pool.

    Args:
        sizes: nodes of each pool.
        pools: each node's pool.
        racks: each node's innermost domain.
    """

    def __init__(self, sizes: Mapping[str, int], pools: Mapping[str, str], racks: Mapping[str, str]) -> None:
        self._sizes, self._pools, self._racks = sizes, pools, racks
        self._rack_sizes: defaultdict[tuple[str, str], int] = defaultdict(int)
        for node, pool in pools.items():
            self._rack_sizes[pool, racks[node]] += 1
        self._window: defaultdict[str, deque[Taken]] = defaultdict(deque)
        self.out: defaultdict[str, dict[str, Taken]] = defaultdict(dict)

    def back(self, node: str) -> None:
        """A node is not out any more."""
        self.out[self._pools[node]].pop(node, None)

    def has_room(self, node: str, time: float) -> bool:
        """Whether one more certain one is within the budget."""
        pool, rack = self._pools[node], self._racks[node]
        window = [each for each in self._window[pool] if each.time > time - WINDOW_SECONDS]
        in_rack = sum(self._racks[name] == rack for name in self.out[pool])
        return (
            len(window) < most(WINDOW_PERCENT, self._sizes[pool], certain=True)
            and len(self.out[pool]) < most(OUT_PERCENT, self._sizes[pool], certain=True)
            and in_rack < most(DOMAIN_PERCENT, self._rack_sizes[pool, rack], certain=True)
        )

    def take(self, taken: Taken) -> Iterator[str]:
        """A node is taken out; tells what that breaks."""
        pool = self._pools[taken.node]
        size, out = self._sizes[pool], self.out[pool]
        # A node that is taken out again counts once.
        window = self._window[pool] = deque(each for each in self._window[pool] if each.node != taken.node)
        # Objects keep microseconds: the end of a window may seem to come that much too soon.
        while window and window[0].time <= taken.time - WINDOW_SECONDS + _ROUNDED_SECONDS:
            window.popleft()
        window.append(taken)
        out[taken.node] = taken
        rack = self._racks[taken.node]
        in_rack = [each for name, each in out.items() if self._racks[name] == rack]
        rack_size = self._rack_sizes[pool, rack]
        for what, percent, of, those, by_cause in (
            ("within ten minutes", WINDOW_PERCENT, size, list(window), True),
            ("out at the same time", OUT_PERCENT, size, list(out.values()), True),
            (f"out at the same time in rack {rack}", DOMAIN_PERCENT, rack_size, in_rack, False),
        ):
            unsure = [each for each in those if not each.certain]
            if len(those) > most(percent, of, certain=True):
                yield f"{len(those)} of the {of} nodes of pool {pool} {what}"
            if not taken.certain and len(unsure) > most(percent, of, certain=False):
                yield f"{len(unsure)} uncertain ones of the {of} nodes of pool {pool} {what}"
            same = sum(each.cause == taken.cause for each in unsure)
            if (
                not taken.certain
                and by_cause
                and same > min(-(-of * percent * 3 // 500), most(percent, of, certain=False))
            ):
                yield f"{same} of the {of} nodes of pool {pool} {what} for {taken.cause}"

"""The points of the knapsack: which room can be had at which cost, each as one number that can be added and compared.

A point is a cost with the room it buys: segments, and single nodes beside them.

Tests: tests/unit/placement/test_knapsack.py.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

ROOM_BITS = 24  # segments, and single nodes
LOW = 2 * ROOM_BITS  # where the cost begins
LOW_MASK = (1 << LOW) - 1
ROOM_MASK = (1 << ROOM_BITS) - 1


class Shape(NamedTuple):
    """The shape of a request: nodes in a segment, and number of spares."""

    segment_size: int
    spares: int


class Room(NamedTuple):
    """An amount of room, wanted or there: segments, and nodes in all."""

    segments: int
    nodes: int


def encode(cost: int, segments: int, singles: int) -> int:
    """The point as one number that adds up, and sorts by cost, then by room, most first."""
    return (cost << LOW) - (segments << ROOM_BITS) - singles


def room_of(point: int) -> tuple[int, int]:
    """The segments and the single nodes of an encoded point."""
    low = -point & LOW_MASK
    return low >> ROOM_BITS, low & ROOM_MASK


def cost_of(point: int) -> int:
    """The cost of an encoded point."""
    return (point + (-point & LOW_MASK)) >> LOW


def point_holds(point: int, shape: Shape, wanted: Room) -> bool:
    """Whether an encoded point has the wanted room."""
    segments, singles = room_of(point)
    nodes = segments * shape.segment_size + singles
    return segments >= wanted.segments and (not shape.spares or nodes >= wanted.nodes)


def as_singles(point: int) -> int:
    """An encoded point of another shape with its segments counted as single nodes."""
    segments, _ = room_of(point)
    return point + (segments << ROOM_BITS) - segments


class Rests:
    """The room that the rest of a table can add."""

    def __init__(self, sums: Sequence[int], shape: Shape) -> None:
        self._by_singles = list(by_singles(sums).values())
        self._shape = shape
        self._rooms: dict[int, list[tuple[int, int]]] = {}

    def complete(self, cost: int, segments: int, singles: int, wanted: Room) -> bool:
        """Whether the rest can add the missing room at no more than this cost.

        Args:
            cost: the most that may be spent.
            segments: segments that are there already.
            singles: single nodes that are there already.
            wanted: the room in all.
        """
        rooms = self._rooms.get(cost)
        if rooms is None:
            rooms = self._rooms[cost] = self._at(cost)
        size, spares = self._shape
        for more, loose in rooms:
            if segments + more < wanted.segments:
                return False
            if not spares or (segments + more) * size + singles + loose >= wanted.nodes:
                return True
        return False

    def _at(self, cost: int) -> list[tuple[int, int]]:
        """The rooms that can be had for at most this cost, most segments first.

        Among points with as many single nodes, the dearest has most segments.
        """
        ends = [(points, bisect_right(points, cost << LOW)) for points in self._by_singles]
        return sorted([room_of(points[end - 1]) for points, end in ends if end], reverse=True)


class Frontier:
    """Filters points, handed in cheapest first, to those that have more room than each cheaper one."""

    def __init__(self, shape: Shape, high: int) -> None:
        self._shape = shape
        self._high = high
        # By single nodes beside them: segments that a cheaper point has, too, with as many nodes in all.
        self._beaten = [-1] * (shape.spares + 1)

    def better(self, points: Sequence[int], least: int) -> list[int]:
        """The points that no cheaper one beats and that have at least `least` segments."""
        floors = [max(least - 1, beaten) for beaten in self._beaten]
        unbeaten = []
        for point in points:
            low = -point & LOW_MASK
            if low >> ROOM_BITS > floors[low & ROOM_MASK]:
                unbeaten.append(point)
        return unbeaten

    def products(self, points: Sequence[int], offer: Sequence[int], least: int) -> list[int]:
        """The sums of a point and an offer that no cheaper one beats and that have at least `least` segments."""
        spares = self._shape.spares
        sums: list[int] = []
        for loose, several in by_singles(points).items():
            for more_loose, offers in by_singles(offer).items():
                beside = min(loose + more_loose, spares)
                surplus = loose + more_loose - beside  # more single nodes than spares are of no use
                floor = max(least - 1, self._beaten[beside])
                segments = [(-offered & LOW_MASK) >> ROOM_BITS for offered in offers]
                for point in several:
                    start = bisect_right(segments, floor - ((-point & LOW_MASK) >> ROOM_BITS))
                    base = point + surplus
                    sums += [base + offered for offered in (offers[start:] if start else offers)]
        return sums

    def kept(self, points: list[int]) -> list[int]:
        """The points that have more room than each cheaper one; sorts `points`, and remembers the room of those
        kept."""
        points.sort()
        size, spares = self._shape
        beaten, enough = self._beaten, self._high * size + spares
        kept = []
        for point in points:
            low = -point & LOW_MASK
            segments = low >> ROOM_BITS
            singles = min(low & ROOM_MASK, spares)
            if segments <= beaten[singles]:
                continue
            kept.append(point)
            nodes = segments * size + singles
            if segments >= self._high and nodes >= enough:
                self._beaten = [ROOM_MASK] * (spares + 1)
                break
            for beside in range(spares + 1):
                beaten[beside] = max(beaten[beside], min(segments, (nodes - beside) // size))
        return kept


def by_singles(points: Sequence[int]) -> dict[int, list[int]]:
    """The points by their number of single nodes beside the segments."""
    by_count: dict[int, list[int]] = {}
    for point in points:
        by_count.setdefault(-point & ROOM_MASK, []).append(point)
    return by_count

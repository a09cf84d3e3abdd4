"""Which domains to use: a multiple-choice knapsack over the tree, exact in the number of domains at every level.

**Costs** are vectors of counts, compared from the outside in; written as the digits of one whole number they can be
added and compared as such (`points`). Each domain offers a few points (cost, capacity), of which only those that no
other one beats are kept; the points of a domain are the sums of points of the domains inside, added up one after the
other from the smallest to the largest. `Knapsack.table` holds these running sums, bounded from both sides: no point
beyond the capacity wanted, none that the larger domains still to come cannot complete.

**Fragmentation** comes second. Among the choices of least cost the one that leaves least behind is found by walking the
tables once more, the other way round: they tell at each step what can still be completed at that cost. Where too many
choices are left `WIDTH` of them are followed, so this part is a heuristic on large fleets.

A capacity is a number of segments for workers and of single nodes beside them, for spares. A domain may be used by
workers, or by spares alone; the latter counts less.

All that may take long is a generator that yields between its parts (`parts`).
"""

import heapq
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from muster.placement.allot import Site
from muster.placement.domain import Domain
from muster.placement.natural import natural
from muster.placement.points import (
    LOW,
    LOW_MASK,
    ROOM_BITS,
    ROOM_MASK,
    Frontier,
    Rests,
    Room,
    Shape,
    as_singles,
    cost_of,
    encode,
    point_holds,
    room_of,
)

# How many choices are followed: domains of one level, ends of that, alike ones among them, and what is used inside.
BEAM = 24
ENDS = 6
TIES = 3
WIDTH = 6
T = TypeVar("T")

_COUNT_BITS = 20  # one digit of a cost; more domains than a fleet can have nodes
_FREE_BITS = 24  # one digit of what is left behind
_RELUCTANCE_BITS = 44
_MAX_DOMAINS = 20_000  # that tables are kept of, and of each of them so many
_MAX_RANGES = 8
PART = 4096  # points that are looked at in one go: a few milliseconds
_TRY = 8  # to try an offer with an outline takes as long as to look at so many points


class Singles(NamedTuple):
    """The numbers of a domain's nodes without a further label that are used: for workers, and for spares alone."""

    workers: int
    spares: int


class Use(NamedTuple):
    """The use of a domain: its index in `Table.kids`, whether workers are there, and what is used inside."""

    kid: int
    workers: bool
    inside: "Choice"


class Choice(NamedTuple):
    """The parts of a domain that are used, as a linked list, the last link first."""

    use: "Use | Singles"
    before: "Choice | None"


# A solution without anything used: of a domain that is innermost, or used through what it keeps alone.
NOTHING = Choice(Singles(0, 0), None)


@dataclass(slots=True)
class Table:
    """The running sums of one domain.

    Attributes:
        domain: the domain.
        low: segments below which points were left out.
        high: segments beyond which points were left out.
        kids: the domains inside that have free nodes, the largest first, those kept last.
        offers: the points (costs and room, encoded, ascending) that each of the kids offers.
        sums: sums[i] are the points that kids[i:] and the single nodes make up together, ascending.
    """

    domain: Domain
    low: int
    high: int
    kids: list[Domain]
    offers: list[list[int]]
    sums: list[list[int]]


class Knapsack:
    """The tables of one fleet's domains for one shape of requests; domains that differ in names only share a table."""

    def __init__(self, levels: int, shape: Shape) -> None:
        self.levels = levels
        self.shape = shape
        self._tables: dict[int, list[Table]] = {}  # by signature, for ranges that do not overlap
        self._refined: dict[tuple[int, int, Room, int], list[tuple[int, Choice]]] = {}
        self._looked_at = 0  # points since the last pause

    @cached_property
    def _spares_alone(self) -> "Knapsack":
        """The knapsack of the same fleet for nodes that are used by spares alone."""
        return Knapsack(self.levels, Shape(1, 0))

    def _pause_after(self, points: int) -> Iterator[None]:
        """Count points that were looked at, and pause after many of them."""
        self._looked_at += points
        if self._looked_at >= PART:
            self._looked_at = 0
            yield

    # Counts.

    def best(self, domain: Domain, wanted: Room) -> Generator[None, None, int | None]:
        """Return the least cost at which the domain, itself not counted, has the room; None if it has not."""
        points = yield from self._points(domain, wanted.segments, wanted.segments)
        return min((cost_of(point) for point in points if point_holds(point, self.shape, wanted)), default=None)

    def _points(self, domain: Domain, low: int, high: int) -> Generator[None, None, list[int]]:
        if domain.depth == self.levels:
            return [self._leaf(domain)]
        return (yield from self.table(domain, low, high)).sums[0]

    def _leaf(self, domain: Domain) -> int:
        size = self.shape.segment_size
        segments, rest = divmod(len(domain.nodes), size)
        return encode(0, segments, min(rest, self.shape.spares))

    def table(self, domain: Domain, low: int, high: int) -> Generator[None, None, Table]:
        """Return the running sums of a domain for `low` to `high` segments.

        Ranges that overlap share a table. Others do not: a small and a large request would pay for all between them.
        """
        high = min(high, domain.room(self.shape.segment_size, self.levels)[0])
        low = min(low, high)
        tables = self._tables.get(domain.signature, [])
        cached = next((table for table in tables if table.low <= low and table.high >= high), None)
        if cached is not None and cached.domain is domain:
            return cached
        if cached is not None:
            table = Table(domain, cached.low, cached.high, self._ordered(domain), cached.offers, cached.sums)
        else:
            overlapping = [table for table in tables if table.low <= high and table.high >= low]
            low, high = min([low, *(t.low for t in overlapping)]), max([high, *(t.high for t in overlapping)])
            table = yield from self._added_up(domain, low, high)
            if len(self._tables) >= _MAX_DOMAINS:
                self._tables.clear()
        tables = self._tables.get(domain.signature, [])
        others = [other for other in tables if other.high < table.low or other.low > table.high]
        self._tables[domain.signature] = [*others[1 - _MAX_RANGES :], table]
        return table

    def _ordered(self, domain: Domain) -> list[Domain]:
        size, spares = self.shape
        kids = []
        for kid in domain.kids.values():
            room = kid.room(size, self.levels)[0]
            if room or (spares and kid.free):
                kids.append((kid.kept, -room, -kid.free, kid.signature, natural(kid.path[-1]), kid.path[-1], kid))
        return [kid[-1] for kid in sorted(kids)]

    def _added_up(self, domain: Domain, low: int, high: int) -> Generator[None, None, Table]:
        size = self.shape.segment_size
        kids = self._ordered(domain)
        rooms = [kid.room(size, self.levels)[0] for kid in kids]
        new = sum(not kid.kept for kid in kids)
        singles = len(domain.nodes) if size == 1 else 0
        # Prefix sums: the most that so many new domains can hold, the largest ones first, single nodes at the end.
        most = [0, *accumulate(rooms[:new])]
        kept = sum(rooms[new:])
        enough = high - kept  # what new domains have to hold
        if most[-1] < enough:
            limit = new + min(enough - most[-1], singles)
        else:
            limit = next(count for count, room in enumerate(most) if room >= enough)

        def top(count: int) -> int:
            return most[min(count, new)] + min(max(count - new, 0), singles)

        groups = self._singles(domain, limit, [low - kept - most[min(new, limit - c)] for c in range(limit + 1)])
        waiting = kept
        sums = [[point for group in groups for point in group]]
        offers: list[list[int]] = []
        for index in range(len(kids) - 1, -1, -1):
            kid = kids[index]
            if kid.kept:
                waiting -= rooms[index]
                others = kept - rooms[index] + top(limit)
            else:
                others = kept + (top(limit) - rooms[index] if index < limit else top(max(limit - 1, 0)))
            offer = yield from self._offer(kid, max(low - others, 0 if kid.kept else 1), high)
            new_before = min(index, new)
            least = [low - waiting - most[min(new_before, limit - c)] for c in range(limit + 1)]
            groups = yield from self._with_domain(groups, offer, kid.kept, least, high)
            sums.append([point for group in groups for point in group])
            offers.append(offer)
        yield
        return Table(domain, low, high, kids, offers[::-1], sums[::-1])

    def _unit(self, depth: int, workers: bool) -> int:
        """The cost of using one domain at this depth; with spares, digits for all domains follow those for the
        workers'."""
        unit = 1 << (_COUNT_BITS * (self.levels - depth))
        if not self.shape.spares:
            return unit
        return unit + (unit << (_COUNT_BITS * self.levels) if workers else 0)

    def _alone(self, depth: int, workers: bool) -> int:
        """The cost of using a node that is a domain of its own from this depth inwards."""
        return sum(self._unit(inner, workers) for inner in range(depth, self.levels + 1))

    def _singles(self, domain: Domain, limit: int, least: Sequence[int]) -> list[list[int]]:
        """The points of a domain's single nodes alone, in groups by the number of domains that workers are in, up to
        the limit. A group's points need at least so many segments as `least` has at that number.
        """
        size, spares = self.shape
        depth, node_count = domain.depth + 1, len(domain.nodes)
        work, spare = self._alone(depth, True), self._alone(depth, False)
        groups: list[list[int]] = []
        for count in range(limit + 1):
            group = []
            if count == 0 or (size == 1 and count <= node_count and count >= least[count]):
                extras = range(min(spares, node_count - count) + 1)
                group = [encode(count * work + extra * spare, count, extra) for extra in extras]
            groups.append(group)
        return groups

    def _offer(self, kid: Domain, low: int, high: int) -> Generator[None, None, list[int]]:
        """Return the points that a domain offers to the one around it, for `low` to `high` segments, its own cost
        included."""
        points = yield from self._points(kid, low, high)
        if kid.kept:
            return points
        unit = self._unit(kid.depth, workers=True) << LOW
        least = max(low, 1) << ROOM_BITS
        offer = [point + unit for point in points if -point & LOW_MASK >= least]
        if self.shape.spares:
            alone = self._unit(kid.depth, workers=False)
            of_spares = yield from self._spares_alone.points_up_to(kid, self.shape.spares)
            offer += [encode(cost_of(point) + alone, 0, room_of(point)[0]) for point in of_spares]
        return sorted(offer)

    def points_up_to(self, domain: Domain, segments: int) -> Generator[None, None, list[int]]:
        """Return the points of the domain, its own cost excluded, for one segment up to `segments`."""
        points = yield from self._points(domain, 1, segments)
        return [point for point in points if -point & LOW_MASK]

    def _with_domain(
        self, groups: list[list[int]], offer: Sequence[int], kept: bool, least: Sequence[int], high: int
    ) -> Generator[None, None, list[list[int]]]:
        """Return the points with one more domain to choose from, in groups by how many domains workers are in.

        Args:
            groups: the points without that domain.
            offer: the points of that domain.
            kept: whether the job keeps nodes in it: it then costs nothing, and counts as used.
            least: segments that a group's points need at least.
            high: segments beyond which more are of no use.
        """
        workers = [point for point in offer if kept or -point & LOW_MASK >= 1 << ROOM_BITS]
        others = [] if kept else [point for point in offer if -point & LOW_MASK < 1 << ROOM_BITS]
        frontier = Frontier(self.shape, high)
        merged = []
        for count, group in enumerate(groups):
            # What is not better than a cheaper one, or cannot be completed any more, need not be looked at.
            points = [] if kept else frontier.better(group, least[count])
            points += frontier.products(group, others, least[count])
            yield from self._pause_after(len(points))
            source = group if kept else groups[count - 1] if count else []
            points += frontier.products(source, workers, least[count])
            yield from self._pause_after(len(points))
            merged.append(frontier.kept(points))
        return merged

    # Fragmentation, among the choices of least cost.

    def refined(
        self, domain: Domain, cost: int, wanted: Room, most: int
    ) -> Generator[None, None, list[tuple[int, Choice]]]:
        """Return the choices inside the domain, itself not counted, of at most this cost that have the room.

        Of the choices found none beats another in what it leaves behind and in its room at once.

        Args:
            domain: the domain.
            cost: the least for the room that is wanted, or for more up to `most`.
            wanted: room that any choice needs to be of use.
            most: segments beyond which more are of no use.

        Returns:
            What is left behind and the room, encoded as costs are, ascending; each with its choice.
        """
        if domain.depth == self.levels:
            return [(self._leaf(domain) + (self._reluctance_of(domain) << LOW), NOTHING)]
        key = (domain.signature, cost, wanted, most)
        choices = self._refined.get(key)
        if choices is None:
            choices = self._refined[key] = yield from self._refine(domain, cost, wanted, most)
        return choices

    def sites(self, domain: Domain, choice: Choice, workers: bool = True) -> Iterator[Site]:
        """The sites that a choice inside a domain uses."""
        if domain.depth == self.levels:
            yield Site(domain.path, domain.nodes, workers, domain.kept)
            return
        kids = self._ordered(domain)
        link: Choice | None = choice
        while link is not None:
            use, link = link
            if isinstance(use, Use):
                side = self if use.workers else self._spares_alone
                yield from side.sites(kids[use.kid], use.inside, workers and use.workers)
                continue
            for index in range(use.workers + use.spares):
                yield Site(domain.path, domain.nodes[index : index + 1], workers and index < use.workers, kept=False)

    def forget_refined(self) -> None:
        """Drop the cached choices, which are for one request only."""
        self._refined.clear()
        if self.shape.spares:
            self._spares_alone.forget_refined()

    def _reluctance_of(self, domain: Domain) -> int:
        """The reluctance of all free nodes of an innermost domain."""
        return sum([entry.reluctance for entry in domain.nodes])

    def unit_leftover(self, domain: Domain) -> int:
        """What using a domain adds to what is left behind, domains inside apart: its free nodes, as the digit of its
        level."""
        return 0 if domain.kept else self._leftover_digit(domain.depth, domain.free)

    def _leftover_digit(self, depth: int, free: int) -> int:
        return free << (_RELUCTANCE_BITS + _FREE_BITS * (self.levels - depth))

    @staticmethod
    def leftover_of(point: int) -> int:
        """What an encoded point of `refined` leaves behind, as one number."""
        return cost_of(point)

    def _refine(
        self, domain: Domain, cost: int, wanted: Room, most: int
    ) -> Generator[None, None, list[tuple[int, Choice]]]:
        choices: dict[int, Choice] = {}
        for outline in (yield from self._outlines(domain, cost, wanted, most)):
            for point, choice in (yield from self._filled_in(domain, outline, wanted)):
                choices.setdefault(point, choice)
        return self._thinned(choices)

    def _outlines(self, domain: Domain, cost: int, wanted: Room, most: int) -> Generator[None, None, list["_Outline"]]:
        """Return the best sets of domains inside to use, with the cost for each: little is left behind at their level.

        What is left behind further inside counts less, so it is looked at only for the choices found here.
        """
        table = yield from self.table(domain, wanted.segments, max(wanted.segments, most))
        least = [0, *accumulate(sorted([1] * len(domain.nodes) + [kid.free for kid in table.kids if not kid.kept]))]
        digit = _COUNT_BITS * (self.levels - domain.depth - 1)
        new = [not kid.kept for kid in table.kids]
        outlines = [_Outline(self._bound(0, cost, digit, least), 0, 0, None)]
        for index, kid in enumerate(table.kids):
            yield from self._pause_after(len(table.sums[index + 1]))
            rests = Rests(table.sums[index + 1], self.shape)
            offers = [(cost_of(offer), *room_of(offer)) for offer in table.offers[index]]
            own = self.unit_leftover(kid) << LOW
            if kid.depth == self.levels:
                own += self._reluctance_of(kid) << LOW
            following = []
            for outline in outlines:
                yield from self._pause_after(_TRY * len(offers))
                spent, point = outline.spent, outline.point
                segments, singles = room_of(point)
                for price, more, loose in offers:
                    if spent + price > cost:
                        break
                    if rests.complete(cost - spent - price, segments + more, singles + loose, wanted):
                        part = _Part(index, kid.kept or more > 0, price, more, loose)
                        total = point + own + encode(0, more, loose)
                        bound = self._bound(total, cost - spent - price, digit, least)
                        following.append(_Outline(bound, spent + price, total, (part, outline.parts)))
                if new[index] and rests.complete(cost - spent, segments, singles, wanted):
                    following.append(outline)
            outlines = self._beam(following, BEAM, wanted)
        return self._beam(self._with_singles(outlines, domain, cost, wanted), ENDS, wanted)

    def _bound(self, point: int, cost: int, digit: int, least: Sequence[int]) -> int:
        """The least that is left behind at this level once the rest of the cost is spent, too."""
        further = min((cost >> digit) & ((1 << _COUNT_BITS) - 1), len(least) - 1)
        shift = _RELUCTANCE_BITS + _FREE_BITS * (digit // _COUNT_BITS)
        return cost_of(point) + (least[further] << shift)

    def _beam(self, outlines: list["_Outline"], width: int, wanted: Room) -> list["_Outline"]:
        """The most promising outlines, at most `width`.

        Of those that cost the same, none stays that leaves more behind than another and has no more room.
        """
        frontiers: dict[int, tuple[Frontier, dict[int, int]]] = {}
        kept = []
        points = [self._needed_part(outline, wanted) for outline in outlines]
        for place in sorted(range(len(outlines)), key=lambda place: (points[place], place)):
            outline, point = outlines[place], points[place]
            frontier, alike = frontiers.setdefault(outline.spent, (Frontier(self.shape, ROOM_MASK), {}))
            if point in alike:
                alike[point] += 1
                if alike[point] <= TIES:
                    kept.append((outline.bound, place))
            elif frontier.kept([point]):
                alike[point] = 1
                kept.append((outline.bound, place))
        # Among equals those that use what comes first in the order of names.
        return [outlines[place] for _, place in heapq.nsmallest(width, kept)]

    def _needed_part(self, outline: "_Outline", wanted: Room) -> int:
        """The outline's point; of one domain that does alone, without the room that is of no use. It may leave less
        behind further inside than a roomier one."""
        point, parts = outline.point, outline.parts
        if parts is not None and isinstance(parts[0], Singles):
            parts = parts[1]
        if parts is None or parts[1] is not None or not point_holds(point, self.shape, wanted):
            return point
        return encode(cost_of(point), wanted.segments, self.shape.spares)

    def _with_singles(
        self, outlines: Iterable["_Outline"], domain: Domain, cost: int, wanted: Room
    ) -> list["_Outline"]:
        """The outlines completed by as many single nodes as the wanted room needs."""
        depth, size = domain.depth + 1, self.shape.segment_size
        work, spare = self._alone(depth, True), self._alone(depth, False)
        digit = sum(self._leftover_digit(inner, 1) for inner in range(depth, self.levels + 1))
        node_count = len(domain.nodes)
        reluctances = [0, *accumulate([entry.reluctance for entry in domain.nodes])]
        completed = []
        for outline in outlines:
            spent, point = outline.spent, outline.point
            segments, singles = room_of(point)
            missing = max(wanted.segments - segments, 0)
            if missing and size > 1:
                continue
            # More than is missing can be of use only where two kinds of room are wanted.
            most = node_count if self.shape.spares and size == 1 else missing
            for workers in range(missing, most + 1):
                nodes = (segments + workers) * size + singles
                few = max(wanted.nodes - nodes, 0) if self.shape.spares else 0
                if spent + workers * work + few * spare > cost or workers + few > node_count:
                    break
                for spares in range(few, max(few, min(self.shape.spares, node_count - workers)) + 1):
                    total = spent + workers * work + spares * spare
                    if total > cost:
                        break
                    used = workers + spares
                    left = point + encode(used * digit + reluctances[used], workers, spares)
                    completed.append(_Outline(cost_of(left), total, left, (Singles(workers, spares), outline.parts)))
        return completed

    def _filled_in(
        self, domain: Domain, outline: "_Outline", wanted: Room
    ) -> Generator[None, None, list[tuple[int, Choice]]]:
        """Return the choices that an outline stands for, with what is used inside each domain; each with its encoded
        point."""
        kids = self._ordered(domain)
        size = self.shape.segment_size
        segments, singles = room_of(outline.point)
        # How much less than it offers each of the domains may be used for.
        slack = Room(segments - wanted.segments, segments * size + singles - wanted.nodes)
        parts = []
        link = outline.parts
        while link is not None:
            part, link = link
            parts.append(part)
        choices: dict[int, Choice | None] = {outline.point: None}
        for part in parts:
            if isinstance(part, Singles):
                choices = {point: Choice(part, choice) for point, choice in choices.items()}
                continue
            kid = kids[part.kid]
            if kid.depth == self.levels:
                choices = {
                    point: Choice(Use(part.kid, part.workers, NOTHING), choice) for point, choice in choices.items()
                }
                continue
            inside = yield from self._choices_inside(kid, part, slack)
            offered = encode(0, part.segments, part.singles)
            following: dict[int, Choice | None] = {}
            for point, choice in choices.items():
                for more, used in inside:
                    total = point - offered + more
                    if point_holds(total, self.shape, wanted):
                        following.setdefault(total, Choice(Use(part.kid, part.workers, used), choice))
            choices = dict(self._thinned(following))
        return [(point, choice) for point, choice in choices.items() if choice is not None]

    def _choices_inside(
        self, kid: Domain, part: "_Part", slack: Room
    ) -> Generator[None, None, list[tuple[int, Choice]]]:
        """Return the choices inside one domain of an outline, for the room that it offers there less the slack."""
        own = 0 if kid.kept else self._unit(kid.depth, part.workers)
        nodes = part.segments * self.shape.segment_size + part.singles - max(slack.nodes, 0)
        if not part.workers:
            least, most = max(nodes, 1), part.singles
            choices = yield from self._spares_alone.for_spares(kid, part.price - own, least, most)
            if all(room_of(point)[1] < most for point, _ in choices):
                choices = choices + (yield from self._spares_alone.for_spares(kid, part.price - own, most, most))
            return choices
        short = Room(max(part.segments - slack.segments, 0), max(nodes, 0) if self.shape.spares else 0)
        offered = Room(part.segments, part.segments * self.shape.segment_size + part.singles)
        choices = yield from self.refined(kid, part.price - own, short, part.segments)
        # One with all the room has to be among them, or those of several domains may be too small together.
        if not any(point_holds(point, self.shape, offered) for point, _ in choices):
            choices = choices + (yield from self.refined(kid, part.price - own, offered, part.segments))
        return choices

    def for_spares(
        self, domain: Domain, cost: int, nodes: int, most: int
    ) -> Generator[None, None, list[tuple[int, Choice]]]:
        """Return the choices inside a domain used by spares alone, as `refined` does; nodes count as single ones."""
        choices = yield from self.refined(domain, cost, Room(nodes, nodes), most)
        return [(as_singles(point), choice) for point, choice in choices]

    def _thinned(self, points: "Mapping[int, T]") -> "list[tuple[int, T]]":
        """The points that no other one beats. Of very many at most about `WIDTH`, among them the least and the roomiest
        ones."""
        frontier = Frontier(self.shape, ROOM_MASK)
        best = frontier.kept(list(points))
        if len(best) > WIDTH:
            step = (len(best) - 1) / (WIDTH - 1)
            needed = {best[round(index * step)] for index in range(WIDTH)}
            if self.shape.spares:
                needed |= self._roomiest(best)
            best = sorted(needed)
        return [(point, points[point]) for point in best]

    def _roomiest(self, points: Sequence[int]) -> set[int]:
        """The points that no other one beats in room, whatever they leave behind."""
        roomiest, most = set(), -1
        for segments, singles, point in sorted(((*room_of(point), point) for point in points), reverse=True):
            nodes = segments * self.shape.segment_size + singles
            if nodes > most:
                roomiest.add(point)
                most = nodes
        return roomiest


class _Part(NamedTuple):
    """The use of a domain in an outline: index, whether for workers, cost, and the room that it offers for that."""

    kid: int
    workers: bool
    price: int
    segments: int
    singles: int


class _Outline(NamedTuple):
    """A set of domains to use: what will be left behind at least, what they cost, what they leave, and their room."""

    bound: int
    spent: int
    point: int
    parts: "tuple[_Part | Singles, Any] | None"

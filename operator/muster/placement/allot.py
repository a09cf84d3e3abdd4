"""Which nodes of the chosen domains the workers and the spares take, and in what order.

Tests: tests/unit/placement/test_knapsack.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from muster.placement.domain import Entry, Path
from muster.placement.natural import natural


@dataclass(slots=True)
class Site:
    """An innermost domain that is used, or a node that is a domain of its own.

    Attributes:
        path: of the innermost known domain.
        nodes: its free nodes, in the order in which they are taken.
        workers: whether workers may be there; spares may in any case.
        kept: whether nodes of the gang are there already.
        spares: the number of spares that have been put there.
    """

    path: Path
    nodes: Sequence[Entry]
    workers: bool
    kept: bool
    spares: int = 0

    @property
    def loose(self) -> int:
        """The number of nodes of the site that hold no spare."""
        return len(self.nodes) - self.spares


def allot(sites: Iterable[Site], segments: int, segment_size: int, spares: int) -> tuple[list[str], list[str]]:
    """Choose the nodes of the workers and of the spares, out of sites that have the room.

    Spares go to distinct sites where that leaves the workers enough, first to those with workers. Workers take the
    nodes of least reluctance. What is left over is left in the sites that keep, or have, most free nodes.

    Args:
        sites: the chosen domains.
        segments: number of segments of workers.
        segment_size: workers in a segment.
        spares: number of spares.

    Returns:
        The names of the workers' nodes, in the order of the fabric, a segment in one piece; then those of the spares'
        nodes
        in the same order.
    """
    ordered = sorted(sites, key=_by_fabric)
    _spread(ordered, segments, segment_size, spares)
    ranked = sorted(ordered, key=lambda site: (not site.kept, len(site.nodes)))
    offers = [
        (sum(entry.reluctance for entry in site.nodes[start : start + segment_size]), rank, start)
        for rank, site in enumerate(ranked)
        if site.workers
        for start in range(0, site.loose - segment_size + 1, segment_size)
    ]
    taken_counts = [0] * len(ranked)
    for _, rank, _ in sorted(offers)[:segments]:
        taken_counts[rank] += segment_size
    counts = {id(site): count for site, count in zip(ranked, taken_counts, strict=True)}
    workers: list[str] = []
    others: list[str] = []
    for site in ordered:
        count = counts[id(site)]
        workers += _named(site.nodes[:count])
        others += _named(site.nodes[count : count + site.spares])
    return workers, others


def _by_fabric(site: Site) -> tuple[object, ...]:
    first = site.nodes[0].key if site.nodes else ()
    return tuple((natural(name), name) for name in site.path), first


def _named(entries: Sequence[Entry]) -> list[str]:
    return [entry.name for entry in sorted(entries, key=lambda entry: (entry.key, entry.name))]


def _spread(sites: Sequence[Site], segments: int, segment_size: int, spares: int) -> None:
    """Distribute the spares over the sites, one at a time; sets `Site.spares`."""
    surplus = sum(site.loose // segment_size for site in sites if site.workers) - segments
    for _ in range(spares):
        able = [site for site in sites if site.loose and (surplus or not _breaks(site, segment_size))]
        chosen = min(able, key=lambda site: (site.spares, not (site.workers or site.kept), _breaks(site, segment_size)))
        surplus -= _breaks(chosen, segment_size)
        chosen.spares += 1


def _breaks(site: Site, segment_size: int) -> bool:
    """Whether another spare on this site takes a whole segment from the workers."""
    return site.workers and site.loose % segment_size == 0

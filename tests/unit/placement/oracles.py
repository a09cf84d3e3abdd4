"""Kueue's documented rules for topology-aware placement, to compare with: BestFit and LeastFreeCapacity.

Source: Kueue's documentation, "Topology Aware Scheduling", and KEP-2724. Written from the description. One worker takes
one node; the lowest level is the innermost one that the fleet has labels for.

- BestFit: at the wanted level take the smallest domain that holds all; if none does, a required level fails and a
  preferred one gives way to the next level outwards; beyond the outermost, the largest domains are taken until the rest
  fits one, which is then the smallest that holds it. From there down, the fewest domains of each level in the same way.
- LeastFreeCapacity: the same with the smallest domain first: one that holds all, or else the small ones are filled up.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

Path = tuple[str, ...]
Free = Mapping[Path, Sequence[str]]  # innermost domain -> free nodes


def best_fit(free: Free, count: int, levels: int, required: int = 0) -> list[str] | None:
    """The nodes that BestFit takes; `required` is the depth inside one domain of which all must lie, 0 for a wish."""
    for depth in [required] if required else range(levels, 0, -1):
        room = _room(free, depth)
        fitting = [path for path in room if room[path] >= count]
        if fitting:
            chosen = [min(fitting, key=lambda path: (room[path], path))]
            return _descend(free, chosen, count, depth, levels, _fewest)
    if required or sum(map(len, free.values())) < count:
        return None
    return _descend(free, _fewest(_room(free, 1), count), count, 1, levels, _fewest)


def least_free_capacity(free: Free, count: int, levels: int, required: int = 0) -> list[str] | None:
    """The nodes that LeastFreeCapacity takes."""
    room = _room(free, max(required, 1))
    if required:
        room = {path: nodes for path, nodes in room.items() if nodes >= count}
    if sum(room.values()) < count:
        return None
    return _descend(free, _smallest(room, count), count, max(required, 1), levels, _smallest)


def _room(free: Free, depth: int, inside: Sequence[Path] | None = None) -> dict[Path, int]:
    room: dict[Path, int] = defaultdict(int)
    for path, nodes in free.items():
        if nodes and (inside is None or any(path[: len(outer)] == outer for outer in inside)):
            room[path[:depth]] += len(nodes)
    return dict(room)


def _descend(free: Free, chosen: Sequence[Path], count: int, depth: int, levels: int, choose: object) -> list[str]:
    for inner in range(depth + 1, levels + 1):
        chosen = choose(_room(free, inner, chosen), count)  # type: ignore[operator]
    nodes = [name for path in chosen for name in free[path]]
    return nodes[:count]


def _fewest(room: Mapping[Path, int], count: int) -> list[Path]:
    """The largest first, the last one the smallest that holds the rest."""
    rest, chosen = dict(room), []
    while count > 0:
        fitting = [path for path in rest if rest[path] >= count]
        last = min(fitting, key=lambda path: (rest[path], path)) if fitting else None
        path = last or min(rest, key=lambda path: (-rest[path], path))
        chosen.append(path)
        count -= rest.pop(path)
    return chosen


def _smallest(room: Mapping[Path, int], count: int) -> list[Path]:
    """The smallest that holds all, or else the small ones filled up."""
    ascending = sorted(room, key=lambda path: (room[path], path))
    single = next((path for path in ascending if room[path] >= count), None)
    if single is not None:
        return [single]
    chosen = []
    for path in ascending:
        if count <= 0:
            break
        chosen.append(path)
        count -= room[path]
    return chosen
